//! A bridge over `ib0` with guests behind it, on two hosts, and a third host without a bridge.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use crate::lab::frame::{self, STORM, arp_request, udp4};
use crate::lab::{Bridged, Load, Pinging, arrives_whole, iperf_above, is_duplicate, neighbour};

/// Maximum time until a moved guest is reachable again, after the programs that move it: on a busy machine, these take
/// seconds.
const MOVED: Duration = Duration::from_secs(3);

fn v4(address: &str) -> Ipv4Addr {
    address.parse().expect("an IPv4 address")
}

#[test]
fn guests_and_hosts_all_reach_each_other() {
    let Some(mut net) = Bridged::start(&[]) else {
        return;
    };
    net.all_reach_all();
    for guest in net.guests() {
        guest.ok("ip neigh flush dev eth0");
    }
    net.all_reach_all();
}

#[test]
fn link_local_addresses_and_all_nodes_are_reached_from_a_guest() {
    let Some(mut net) = Bridged::start(&[]) else {
        return;
    };
    let (a, b, c) = net.lab.three();
    let [one, two] = &net.left;
    let [three, four] = &net.right;
    let others = [
        a.await_link_local("br0"),
        b.await_link_local("br0"),
        c.await_link_local("ib0"),
        two.await_link_local("eth0"),
        three.await_link_local("eth0"),
        four.await_link_local("eth0"),
    ];
    one.await_link_local("eth0");
    for address in &others {
        one.reaches_all(&[format!("{address}%eth0")]);
    }
    let output = one.ok("ping -n -c 6 -i 0.3 -w 10 ff02::1%eth0");
    for address in &others {
        assert!(output.contains(address), "{address} is silent: {output}");
    }
}

#[test]
fn large_packets_pass_between_guests() {
    let Some(net) = Bridged::start(&[]) else {
        return;
    };
    let [one, _] = &net.left;
    let [three, _] = &net.right;
    for (address, header) in [(three.v4(), 20), (three.v6(), 40)] {
        let full = crate::lab::LINK_MTU as usize - header - 8;
        for size in [0, 1, 1472, full, 20_000] {
            one.ok(&format!("ping -c 3 -i 0.1 -W 2 -s {size} {address}"));
        }
    }
}

#[test]
fn tcp_between_guests_runs_both_ways_and_arrives_whole() {
    let Some(net) = Bridged::start(&[]) else {
        return;
    };
    let [one, _] = &net.left;
    let [three, _] = &net.right;
    for address in [three.v4(), three.v6()] {
        arrives_whole(one, three, &address);
        for options in ["-n 64M", "-n 64M -R"] {
            iperf_above(one, three, &address, options, 100e6);
        }
    }
}

#[test]
fn an_ipv6_address_that_a_guest_has_is_a_duplicate_everywhere_else() {
    let Some(mut net) = Bridged::start(&[]) else {
        return;
    };
    let (_, b, c) = net.lab.three();
    let [one, two] = &net.left;
    let [three, _] = &net.right;
    assert!(is_duplicate(one, "eth0", &three.v6()), "a guest's beyond");
    assert!(is_duplicate(two, "eth0", &c.v6()), "a plain host's");
    assert!(is_duplicate(two, "eth0", &b.v6()), "a bridge's beyond");
    assert!(is_duplicate(c, "ib0", &three.v6()), "a guest's, for a host");
    assert!(is_duplicate(b, "br0", &two.v6()), "a guest's, for a bridge");
    for (station, interface, free) in [
        (&**one, "eth0", "fd09::a1"),
        (&**c, "ib0", "fd09::c1"),
        (&**b, "br0", "fd09::b1"),
    ] {
        assert!(!is_duplicate(station, interface, free), "{free} is free");
    }
}

