//! Peers without connections: they get datagrams, and senders of larger packets get an error with the MTU.

use std::time::Duration;

use crate::lab::group::{V4, V6, sender};
use crate::lab::{
    CONNECTED, CONNECTED_MTU, Host, LINK_MTU, Lab, Load, SOON, Station, arrives_whole, eventually,
    iperf_above, udp_arrives,
};

use super::{full_packets_pass, v4_payload};

const DATAGRAM: [&str; 2] = ["--mode", "datagram"];

/// In connected mode, with its MTU, but without the flag that invites connections.
const WITHOUT_CONNECTIONS: [&str; 4] = ["--mode", "connected", "--connections", "0"];

/// Longer than the time to give up a peer that answers no request.
const GIVEN_UP: Duration = Duration::from_secs(30);

/// The part of a message of ping or of a route that has an MTU of `bytes`.
fn mentions(output: &str, bytes: u32) -> bool {
    [
        format!("mtu = {bytes}"),
        format!("mtu={bytes}"),
        format!("mtu {bytes} "),
    ]
    .iter()
    .any(|words| output.contains(words))
}

/// An unfragmentable packet that fits no datagram to `address` is refused with the MTU that fits; from then
/// on the kernel knows that MTU.
fn learns_the_mtu(from: &Host, address: &str, limit: Duration) {
    eventually(limit, &format!("{address}: \"packet too big\""), || {
        let done = from.run(&format!("ping -M do -c 2 -i 0.2 -W 1 -s 20000 {address}"));
        assert_ne!(done.code, Some(0), "{done:?}");
        mentions(&format!("{}{}", done.out, done.err), LINK_MTU).then_some(())
    });
    eventually(SOON, &format!("{address}: the path MTU"), || {
        let route = from.ok(&format!("ip route get {address}"));
        mentions(&route, LINK_MTU).then_some(())
    });
}

/// Everything passes between two hosts that only have datagrams, in sizes that the kernel discovers.
fn everything_passes(a: &Host, b: &Host) {
    let _turn = Load::begin();
    for (from, to) in [(a, b), (b, a)] {
        full_packets_pass(from, to, LINK_MTU);
        for address in [to.v4(), to.v6()] {
            arrives_whole(from, to, &address);
        }
        udp_arrives(from, to, 10, &[1000, 20_000]);
    }
}

fn without_connections(host: &Host) {
    let all = host.connections("ib0");
    assert!(!all.iter().any(|c| c.is_established()), "{all:?}");
}

#[test]
fn c105_c107_c108_c110_a_peer_without_the_flag_is_sent_datagrams_only() {
    let Some(lab) = Lab::pair() else { return };
    let mut lab = lab.run_each(&[&CONNECTED, &DATAGRAM]);
    let (a, b) = lab.two();
    for (host, flags) in [(&*a, "80:"), (&*b, "00:")] {
        let address = host.show("ib0")["address"].clone();
        let address = address.as_str().expect("an address");
        assert!(address.starts_with(flags), "{address}");
    }
    assert_eq!(a.mtu("ib0"), u64::from(CONNECTED_MTU));
    assert_eq!(b.mtu("ib0"), u64::from(LINK_MTU));
    // A UDP socket's first large send fails with EMSGSIZE, and not every program retries.
    let before = a.counter("ib0", "too_big_answered");
    for address in [b.v4(), b.v6()] {
        learns_the_mtu(a, &address, SOON);
    }
    assert!(a.counter("ib0", "too_big_answered") >= before + 2);
    everything_passes(a, b);
    // It sent no request.
    for host in [a, b] {
        assert_eq!(host.connections("ib0").len(), 0);
    }
}

#[test]
fn c111_multicast_over_the_datagram_mtu_is_dropped_and_counted() {
    let Some(mut lab) = Lab::connected_pair() else {
        return;
    };
    let (a, b) = lab.two();
    let answered = a.counter("ib0", "too_big_answered");
    for group in [&V4, &V6] {
        let (socket, to) = sender(a, "ib0", group);
        let before = a.counter("ib0", "tx_too_big");
        let packet = vec![0; v4_payload(LINK_MTU) as usize + 100];
        // More than one: the first only creates the group, and the kernel may refuse one after it received a
        // smaller MTU.
        eventually(SOON, "a packet dropped as too big", || {
            let _ = socket.send_to(&packet, to);
            (a.counter("ib0", "tx_too_big") > before).then_some(())
        });
    }
    // Multicast causes no error, C109.
    assert_eq!(a.counter("ib0", "too_big_answered"), answered);
    a.reaches(b);
}

/// Both sides announce 65520 when TCP connects; only "too big" reports the MTU that fits.
fn both_mtus_are_large_and_datagrams_are_not(options: [&[&str]; 2], limit: Duration) {
    let Some(lab) = Lab::pair() else { return };
    let mut lab = lab.run_each(&options);
    let (a, b) = lab.two();
    for (from, to) in [(&*a, &*b), (&*b, &*a)] {
        assert_eq!(from.mtu("ib0"), u64::from(CONNECTED_MTU));
        for address in [to.v4(), to.v6()] {
            learns_the_mtu(from, &address, limit);
        }
    }
    everything_passes(a, b);
    for host in [&*a, &*b] {
        without_connections(host);
    }
}

#[test]
fn both_mtus_are_65520_and_one_side_takes_no_connections() {
    both_mtus_are_large_and_datagrams_are_not([&CONNECTED, &WITHOUT_CONNECTIONS], SOON);
}

