//! Inspection of claims: pins, and addresses of live neighbours.

use std::sync::Arc;

use proto::{Inspect, Pin};

use super::*;
use crate::Event;

const IP: [u8; 4] = [10, 0, 0, 2];

fn owner_of() -> HardwareAddress {
    address(0xb, 0x4b)
}

fn thief() -> HardwareAddress {
    address(0xe, 0x4e)
}

fn inspecting(action: Inspect, pins: &[Pin]) -> Ipoib {
    let mut c = a();
    c.set_inspection(
        action,
        Some(Arc::new(pins.iter().map(|p| (p.ip, *p)).collect())),
    );
    c
}

fn pin(qpn: Option<u32>) -> Pin {
    Pin {
        ip: IP.into(),
        gid: owner_of().gid(),
        qpn: qpn.map(Qpn::new),
    }
}

/// An ARP reply of `peer` for the address, from its own port.
fn claim(c: &mut Ipoib, now: u64, peer: HardwareAddress) -> Result<(), DropReason> {
    let l = c.local();
    let reply = payload(0x0806, &arp(2, &peer.0, IP, &l.0, [10, 0, 0, 1]));
    match c.from_fabric(Time(now), &meta(peer, l.gid()), &reply) {
        Incoming::Dropped(reason) => Err(reason),
        _ => Ok(()),
    }
}

/// Data of `peer` with its IP address as the source.
fn speak(c: &mut Ipoib, now: u64, peer: HardwareAddress) {
    let to = c.local().gid();
    let data = payload(0x0800, &ipv4(IP, [10, 0, 0, 1], b"data"));
    let got = c.from_fabric(Time(now), &meta(peer, to), &data);
    assert!(matches!(got, Incoming::Packet { .. }));
}

fn holder(c: &Ipoib) -> Option<HardwareAddress> {
    let slot = c.neighbours.by_ip(IP.into())?;
    Some(c.neighbours.get(slot).address)
}

fn counted(c: &Ipoib) -> (u64, u64, u64) {
    let counters = c.counters();
    (
        counters.claims_against_pins,
        counters.claims_of_live_addresses,
        counters.rx_dropped(DropReason::RefusedClaim),
    )
}

fn suspicious(c: &mut Ipoib) -> Vec<(HardwareAddress, bool, bool)> {
    let events = std::iter::from_fn(|| c.pop_event());
    let claims = events.filter_map(|event| match event {
        Event::SuspiciousClaim {
            address,
            pinned,
            refused,
            ..
        } => Some((address, pinned, refused)),
        _ => None,
    });
    claims.collect()
}

#[test]
fn a_pinned_address_stays_with_its_neighbour() {
    for (action, taken) in [
        (Inspect::Off, true),
        (Inspect::Warn, true),
        (Inspect::Enforce, false),
    ] {
        let mut c = inspecting(action, &[pin(None)]);
        let result = claim(&mut c, 0, thief());
        assert_eq!(result.is_ok(), taken, "{action}");
        assert_eq!(holder(&c), taken.then(thief), "{action}");
        let seen = u64::from(action != Inspect::Off);
        assert_eq!(counted(&c), (seen, 0, u64::from(!taken)), "{action}");
        let expected = match action {
            Inspect::Off => Vec::new(),
            _ => vec![(thief(), true, !taken)],
        };
        assert_eq!(suspicious(&mut c), expected);
        assert_eq!(claim(&mut c, 0, owner_of()), Ok(()));
        assert_eq!(holder(&c), Some(owner_of()), "{action}");
    }
}

/// An advertisement without the Override flag, for which the host may use the address nevertheless.
#[test]
fn a_claim_that_does_not_override_is_inspected_too() {
    let ip = v6("fd00::77");
    let mut c = inspecting(Inspect::Enforce, &[Pin { ip, ..pin(None) }]);
    let mut claim = |peer| {
        let message = nd(136, "fd00::77", &ib_option(2, peer));
        let packet = payload(0x86dd, &icmpv6("fd00::77", "fd00::a", &message));
        let m = meta(peer, c.local().gid());
        receive(&mut c, &m, &packet).map(drop)
    };
    assert_eq!(claim(thief()), Err(DropReason::RefusedClaim));
    assert_eq!(claim(owner_of()), Ok(()));
    assert_eq!(claim(thief()), Err(DropReason::RefusedClaim));
}

#[test]
fn data_is_no_hint_against_a_pin() {
    let mut c = inspecting(Inspect::Enforce, &[pin(None)]);
    speak(&mut c, 0, thief());
    assert_eq!(holder(&c), None);
    speak(&mut c, 0, owner_of());
    assert_eq!(holder(&c), Some(owner_of()));
}

