//! Several replicas of one port.

use proto::{AddressHandle, Mac, Time};

use crate::Lid;
use crate::port::testing::*;
use crate::port::{Event, Forward, Meta, Place, Settings, Update, VeswPort};

const GUEST: Mac = [0x52, 0x54, 0, 0x12, 0x34, 0x56];

/// Two replicas of port 5; the first one reports addresses behind the interface.
pub fn pair() -> [VeswPort; 2] {
    pair_with(Settings::MAC_LIMIT)
}

/// As [`pair`]; each replica keeps up to `mac_limit` addresses.
pub fn pair_with(mac_limit: usize) -> [VeswPort; 2] {
    [true, false].map(|reports| {
        let settings = Settings {
            reports,
            mac_limit,
            ..settings(5)
        };
        port_with(settings, &info(5))
    })
}

fn hear(port: &mut VeswPort, now: u64, source: Mac, lid: u32) {
    let packet = packet(&header(lid, ALL), &frame(BROADCAST, source));
    assert!(
        port.from_fabric(Time(now), &from(lid, true), &packet)
            .is_ok()
    );
}

fn share(now: u64, from: &mut VeswPort, to: &mut VeswPort) -> Vec<Update> {
    let updates: Vec<Update> = from.drain_updates().collect();
    for update in &updates {
        to.apply(Time(now), update);
    }
    assert!(!to.has_updates(), "an update must not circulate");
    updates
}

/// Both replicas apply what the other one has published before.
pub fn cross(now: u64, replicas: &mut [VeswPort; 2]) {
    let published: Vec<Vec<Update>> = replicas
        .iter_mut()
        .map(|r| r.drain_updates().collect())
        .collect();
    for (updates, to) in published.iter().zip(replicas.iter_mut().rev()) {
        for update in updates {
            to.apply(Time(now), update);
        }
    }
}

#[test]
fn replicas_share_what_they_learn() {
    let [mut one, mut two] = pair();
    hear(&mut one, 0, GUEST, 7);
    send_at(&mut one, 0, &frame(BROADCAST, [0x52, 0, 0, 0, 0, 1]));
    let updates = share(0, &mut one, &mut two);
    assert_eq!(updates.len(), 3, "{updates:?}");
    let sent = send(&mut two, &frame(GUEST, mac(5)));
    assert_eq!((sent.dlid(), sent.by_group()), (Some(Lid::new(7)), false));
    assert_eq!(two.local_macs(), one.local_macs());
    assert_eq!(
        (one.counters().mac_learned, two.counters().mac_learned),
        (1, 0)
    );
    // The other replica follows a move, too.
    hear(&mut two, 1, GUEST, 8);
    let updates = share(1, &mut two, &mut one);
    assert!(updates.contains(&Update::Mac {
        mac: GUEST,
        place: Place::At(Lid::new(8))
    }));
    assert_eq!(
        send(&mut one, &frame(GUEST, mac(5))).dlid(),
        Some(Lid::new(8))
    );
}

#[test]
fn flows_have_one_entropy_in_all_replicas() {
    let [mut one, mut two] = pair();
    let f = frame(BROADCAST, mac(5));
    assert_eq!(send(&mut one, &f), send(&mut two, &f));
}

#[test]
fn an_entry_that_one_replica_sees_expires_in_none() {
    let [mut one, mut two] = pair();
    let mut updates = 0;
    for now in (0..1_200_000).step_by(10_000) {
        hear(&mut one, now, GUEST, 7);
        updates += share(now, &mut one, &mut two).len();
        one.handle_timeout(Time(now));
        two.handle_timeout(Time(now));
        let sent = send_at(&mut two, now, &frame(GUEST, mac(5)));
        assert!(!sent.by_group(), "expired after {now} ms");
    }
    // An address and a member, each after a quarter of the ageing time.
    assert!((30..=40).contains(&updates), "{updates}");
    assert_eq!((one.counters().mac_aged, two.counters().mac_aged), (0, 0));
}

/// Addresses behind the interface expire after 300 seconds, independently of the ageing time.
#[test]
fn an_address_behind_the_interface_stays_in_all_replicas_while_one_sees_it() {
    for ageing in [0, 60_000, 4_000_000] {
        let [mut one, mut two] = pair();
        let mut updates = 0;
        for now in (0..2_000_000).step_by(10_000) {
            for port in [&mut one, &mut two] {
                port.set_ageing(ageing);
            }
            send_at(&mut two, now, &frame(BROADCAST, GUEST));
            updates += share(now, &mut two, &mut one).len();
            one.handle_timeout(Time(now));
            two.handle_timeout(Time(now));
            assert_eq!(one.local_macs(), [GUEST], "after {now} ms of {ageing}");
        }
        // One update in each quarter of that time, not in each second.
        assert!((25..=27).contains(&updates), "{updates} of {ageing}");
        let reports = std::iter::from_fn(|| one.poll_event()).count();
        assert_eq!(reports, 1, "the addresses did not change");
    }
}

#[test]
fn replicas_damp_an_address_together() {
    let [mut one, mut two] = pair();
    for n in 0..20 {
        hear(&mut one, n, GUEST, 7);
        share(n, &mut one, &mut two);
        hear(&mut two, n, GUEST, 8);
        share(n, &mut two, &mut one);
    }
    let moved = one.counters().mac_moved + two.counters().mac_moved;
    assert!(moved <= 4, "{moved} moves");
    let reports = |port: &mut VeswPort| std::iter::from_fn(|| port.poll_event()).count();
    assert_eq!(reports(&mut one) + reports(&mut two), 1);
}

