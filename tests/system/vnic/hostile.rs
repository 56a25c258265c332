//! Forbidden packets: counted and dropped; other traffic continues.

use super::{count, fixed, lid, managed, pair, pair_with, vesw};
use crate::lab::attacker::{Attacker, Numbers};
use crate::lab::frame::{Mac, ethernet};
use crate::lab::packet16::{Packet16, data_qkey};
use crate::lab::{Em, Host, Lab, Load, Pinging, SOON, backlog_drops, eventually, iperf_above};

/// Drop reasons of the fabric and of the VNIC.
const REFUSALS: [&str; 20] = [
    "rx_length_errors",
    "rx_bad_opcode",
    "rx_bad_version",
    "rx_not_our_gid",
    "rx_unknown_qpn",
    "rx_bad_state",
    "rx_pkey_violations",
    "rx_qkey_violations",
    "rx_icrc_errors",
    "rx_bad_veswid",
    "rx_bad_l4",
    "rx_bad_l2",
    "rx_bad_lid",
    "rx_bad_pkey",
    "rx_bad_tail",
    "rx_length_mismatch",
    "rx_truncated",
    "rx_other_lid",
    "rx_oversize",
    "rx_runt",
];

/// Drops before the daemon: the socket was full.
const LOST: &str = "rx_socket_drops";

/// A frame to a victim.
fn frame(to: Mac, from: Mac, length: usize) -> Vec<u8> {
    let mut frame = ethernet(to, from, 0x88b5);
    frame.resize(length, 0x5a);
    frame
}

/// A correct packet of switch 1.
fn right(a: &Host, b: &Host) -> Packet16 {
    Packet16 {
        slid: lid(a, "vnic0"),
        dlid: lid(b, "vnic0"),
        sc: 0,
        pkey: 0xffff,
        vesw: 1,
        frame: frame(super::mac_of(b, "vnic0"), super::mac_of(a, "vnic0"), 100),
    }
}

/// The datagram with a payload to the victim's queue pair, with the keys of switch 1.
fn datagram(attacker: &Attacker, payload: Vec<u8>) -> Vec<u8> {
    let mut packet = attacker.packet(payload);
    packet.qkey = data_qkey(1);
    packet.datagram()
}

/// Each kind of error has its counter, and each is counted once.
#[test]
fn vr14_every_fault_has_its_counter() {
    let Some(mut lab) = pair() else { return };
    let (a, b) = lab.two();
    let attacker = Attacker::of(a, b, "vnic0");
    let good = right(a, b);
    let with = |at: usize, byte: u8| {
        let mut bytes = good.bytes();
        bytes[at] = byte;
        bytes
    };
    let last = good.bytes().len() - 1;
    let changed = |change: &dyn Fn(&mut Packet16)| {
        let mut packet = good.clone();
        change(&mut packet);
        packet.bytes()
    };
    let faults: Vec<(&str, Vec<u8>)> = vec![
        ("rx_bad_veswid", changed(&|p| p.vesw = 2)),
        ("rx_bad_veswid", changed(&|p| p.vesw = 257)),
        ("rx_bad_l4", with(8, 0x79)),
        ("rx_bad_l2", with(7, 0xa0)),
        ("rx_bad_lid", changed(&|p| p.slid = 0)),
        ("rx_bad_lid", changed(&|p| p.slid = 0xf0_0001)),
        ("rx_bad_pkey", changed(&|p| p.pkey = 0x8001)),
        ("rx_bad_tail", with(last, 0x48)),
        ("rx_length_mismatch", with(3, 0x70)),
        ("rx_truncated", good.bytes()[..19].to_vec()),
        ("rx_bad_lid", changed(&|p| p.dlid ^= 1)),
        ("rx_runt", changed(&|p| p.frame.truncate(59))),
    ];
    for (counter, bytes) in faults {
        let before = count(b, counter);
        attacker.send(&datagram(&attacker, bytes));
        eventually(SOON, counter, || {
            let counted = count(b, counter) - before;
            assert!(counted < 2, "{counter} counts twice");
            (counted == 1).then_some(())
        });
    }
    // Correct packets arrive.
    let before = count(b, "rx_unicast");
    attacker.send(&datagram(&attacker, good.bytes()));
    eventually(SOON, "the good one", || {
        (count(b, "rx_unicast") > before).then_some(())
    });
}

