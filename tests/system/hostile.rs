//! Arbitrary packets to UDP port 4791: counted and dropped; other traffic continues.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use crate::lab::attacker::{Attacker, INVENTED, Numbers};
use crate::lab::frame::{
    self, STORM, icmpv6_checksum, igmp_report, igmp_report_of_many, mld_report, solicitation,
};
use crate::lab::group::{GROUPS_MAX, V4, V6, heard, is_full_member, receiver, sender};
use crate::lab::{
    Alone, Host, Lab, Load, Pinging, SOON, Sniffer, backlog_drops, eventually, iperf_above,
};

/// Drop reasons of the fabric.
const REFUSALS: &[&str] = &[
    "rx_length_errors",
    "rx_bad_opcode",
    "rx_bad_version",
    "rx_not_our_gid",
    "rx_unknown_qpn",
    "rx_bad_state",
    "rx_not_member",
    "rx_pkey_violations",
    "rx_qkey_violations",
    "rx_icrc_errors",
    "rx_mads_unhandled",
];

/// Drop reasons of the protocol.
const MALFORMED: &[&str] = &[
    "rx_malformed",
    "rx_unsupported_type",
    "rx_bad_arp",
    "rx_bad_nd_option",
    "rx_bad_checksum",
    "rx_bad_address",
    "rx_too_long",
];

/// Drops before the daemon: the socket was full.
const LOST: &str = "rx_socket_drops";

/// Creates the next datagram of a flood.
type Spoiled = fn(&Attacker, &mut Numbers, usize) -> Vec<u8>;

/// Runs a flood of bad datagrams during a ping. Each request that reaches the daemon must be answered. Of the datagrams
/// that reach the daemon's socket, nine of ten at least must be counted, under one of `causes` or as lost.
fn survives(count: usize, causes: &[&str], make: Spoiled) {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    let attacker = Attacker::new(a, b);
    let counted = |host: &Host| host.counters("ib0", causes) + host.counter("ib0", LOST);
    let before = counted(b);
    let lost_before = b.counter("ib0", LOST);
    let backlog_before = backlog_drops();
    let memory = b.daemon().resident_kib();
    let _turn = Load::begin();
    let ping = Pinging::start(a, &b.v4());
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    attacker.flood(count, |number| make(&attacker, &mut numbers, number));
    ping.goes_on();
    // A full socket drops requests, too. So does a full backlog, which the flood and other tests fill.
    let lost = b.counter("ib0", LOST) - lost_before;
    let in_backlog = backlog_drops() - backlog_before;
    ping.stop()
        .lost_at_most(usize::try_from(lost + in_backlog).expect("few"));
    assert!(b.daemon().is_running());
    a.reaches(b);
    let counted = counted(b) - before;
    let sent = count as u64;
    assert!(
        ((sent * 9 / 10).saturating_sub(in_backlog)..=sent + lost).contains(&counted),
        "{counted} of {sent} counted, {in_backlog} lost in the backlog"
    );
    let grown = b.daemon().resident_kib().saturating_sub(memory);
    assert!(grown < 32 << 10, "resident memory grew by {grown} KiB");
}

#[test]
fn random_datagrams_of_every_length() {
    survives(20_000, REFUSALS, |_, numbers, number| {
        numbers.bytes(number % 4200)
    });
}

#[test]
fn packets_with_flipped_bits() {
    survives(20_000, REFUSALS, |attacker, numbers, _| {
        let payload = numbers.bytes(100);
        let mut datagram = attacker.packet(payload).datagram();
        let bit = numbers.next() as usize % (datagram.len() * 8);
        // Byte 4 of the BTH is outside the ICRC; flips bytes inside.
        let byte = if bit / 8 == 4 { 5 } else { bit / 8 };
        datagram[byte] ^= 1 << (bit % 8);
        datagram
    });
}

#[test]
fn forged_queue_pairs_keys_and_partitions() {
    survives(20_000, REFUSALS, |attacker, numbers, number| {
        let mut packet = attacker.packet(numbers.bytes(60));
        match number % 3 {
            0 => packet.destination_qpn ^= 1 + (numbers.next() as u32 & 0xffff),
            1 => packet.qkey ^= 1 + (numbers.next() as u32 >> 1),
            _ => packet.pkey = 0x8001 + (number as u16 & 0x3fff),
        }
        packet.datagram()
    });
}

