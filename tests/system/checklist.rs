//! Statements of the checklist in `docs/conformance.md` about the whole daemon: packets on the wire, and the
//! interface as the kernel shows it. Each test is named after its statement.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, UdpSocket};

use serde_json::Value;

use crate::lab::packet::{Ud, frames, ud_of_frame};
use crate::lab::{Guest, Host, LINK_MTU, Lab, SOON, Sniffer, UNDERLAY_MTU, eventually, iperf};

const IPV4: [u8; 4] = [8, 0, 0, 0];
const BROADCAST: &str = "ff12:401b:ffff::ffff:ffff";
const ALL_HOSTS: &str = "ff12:401b:ffff::1";
const ALL_NODES: &str = "ff12:601b:ffff::1";

/// Trains of a host are split before a capture, here or at a peer.
fn split_trains(host: &Host) {
    host.ok("ethtool -K eth0 tx-udp-segmentation off");
}

/// A capture of a host's underlay.
struct Wire(Sniffer);

impl Wire {
    fn of(host: &Host) -> Wire {
        split_trains(host);
        Wire(Sniffer::start(host, "eth0", "udp port 4791"))
    }

    /// The UD packets so far; all must have correct ICRCs.
    fn packets(&self) -> Vec<Ud> {
        let file = std::fs::read(self.0.file()).expect("a capture");
        let ud = |f: &Vec<u8>| ud_of_frame(f).unwrap_or_else(|| panic!("no UD packet: {f:02x?}"));
        frames(&file).iter().map(ud).collect()
    }

    /// Waits for a packet that `keep` accepts.
    fn expect(&self, what: &str, keep: impl Fn(&Ud) -> bool) -> Ud {
        eventually(SOON, what, || self.packets().into_iter().find(&keep))
    }
}

/// Starts the daemon with `ib0` from this part of a configuration file.
fn start_described(host: &mut Host, device: &str) {
    let path = host.file("ibtapd.toml");
    let text = format!("[[ipoib]]\nname = \"ib0\"\nunderlay = \"eth0\"\n{device}\n");
    std::fs::write(&path, text).expect("written");
    host.start_with(&["--config", path.to_str().expect("an ASCII path")]);
}

#[test]
fn c25_every_packet_has_the_links_queue_key() {
    for (device, qkey) in [("", 0x0b1b), ("qkey = 0x1234", 0x1234)] {
        let Some(mut lab) = Lab::pair() else { return };
        let (a, b) = lab.two();
        let wire = Wire::of(b);
        for host in [&mut *a, &mut *b] {
            start_described(host, device);
            host.configure("ib0");
        }
        a.reaches(b);
        wire.expect("unicast", |ud| ud.destination_qpn != 0xff_ffff);
        let keys: BTreeSet<u32> = wire.packets().iter().map(|ud| ud.qkey).collect();
        assert_eq!(keys, BTreeSet::from([qkey]));
    }
}

#[test]
fn c26_packets_with_another_queue_key_do_not_reach_the_interface() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    a.start(&[]);
    start_described(b, "qkey = 0x1234");
    a.configure("ib0");
    b.configure("ib0");
    let received = |host: &Host| host.link("ib0")["stats64"]["rx"]["packets"].clone();
    assert!(!a.pings(&b.v4()) && !a.pings(&b.v6()));
    eventually(SOON, "violations to be counted", || {
        (b.counter("ib0", "rx_qkey_violations") > 0).then_some(())
    });
    assert_eq!(received(b), 0);
}

#[test]
fn c27_the_mtu_is_four_bytes_less_than_the_groups() {
    for (underlay, mtu) in [(2400, 2044), (UNDERLAY_MTU, LINK_MTU)] {
        let Some(mut lab) = Lab::pair_with_mtu(underlay) else {
            return;
        };
        let host = lab.host(0);
        host.start(&[]);
        assert_eq!(host.mtu("ib0"), u64::from(mtu));
        assert_eq!(host.show("ib0")["link_mtu"], mtu + 4);
    }
}

#[test]
fn c28_the_largest_packet_is_sent_with_its_header_and_no_larger_one() {
    let Some(mut lab) = Lab::pair_with_mtu(2400) else {
        return;
    };
    let (a, b) = lab.two();
    for host in [&mut *a, &mut *b] {
        host.start(&[]);
        host.configure("ib0");
    }
    a.reaches(b);
    let wire = Wire::of(b);
    a.answered(1, &format!("-M do -i 0.1 -s 2016 {}", b.v4()));
    let full = wire.expect("the full packet", |ud| ud.payload.len() > 1500);
    assert_eq!(full.payload.len(), 2048);
    assert!(full.payload.starts_with(&IPV4));
    let refused = a.run(&format!("ping -M do -c 1 -W 1 -s 2017 {}", b.v4()));
    assert_ne!(refused.code, Some(0), "{refused:?}");
    assert!(wire.packets().iter().all(|ud| ud.payload.len() <= 2048));
}

