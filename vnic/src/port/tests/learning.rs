//! Learning of addresses.

use std::sync::Arc;

use proto::{Mac, Time};

use crate::Lid;
use crate::port::testing::*;
use crate::port::{Event, Place, Settings, VeswPort};

/// Address of a guest.
const GUEST: Mac = [0x52, 0x54, 0, 0x12, 0x34, 0x56];

/// A frame of `source` from the member `lid`.
fn hear(port: &mut VeswPort, now: u64, source: Mac, lid: u32) {
    let packet = packet(&header(lid, ALL), &frame(BROADCAST, source));
    let got = port.from_fabric(Time(now), &from(lid, true), &packet);
    assert!(got.is_ok(), "{got:?}");
}

/// Result of sending a frame to an address.
fn goes_to(port: &mut VeswPort, now: u64, to: Mac) -> Sent {
    send_at(port, now, &frame(to, mac(5)))
}

fn lid_of(port: &mut VeswPort, now: u64, to: Mac) -> Option<Lid> {
    let sent = goes_to(port, now, to);
    sent.dlid().filter(|_| !sent.by_group())
}

fn events(port: &mut VeswPort) -> Vec<Event> {
    std::iter::from_fn(|| port.poll_event()).collect()
}

#[test]
fn an_address_is_at_its_last_location() {
    let mut port = port(5);
    assert_eq!(lid_of(&mut port, 0, GUEST), None);
    hear(&mut port, 0, GUEST, 7);
    assert_eq!(lid_of(&mut port, 0, GUEST), Some(Lid::new(7)));
    hear(&mut port, 1, GUEST, 8);
    assert_eq!(lid_of(&mut port, 1, GUEST), Some(Lid::new(8)));
    let c = port.counters();
    assert_eq!((c.mac_learned, c.mac_moved, c.tx_flooded), (1, 1, 1));
    // The manager's table takes precedence.
    port.set_table(Arc::new(table(&[(GUEST, 7 << 8)])));
    assert_eq!(lid_of(&mut port, 2, GUEST), Some(Lid::new(7)));
}

#[test]
fn group_addresses_and_the_interfaces_own_are_not_learned() {
    let mut port = port(5);
    hear(&mut port, 0, [0x01, 0, 0x5e, 1, 2, 3], 7);
    hear(&mut port, 0, [0; 6], 7);
    hear(&mut port, 0, BROADCAST, 7);
    assert_eq!(events(&mut port), []);
    hear(&mut port, 0, mac(5), 7);
    hear(&mut port, 5, mac(5), 8);
    assert_eq!(port.learned(Time(0)).count(), 0);
    let (kept, other) = (Place::Here, Place::At(Lid::new(7)));
    let conflict = Event::MacConflict {
        mac: mac(5),
        kept,
        other,
    };
    assert_eq!(events(&mut port), [conflict]);
}

#[test]
fn a_silent_address_expires() {
    let mut port = port(5);
    hear(&mut port, 0, GUEST, 7);
    hear(&mut port, 200_000, GUEST, 7);
    hear(&mut port, 200_000, mac(8), 8);
    port.handle_timeout(Time(301_000));
    assert_eq!(lid_of(&mut port, 301_000, GUEST), Some(Lid::new(7)));
    let due = port.next_deadline().unwrap();
    assert!((500_000..=502_000).contains(&due.0), "{due:?}");
    port.handle_timeout(Time(502_000));
    assert_eq!(lid_of(&mut port, 502_000, GUEST), None);
    assert_eq!(port.nodes().count(), 0);
    assert_eq!(port.counters().mac_aged, 2);
    assert_eq!(port.next_deadline(), None);
}

#[test]
fn thousands_of_addresses_expire_in_parts() {
    let mut port = port(5);
    for n in 0..5000_u32 {
        let [_, _, a, b] = n.to_be_bytes();
        hear(&mut port, 0, [0x02, 0, 0, 0, a, b], 7);
    }
    let now = Time(302_000);
    let mut calls = 0;
    while port.next_deadline().is_some_and(|due| due <= now) {
        port.handle_timeout(now);
        calls += 1;
        let left = port.learned(now).count();
        assert!(
            left >= 5000_usize.saturating_sub(2048 * calls),
            "{left} left"
        );
    }
    assert_eq!(
        (port.learned(now).count(), port.counters().mac_aged),
        (0, 5000)
    );
    assert!(calls >= 3);
}

#[test]
fn ageing_can_be_switched_off() {
    let settings = Settings {
        ageing_ms: 0,
        ..settings(5)
    };
    let mut port = port_with(settings, &info(5));
    hear(&mut port, 0, GUEST, 7);
    assert_eq!(port.next_deadline(), None);
    port.handle_timeout(Time(u64::MAX / 2));
    assert_eq!(lid_of(&mut port, 0, GUEST), Some(Lid::new(7)));
}

