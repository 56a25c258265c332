//! Memberships of guests behind a bridge, memberships without reports, and large numbers of them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::Duration;

use crate::lab::frame::{self, solicitation};
use crate::lab::group::{
    self, Group, V4, V6, heard, is_full_member, join, receive, receiver, sender,
};
use crate::lab::{Bridged, Guest, Host, Lab, SOON, Station, eventually};

/// The daemon's query is answered within 10 s.
const QUERIED: Duration = Duration::from_secs(30);

const ALL_HOSTS_V4: &str = "ff12:401b:ffff::1";
const ALL_NODES_V6: &str = "ff12:601b:ffff::1";

fn await_member(host: &Host, group: &Group, member: bool) {
    let what = format!("{}: member of {}: {member}", host.name(), group.address);
    eventually(SOON, &what, || {
        (is_full_member(host, group) == member).then_some(())
    });
}

/// Fifty packets of a station arrive, each once and in order.
fn each_once(from: (&Station, &str), to: &UdpSocket, group: &Group) {
    let sending = sender(from.0, from.1, group);
    let what = format!("packets from {}", from.0.name());
    heard(&sending, to, &what);
    group::each_once(&sending, to, &what);
}

/// A guest joins a group of each family and leaves it. With `old`, the guest's kernel uses IGMPv2 and MLDv1.
fn join_send_leave(snooping: bool, old: bool) {
    let Some(mut net) = Bridged::start(&[]) else {
        return;
    };
    let [one, two] = &net.left;
    let [three, _] = &net.right;
    let (a, b, c) = net.lab.three();
    for host in [&*a, &*b] {
        let on = u8::from(snooping);
        host.ok(&format!("ip link set br0 type bridge mcast_snooping {on}"));
    }
    if old {
        one.ok("sysctl -qw net.ipv4.conf.eth0.force_igmp_version=2");
        one.ok("sysctl -qw net.ipv6.conf.eth0.force_mld_version=1");
    }
    for group in [&V4, &V6] {
        let listening = receiver(one, "eth0", group);
        await_member(a, group, true);
        assert!(!is_full_member(b, group) && !is_full_member(c, group));
        for from in [
            (&**c, "ib0"),
            (&**b, "br0"),
            (&**three, "eth0"),
            (&**two, "eth0"),
        ] {
            each_once(from, &listening, group);
        }
        assert!(
            c.groups("ib0", |g| g["send_only"] == true)
                .iter()
                .any(|mgid| mgid == group.mgid),
            "the sender's group is a send-only one"
        );
        drop(listening);
        await_member(a, group, false);
        // A left group can be joined again.
        let listening = receiver(one, "eth0", group);
        await_member(a, group, true);
        each_once((three, "eth0"), &listening, group);
    }
}

#[test]
fn a_guest_joins_groups_through_a_bridge_that_floods() {
    join_send_leave(false, false);
}

#[test]
fn a_guest_joins_groups_through_a_bridge_that_snoops() {
    join_send_leave(true, false);
}

#[test]
fn a_guest_that_speaks_igmp_version_2_and_mld_version_1_joins() {
    join_send_leave(true, true);
}

/// A snooping bridge must still send a guest's packets to `ib0` if the group also has members on the bridge.
#[test]
fn groups_with_members_on_both_sides_of_a_snooping_bridge() {
    let Some(mut net) = Bridged::start(&[]) else {
        return;
    };
    let [one, two] = &net.left;
    let [three, _] = &net.right;
    let (a, b, c) = net.lab.three();
    for host in [&*a, &*b] {
        host.ok("ip link set br0 type bridge mcast_snooping 1");
    }
    for group in [&V4, &V6] {
        let members = [
            receiver(two, "eth0", group),
            receiver(three, "eth0", group),
            receiver(c, "ib0", group),
        ];
        for host in [&*a, &*b, &*c] {
            await_member(host, group, true);
        }
        for member in &members {
            each_once((one, "eth0"), member, group);
            members
                .iter()
                .for_each(|other| while receive(other).is_some() {});
        }
        each_once((c, "ib0"), &members[0], group);
        let own = sender(two, "eth0", group);
        heard(&own, &members[1], "the member's own packet at another");
        while receive(&members[0]).is_some() {}
        // The kernel's loopback gives the sender one copy; neither bridge nor fabric adds another.
        group::each_once(&own, &members[0], "the sender's copy");
    }
}