#[test]
fn c32_an_mtu_of_the_administrators_stays_and_the_links_own_is_followed() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    a.ok("ip link set ib0 mtu 1500");
    eventually(SOON, "the MTU to be seen", || {
        (a.show("ib0")["mtu"] == 1500).then_some(())
    });
    for (underlay, link) in [(2400, 2044), (UNDERLAY_MTU, LINK_MTU)] {
        for host in [&*a, &*b] {
            host.ok(&format!("ip link set eth0 mtu {underlay}"));
            eventually(SOON, "the link's MTU", || {
                (host.show("ib0")["link_mtu"] == link + 4).then_some(())
            });
        }
        eventually(SOON, "the interface to follow", || {
            (b.mtu("ib0") == u64::from(link)).then_some(())
        });
        assert_eq!(a.mtu("ib0"), 1500);
    }
}

/// The kernel does not let a TAP refuse an MTU; the daemon corrects an MTU that the kernel's IPoIB would
/// refuse.
#[test]
fn c33_mtus_that_the_link_cannot_have_are_put_right() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let a = lab.host(0);
    a.ok("ip link set ib0 mtu 72");
    eventually(SOON, "the smallest MTU to be seen", || {
        (a.show("ib0")["mtu"] == 72).then_some(())
    });
    assert_eq!(a.mtu("ib0"), 72);
    for (asked, given) in [(71, 72), (LINK_MTU + 1, LINK_MTU)] {
        a.ok(&format!("ip link set ib0 mtu {asked}"));
        eventually(SOON, "an MTU that the link has", || {
            (a.mtu("ib0") == u64::from(given)).then_some(())
        });
    }
}

#[test]
fn c40_what_the_port_can_carry_is_received_whatever_the_interfaces_mtu() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    a.start(&[]);
    b.start(&["--mtu", "1500"]);
    a.configure("ib0");
    b.configure("ib0");
    a.reaches(b);
    let size = LINK_MTU - 28;
    a.ok(&format!("ping -M do -c 3 -i 0.1 -W 2 -s {size} {}", b.v4()));
}

/// Whether `ibtap mcg` has a group as full or send-only member; `None` if the group is missing.
fn sends_only(host: &Host, mgid: &str) -> Option<bool> {
    let groups = host.ask("mcg ib0");
    let group = groups.iter().find(|group| group["mgid"] == mgid)?;
    Some(group["send_only"] == true)
}

/// Whether the underlay listens to a group's multicast address.
fn is_attached(host: &Host, mgid: &str) -> bool {
    let shown = host.json("ip -6 -j maddr show dev eth0");
    let entries = shown[0]["maddr"].as_array().expect("entries").clone();
    entries.iter().any(|entry| entry["address"] == mgid)
}

#[test]
fn c71_c72_c73_c77_a_group_is_sent_to_then_joined_then_left() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let a = lab.host(0);
    let (group, mgid) = (Ipv4Addr::new(239, 9, 9, 9), "ff12:401b:ffff::f09:909");
    assert_eq!(sends_only(a, mgid), None);
    let own: Ipv4Addr = a.v4().parse().expect("an address");
    let socket = a.namespace().within(|| {
        let socket = UdpSocket::bind((own, 0)).expect("a socket");
        rustix::net::sockopt::set_ip_multicast_if(&socket, &own).expect("an interface");
        socket
    });
    socket.send_to(b"hello", (group, 9)).expect("sent");
    eventually(SOON, "a send-only group", || {
        (sends_only(a, mgid)?).then_some(())
    });
    assert!(!is_attached(a, mgid), "a sender is not attached");

    socket.join_multicast_v4(&group, &own).expect("joined");
    eventually(SOON, "full membership", || {
        (sends_only(a, mgid) == Some(false) && is_attached(a, mgid)).then_some(())
    });
    socket.leave_multicast_v4(&group, &own).expect("left");
    eventually(SOON, "the end of it", || {
        (sends_only(a, mgid) != Some(false) && !is_attached(a, mgid)).then_some(())
    });
}