#[test]
fn garbage_and_flipped_bits_do_no_harm() {
    let Some(mut lab) = pair() else { return };
    let (a, b) = lab.two();
    let attacker = Attacker::of(a, b, "vnic0");
    let good = right(a, b);
    let counted = |host: &Host| host.counters("vnic0", &REFUSALS) + host.counter("vnic0", LOST);
    let memory = b.daemon().resident_kib();
    let before = counted(b);
    let lost_before = b.counter("vnic0", LOST);
    let backlog_before = backlog_drops();
    let count = 20_000;
    let _turn = Load::begin();
    let ping = Pinging::start(a, &b.v4());
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    attacker.flood(count, |number| match number % 4 {
        // Arbitrary bytes, below the fabric and above it.
        0 => numbers.bytes(number % 4200),
        1 => datagram(&attacker, numbers.bytes(number % 4000)),
        // Truncated, and with flipped bits in the header.
        2 => {
            let bytes = good.bytes();
            let keep = numbers.next() as usize % bytes.len();
            datagram(&attacker, bytes[..keep].to_vec())
        }
        _ => {
            let mut bytes = good.bytes();
            // Wrong format, type, length or switch: never another meaning.
            let at = [3, 7, 8, 18][numbers.next() as usize % 4];
            bytes[at] ^= if at == 7 {
                0x60
            } else {
                1 << (numbers.next() % 7)
            };
            datagram(&attacker, bytes)
        }
    });
    ping.goes_on();
    // A full socket drops requests, too. So does a full backlog, which the flood and other tests fill.
    let lost = (b.counter("vnic0", LOST) - lost_before) as usize;
    let in_backlog = (backlog_drops() - backlog_before) as usize;
    ping.stop().lost_at_most(lost + in_backlog);
    assert!(b.daemon().is_running());
    a.reaches(b);
    let counted = counted(b) - before;
    assert!(
        ((count * 9 / 10).saturating_sub(in_backlog)..=count + lost).contains(&(counted as usize)),
        "{counted} of {count}, {in_backlog} lost in the backlog"
    );
    let grown = b.daemon().resident_kib().saturating_sub(memory);
    assert!(grown < 32 << 10, "resident memory grew by {grown} KiB");
}

/// With a list of peers, others are ignored: a stranger, and a peer's LID from another endpoint.
#[test]
fn forged_sources_are_refused_where_peers_are_listed() {
    let Some(mut lab) = Lab::segment(3) else {
        return;
    };
    let (a, b, c) = lab.three();
    let gid = |host: &Host| host.await_link_local("eth0");
    let (of_a, of_b) = (gid(a), gid(b));
    let key = |own: u32, peer: u32, gid: &str| {
        format!("lid = {own}\npeers = [{{ lid = {peer}, gid = {gid:?} }}]")
    };
    a.start_config(&fixed("vnic0", 1, &key(1, 2, &of_b)));
    b.start_config(&fixed("vnic0", 1, &key(2, 1, &of_a)));
    c.start_config(&fixed("vnic0", 1, "lid = 3"));
    for host in [&*a, &*b, &*c] {
        host.configure("vnic0");
    }
    a.reaches(b);
    // The third host is on the switch by its own configuration, but receives no answer.
    assert!(!c.pings(&a.v4()) && !c.pings(&b.v4()));
    eventually(SOON, "its packets to be refused", || {
        (count(b, "rx_forged_lid") > 0).then_some(())
    });
    // Also not with the identity of host 1.
    let attacker = Attacker::of(c, b, "vnic0");
    let mut packet = right(a, b);
    packet.frame[6..12].copy_from_slice(&[2, 0, 0, 0x66, 0x66, 0x66]);
    let before = (count(b, "rx_forged_lid"), count(b, "mac_learned"));
    for _ in 0..5 {
        attacker.send(&datagram(&attacker, packet.bytes()));
    }
    eventually(SOON, "the forged ones to be refused", || {
        (count(b, "rx_forged_lid") >= before.0 + 5).then_some(())
    });
    assert_eq!(count(b, "mac_learned"), before.1);
    assert!(super::known(b, "vnic0", "02:00:00:66:66:66").is_none());
    a.reaches(b);
}