#[test]
fn replicas_damp_a_lid_together() {
    let [mut one, mut two] = pair();
    let packet = packet_to(ALL, 7);
    let other = Meta {
        src_qpn: proto::Qpn::new(0x999),
        ..from(7, true)
    };
    let mut moves = 0;
    for n in (0..2000).step_by(100) {
        for meta in [from(7, true), other] {
            assert!(one.from_fabric(Time(n), &meta, &packet).is_ok());
            let first = share(n, &mut one, &mut two);
            assert!(two.from_fabric(Time(n), &meta, &packet).is_ok());
            let second = share(n, &mut two, &mut one);
            let node = |u: &&Update| matches!(u, Update::Node { .. });
            moves += first.iter().chain(&second).filter(node).count();
        }
    }
    assert!(moves <= 6, "{moves} moves");
    let reports = |port: &mut VeswPort| std::iter::from_fn(|| port.poll_event()).count();
    assert_eq!(reports(&mut one) + reports(&mut two), 1);
}

/// A member's GID changes. The threads of the member and of this port do so one after the other, so that packets
/// from both addresses cross.
#[test]
fn replicas_follow_a_member_to_its_new_gid() {
    let mut replicas = pair();
    let packet = packet_to(ALL, 7);
    let at = |n: u8| {
        let mut meta = from(7, true);
        meta.src_gid.0[14] = n;
        meta
    };
    for replica in &mut replicas {
        assert!(replica.from_fabric(Time(0), &at(0), &packet).is_ok());
    }
    cross(0, &mut replicas);
    for n in 0..5 {
        let now = u64::from(n) * 300;
        for (old, new) in [(0, 0), (1, 0), (1, 2), (3, 2), (4, 4)] {
            let [one, two] = &mut replicas;
            assert!(two.from_fabric(Time(now + old), &at(n), &packet).is_ok());
            assert!(
                one.from_fabric(Time(now + new), &at(n + 1), &packet)
                    .is_ok()
            );
            cross(now + new, &mut replicas);
        }
        for port in &replicas {
            assert_eq!(
                port.find(Lid::new(7)),
                Some(at(n + 1).source()),
                "change {n}"
            );
            assert!(!port.has_events());
        }
    }
}

#[test]
fn one_replica_reports_a_duplicate_of_the_ports_lid() {
    let [mut one, mut two] = pair();
    let packet = packet_to(ALL, 5);
    assert!(one.from_fabric(Time(0), &from(99, true), &packet).is_err());
    share(0, &mut one, &mut two);
    assert!(two.from_fabric(Time(0), &from(99, true), &packet).is_err());
    assert!(one.has_events() && !two.has_events());
}

#[test]
fn one_replica_reports_addresses_behind_the_interface() {
    let [mut one, mut two] = pair();
    send_at(&mut two, 5000, &frame(BROADCAST, GUEST));
    assert_eq!(
        two.next_deadline().map(|due| due > Time(100_000)),
        Some(true)
    );
    share(5000, &mut two, &mut one);
    let due = one.next_deadline().unwrap();
    one.handle_timeout(due.max(Time(5000)));
    assert_eq!(one.poll_event(), Some(Event::LocalMacs(vec![GUEST])));
    two.handle_timeout(Time(7000));
    assert_eq!(two.poll_event(), None);
}

#[test]
fn a_lost_update_is_published_with_the_next_frame() {
    let [mut one, mut two] = pair();
    let guest = |n: u32| {
        let [_, a, b, c] = n.to_be_bytes();
        [0x02, 1, 0, a, b, c]
    };
    for n in 0..10_000 {
        hear(&mut one, 0, guest(n), 7);
    }
    assert_eq!(share(0, &mut one, &mut two).len(), 4096);
    for now in [2000, 4000] {
        for n in 0..10_000 {
            hear(&mut one, now, guest(n), 7);
        }
        share(now, &mut one, &mut two);
    }
    assert_eq!(two.learned(Time(4000)).count(), 10_000);
}

#[test]
fn unused_handles_are_released() {
    let mut port = port(5);
    hear(&mut port, 0, mac(7), 7);
    let set = |to: Mac, ah: u32, port: &mut VeswPort| {
        let Forward::Fabric { to, .. } = port.from_tap(Time(0), &frame(to, mac(5))) else {
            panic!("the frame is not sent")
        };
        assert_eq!(port.ah(to), None);
        port.set_ah(to, AddressHandle(ah));
        assert_eq!(port.ah(to), Some(AddressHandle(ah)));
        port.set_ah(to, AddressHandle(ah));
    };
    set(mac(7), 1, &mut port);
    set(BROADCAST, 2, &mut port);
    assert_eq!(port.pop_released_ah(), None);
    // The member moved.
    let mut meta = from(7, true);
    meta.src_qpn = proto::Qpn::new(0x77);
    assert!(port.from_fabric(Time(1), &meta, &packet_to(ALL, 7)).is_ok());
    assert_eq!(port.pop_released_ah(), Some(AddressHandle(1)));
    set(mac(7), 3, &mut port);
    // The same switch with the same group keeps its handle.
    port.configure(&info(6));
    assert_eq!(port.pop_released_ah(), None);
    let mut other = info(6);
    other.vesw_id = 9;
    port.configure(&other);
    let mut released: Vec<AddressHandle> = std::iter::from_fn(|| port.pop_released_ah()).collect();
    released.sort_unstable_by_key(|ah| ah.0);
    assert_eq!(released, [AddressHandle(2), AddressHandle(3)]);
    set(BROADCAST, 4, &mut port);
    port.release_all();
    assert_eq!(port.pop_released_ah(), Some(AddressHandle(4)));
}