#[test]
fn both_mtus_are_65520_and_neither_side_takes_connections() {
    both_mtus_are_large_and_datagrams_are_not([&WITHOUT_CONNECTIONS, &WITHOUT_CONNECTIONS], SOON);
}

/// Drops all packets to QP1: requests and replies (BTH: queue pair, after the UDP header).
fn hears_no_management(host: &Host) {
    host.nft(
        "table netdev silent {\n\
           chain ingress {\n\
             type filter hook ingress device \"eth0\" priority 0;\n\
             udp dport 4791 @th,104,24 1 counter drop\n\
           }\n\
         }\n",
    );
}

/// The flag invites connections, but no side answers.
#[test]
fn a_peer_that_answers_no_request_is_served_by_datagrams() {
    let Some(mut lab) = Lab::pair() else { return };
    hears_no_management(lab.host(1));
    // During connection setup, small packets use datagrams: otherwise this would fail.
    let mut lab = lab.run_with(&CONNECTED);
    let (a, b) = lab.two();
    for (from, to) in [(&*a, &*b), (&*b, &*a)] {
        for address in [to.v4(), to.v6()] {
            learns_the_mtu(from, &address, GIVEN_UP);
        }
    }
    everything_passes(a, b);
    for host in [&*a, &*b] {
        without_connections(host);
    }
}

/// A connection that cannot be established does not delay small packets.
#[test]
fn a_connection_in_the_making_delays_no_small_packet() {
    let Some(mut lab) = Lab::pair() else { return };
    hears_no_management(lab.host(1));
    let mut lab = lab.run_with(&CONNECTED);
    let (a, b) = lab.two();
    let asked = || a.counters("ib0", &["cm_tx_msgs_req", "cm_tx_retries_req"]);
    let before = asked();
    let output = a.all_answered(100, &format!("-i 0.05 {}", b.v4()));
    assert!(
        asked() > before,
        "the connection was no longer in the making"
    );
    let times = output.split("time=").skip(1);
    let slowest = times
        .filter_map(|rest| rest.split(' ').next()?.parse::<f64>().ok())
        .fold(0.0, f64::max);
    // A packet that waited would wait for the next request at least, longer than a second.
    assert!(slowest < 1000.0, "{output}");
    without_connections(a);
}

/// Host `b` has one connection for each direction, and `c` uses both.
#[test]
fn c104_a_peer_out_of_connections_rejects_and_is_served_by_datagrams() {
    let Some(mut lab) = Lab::segment(3) else {
        return;
    };
    let (a, b, c) = lab.three();
    let full = ["--mode", "connected", "--connections", "2", "--queues", "1"];
    for (host, options) in [(&mut *a, &CONNECTED[..]), (b, &full), (c, &CONNECTED)] {
        host.start(options);
        host.configure("ib0");
    }
    c.connects_to(b);
    b.connects_to(c);
    let _busy = c.spawn(&format!("ping -q -i 0.01 -s 1000 {}", b.v4()));
    for address in [b.v4(), b.v6()] {
        learns_the_mtu(a, &address, GIVEN_UP);
    }
    full_packets_pass(a, b, LINK_MTU);
    assert!(
        b.connections("ib0").len() <= 2,
        "{:?}",
        b.connections("ib0")
    );
    assert!(b.connections_with(a, false).is_empty());
}

/// Host `b` routes between `ib0` and a station behind it, whose interface also has an MTU of 65520.
fn behind(a: &Host, b: &Host) -> Station {
    let behind = Station::create("the station behind");
    let peer = behind.namespace().name().to_owned();
    b.ok(&format!(
        "ip link add wire0 mtu {CONNECTED_MTU} type veth peer name wire0 mtu {CONNECTED_MTU} netns {peer}"
    ));
    for (station, host) in [(&**b, 1), (&behind, 2)] {
        station.bring_up("wire0");
        station.ok(&format!("ip addr add 10.10.0.{host}/24 dev wire0"));
        station.ok(&format!("ip addr add fd10::{host}/64 dev wire0 nodad"));
    }
    b.ok("sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1");
    behind.ok("ip route add default via 10.10.0.1");
    behind.ok("ip route add default via fd10::1");
    a.ok(&format!("ip route add 10.10.0.0/24 via {}", b.v4()));
    a.ok(&format!("ip route add fd10::/64 via {}", b.v6()));
    behind
}

/// TCP's MSS is 65480 on both ends; the bottleneck is at neither end.
fn tcp_through_a_router(options: [&[&str]; 2]) {
    let Some(lab) = Lab::pair() else { return };
    let mut lab = lab.run_each(&options);
    let (a, b) = lab.two();
    let behind = behind(a, b);
    for (from, to, address) in [
        (&**a, &behind, "10.10.0.2".to_owned()),
        (&**a, &behind, "fd10::2".to_owned()),
        (&behind, &**a, a.v4()),
        (&behind, &**a, a.v6()),
    ] {
        from.reaches_all(&[&address]);
        arrives_whole(from, to, &address);
        iperf_above(from, to, &address, "-n 64M", 50e6);
    }
}

#[test]
fn tcp_through_a_router_over_connections() {
    tcp_through_a_router([&CONNECTED, &CONNECTED]);
}

#[test]
fn tcp_through_a_router_in_datagram_mode() {
    tcp_through_a_router([&CONNECTED, &DATAGRAM]);
}

#[test]
fn tcp_through_a_router_that_takes_no_connections() {
    tcp_through_a_router([&CONNECTED, &WITHOUT_CONNECTIONS]);
}