#[test]
fn without_learning_no_address_is_kept() {
    let mut port = port(5);
    hear(&mut port, 0, GUEST, 7);
    port.set_learning(false);
    hear(&mut port, 0, mac(8), 8);
    assert_eq!(port.learned(Time(0)).count(), 0);
    // The driver takes a LID from the address.
    let sent = goes_to(&mut port, 0, GUEST);
    assert_eq!(sent.dlid(), Some(Lid::new(0x56_3412)));
    port.set_learning(true);
    hear(&mut port, 1000, GUEST, 7);
    assert_eq!(lid_of(&mut port, 1000, GUEST), Some(Lid::new(7)));
}

#[test]
fn an_address_at_two_members_is_kept_and_reported_once() {
    let mut port = port(5);
    let mut at = 0;
    for n in 0..200 {
        at += 100;
        hear(&mut port, at, GUEST, 7 + n % 2);
    }
    let c = port.counters();
    // Three moves, then a pause of ten seconds: at most three such series in 20 seconds.
    assert!((3..=9).contains(&c.mac_moved), "{} moves", c.mac_moved);
    assert!(c.mac_damped > 50);
    let reported = events(&mut port);
    assert!(
        matches!(reported[..], [Event::MacConflict { mac: GUEST, .. }]),
        "{reported:?}"
    );
}

/// A flood of forged frames ends where it has begun, even if the owner is silent.
#[test]
fn an_address_returns_to_its_place_after_too_many_moves() {
    let mut port = port(5);
    hear(&mut port, 0, GUEST, 7);
    for n in 0..100 {
        hear(&mut port, 1000 + n, GUEST, 8 + (n % 20) as u32);
    }
    assert_eq!(lid_of(&mut port, 1100, GUEST), Some(Lid::new(7)));
    let (kept, other) = (Place::At(Lid::new(7)), Place::At(Lid::new(15)));
    let mac = GUEST;
    let conflict = Event::MacConflict { mac, kept, other };
    assert_eq!(events(&mut port), [conflict]);
}

#[test]
fn a_guest_is_on_one_side_and_the_last_frame_decides() {
    let mut port = port(5);
    hear(&mut port, 0, GUEST, 7);
    // The guest moves here.
    send_at(&mut port, 1000, &frame(BROADCAST, GUEST));
    assert_eq!(port.local_macs(), [GUEST]);
    let places: Vec<Place> = port.learned(Time(0)).map(|l| l.place).collect();
    assert_eq!(places, [Place::Here]);
    // Frames for the guest are flooded, in case it moved on without sending.
    assert!(goes_to(&mut port, 1000, GUEST).by_group());
    // The guest moves away again.
    hear(&mut port, 2000, GUEST, 8);
    assert_eq!(port.local_macs(), [] as [Mac; 0]);
    assert_eq!(lid_of(&mut port, 2000, GUEST), Some(Lid::new(8)));
    assert_eq!(port.counters().mac_moved, 2);
    // An alternating guest is not followed.
    for n in 0..20_u64 {
        send_at(&mut port, 2000 + 2 * n, &frame(BROADCAST, GUEST));
        hear(&mut port, 2001 + 2 * n, GUEST, 8);
    }
    assert!(port.counters().mac_moved <= 4);
    let reported = events(&mut port);
    assert_eq!(reported.len(), 1, "{reported:?}");
}

#[test]
fn addresses_behind_the_interface_are_reported_once_a_second() {
    let mut port = port(5);
    let guest = |n: u8| [0x52, 0x54, 0, 0, 0, n];
    send_at(&mut port, 5000, &frame(BROADCAST, mac(5)));
    assert_eq!(port.next_deadline(), None);
    send_at(&mut port, 5000, &frame(BROADCAST, guest(2)));
    send_at(&mut port, 5001, &frame(BROADCAST, guest(1)));
    let due = port.next_deadline().unwrap();
    assert!(due <= Time(5001), "the first report is immediate");
    port.handle_timeout(Time(5001));
    let both = Event::LocalMacs(vec![guest(1), guest(2)]);
    assert_eq!(events(&mut port), [both]);
    send_at(&mut port, 5100, &frame(BROADCAST, guest(3)));
    assert_eq!(port.next_deadline(), Some(Time(6001)));
    port.handle_timeout(Time(5999));
    assert_eq!(events(&mut port), []);
    port.handle_timeout(Time(6001));
    assert_eq!(events(&mut port).len(), 1);
    // The interface gets one of the addresses.
    port.set_mac(guest(3));
    port.handle_timeout(Time(8000));
    let both = Event::LocalMacs(vec![guest(1), guest(2)]);
    assert_eq!(events(&mut port), [both]);
    // They expire independently of the ageing time of learned addresses.
    port.set_ageing(0);
    send_at(&mut port, 200_000, &frame(BROADCAST, guest(2)));
    port.handle_timeout(port.next_deadline().unwrap());
    port.handle_timeout(Time(306_000));
    let reported = events(&mut port);
    assert_eq!(
        reported.last(),
        Some(&Event::LocalMacs(vec![guest(2)])),
        "{reported:?}"
    );
}