#[test]
fn a_mac_storm_is_bounded() {
    const LIMIT: u64 = 1000;
    let Some(mut lab) = pair_with(&format!("mac_limit = {LIMIT}")) else {
        return;
    };
    let (a, b) = lab.two();
    let attacker = Attacker::of(a, b, "vnic0");
    let good = right(a, b);
    let memory = b.daemon().resident_kib();
    let mut numbers = Numbers(0x2545_f491_4f6c_dd1d);
    attacker.flood(20_000, |_| {
        let mut packet = good.clone();
        let random = numbers.bytes(5);
        packet.frame[6] = 2;
        packet.frame[7..12].copy_from_slice(&random);
        datagram(&attacker, packet.bytes())
    });
    eventually(SOON, "the storm to be taken in", || {
        (count(b, "mac_evicted") > 5000).then_some(())
    });
    // Data threads exchange learned addresses, but at a lower rate than a storm.
    let known = b.ask("vnic mac vnic0").len() as u64;
    let threads = b.show("vnic0")["queues"].as_u64().expect("a number");
    assert!(known <= threads * LIMIT + 16, "{known} addresses");
    let grown = b.daemon().resident_kib().saturating_sub(memory);
    assert!(grown < 32 << 10, "resident memory grew by {grown} KiB");
    a.reaches(b);
    b.reaches(a);
    iperf_above(b, a, &a.v4(), "-n 16M", 50e6);
}

/// A MAC that two nodes use moves a few times, then it stays; the log has one line.
#[test]
fn a_mac_at_two_nodes_is_damped() {
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
    c.reaches(a);
    let stolen = [2, 0, 0, 0, 0x99, 0x99];
    let frame = frame(super::mac_of(c, "vnic0"), stolen, 100);
    // Each claims the address ten times a second.
    let claims = [&*a, &*b].map(|host| host.start_frames("vnic0", 10, &vec![frame.clone(); 20]));
    let claims = claims.map(|mut claim| claim.0.wait().expect("a child"));
    assert!(claims.iter().all(|status| status.success()));
    eventually(SOON, "the damping", || {
        (count(c, "mac_damped") > 0).then_some(())
    });
    assert!(count(c, "mac_moved") < 10);
    let log = c.daemon().log();
    let logged = log
        .lines()
        .filter(|line| line.contains("02:00:00:00:99:99"));
    assert_eq!(logged.count(), 1, "{log}");
    a.reaches(c);
}

/// The Q_Key of management.
pub const MANAGEMENT_QKEY: u32 = 0x0b1b_f034;

