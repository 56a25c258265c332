//! Local users who send RoCEv2 packets in the host's name, or open queues of interfaces.

use std::net::{Ipv6Addr, SocketAddrV6};

use crate::doctor::{doctor, finding};
use crate::hostile::arp;
use crate::lab::attacker::{Attacker, Numbers};
use crate::lab::packet::{ROCE_PORT, Ud};

use crate::lab::{Host, Lab, SOON, eventually, neighbour};

/// The group of the broadcast address of the default partition (RFC 4391, 4), as an IPv6 address.
const BROADCAST: Ipv6Addr = Ipv6Addr::new(0xff12, 0x401b, 0xffff, 0, 0, 0, 0xffff, 0xffff);
const PACKETS: u64 = 5;

/// An ARP request with the address of host 1 and an invented hardware address.
fn forged_arp(attacker: &Attacker) -> Ud {
    let mut claim = arp(&mut Numbers(7), attacker.own);
    claim[32..36].copy_from_slice(&[10, 9, 0, 1]);
    attacker.packet(claim)
}

/// Sends the packets of a local user to the host itself, to its address and to the group. Without the check
/// of the source port, the first moves the address of host 1 in the host's neighbour table.
#[test]
fn a_local_user_does_not_speak_for_the_host_to_the_host() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    a.reaches(b);
    b.reaches(a);
    let before = neighbour(b, "ib0", &a.v4());
    let attacker = Attacker::new(b, b).into_nobody(b);
    let refused = || b.counter("ib0", "rx_forged_own");
    let unicast = forged_arp(&attacker);
    let multicast = Ud {
        destination: BROADCAST,
        destination_qpn: 0xff_ffff,
        ..unicast.clone()
    };
    let group = SocketAddrV6::new(BROADCAST, ROCE_PORT, 0, attacker.victim.scope_id());
    for (packet, to) in [(unicast, attacker.victim), (multicast, group)] {
        let counted = refused();
        for _ in 0..PACKETS {
            attacker.send_to(&packet.datagram(), to);
        }
        eventually(SOON, &format!("refusals of packets to {to}"), || {
            (refused() == counted + PACKETS).then_some(())
        });
    }
    assert_eq!(neighbour(b, "ib0", &a.v4()), before);
    b.reaches(a);
    let (findings, _) = doctor(b, "");
    let (found, advice) = finding(&findings, "counters", "warn").expect("a warning");
    assert!(found.starts_with("rx_forged_own is "), "{found}");
    assert!(advice.contains("Local users"), "{advice}");
}

/// The ruleset of docs/security.md, "Local users", for a host without the user `ibtap`.
fn documented_rules() -> String {
    let page = include_str!("../../docs/security.md");
    let (_, section) = page.split_once("## Local users").expect("the section");
    let rules = section.split("```").nth(1).expect("a block").trim();
    assert!(rules.contains("!= { 0, ibtap }"), "{rules}");
    rules.replace("{ 0, ibtap }", "0")
}

/// What the doctor finds about local users.
fn doctors_word(host: &Host, level: &str) -> bool {
    let (findings, _) = doctor(host, "");
    let of_level = findings.iter().filter(|f| f["level"] == level);
    let mut texts = of_level.filter_map(|f| f["found"].as_str());
    texts.any(|text| text.contains("local users"))
}

#[test]
fn the_documented_rule_keeps_local_users_from_speaking_for_the_host() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    a.reaches(b);
    let attacker = Attacker::new(a, b).into_nobody(a);
    let mut packet = forged_arp(&attacker);
    packet.qkey ^= 1;
    let send = || (0..PACKETS).for_each(|_| attacker.send(&packet.datagram()));
    let arrived = || b.counter("ib0", "rx_qkey_violations");
    // The attack: the user's packets arrive under the real GID of the host.
    let before = arrived();
    send();
    eventually(SOON, "the user's packets", || {
        (arrived() == before + PACKETS).then_some(())
    });
    assert!(doctors_word(a, "note") && !doctors_word(a, "ok"));

    a.nft(&documented_rules());
    send();
    let rules = a.ok("nft list table inet ibtap");
    let dropped = format!("counter packets {PACKETS} ");
    assert!(rules.contains(&dropped), "{rules}");
    // The daemon's packets pass: unicast, multicast, and both directions.
    a.reaches(b);
    b.ok("ip neigh flush dev ib0");
    b.reaches(a);
    assert_eq!(arrived(), before + PACKETS);
    assert!(a.ok("nft list table inet ibtap").contains(&dropped));
    assert!(doctors_word(a, "ok") && !doctors_word(a, "note"));
}

#[test]
fn a_local_user_cannot_open_queues_of_interfaces() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    let child = "ip tuntap add dev ib0.8001 mode tap multi_queue";
    a.ok(child);
    assert_eq!(
        a.open_queue_as_nobody("ib0.8001"),
        "opened",
        "without the daemon"
    );
    for host in [&mut *a, &mut *b] {
        host.start(&["--persist", "--queues", "2"]);
        host.configure("ib0");
    }
    eventually(SOON, "the child", || {
        a.ask("show").into_iter().find(|i| i["name"] == "ib0.8001")
    });
    a.reaches(b);
    let names = ["ib0", "ib0.8001"];
    for name in names {
        assert_eq!(
            a.open_queue_as_nobody(name),
            "Operation not permitted",
            "{name}"
        );
    }
    a.stop();
    for name in names {
        assert_eq!(
            a.open_queue_as_nobody(name),
            "Operation not permitted",
            "{name}, left"
        );
    }
    a.start(&["--persist", "--queues", "2"]);
    a.reaches(b);
}
