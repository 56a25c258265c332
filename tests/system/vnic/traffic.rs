//! Traffic of an Ethernet interface, over a VNIC.

use super::{count, counter_of, fixed, pair, pair_with, stats};
use serde_json::Value;

use crate::lab::group::{V4, V6, each_once, heard, receive, receiver, sender};
use crate::lab::packet16::VNIC_MTU;
use crate::lab::{
    Host, Lab, SOON, Station, arrives_whole, eventually, iperf_above, is_duplicate, udp_arrives,
};

/// Bits per second that any test machine must reach.
const FLOOR: f64 = 100e6;

#[test]
fn echoes_of_every_size_come_back() {
    let Some(mut lab) = pair() else { return };
    let (a, b) = lab.two();
    assert_eq!(a.mtu("vnic0"), VNIC_MTU);
    let mtu = VNIC_MTU as usize;
    for (address, headers) in [(b.v4(), 28), (b.v6(), 48)] {
        // Around the smallest frame, around quad words, and the largest.
        let packets = (headers..headers + 26).chain([1279, 1280, 1500, mtu - 2, mtu - 1, mtu]);
        for packet in packets {
            let size = packet - headers;
            a.answered(1, &format!("-q -M do -i 0.1 -s {size} {address}"));
        }
        let over = a.run(&format!(
            "ping -M do -c 1 -W 1 -s {} {address}",
            mtu - headers + 1
        ));
        assert_ne!(over.code, Some(0), "{over:?}");
        a.ok(&format!("ping -q -c 2 -i 0.05 -W 5 -s 20000 {address}"));
    }
    // The smallest frames are padded to 60 bytes, which is 64 with the check sequence.
    assert!(count(a, "tx_64_size") > 0);
    assert!(count(b, "rx_1519_max") > 0);
}

#[test]
fn tcp_and_udp_run_both_ways_uncut_and_coalesced() {
    let Some(mut lab) = pair_with("queues = 2") else {
        return;
    };
    let (a, b) = lab.two();
    for address in [b.v4(), b.v6()] {
        for options in ["-n 64M", "-n 64M -R", "-n 64M -P 4"] {
            iperf_above(a, b, &address, options, FLOOR);
        }
    }
    arrives_whole(a, b, &b.v4());
    arrives_whole(b, a, &a.v6());
    // Before UDP, which has a frame for each short datagram.
    for host in [&*a, &*b] {
        let stats = host.link("vnic0")["stats64"].clone();
        for (direction, packets) in [("tx", "tx_packets"), ("rx", "rx_packets")] {
            let kernels = stats[direction]["packets"].as_u64().expect("a number");
            let ours = count(host, packets);
            assert!(
                ours > 2 * kernels,
                "{direction}: {ours} for {kernels} of the host"
            );
        }
    }
    udp_arrives(a, b, 10, &[64, 1400, 12_000]);
    for host in [&*a, &*b] {
        // Not `rx_errors` and `tx_errors`: these sums have the frames from before the interface was up.
        for name in [
            "rx_runt",
            "rx_oversize",
            "rx_bad_veswid",
            "tx_fifo_errors",
            "tx_carrier_errors",
            "tx_dlid_zero",
            "tx_too_big",
            "tx_bad_frame",
            "rx_bad_tail",
            "rx_length_mismatch",
        ] {
            assert_eq!(count(host, name), 0, "{name} of {}", host.name());
        }
    }
}

/// The drivers' counters of both hosts, at a moment without packets on the way.
fn at_rest(a: &Host, b: &Host) -> [Value; 2] {
    let both = || [a, b].map(|host| stats(host, "vnic0"));
    let counters = |stats: &Value| stats["driver"].clone();
    eventually(SOON, "a quiet moment", || {
        let (first, then) = (both(), both());
        (first.each_ref().map(counters) == then.each_ref().map(counters)).then_some(then)
    })
}

/// Each side has received what the other has sent, by kind and by size.
#[test]
fn counters_of_both_sides_add_up() {
    let Some(mut lab) = pair() else { return };
    let (a, b) = lab.two();
    let before = at_rest(a, b);
    iperf_above(a, b, &b.v4(), "-n 8M", 10e6);
    a.ok(&format!("ping -q -c 5 -i 0.02 -W 5 -s 4000 {}", b.v6()));
    let after = at_rest(a, b);
    let sizes = [
        "64_size",
        "65_127",
        "128_255",
        "256_511",
        "512_1023",
        "1024_1518",
        "1519_max",
    ];
    let kinds = ["unicast", "mcastbcast"];
    let tags = ["untagged", "vlan"];
    // The growth of the sum of these counters on one side.
    let grown = |side: usize, direction: &str, names: &[&str]| -> u64 {
        let all = names.iter().map(|name| format!("{direction}_{name}"));
        all.map(|name| counter_of(&after[side], &name) - counter_of(&before[side], &name))
            .sum()
    };
    for (from, to) in [(0, 1), (1, 0)] {
        let names = sizes.iter().chain(&kinds).chain(&tags);
        for name in names.chain(&["packets", "bytes"]) {
            let sent = grown(from, "tx", &[name]);
            let received = grown(to, "rx", &[name]);
            assert_eq!(sent, received, "{name} from {from}");
        }
        assert!(grown(from, "tx", &["packets"]) > 10);
        for direction in ["rx", "tx"] {
            let packets = grown(from, direction, &["packets"]);
            for parts in [&sizes[..], &kinds, &tags] {
                assert_eq!(
                    grown(from, direction, parts),
                    packets,
                    "{direction} {parts:?}"
                );
            }
        }
    }
}