#[test]
fn arping_finds_the_addresses_of_guests_in_use() {
    let Some(mut net) = Bridged::start(&[]) else {
        return;
    };
    let (_, _, c) = net.lab.three();
    let [one, _] = &net.left;
    let [three, four] = &net.right;
    let used = [
        (&**one, "eth0", three.v4()),
        (&**three, "eth0", one.v4()),
        (&**c, "ib0", one.v4()),
        (&**four, "eth0", c.v4()),
    ];
    for (station, interface, address) in used {
        let probe = station.run(&format!("arping -D -c 2 -w 3 -I {interface} {address}"));
        assert_eq!(probe.code, Some(1), "{address} is in use: {probe:?}");
        let asked = station.ok(&format!("arping -c 2 -w 5 -I {interface} {address}"));
        assert!(asked.contains("Unicast reply from"), "{asked}");
    }
    for (station, interface) in [(&**one, "eth0"), (&**three, "eth0"), (&**c, "ib0")] {
        let probe = station.run(&format!("arping -D -c 2 -w 3 -I {interface} 10.9.0.250"));
        assert_eq!(probe.code, Some(0), "the address is unused: {probe:?}");
    }
}

/// A guest without an address probes for one (RFC 5227): the reply contains no IP address of the guest.
#[test]
fn a_guest_without_an_address_receives_the_answer_to_its_probe() {
    let Some(mut net) = Bridged::start(&[]) else {
        return;
    };
    let (_, _, c) = net.lab.three();
    let [one, _] = &net.left;
    one.ok("ip addr flush dev eth0 scope global");
    let used = one.run(&format!("arping -D -c 2 -w 3 -I eth0 {}", c.v4()));
    assert_eq!(used.code, Some(1), "{used:?}");
    let free = one.run("arping -D -c 2 -w 3 -I eth0 10.9.0.250");
    assert_eq!(free.code, Some(0), "{free:?}");
}

/// Activity of a guest after a move.
#[derive(Clone, Copy, PartialEq)]
enum Arrival {
    /// It announces its addresses.
    Announced,
    /// It continues an exchange.
    Talking,
}

fn migrates(arrival: Arrival) {
    let Some(mut net) = Bridged::start(&[]) else {
        return;
    };
    let (a, b, c) = net.lab.three();
    let [one, two] = &net.left;
    let [three, _] = &net.right;
    if arrival == Arrival::Announced {
        one.ok("sysctl -qw net.ipv6.conf.eth0.ndisc_notify=1");
    }
    // Pings from the plain host, from a guest at the old place, and from a guest at the new place.
    let watchers = [&**c, &**two, &**three];
    for station in watchers {
        station.reaches_all(&[one.v4(), one.v6()]);
    }
    let talk = (arrival == Arrival::Talking)
        .then(|| [c.v4(), c.v6()].map(|address| Pinging::start(one, &address)));
    let watching: Vec<_> = watchers
        .iter()
        .flat_map(|station| [one.v4(), one.v6()].map(|address| Pinging::start(station, &address)))
        .collect();
    let mut took = Duration::ZERO;
    for (from, to) in [(&*a, &*b), (&*b, &*a)] {
        std::thread::sleep(Duration::from_millis(500));
        let began = Instant::now();
        one.migrate(from, to);
        if arrival == Arrival::Announced {
            one.await_carrier("eth0", true);
            // The kernel announces its IPv6 addresses when the Ethernet address is set. arping waits for a second.
            one.ok(&format!("ip link set eth0 address {}", one.mac()));
        }
        took = took.max(began.elapsed());
        if arrival == Arrival::Announced {
            one.ok(&format!("arping -A -c 1 -I eth0 {}", one.v4()));
        }
        Pinging::all_go_on(&watching);
    }
    for pinging in watching {
        pinging.stop().gap_below(MOVED + took);
    }
    drop(talk);
    net.all_reach_all();
}

#[test]
fn a_guest_that_announces_its_move_is_reached_again_at_once() {
    migrates(Arrival::Announced);
}

#[test]
fn a_guest_that_moves_and_goes_on_talking_is_reached_again_at_once() {
    migrates(Arrival::Talking);
}

/// A guest is created again on the other side: a new namespace with the same addresses.
#[test]
fn an_address_moves_with_its_mac_to_another_guest() {
    let Some(mut net) = Bridged::start(&[]) else {
        return;
    };
    let (a, b, c) = net.lab.three();
    let [one, _] = &net.left;
    let watching = [one.v4(), one.v6()].map(|address| Pinging::start(c, &address));
    std::thread::sleep(Duration::from_millis(500));
    let began = Instant::now();
    a.ok(&format!("ip link del {}", one.port()));
    let again = crate::lab::Guest::attach_bare(b, 1);
    again.ok("sysctl -qw net.ipv6.conf.eth0.ndisc_notify=1");
    again.ok(&format!("ip addr add {}/24 dev eth0", one.v4()));
    again.ok(&format!("ip addr add {}/64 dev eth0 nodad", one.v6()));
    again.ok(&format!("ip link set eth0 address {}", one.mac()));
    let took = began.elapsed();
    again.ok(&format!("arping -U -c 1 -I eth0 {}", one.v4()));
    Pinging::all_go_on(&watching);
    for pinging in watching {
        pinging.stop().gap_below(MOVED + took);
    }
}