/// An ARP request in IPoIB (RFC 4391, 9.2) from an invented neighbour with an address of no host.
pub fn arp(numbers: &mut Numbers, sender_gid: Ipv6Addr) -> Vec<u8> {
    let mut packet = vec![0x08, 0x06, 0, 0, 0, 32, 0x08, 0, 20, 4, 0, 1, 0];
    packet.extend(numbers.bytes(3));
    packet.extend(sender_gid.octets());
    packet.extend(INVENTED);
    packet.extend(numbers.bytes(2));
    packet.extend([0; 20]);
    packet.extend([10, 9, 0, 2]);
    packet
}

#[test]
fn arp_with_lying_lengths() {
    survives(20_000, MALFORMED, |attacker, numbers, number| {
        let mut packet = arp(numbers, attacker.own);
        match number % 4 {
            0 => packet.truncate(4 + numbers.next() as usize % 56),
            1 => packet[8] = numbers.next() as u8 | 1,
            2 => packet[9] = numbers.next() as u8 | 1,
            _ => packet[5] = 1,
        }
        attacker.packet(packet).datagram()
    });
}

#[test]
fn neighbour_discovery_with_lying_lengths() {
    survives(20_000, MALFORMED, |attacker, numbers, number| {
        // An IPv6 header, a neighbour solicitation, an option with a wrong length.
        let mut packet = vec![0x86, 0xdd, 0, 0, 0x60, 0, 0, 0, 0, 48, 58, 255];
        packet.extend(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, number as u16).octets());
        packet.extend(Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, 2).octets());
        packet.extend([135, 0]);
        packet.extend(numbers.bytes(22));
        packet.extend([1, (numbers.next() as u8) & !3]);
        let rest = numbers.next() as usize % 40;
        packet.extend(numbers.bytes(rest));
        attacker.packet(packet).datagram()
    });
}

/// Every ICMPv6 checksum is correct: the options must be the reason of the drop.
#[test]
fn neighbour_discovery_with_options_that_do_not_add_up() {
    survives(
        20_000,
        &["rx_bad_nd_option"],
        |attacker, numbers, number| {
            // Valid options: a source link-layer address, a prefix, an MTU.
            let good: [&[u8]; 3] = [&[&[1, 3, 0, 0][..], &[7; 20]].concat(), &[3, 4], &[5, 1]];
            let mut options = match number % 4 {
                0 => Vec::new(),
                1 => good[0].to_vec(),
                2 => [good[1], &[0; 30]].concat(),
                _ => [good[2], &[0; 6]].concat(),
            };
            let kind = numbers.next() as u8;
            match number % 3 {
                // Length zero.
                0 => options.extend([kind, 0, 0, 0, 0, 0, 0, 0]),
                // A length beyond the packet.
                1 => options.extend([kind, 2 + (numbers.next() as u8 & 0x7f), 0, 0, 0, 0, 0, 0]),
                // A packet that ends within an option's header.
                _ => options.push(kind),
            }
            let source = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, number as u16);
            let target = Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, 2);
            let mut nd = vec![135, 0, 0, 0, 0, 0, 0, 0];
            nd.extend(target.octets());
            nd.extend(options);
            let sum = icmpv6_checksum(source, target, &nd);
            nd[2..4].copy_from_slice(&sum);
            let mut packet = vec![0x86, 0xdd, 0, 0, 0x60, 0, 0, 0];
            packet.extend((nd.len() as u16).to_be_bytes());
            packet.extend([58, 255]);
            packet.extend(source.octets());
            packet.extend(target.octets());
            packet.extend(nd);
            attacker.packet(packet).datagram()
        },
    );
}

/// Impossible link-layer addresses: a multicast GID, no GID, queue pair 0 or all ones.
#[test]
fn arp_from_senders_that_cannot_be() {
    survives(20_000, MALFORMED, |attacker, numbers, number| {
        let mut packet = arp(numbers, attacker.own);
        let sender = &mut packet[12..32];
        match number % 4 {
            0 => sender[4] = 0xff,
            1 => sender[4..].fill(0),
            2 => sender[1..4].fill(0),
            _ => sender[1..4].fill(0xff),
        }
        attacker.packet(packet).datagram()
    });
}