#[test]
fn a_pin_may_have_a_queue_pair() {
    let other = address(0xb, 0x77);
    let mut c = inspecting(Inspect::Enforce, &[pin(None)]);
    assert_eq!(claim(&mut c, 0, other), Ok(()));
    let mut c = inspecting(Inspect::Enforce, &[pin(Some(0x4b))]);
    assert_eq!(claim(&mut c, 0, other), Err(DropReason::RefusedClaim));
    assert_eq!(claim(&mut c, 0, owner_of()), Ok(()));
}

/// A pinned neighbour may take its address from a thief that is live.
#[test]
fn the_pinned_neighbour_takes_its_address_back() {
    let mut c = inspecting(Inspect::Enforce, &[]);
    assert_eq!(claim(&mut c, 0, thief()), Ok(()));
    let pins = [((IP.into()), pin(None))].into_iter().collect();
    c.set_inspection(Inspect::Enforce, Some(Arc::new(pins)));
    assert_eq!(claim(&mut c, 1, owner_of()), Ok(()));
    assert_eq!(holder(&c), Some(owner_of()));
}

#[test]
fn the_address_of_a_live_neighbour_cannot_be_taken() {
    let mut c = inspecting(Inspect::Enforce, &[]);
    assert_eq!(claim(&mut c, 0, owner_of()), Ok(()));
    assert_eq!(claim(&mut c, 1000, thief()), Err(DropReason::RefusedClaim));
    speak(&mut c, 20_000, owner_of());
    assert_eq!(
        claim(&mut c, 49_000, thief()),
        Err(DropReason::RefusedClaim)
    );
    assert_eq!(holder(&c), Some(owner_of()));
    assert_eq!(suspicious(&mut c), [(thief(), false, true); 2]);
    // It restarts, with another queue pair.
    let restarted = address(0xb, 0x55);
    assert_eq!(claim(&mut c, 49_500, restarted), Ok(()));
    // It is silent: a standby router takes over.
    assert_eq!(
        claim(&mut c, 79_000, thief()),
        Err(DropReason::RefusedClaim)
    );
    assert_eq!(claim(&mut c, 79_501, thief()), Ok(()));
    assert_eq!(holder(&c), Some(thief()));
    assert_eq!(counted(&c), (0, 3, 3));
}

#[test]
fn a_warning_follows_the_claim_and_is_reported_once_a_second() {
    let mut c = inspecting(Inspect::Warn, &[]);
    assert_eq!(claim(&mut c, 5000, owner_of()), Ok(()));
    for now in 0..100 {
        let peer = if now % 2 == 0 { thief() } else { owner_of() };
        assert_eq!(claim(&mut c, 5000 + now, peer), Ok(()));
    }
    assert_eq!(counted(&c), (0, 100, 0));
    assert_eq!(suspicious(&mut c), [(thief(), false, false)]);
}

/// Data arrives at one thread, the claim at another.
#[test]
fn replicas_know_that_a_neighbour_is_live() {
    let mut one = inspecting(Inspect::Enforce, &[]);
    let mut two = inspecting(Inspect::Enforce, &[]);
    assert_eq!(claim(&mut one, 0, owner_of()), Ok(()));
    for now in (0..=60_000).step_by(500) {
        speak(&mut one, now, owner_of());
        let updates: Vec<_> = one.drain_updates().collect();
        updates.iter().for_each(|u| two.apply(Time(now), u));
    }
    assert_eq!(holder(&two), Some(owner_of()));
    assert_eq!(
        claim(&mut two, 60_001, thief()),
        Err(DropReason::RefusedClaim)
    );
}

/// One thread asks another one for the owner of the address, which is silent for long.
#[test]
fn an_answer_of_another_replica_is_no_packet_of_the_owner() {
    let [mut one, mut two] = [0; 2].map(|_| inspecting(Inspect::Enforce, &[]));
    assert_eq!(claim(&mut two, 0, owner_of()), Ok(()));
    // The first replica forgets the neighbour, or its update is lost.
    two.drain_updates().for_each(drop);
    let data = ipv4([10, 0, 0, 1], IP, b"data");
    let to = crate::peer_mac(&owner_of());
    assert_eq!(
        send(&mut one, Time(60_000), &frame(to, MAC_A, 0x0800, &data)),
        Sent::Held
    );
    one.drain_updates()
        .for_each(|u| two.apply(Time(60_000), &u));
    two.drain_updates()
        .for_each(|u| one.apply(Time(60_000), &u));
    assert_eq!(holder(&one), Some(owner_of()));
    for replica in [&mut one, &mut two] {
        assert_eq!(claim(replica, 61_000, thief()), Ok(()));
    }
}

#[test]
fn without_inspection_replicas_hear_nothing_more() {
    let mut c = a();
    teach(&mut c, owner_of(), IP);
    c.drain_updates().for_each(drop);
    for now in (0..60_000).step_by(500) {
        speak(&mut c, now, owner_of());
    }
    assert!(!c.has_updates());
}