#[test]
fn a_guest_may_have_the_ethernet_address_that_stood_for_a_peer() {
    let Some(mut net) = Bridged::start(&[]) else {
        return;
    };
    let (a, _, c) = net.lab.three();
    let [one, two] = &net.left;
    let taken = neighbour(one, "eth0", &c.v4());
    let before = a.counter("ib0", "mac_clashes");
    // Other hosts must learn the guest's new Ethernet address.
    two.ok("sysctl -qw net.ipv4.conf.eth0.arp_notify=1 net.ipv6.conf.eth0.ndisc_notify=1");
    two.ok(&format!("ip link set eth0 address {taken}"));
    two.reaches_all(&[one.v4(), one.v6(), c.v4(), c.v6()]);
    assert!(a.counter("ib0", "mac_clashes") > before);
    one.reaches_all(&[two.v4(), two.v6(), c.v4(), c.v6()]);
    c.reaches_all(&[one.v4(), one.v6(), two.v4(), two.v6()]);
    assert_ne!(neighbour(one, "eth0", &c.v4()), taken);
    net.all_reach_all();
}

fn quarrel(same_side: bool) {
    let Some(mut net) = Bridged::start(&[]) else {
        return;
    };
    let (a, b, c) = net.lab.three();
    let [one, two] = &net.left;
    let [three, four] = &net.right;
    let other = if same_side { two } else { three };
    let disputed = "10.9.0.77";
    let watching = [
        Pinging::start(four, &one.v4()),
        Pinging::start(four, &c.v4()),
    ];
    let names = ["arp_translated", "announcements_sent"];
    let before = [&*a, &*b].map(|host| names.map(|name| host.counter("ib0", name)));
    // Each claims the address ten times a second.
    let claims = [one, other].map(|guest| {
        let claim = arp_request((frame::mac(&guest.mac()), v4(disputed)), v4(disputed));
        guest.start_frames("eth0", 10, &vec![claim; 50])
    });
    let claims = claims.map(|mut claim| claim.0.wait().expect("a child"));
    assert!(claims.iter().all(|status| status.success()));
    std::thread::sleep(Duration::from_secs(1));
    for (host, before) in [&*a, &*b].into_iter().zip(before) {
        let grown = [0, 1].map(|i| host.counter("ib0", names[i]) - before[i]);
        // A hundred claims, translated once each way, plus the pings.
        assert!(grown[0] < 300, "{} ARP packets", grown[0]);
        assert!(grown[1] < 20, "{} announcements", grown[1]);
    }
    for pinging in watching {
        pinging.stop().lost_at_most(10);
    }
    let conflicts: u64 = [&*a, &*b]
        .iter()
        .map(|host| host.counter("ib0", "address_conflicts"))
        .sum();
    assert!(conflicts > 0, "no conflict was counted");
    let lines_of = |log: String| log.lines().filter(|line| line.contains(disputed)).count();
    let (log_a, log_b) = (a.daemon().log(), b.daemon().log());
    let [of_a, of_b] = [lines_of(log_a), lines_of(log_b)];
    assert!(
        of_a <= 1 && of_b <= 1 && of_a + of_b > 0,
        "logged {of_a} and {of_b} times"
    );
}

#[test]
fn two_guests_behind_one_host_with_one_address_make_no_storm() {
    quarrel(true);
}

#[test]
fn two_guests_behind_two_hosts_with_one_address_make_no_storm() {
    quarrel(false);
}

/// The size of the table of guests for each thread.
const GUESTS_MAX: u64 = 8192;