/// A management datagram that makes virtual port 0 forward on switch 9 (kernel opa_vnic_encap.h), in one
/// piece: method Set, attribute VeswPortInfo.
pub fn takeover(transaction: u32) -> Vec<u8> {
    let mut mad = vec![0; 40 + 280];
    mad[..4].copy_from_slice(&[0x80, 0x34, 0x80, 0x02]);
    mad[12..16].copy_from_slice(&transaction.to_be_bytes());
    mad[16..18].copy_from_slice(&0x0011_u16.to_be_bytes());
    mad[37..40].copy_from_slice(&[0x00, 0x06, 0x6a]);
    let info = &mut mad[40..];
    info[2..4].copy_from_slice(&9_u16.to_be_bytes());
    info[14..16].copy_from_slice(&0xffff_u16.to_be_bytes());
    info[20..24].copy_from_slice(&0xf0_0009_u32.to_be_bytes());
    info[148..150].copy_from_slice(&1500_u16.to_be_bytes());
    let port = &mut info[152..];
    port[8..14].copy_from_slice(&[2, 0, 0, 9, 9, 9]);
    port[14] = 3;
    port[28..32].copy_from_slice(&9_u32.to_be_bytes());
    let mut piece = vec![1, 0];
    piece.extend((mad.len() as u16).to_be_bytes());
    piece.extend([0; 4]);
    piece.extend(transaction.to_be_bytes());
    piece.extend(mad);
    piece
}

/// The number of the queue pair that a host's agent uses.
pub fn management_qpn(host: &Host) -> u32 {
    let queue_pairs = host.ask("res")[0]["queue_pairs"].clone();
    let all = queue_pairs.as_array().expect("an array").iter();
    let management = all.filter(|qp| qp["type"] == "UD" && qp["interface"] != "vnic0");
    let mut numbers = management.filter_map(|qp| qp["qpn"].as_u64());
    let number = numbers.find(|number| *number > 1);
    let number = number.unwrap_or_else(|| panic!("no management: {queue_pairs}"));
    u32::try_from(number).expect("24 bits")
}

/// Any host that reaches the management queue pair may send garbage, incomplete messages, and requests
/// without permission.
#[test]
fn management_from_strangers_changes_nothing() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    let allowed = a.await_link_local("eth0");
    let keys = format!("[port.eth0]\nmanagers = [{allowed:?}]\n");
    for host in [&mut *a, &mut *b] {
        host.start_config(&format!("{keys}{}", managed("vnic0")));
        host.configure_addresses("vnic0");
    }
    let em = Em::start(a, "poll_interval = 1", &vesw(1, ""));
    for host in [&*a, &*b] {
        host.await_carrier("vnic0", true);
    }
    a.reaches(b);
    let before = b.show("vnic0");

    a.ok("sysctl -qw net.ipv6.ip_nonlocal_bind=1");
    let mut attacker = Attacker::of(a, b, "vnic0");
    attacker.move_to(a, "fe80::bad".parse().expect("an address"));
    attacker.qpn = management_qpn(b);
    let datagram = |payload: Vec<u8>| {
        let mut packet = attacker.packet(payload);
        packet.qkey = MANAGEMENT_QKEY;
        packet.datagram()
    };
    let memory = b.daemon().resident_kib();
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    attacker.flood(10_000, |turn| {
        let random = numbers.bytes(turn % 1100);
        match turn % 3 {
            0 => datagram(random),
            // A fragment of a message whose other fragments never arrive.
            1 => {
                let mut piece = vec![1, 0, 8, 0, 0, 0, 0, 0];
                piece.extend(numbers.bytes(4));
                piece.extend([0x34; 1024]);
                datagram(piece)
            }
            _ => datagram(takeover(turn as u32)),
        }
    });
    eventually(SOON, "a word about the stranger", || {
        let log = b.daemon().log();
        let logged = log.lines().filter(|line| line.contains("fe80::bad"));
        let logged: Vec<_> = logged.collect();
        assert!(logged.len() < 2, "more than once: {logged:?}");
        (logged.len() == 1).then_some(())
    });
    for key in ["vesw", "lid", "mac", "carrier"] {
        assert_eq!(b.show("vnic0")[key], before[key], "{key}");
    }
    let grown = b.daemon().resident_kib().saturating_sub(memory);
    assert!(grown < 32 << 10, "resident memory grew by {grown} KiB");
    // The manager is still active.
    em.reconfigure(|text| text.replace("id = 1", "id = 3"));
    em.reload();
    eventually(SOON, "the manager's word", || {
        (b.show("vnic0")["vesw"] == 3).then_some(())
    });
    a.reaches(b);
}