#[test]
fn c78_all_hosts_and_all_nodes_are_joined_without_a_report() {
    let Some(mut lab) = Lab::pair() else { return };
    let a = lab.host(0);
    a.start(&[]);
    // Like a bridge port: without an address.
    a.ok("sysctl -qw net.ipv6.conf.ib0.disable_ipv6=1");
    a.ok("ip link set ib0 up");
    a.await_carrier("ib0", true);
    for mgid in [BROADCAST, ALL_HOSTS, ALL_NODES] {
        eventually(SOON, mgid, || {
            (sends_only(a, mgid) == Some(false) && is_attached(a, mgid)).then_some(())
        });
    }
}

/// A limited member has the same partition as the full member in all addresses.
#[test]
fn c84_a_limited_key_names_the_full_members_groups() {
    let Some(mut lab) = Lab::pair() else { return };
    let a = lab.host(0);
    a.start(&["--pkey", "0x0001"]);
    a.configure("ib0");
    assert_eq!(a.show("ib0")["broadcast"], "ff12:401b:8001::ffff:ffff");
    let groups = a.groups("ib0", |_| true);
    assert!(groups.len() > 2, "{groups:?}");
    assert!(
        groups.iter().all(|mgid| mgid.contains(":8001:")),
        "{groups:?}"
    );
}

#[test]
fn c118_a_new_gid_is_in_the_address_and_is_announced() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    let before = a.show("ib0");
    let wire = Wire::of(b);
    split_trains(a);
    a.ok("ip link set eth0 down");
    a.ok("ip link set eth0 address 02:00:00:00:77:01");
    a.ok("ip link set eth0 up");
    let gid = "fe80::ff:fe00:7701";
    let after = eventually(SOON, "the new GID", || {
        let shown = a.show("ib0");
        (shown["gid"] == gid).then_some(shown)
    });
    assert_eq!(after["qpn"], before["qpn"]);
    let text = |shown: &Value| shown["address"].as_str().expect("text").to_owned();
    assert_ne!(text(&after), text(&before));
    assert!(text(&after).ends_with("00:00:00:ff:fe:00:77:01"), "{after}");
    // A gratuitous ARP request: hardware type 32, equal sender and target address.
    wire.expect("an announcement", |ud| {
        let arp = &ud.payload;
        ud.source.to_string() == gid
            && arp.starts_with(&[8, 6, 0, 0, 0, 32])
            && arp[32..36] == arp[56..60]
    });
}

/// Whether a packet from a GID is an announcement of an address: a gratuitous ARP request.
fn announces(ud: &Ud, gid: &str, address: &str) -> bool {
    let own: Ipv4Addr = address.parse().expect("an address");
    let arp = &ud.payload;
    ud.source.to_string() == gid
        && arp.starts_with(&[8, 6, 0, 0, 0, 32])
        && arp[32..36] == own.octets()
        && arp[56..60] == own.octets()
}

/// The bridge has no address. The host's own announcements would inform nobody. The underlay is usable all the time, so
/// the guest need not send anything.
#[test]
fn c118_a_new_gid_is_announced_for_guests() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    a.bridge();
    a.ok("ip addr flush dev br0");
    let guest = Guest::attach(a, 1);
    guest.reaches_all(&[b.v4()]);
    let wire = Wire::of(b);
    split_trains(a);
    let old = a.show("ib0")["gid"].as_str().expect("a GID").to_owned();
    a.ok("ip addr add fe80::7701/64 dev eth0 nodad");
    a.ok(&format!("ip addr del {old}/64 dev eth0"));
    wire.expect("an announcement", |ud| {
        announces(ud, "fe80::7701", &guest.v4())
    });
}

/// The guest may be elsewhere after the outage.
#[test]
fn c118_a_new_gid_after_an_outage_is_announced_for_guests_that_send() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    a.bridge();
    let guest = Guest::attach(a, 1);
    guest.reaches_all(&[b.v4()]);
    let wire = Wire::of(b);
    split_trains(a);
    a.ok("ip link set eth0 down");
    a.await_carrier("ib0", false);
    a.ok("ip link set eth0 address 02:00:00:00:77:01");
    a.ok("ip link set eth0 up");
    let gid = "fe80::ff:fe00:7701";
    wire.expect("the host's announcement", |ud| announces(ud, gid, &a.v4()));
    let of_guest = |ud: &Ud| announces(ud, gid, &guest.v4());
    assert!(!wire.packets().iter().any(of_guest));
    guest.reaches_all(&[b.v4()]);
    wire.expect("the guest's announcement", of_guest);
}