/// An attacker moves a host's address to ports that do not exist. Nothing is learned, and no packet is lost.
#[test]
fn an_address_cannot_be_moved_to_the_port_of_another() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    let attacker = Attacker::new(a, b);
    b.reaches(a);
    let learned = b.counter("ib0", "neighbours_learned");
    let before = b.counters("ib0", &["rx_forged_claim", LOST]);
    let _turn = Load::begin();
    let ping = Pinging::start(b, &a.v4());
    let mut numbers = Numbers(3);
    attacker.storm(1000, |_| {
        let gid = Ipv6Addr::from(u128::from(numbers.next()) | 0xfe80 << 112);
        let mut packet = arp(&mut numbers, gid);
        packet[32..36].copy_from_slice(&[10, 9, 0, 1]);
        attacker.packet(packet).datagram()
    });
    ping.stop().lost_at_most(2);
    let refused = b.counters("ib0", &["rx_forged_claim", LOST]) - before;
    assert!(
        (2900..=3000).contains(&refused),
        "{refused} of 3000 refused"
    );
    assert_eq!(b.counter("ib0", "neighbours_learned"), learned);
}

/// A third host claims the address of a live one for its own port.
#[test]
fn inspection_refuses_the_address_of_a_live_host() {
    let Some(lab) = Lab::segment(3) else { return };
    let mut lab = lab.run_with(&["--inspect", "enforce"]);
    let (a, b, third) = lab.three();
    b.reaches(a);
    third.reaches(b);
    let attacker = Attacker::new(third, b);
    let before = b.counters("ib0", &["rx_refused_claim", LOST]);
    let _turn = Load::begin();
    let ping = Pinging::start(b, &a.v4());
    let mut numbers = Numbers(13);
    attacker.storm(500, |_| {
        let mut packet = arp(&mut numbers, attacker.own);
        packet[32..36].copy_from_slice(&[10, 9, 0, 1]);
        attacker.packet(packet).datagram()
    });
    ping.stop().lost_at_most(2);
    let refused = b.counters("ib0", &["rx_refused_claim", LOST]) - before;
    assert!(
        (1450..=1500).contains(&refused),
        "{refused} of 1500 refused"
    );
    assert!(b.counter("ib0", "claims_of_live_addresses") > 0);
    let log = b.daemon().log();
    let warnings = log.matches("another live host has the address").count();
    assert_eq!(warnings, 1, "{log}");
    third.reaches(b);
}

/// An attacker claims a host's addresses for its own port. ARP and neighbour discovery accept that, as on any
/// Ethernet; after the attack, the owner is found again.
#[test]
fn a_stolen_address_comes_back_to_its_owner() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    let attacker = Attacker::new(a, b);
    let memory = b.daemon().resident_kib();
    let mut numbers = Numbers(5);
    attacker.storm(1000, |_| {
        let mut packet = arp(&mut numbers, attacker.own);
        packet[32..36].copy_from_slice(&[10, 9, 0, 1]);
        attacker.packet(packet).datagram()
    });
    // The kernel checks a learned entry again within half a minute.
    let patience = Duration::from_secs(60);
    for (from, to) in [(&*b, &*a), (&*a, &*b)] {
        for address in [to.v4(), to.v6()] {
            eventually(patience, &format!("an answer from {address}"), || {
                from.pings(&address).then_some(())
            });
        }
    }
    let grown = b.daemon().resident_kib().saturating_sub(memory);
    assert!(grown < 32 << 10, "resident memory grew by {grown} KiB");
}

#[test]
fn a_storm_of_neighbours_leaves_established_ones_alone() {
    let _alone = Alone::begin();
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    // Two hosts, because the claims of each are limited.
    let attackers = [1, 2].map(|n| {
        let address = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0xbad, n);
        a.ok(&format!("ip addr add {address}/64 dev eth0 nodad"));
        let mut attacker = Attacker::new(a, b);
        attacker.move_to(a, address);
        attacker
    });
    b.reaches(a);
    b.hides_invented_neighbours();
    let memory = b.daemon().resident_kib();
    let names = ["neighbours_learned", "neighbours_evicted"];
    let before = names.map(|name| b.counter("ib0", name));
    let pings = [
        Pinging::start(a, &b.v4()),
        Pinging::start(a, &b.v6()),
        Pinging::start(b, &a.v4()),
    ];
    let mut numbers = Numbers(9);
    for attacker in &attackers {
        attacker.storm(10_000, |_| {
            let mut packet = attacker.packet(arp(&mut numbers, attacker.own));
            packet.source_qpn = numbers.next() as u32 & 0xff_ffff;
            packet.datagram()
        });
    }
    for ping in pings {
        ping.stop().lost_at_most(2);
    }
    let grown = [0, 1].map(|i| b.counter("ib0", names[i]) - before[i]);
    assert!(grown[0] > 18_000, "{} neighbours learned", grown[0]);
    assert!(grown[1] > 1000, "{} neighbours evicted", grown[1]);
    let known = b.ask("neigh ib0").len();
    assert!(known <= NEIGHBOURS_MAX, "{known} neighbours in the table");
    let grown = b.daemon().resident_kib().saturating_sub(memory);
    assert!(grown < 64 << 10, "resident memory grew by {grown} KiB");
}