#[test]
fn a_guest_with_twenty_thousand_addresses_fills_no_memory() {
    let Some(mut net) = Bridged::start(&[]) else {
        return;
    };
    let (a, _, c) = net.lab.three();
    let [one, two] = &net.left;
    let to = frame::mac(&neighbour(two, "eth0", &c.v4()));
    let from = frame::mac(&two.mac());
    let memory = a.daemon().resident_kib();
    let sources = (0..20_000u32).map(|n| Ipv4Addr::from(0x0a0a_0000 + n * 7));
    let frames: Vec<_> = sources
        .map(|source| udp4((from, to), source, v4(&c.v4()), &[0; 64]))
        .collect();
    a.queue_holds_a_second();
    let _turn = Load::begin();
    let established = [Pinging::start(one, &c.v4()), Pinging::start(one, &c.v6())];
    let before = a.counters("ib0", &["guests_learned", "guests_evicted"]);
    two.send_frames("eth0", STORM, &frames);
    for pinging in established {
        pinging.stop().lost_at_most(2);
    }
    let learned = a.counter("ib0", "guests_learned");
    let evicted = a.counter("ib0", "guests_evicted");
    assert!(learned + evicted - before > 10_000, "{learned} learned");
    assert!(evicted > 20_000 - 2 * GUESTS_MAX, "{evicted} evicted");
    let grown = a.daemon().resident_kib().saturating_sub(memory);
    assert!(grown < 32 << 10, "resident memory grew by {grown} KiB");
    net.all_reach_all();
}

/// A bridge that has forgotten a guest's port floods, also to `ib0`.
#[test]
fn what_the_bridge_floods_between_its_guests_stays_off_the_fabric() {
    let Some(mut net) = Bridged::start(&[]) else {
        return;
    };
    let (a, b, _) = net.lab.three();
    let [one, two] = &net.left;
    one.reaches_all(&[two.v4(), two.v6()]);
    a.ok("ip link set br0 type bridge ageing_time 0");
    let packets = |host: &crate::lab::Host| -> u64 {
        let shown = host.link("ib0");
        shown["stats64"]["rx"]["packets"].as_u64().expect("a count")
    };
    let dropped = a.counter("ib0", "tx_to_guest");
    let asked = a.counter("ib0", "resolutions_sent");
    let (at_a, at_b) = (packets(a), packets(b));
    for address in [two.v4(), two.v6()] {
        one.ok(&format!("ping -q -c 100 -i 0.01 -W 2 {address}"));
    }
    let dropped = a.counter("ib0", "tx_to_guest") - dropped;
    assert!(dropped >= 200, "{dropped} frames for guests dropped");
    let asked = a.counter("ib0", "resolutions_sent") - asked;
    assert!(asked < 10, "the fabric was asked {asked} times");
    let (at_a, at_b) = (packets(a) - at_a, packets(b) - at_b);
    assert!(at_b < 50, "{at_b} packets came to the other host");
    assert!(at_a < 50, "{at_a} packets came back");
}

#[test]
fn guests_outlive_a_daemon_that_is_killed_and_started_again() {
    let Some(mut net) = Bridged::start(&["--persist"]) else {
        return;
    };
    let (a, _, c) = net.lab.three();
    let [one, _] = &net.left;
    let [three, _] = &net.right;
    three.reaches_all(&[one.v4(), one.v6()]);
    one.reaches_all(&[c.v4()]);
    let pings = [
        Pinging::start(three, &one.v4()),
        Pinging::start(three, &one.v6()),
        Pinging::start(one, &c.v4()),
    ];
    for _ in 0..2 {
        a.kill_daemon();
        a.start(&["--persist"]);
        assert_eq!(a.link("ib0")["master"], "br0");
        a.await_carrier("ib0", true);
        Pinging::all_go_on(&pings);
    }
    for ping in pings {
        ping.stop().gap_below(Duration::from_secs(4));
    }
    net.all_reach_all();
}

#[test]
fn an_interface_taken_out_of_its_bridge_serves_its_host_again() {
    let Some(mut net) = Bridged::start(&[]) else {
        return;
    };
    let (a, _, c) = net.lab.three();
    a.ok("ip link set ib0 nomaster");
    a.ok("ip link del br0");
    a.configure("ib0");
    c.reaches(a);
    a.reaches(c);
    let [three, _] = &net.right;
    three.reaches_all(&[a.v4(), a.v6()]);
}
