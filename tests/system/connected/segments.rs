//! The segment size of TCP over connections, and checksums of the segments.

use std::net::{IpAddr, TcpListener, TcpStream};

use crate::lab::packet::frames;
use crate::lab::{CONNECTED, Host, Lab, SOON, Sniffer, arrives_whole, eventually};

const PORT: u16 = 7008;

/// The largest segments that the SYNs of a new TCP connection allow: as the host `from` receives them, and as
/// `to` does.
fn segments(from: &Host, to: &Host, address: &str) -> [u16; 2] {
    let filters = [(from, "src"), (to, "dst")];
    let sniffers =
        filters.map(|(host, end)| Sniffer::start(host, "ib0", &format!("tcp {end} port {PORT}")));
    let address: IpAddr = address.parse().expect("an address");
    let _listener = to
        .namespace()
        .within(|| TcpListener::bind((address, PORT)).expect("a listener"));
    let sender = from
        .namespace()
        .within(|| TcpStream::connect((address, PORT)).expect("a connection"));
    let headers = if address.is_ipv4() { 54 } else { 74 };
    let sizes = sniffers.map(|sniffer| {
        let syn = eventually(SOON, "a captured SYN", || {
            let captured = frames(&std::fs::read(sniffer.file()).ok()?);
            captured.into_iter().next()
        });
        let [2, 4, high, low] = syn[headers..headers + 4] else {
            panic!("the first option is no segment size: {syn:02x?}");
        };
        u16::from_be_bytes([high, low])
    });
    drop(sender);
    sizes
}

/// Starts a pair of hosts with these options, and returns the segments over IPv4 and IPv6.
fn between(a_options: &[&str], b_options: &[&str]) -> Option<[[u16; 2]; 2]> {
    let mut lab = Lab::pair()?;
    let (a, b) = lab.two();
    for (host, options) in [(&mut *a, a_options), (&mut *b, b_options)] {
        host.start(&[&CONNECTED[..], options].concat());
        host.configure("ib0");
    }
    a.reaches(b);
    Some([b.v4(), b.v6()].map(|address| segments(a, b, &address)))
}

#[test]
fn segments_fill_one_train() {
    let train = [[61_396; 2], [61_376; 2]];
    if let Some(found) = between(&[], &[]) {
        assert_eq!(found, train);
    }
}

/// A peer such as `ib_ipoib` changes no SYN; `ibtapd` changes those in both directions.
#[test]
fn one_side_limits_both_directions() {
    let train = [[61_396; 2], [61_376; 2]];
    for (a, b) in [(&["--mss", "mtu"][..], &[][..]), (&[], &["--mss", "mtu"])] {
        if let Some(found) = between(a, b) {
            assert_eq!(found, train, "{a:?} {b:?}");
        }
    }
}

#[test]
fn the_setting_is_the_mtu_or_a_number() {
    for (option, sizes) in [("mtu", [65_480, 65_460]), ("9000", [9000, 9000])] {
        if let Some(found) = between(&["--mss", option], &["--mss", option]) {
            assert_eq!(found, sizes.map(|size| [size; 2]), "{option}");
        }
    }
}

#[test]
fn datagram_mode_changes_no_segment_size() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    let mtu = a.mtu("ib0") as u16;
    let found = [b.v4(), b.v6()].map(|address| segments(a, b, &address));
    assert_eq!(found, [[mtu - 40; 2], [mtu - 60; 2]]);
}

#[test]
fn segments_arrive_with_trusted_and_verified_checksums() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    for (host, trust) in [(&mut *a, "--trust-checksums"), (&mut *b, "--persist")] {
        host.start(&[&CONNECTED[..], &[trust]].concat());
        host.configure("ib0");
    }
    a.connects_to(b);
    b.connects_to(a);
    for (from, to) in [(&*a, &*b), (&*b, &*a)] {
        arrives_whole(from, to, &to.v4());
        arrives_whole(from, to, &to.v6());
    }
}