/// A third host floods the second one with requests of its own address.
#[test]
fn a_neighbour_that_floods_is_limited_while_others_are_resolved() {
    let Some(lab) = Lab::segment(3) else { return };
    let mut lab = lab.run_with(&[]);
    let (a, b, third) = lab.three();
    let attacker = Attacker::new(third, b);
    let turn = Load::begin();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            turn.covers_this_thread();
            let mut numbers = Numbers(17);
            let claim = attacker.packet(arp(&mut numbers, attacker.own)).datagram();
            attacker.storm(6000, |_| claim.clone());
        });
        eventually(SOON, "a limited source", || {
            (b.counter("ib0", "rx_over_limit") > 0).then_some(())
        });
        for (from, to) in [(&*a, &*b), (&*b, &*a)] {
            from.ok("ip neigh flush dev ib0");
            from.reaches(to);
        }
    });
}

#[test]
fn a_storm_of_memberships_is_bounded_and_removes_no_other_group() {
    let _alone = Alone::begin();
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    let listening = [&V4, &V6].map(|group| receiver(b, "ib0", group));
    for group in [&V4, &V6] {
        eventually(SOON, "the group", || is_full_member(b, group).then_some(()));
    }
    let memory = b.daemon().resident_kib();
    let before = b.counter("ib0", "reports_snooped");
    b.queue_holds_a_second();
    let ping = Pinging::start(a, &b.v4());
    let reports: Vec<_> = (0..15_000u32)
        .flat_map(|n| {
            let [_, x, y, z] = n.to_be_bytes();
            let from = [0x52, 0x54, 0, 0x66, y, z];
            let source = Ipv4Addr::new(10, 9, 1, 1);
            let link_local = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 1, n as u16);
            let v6 = Ipv6Addr::new(0xff05, 0, 0, 0, 0, 0, 9, n as u16);
            [
                igmp_report(from, source, Ipv4Addr::new(239, 100 + x, y, z)),
                mld_report(from, link_local, v6),
            ]
        })
        .collect();
    b.send_frames("ib0", STORM, &reports);
    ping.stop().lost_at_most(2);
    let snooped = b.counter("ib0", "reports_snooped") - before;
    assert!(snooped > 10_000, "{snooped} reports snooped");
    let groups = b.groups("ib0", |g| g["send_only"] == false).len();
    assert!((100..=GROUPS_MAX).contains(&groups), "{groups} groups");
    assert!(b.counter("ib0", "groups_refused") > 0);
    let grown = b.daemon().resident_kib().saturating_sub(memory);
    assert!(grown < 64 << 10, "resident memory grew by {grown} KiB");
    for (group, listening) in [&V4, &V6].into_iter().zip(&listening) {
        assert!(is_full_member(b, group), "{} was lost", group.address);
        heard(&sender(a, "ib0", group), listening, "a packet of the group");
    }
    let warning = "more multicast groups than the table holds";
    assert_eq!(b.daemon().log().matches(warning).count(), 1, "logged once");
    a.reaches(b);
    b.reaches(a);
}

/// Each report has as many groups as fit, with the host's own Ethernet address, so that the host's own groups
/// are checked for every one.
#[test]
fn a_storm_of_forged_reports_of_the_host_does_not_pile_up() {
    let _alone = Alone::begin();
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    let own = frame::mac(b.link("ib0")["address"].as_str().expect("a MAC"));
    let memory = b.daemon().resident_kib();
    let before = b.counter("ib0", "reports_snooped");
    b.queue_holds_a_second();
    let ping = Pinging::start(a, &b.v4());
    let reports: Vec<_> = (0..10_000u32)
        .map(|n| {
            let group = |i: u32| Ipv4Addr::from(0xe600_0000 + n * 180 + i);
            let groups: Vec<Ipv4Addr> = (0..180).map(group).collect();
            igmp_report_of_many(own, Ipv4Addr::new(10, 9, 1, 1), &groups)
        })
        .collect();
    b.send_frames("ib0", STORM, &reports);
    ping.stop().lost_at_most(2);
    // The control thread still answers and joins new groups.
    let snooped = b.counter("ib0", "reports_snooped") - before;
    assert!(snooped > 5000, "{snooped} reports snooped");
    let listening = receiver(b, "ib0", &V4);
    eventually(SOON, "the group", || is_full_member(b, &V4).then_some(()));
    heard(&sender(a, "ib0", &V4), &listening, "a packet of the group");
    let grown = b.daemon().resident_kib().saturating_sub(memory);
    assert!(grown < 64 << 10, "resident memory grew by {grown} KiB");
}