/// Reports are sent once; a restarted daemon has to query.
#[test]
fn a_guests_group_is_found_again_by_a_daemon_that_comes_back() {
    let Some(mut net) = Bridged::start(&["--persist"]) else {
        return;
    };
    let [one, _] = &net.left;
    let (a, _, c) = net.lab.three();
    let listening = [&V4, &V6].map(|group| receiver(one, "eth0", group));
    for group in [&V4, &V6] {
        await_member(a, group, true);
    }
    a.kill_daemon();
    a.start(&["--persist"]);
    a.await_carrier("ib0", true);
    for (group, listening) in [&V4, &V6].into_iter().zip(&listening) {
        eventually(QUERIED, "the guest's group again", || {
            is_full_member(a, group).then_some(())
        });
        each_once((c, "ib0"), listening, group);
    }
}

/// No host reports all-hosts and all-nodes (RFC 3376, 5; RFC 3810, 6).
#[test]
fn unreported_groups_are_joined() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let a = lab.host(0);
    let groups = a.groups("ib0", |g| g["send_only"] == false);
    // The solicited-node group of fd09::1.
    for mgid in [ALL_HOSTS_V4, ALL_NODES_V6, "ff12:601b:ffff::1:ff00:1"] {
        assert!(groups.iter().any(|g| g == mgid), "{mgid}: {groups:?}");
    }
}

/// A guest's solicited-node groups follow from its addresses, with or without reports.
#[test]
fn a_guest_that_reports_nothing_is_solicited() {
    let Some(mut net) = Bridged::start(&[]) else {
        return;
    };
    let [one, _] = &net.left;
    let a = net.lab.host(0);
    let mgid = "ff12:601b:ffff::1:ffab:cdef";
    let silent: Ipv6Addr = "fd09::9:1fab:cdef".parse().expect("an address");
    let target: Ipv6Addr = "fd09::3".parse().expect("an address");
    let mac = frame::mac("52:54:00:12:34:56");
    let mut option = vec![1, 1];
    option.extend(mac);
    assert!(!a.groups("ib0", |_| true).iter().any(|g| g == mgid));
    one.send_frames("eth0", 100, [&solicitation(mac, silent, target, &option)]);
    eventually(SOON, "its solicited-node group", || {
        let groups = a.groups("ib0", |g| g["send_only"] == false);
        groups.iter().any(|g| g == mgid).then_some(())
    });
}

#[test]
fn groups_joined_before_the_daemon_comes_are_joined() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    a.start(&[]);
    a.configure("ib0");
    b.ok("ip tuntap add dev ib0 mode tap multi_queue vnet_hdr");
    b.configure_addresses("ib0");
    let listening = [&V4, &V6].map(|group| receiver(b, "ib0", group));
    b.start(&[]);
    b.await_carrier("ib0", true);
    a.reaches(b);
    for (group, listening) in [&V4, &V6].into_iter().zip(&listening) {
        each_once((a, "ib0"), listening, group);
    }
}

/// `igmp_max_memberships` is 20 for each socket, and the underlay's sockets have limits of their own.
#[test]
fn hundreds_of_ipv4_and_thousands_of_ipv6_groups_are_joined_and_left() {
    const IPV4: u16 = 200;
    const IPV6: u16 = 3000;
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    // Groups of non-member senders are joined and left automatically.
    let joined = |host: &Host| host.groups("ib0", |g| g["send_only"] == false).len();
    let before = joined(b);
    let mut sockets: Vec<UdpSocket> = (0..IPV4)
        .map(|n| IpAddr::from(Ipv4Addr::new(239, 7, (n >> 8) as u8, n as u8)))
        .map(|group| join(b, "ib0", group))
        .collect();
    let v6: Vec<Ipv6Addr> = (0..IPV6)
        .map(|n| Ipv6Addr::new(0xff05, 0, 0, 0, 0, 0, 7, n))
        .collect();
    sockets.extend(crate::lab::group::join_all_v6(b, "ib0", &v6));
    let all = before + usize::from(IPV4 + IPV6);
    eventually(QUERIED, "all groups", || (joined(b) >= all).then_some(()));
    let last = Group {
        address: IpAddr::V6(v6[usize::from(IPV6) - 1]),
        mgid: "ff12:601b:ffff::7:bb7",
    };
    let listening = receiver(b, "ib0", &last);
    each_once((a, "ib0"), &listening, &last);
    drop((sockets, listening));
    eventually(QUERIED, "all groups to be left", || {
        (joined(b) <= before + 1).then_some(())
    });
}