#[test]
fn storms_of_addresses_stay_in_bounds() {
    let settings = Settings {
        mac_limit: 1000,
        ..settings(5)
    };
    let mut port = port_with(settings, &info(5));
    let mut published = 0;
    for n in 0..200_000_u32 {
        let [_, a, b, c] = n.to_be_bytes();
        // 100,000 addresses per second from each side.
        let now = u64::from(n / 200);
        hear(&mut port, now, [0x02, 1, 0, a, b, c], 7);
        send_at(&mut port, now, &frame(BROADCAST, [0x02, 2, 0, a, b, c]));
        if n % 100 == 0 {
            published += port.drain_updates().count();
        }
    }
    let c = port.counters();
    assert_eq!((c.mac_learned, c.mac_evicted), (200_000, 199_000));
    let learned = port.learned(Time(1000)).count();
    assert_eq!(learned, 1000 + 256);
    // 4096 at once and 16 per millisecond.
    assert!(published <= 4096 + 16 * 1001, "{published} updates");
    assert!(published > 10_000);
    // The newest addresses are left.
    assert_eq!(
        lid_of(&mut port, 1000, [0x02, 1, 0, 3, 0x0d, 0x3f]),
        Some(Lid::new(7))
    );
}

#[test]
fn another_switch_has_other_addresses() {
    let mut port = port(5);
    hear(&mut port, 0, GUEST, 7);
    port.configure(&info(6));
    assert_eq!(
        lid_of(&mut port, 0, GUEST),
        Some(Lid::new(7)),
        "same switch"
    );
    // No frame goes to the port itself.
    port.configure(&info(7));
    assert!(goes_to(&mut port, 0, GUEST).by_group());
    port.configure(&info(6));
    hear(&mut port, 0, GUEST, 7);
    assert_eq!(lid_of(&mut port, 0, GUEST), Some(Lid::new(7)));
    let mut other = info(6);
    other.vesw_id = 9;
    port.configure(&other);
    assert_eq!(port.learned(Time(0)).count() + port.nodes().count(), 0);
    assert!(goes_to(&mut port, 0, GUEST).by_group());
}

#[test]
fn addresses_of_members_that_left_are_removed() {
    let mut port = port(5);
    hear(&mut port, 0, GUEST, 7);
    hear(&mut port, 0, mac(8), 8);
    port.set_directory(&crate::directory::Directory {
        nodes: [(Lid::new(8), address(8))].into(),
        closed: true,
    });
    assert_eq!(lid_of(&mut port, 0, mac(8)), Some(Lid::new(8)));
    assert!(goes_to(&mut port, 0, GUEST).by_group());
    assert_eq!(port.learned(Time(0)).count(), 1);
}

#[test]
fn a_member_that_comes_back_with_another_queue_pair_is_followed() {
    let mut port = port(5);
    hear(&mut port, 0, mac(7), 7);
    let place = |port: &mut VeswPort| match send(port, &frame(mac(7), mac(5))) {
        Sent::Packet(_, to, _) => to,
        other => panic!("{other:?}"),
    };
    assert_eq!(place(&mut port), (address(7).gid, address(7).qpn));
    let mut meta = from(7, true);
    meta.src_qpn = proto::Qpn::new(0x999);
    let packet = packet_to(ALL, 7);
    assert!(port.from_fabric(Time(10), &meta, &packet).is_ok());
    assert_eq!(place(&mut port), (address(7).gid, proto::Qpn::new(0x999)));
    // Two members with one LID: moves are limited and reported once.
    for n in 0..50 {
        for meta in [from(7, true), meta] {
            assert!(
                port.from_fabric(Time(20_000 + 100 * n), &meta, &packet)
                    .is_ok()
            );
        }
    }
    let reported = events(&mut port);
    assert!(
        matches!(reported[..], [Event::LidConflict { lid, .. }] if lid == Lid::new(7)),
        "{reported:?}"
    );
    // The address of before the moves is kept.
    assert_eq!(place(&mut port), (address(7).gid, proto::Qpn::new(0x999)));
}