/// A signature covers the options (RFC 3971). Such a message cannot be rewritten: it passes unchanged, and
/// the log reports that once.
#[test]
fn signed_neighbour_discovery_passes_untouched_and_is_logged_once() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    let mac = frame::mac("52:54:00:77:00:01");
    let mut options = vec![1, 1];
    options.extend(mac);
    // CGA parameters, a nonce, a signature.
    options.extend([11, 2, 4, 0].iter().chain(&[0xc9; 12]));
    options.extend([14, 1].iter().chain(&[0x5e; 6]));
    options.extend([12, 4, 0, 0].iter().chain(&[0xab; 28]));
    let source: Ipv6Addr = "fe80::7777".parse().expect("an address");
    let target: Ipv6Addr = b.v6().parse().expect("an address");
    let signed = solicitation(mac, source, target, &options);
    let listening = Sniffer::start(b, "ib0", &format!("icmp6 and src host {source}"));
    let seen = |bytes: &[u8]| {
        let captured = std::fs::read(listening.file()).expect("a capture");
        captured.windows(bytes.len()).any(|part| part == bytes)
    };
    eventually(SOON, "the message on the other side as it was", || {
        a.send_frames("ib0", 100, &vec![signed.clone(); 5]);
        seen(&signed[14..]).then_some(())
    });
    drop(listening);
    for host in [a, b] {
        eventually(SOON, "all five to be counted", || {
            (host.counter("ib0", "nd_signed") >= 5).then_some(())
        });
        let log = host.daemon().log();
        let logged = log.lines().filter(|line| line.contains("SEND")).count();
        assert_eq!(logged, 1, "{log}");
    }
}

/// Size of the daemon's table of neighbours, for each thread.
const NEIGHBOURS_MAX: usize = 2 * 16384;

#[test]
fn a_flood_of_made_up_neighbours_is_bounded() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    let attacker = Attacker::new(a, b);
    b.hides_invented_neighbours();
    let memory = b.daemon().resident_kib();
    let mut numbers = Numbers(7);
    attacker.flood(60_000, |_| {
        let mut packet = attacker.packet(arp(&mut numbers, attacker.own));
        packet.source_qpn = numbers.next() as u32 & 0xff_ffff;
        packet.datagram()
    });
    a.reaches(b);
    b.reaches(a);
    let known = b.ask("neigh ib0").len();
    assert!(
        (1..=NEIGHBOURS_MAX).contains(&known),
        "{known} neighbours in the table"
    );
    let grown = b.daemon().resident_kib().saturating_sub(memory);
    assert!(grown < 64 << 10, "resident memory grew by {grown} KiB");
}

/// All attacks at once, from unused addresses, during a TCP stream.
#[test]
fn a_flood_from_unknown_addresses_beside_a_stream() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    a.ok("sysctl -qw net.ipv6.ip_nonlocal_bind=1");
    let mut numbers = Numbers(11);
    let mut attackers: Vec<Attacker> = (0..64).map(|_| Attacker::new(a, b)).collect();
    for attacker in &mut attackers {
        attacker.move_to(
            a,
            Ipv6Addr::from(u128::from(numbers.next()) | 0xfe80 << 112),
        );
    }
    let counted = |host: &Host| host.counters("ib0", REFUSALS) + host.counters("ib0", MALFORMED);
    let before = counted(b);
    let memory = b.daemon().resident_kib();
    let _turn = Load::begin();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..60_000 {
                let attacker = &attackers[number % attackers.len()];
                let length = numbers.next() as usize % 200;
                let mut packet = attacker.packet(numbers.bytes(length));
                packet.source_qpn = numbers.next() as u32 & 0xff_ffff;
                let mut datagram = packet.datagram();
                match number % 4 {
                    0 => datagram.truncate(numbers.next() as usize % datagram.len()),
                    1 => datagram[12] ^= 0x10,
                    2 => datagram[7] ^= 0x55,
                    _ => {}
                }
                attacker.send(&datagram);
                if number % 64 == 63 {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        });
        iperf_above(a, b, &b.v6(), "-t 2", 10e6);
    });
    a.reaches(b);
    assert!(
        counted(b) - before > 10_000,
        "{} counted",
        counted(b) - before
    );
    let grown = b.daemon().resident_kib().saturating_sub(memory);
    assert!(grown < 64 << 10, "resident memory grew by {grown} KiB");
}