/// Static routes of smcrouted(8): packets from a source on `ib0` leave by another interface, and the reverse.
/// The router joins nothing; the kernel requests all multicast from the interface.
fn routed(group: &Group, sources: [&str; 2]) {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    let behind = Station::create("behind");
    let peer = behind.namespace().name().to_owned();
    a.ok(&format!(
        "ip link add eth9 type veth peer name eth0 netns {peer}"
    ));
    a.ok("ip addr add 10.10.0.1/24 dev eth9");
    a.ok("ip addr add fd10::1/64 dev eth9 nodad");
    a.ok("ip link set eth9 up");
    a.ok("sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.ib0.rp_filter=0 net.ipv4.conf.eth9.rp_filter=0");
    behind.ok("ip addr add 10.10.0.2/24 dev eth0");
    behind.ok("ip addr add fd10::2/64 dev eth0 nodad");
    behind.ok("ip link set eth0 up");
    behind.await_carrier("eth0", true);
    let [on_ib0, on_eth9] = sources;
    let address = group.address;
    let config = a.file("smcroute.conf");
    let routes = format!(
        "phyint ib0 enable\nphyint eth9 enable\n\
         mroute from ib0 source {on_ib0} group {address} to eth9\n\
         mroute from eth9 source {on_eth9} group {address} to ib0\n"
    );
    std::fs::write(&config, routes).expect("a file");
    let _router = a.spawn(&format!(
        "smcrouted -n -N -f {} -i {} -P {} -u {}",
        config.display(),
        a.namespace().name(),
        a.file("smcrouted.pid").display(),
        a.file("smcroute.sock").display()
    ));
    let listening = receiver(&behind, "eth0", group);
    let sending = sender(b, "ib0", group);
    crate::lab::group::set_hops(&sending.0, 8);
    heard(&sending, &listening, "a packet routed from ib0");
    let listening = receiver(b, "ib0", group);
    let sending = sender(&behind, "eth0", group);
    crate::lab::group::set_hops(&sending.0, 8);
    heard(&sending, &listening, "a packet routed to ib0");
    eventually(SOON, "a line about what a fabric cannot do", || {
        a.daemon()
            .log()
            .contains("the host routes multicast")
            .then_some(())
    });
}

#[test]
fn ipv4_multicast_is_routed_from_and_to_the_interface() {
    routed(&V4, ["10.9.0.2", "10.10.0.2"]);
}

#[test]
fn ipv6_multicast_is_routed_from_and_to_the_interface() {
    routed(&V6, ["fd09::2", "fd10::2"]);
}

/// A moved guest keeps its memberships: it sees its carrier return and reports.
#[test]
fn a_guest_that_moves_receives_its_group_on_the_other_side() {
    let Some(mut net) = Bridged::start(&[]) else {
        return;
    };
    let [one, _] = &net.left;
    let (a, b, c) = net.lab.three();
    let listening = receiver(one, "eth0", &V6);
    await_member(a, &V6, true);
    one.migrate(a, b);
    eventually(QUERIED, "the group behind the other host", || {
        is_full_member(b, &V6).then_some(())
    });
    each_once((c, "ib0"), &listening, &V6);
}

/// A guest that only receives, behind a bridge whose other guest sends, receives nothing twice.
#[test]
fn a_guest_without_addresses_joins_too() {
    let Some(mut net) = Bridged::start(&[]) else {
        return;
    };
    let (a, _, c) = net.lab.three();
    let bare = Guest::attach_bare(a, 9);
    bare.await_link_local("eth0");
    let listening = receiver(&bare, "eth0", &V6);
    await_member(a, &V6, true);
    each_once((c, "ib0"), &listening, &V6);
}