/// The announcements of many guests take seconds, and an outage begins meanwhile. The guests may be elsewhere after the
/// outage.
#[test]
fn c118_announcements_of_guests_end_with_the_carrier() {
    const GUESTS: usize = 200;
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    a.bridge();
    let guest = Guest::attach_bare(a, 1);
    let addresses = (1..=GUESTS).map(|n| format!("10.9.1.{n}"));
    for address in addresses.clone() {
        guest.ok(&format!("ip addr add {address}/16 dev eth0"));
    }
    // The guest's kernel announces all addresses.
    guest.ok("sysctl -qw net.ipv4.conf.eth0.arp_notify=1");
    guest.ok("ip link set eth0 address 52:54:00:09:00:02");
    eventually(SOON, "the guests", || {
        (a.ask("guests ib0").len() >= GUESTS).then_some(())
    });
    let old = a.show("ib0")["gid"].as_str().expect("a GID").to_owned();
    let wire = Wire::of(b);
    split_trains(a);
    a.ok("ip addr add fe80::7701/64 dev eth0 nodad");
    a.ok(&format!("ip addr del {old}/64 dev eth0"));
    wire.expect("a guest's announcement", |ud| {
        announces(ud, "fe80::7701", "10.9.1.1")
    });
    a.ok("ip link set eth0 down");
    a.await_carrier("ib0", false);
    a.ok("ip link set eth0 up");
    wire.expect("the host's announcement", |ud| announces(ud, &old, &a.v4()));
    std::thread::sleep(std::time::Duration::from_secs(2));
    let all = wire.packets();
    let announced = |address: &String| all.iter().any(|ud| announces(ud, &old, address));
    assert_eq!(addresses.filter(announced).count(), 0);
}

/// The guest moved while its former host heard nothing. The host must not take it back.
#[test]
fn c118_a_host_that_was_cut_off_does_not_announce_guests() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    a.bridge();
    b.bridge();
    let guest = Guest::attach(a, 1);
    guest.reaches_all(&[b.v4()]);
    a.ok("ip link set ib0 down");
    guest.migrate(a, b);
    guest.await_carrier("eth0", true);
    guest.ok("ip neigh flush dev eth0");
    guest.reaches_all(&[b.v4()]);
    let wire = Wire::of(b);
    split_trains(a);
    let gid = a.show("ib0")["gid"].as_str().expect("a GID").to_owned();
    a.ok("ip link set ib0 up");
    wire.expect("the host's announcement", |ud| announces(ud, &gid, &a.v4()));
    std::thread::sleep(std::time::Duration::from_secs(2));
    let taken = |ud: &Ud| announces(ud, &gid, &guest.v4());
    assert!(!wire.packets().iter().any(taken));
    guest.reaches_all(&[a.v4()]);
}

#[test]
fn c119_counters_have_the_kernels_names() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let stats = lab.host(0).ask("stats ib0")[0].clone();
    for name in [
        "rx_packets",
        "tx_packets",
        "rx_bytes",
        "tx_bytes",
        "tx_errors",
        "rx_dropped",
        "tx_dropped",
        "multicast",
    ] {
        assert!(stats[name].is_u64(), "{name}: {stats}");
    }
}

/// Between two daemons; `kernel_peer.rs` uses packets of the kernel.
#[test]
fn c121_the_usual_programs_work_both_ways_at_the_usual_mtu() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    for host in [&mut *a, &mut *b] {
        host.start(&["--mtu", "2044"]);
        host.configure("ib0");
    }
    a.reaches(b);
    for (here, there) in [(&*a, &*b), (&*b, &*a)] {
        here.ok(&format!("arping -c 2 -w 5 -I ib0 {}", there.v4()));
        here.ok(&format!(
            "ping -M do -c 3 -i 0.1 -W 2 -s 2016 {}",
            there.v4()
        ));
        here.ok(&format!(
            "ping -M do -c 3 -i 0.1 -W 2 -s 1996 {}",
            there.v6()
        ));
        iperf(here, there, &there.v4(), "-n 5M");
        iperf(here, there, &there.v6(), "-n 5M");
    }
}

#[test]
fn c124_the_end_leaves_the_groups_of_others_alone() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    let index = a.link("eth0")["ifindex"].as_u64().expect("an index");
    let foreign = a.namespace().within(|| {
        let socket = UdpSocket::bind("[::]:0").expect("a socket");
        let group = ALL_HOSTS.parse().expect("a group");
        let index = u32::try_from(index).expect("an index");
        socket.join_multicast_v6(&group, index).expect("joined");
        socket
    });
    a.stop();
    assert!(is_attached(a, ALL_HOSTS));
    assert!(!is_attached(a, BROADCAST) && !is_attached(a, ALL_NODES));
    assert!(is_attached(b, ALL_HOSTS) && is_attached(b, BROADCAST));
    drop(foreign);
}