#[test]
fn groups_of_both_families_reach_members_only() {
    let Some(mut lab) = Lab::segment(3) else {
        return;
    };
    let (hosts, _) = lab.hosts_and_switch();
    for host in hosts.iter_mut() {
        host.start_config(&fixed("vnic0", 1, ""));
        host.configure("vnic0");
    }
    let [a, b, c] = hosts else {
        panic!("three hosts")
    };
    a.reaches(b);
    for group in [&V4, &V6] {
        let (there, also) = (receiver(b, "vnic0", group), receiver(a, "vnic0", group));
        let sending = sender(a, "vnic0", group);
        heard(&sending, &there, "a packet to a group");
        for (socket, what) in [(&there, "the other's packets"), (&also, "the sender's")] {
            while receive(socket).is_some() {}
            each_once(&sending, socket, what);
        }
    }
    for host in [&*b, &*c] {
        host.ok("sysctl -qw net.ipv4.icmp_echo_ignore_broadcasts=0");
    }
    let output = a.ok("ping -b -c 6 -i 0.3 -w 10 10.9.0.255");
    for host in [&*b, &*c] {
        assert!(
            output.contains(&host.v4()),
            "{} is silent: {output}",
            host.v4()
        );
    }
    assert!(is_duplicate(c, "vnic0", &a.v6()));
}

/// A macvlan of `vnic0` in a namespace, with its own address on the switch.
fn container(host: &Host, number: usize) -> Station {
    let place = Station::create(&format!("container {number}"));
    host.ok(&format!(
        "ip link add link vnic0 name mv{number} type macvlan mode bridge"
    ));
    let name = place.namespace().name();
    host.ok(&format!("ip link set mv{number} netns {name} name eth0"));
    place.ok(&format!("ip addr add 10.9.0.{number}/24 dev eth0"));
    place.ok(&format!("ip addr add fd09::{number}/64 dev eth0 nodad"));
    place.ok("ip link set eth0 up");
    place.await_carrier("eth0", true);
    place
}

#[test]
fn macvlans_are_hosts_of_the_switch() {
    let Some(mut lab) = pair() else { return };
    let (a, b) = lab.two();
    let [one, two] = [container(a, 101), container(b, 102)];
    one.reaches_all(&["10.9.0.102", "fd09::102", &b.v4(), &b.v6()]);
    two.reaches_all(&["10.9.0.101", "fd09::101", &a.v4(), &a.v6()]);
    b.reaches_all(&["10.9.0.101", "fd09::101"]);
    iperf_above(&one, &two, "10.9.0.102", "-n 8M", 50e6);
    arrives_whole(&two, &one, "fd09::101");
}

/// An underlay without multicast, as in clouds: multicast and broadcast are sent to each host.
#[test]
fn a_switch_spans_hosts_that_are_listed() {
    let Some(mut lab) = Lab::segment(3) else {
        return;
    };
    let (hosts, _) = lab.hosts_and_switch();
    let all: Vec<String> = hosts.iter().map(|host| host.underlay_v4()).collect();
    for (i, host) in hosts.iter_mut().enumerate() {
        let mut others = all.clone();
        others.remove(i);
        host.start(&["--gid", "ipv4", "--peers", &others.join(","), "--vnic", "1"]);
        host.configure("vnic0");
    }
    let [a, b, c] = hosts else {
        panic!("three hosts")
    };
    for (from, to) in [(&*a, &*b), (&*b, &*c), (&*c, &*a)] {
        from.reaches(to);
    }
    let listening = receiver(c, "vnic0", &V6);
    let sending = sender(a, "vnic0", &V6);
    heard(&sending, &listening, "a packet to a group");
    iperf_above(a, b, &b.v4(), "-n 16M", 50e6);
}

/// Two VNICs of one daemon on one switch, in a namespace each.
#[test]
fn vnics_of_one_daemon_hand_frames_over() {
    let Some(mut lab) = Lab::pair() else { return };
    let (blue, green) = (Station::create("blue"), Station::create("green"));
    let (a, b) = lab.two();
    let of = |place: &Station| {
        let key = format!("netns = {:?}", place.namespace().name());
        fixed("vnic0", 1, &key)
    };
    a.start_config(&(of(&blue) + &of(&green)));
    b.start_config(&fixed("vnic0", 1, ""));
    b.configure("vnic0");
    for (place, number) in [(&blue, 11), (&green, 12)] {
        place.ok(&format!("ip addr add 10.9.0.{number}/24 dev vnic0"));
        place.ok("ip link set vnic0 up");
        place.await_carrier("vnic0", true);
    }
    blue.reaches_all(&["10.9.0.12", &b.v4()]);
    green.reaches_all(&["10.9.0.11", &b.v4()]);
    b.reaches_all(&["10.9.0.11", "10.9.0.12"]);
    let carried = |host: &Host| {
        let stats = host.link("eth0")["stats64"].clone();
        stats["tx"]["packets"].as_u64().expect("a number")
    };
    let before = carried(a);
    iperf_above(&blue, &green, "10.9.0.12", "-n 50M", 200e6);
    arrives_whole(&green, &blue, "10.9.0.11");
    let on_the_wire = carried(a) - before;
    assert!(on_the_wire < 500, "{on_the_wire} packets for 80 MB");
    let name = format!("{}/vnic0", blue.namespace().name());
    assert!(counter_of(&stats(a, &name), "tx_to_siblings") > 500);
}
