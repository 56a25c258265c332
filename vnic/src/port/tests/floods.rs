//! Floods of forged frames that two replicas of a port receive. Their updates cross and get lost.

use proto::{Mac, Qpn, Time};

use super::replicas::{cross, pair, pair_with};
use super::world::Random;
use crate::Lid;
use crate::directory::NodeAddress;
use crate::port::testing::*;
use crate::port::{Meta, Settings, VeswPort};

pub const GUEST: Mac = [0x52, 0x54, 0, 0x12, 0x34, 0x56];
/// LID of the member with the guest.
pub const HOME: u32 = 7;
/// Milliseconds between two frames of the guest.
const EVERY: u64 = 20;
/// Milliseconds after a flood until all replicas must find the guest again.
pub const SOON: u64 = 2000;

pub fn hear(port: &mut VeswPort, now: u64, source: Mac, lid: u32, meta: &Meta) {
    let packet = packet(&header(lid, ALL), &frame(BROADCAST, source));
    assert!(port.from_fabric(Time(now), meta, &packet).is_ok());
}

/// A forged frame: another LID for the guest, another queue pair for its LID, or a made-up guest.
pub fn forge(random: &mut Random, port: &mut VeswPort, now: u64) {
    let any = random.below(64) as u32;
    match random.below(8) {
        0 => hear(port, now, GUEST, 100 + any, &from(100 + any, true)),
        1 => {
            let meta = Meta {
                src_qpn: Qpn::new(0x900 + any),
                ..from(HOME, true)
            };
            hear(port, now, GUEST, HOME, &meta);
        }
        _ => {
            let [a, b] = (random.below(1 << 16) as u16).to_be_bytes();
            hear(port, now, [0x02, 9, 9, 9, a, b], HOME, &from(HOME, true));
        }
    }
}

/// Three floods with a pause after each. Only one replica receives the frames of the guest.
fn floods(seed: u64) {
    let mut random = Random::new(seed);
    let mut replicas = pair();
    for replica in &mut replicas {
        hear(replica, 0, GUEST, HOME, &from(HOME, true));
    }
    let mut now = SOON;
    for flood in 0..3 {
        let over = now + 500 + random.below(1500) as u64;
        let until = over + SOON + random.below(5000) as u64;
        while now < until {
            now += 1;
            if now.is_multiple_of(EVERY) {
                hear(&mut replicas[0], now, GUEST, HOME, &from(HOME, true));
            }
            for _ in 0..if now < over { 30 } else { 0 } {
                let at = random.below(2);
                forge(&mut random, &mut replicas[at], now);
            }
            if random.percent(30) {
                cross(now, &mut replicas);
            }
            if now == over + SOON {
                cross(now, &mut replicas);
                for (at, replica) in replicas.iter_mut().enumerate() {
                    let case = format!("seed {seed}, flood {flood}, replica {at}");
                    let sent = send_at(replica, now, &frame(GUEST, mac(5)));
                    assert_eq!(sent.dlid(), Some(Lid::new(HOME)), "{case}");
                    assert_eq!(
                        replica.find(Lid::new(HOME)),
                        Some(address(HOME)),
                        "{case}: address of the LID"
                    );
                }
            }
        }
    }
}

#[test]
fn after_a_flood_all_replicas_return_to_the_owner() {
    (1..=30).for_each(floods);
}

/// Frames of `count` addresses that no frame had before, from another member.
fn made_up_addresses(port: &mut VeswPort, now: u64, count: u32, last: &mut u32) {
    let lid = HOME + 1;
    for _ in 0..count {
        *last += 1;
        let [a, b, c, d] = last.to_be_bytes();
        hear(port, now, [0x02, 9, a, b, c, d], lid, &from(lid, true));
    }
}

/// Frames claim the LID of the member for one other queue pair, as a forger does, or the member after a restart.
/// Returns the address of the LID in both replicas. Only the second one receives the frames of the owner, one each
/// `every` milliseconds, after `others` frames from made-up addresses in each millisecond.
fn claimed(every: Option<u64>, others: u32) -> [Option<NodeAddress>; 2] {
    let mut replicas = pair();
    let claim = |number| Meta {
        src_qpn: Qpn::new(number),
        ..from(HOME, true)
    };
    for replica in &mut replicas {
        hear(replica, 0, GUEST, HOME, &from(HOME, true));
    }
    for number in 0x900..0x910 {
        hear(&mut replicas[0], SOON, GUEST, HOME, &claim(number));
    }
    cross(SOON, &mut replicas);
    assert_eq!(replicas[1].find(Lid::new(HOME)), Some(address(HOME)));
    let mut made_up = 0;
    for now in SOON + 1..SOON + 9000 {
        hear(&mut replicas[0], now, GUEST, HOME, &claim(0x999));
        made_up_addresses(&mut replicas[1], now, others, &mut made_up);
        if every.is_some_and(|every| now.is_multiple_of(every)) {
            hear(&mut replicas[1], now, GUEST, HOME, &from(HOME, true));
        }
        cross(now, &mut replicas);
    }
    replicas.map(|replica| replica.find(Lid::new(HOME)))
}

#[test]
fn a_lid_is_kept_for_an_owner_that_sends_and_not_for_one_that_is_gone() {
    for every in [EVERY, 450, 800, 999] {
        let kept = claimed(Some(every), 0);
        assert_eq!(kept, [Some(address(HOME)); 2], "every {every} ms");
    }
    // More addresses than the replicas tell each other.
    let kept = claimed(Some(450), 30);
    assert_eq!(kept, [Some(address(HOME)); 2], "beside made-up addresses");
    let restarted = NodeAddress {
        qpn: Qpn::new(0x999),
        ..address(HOME)
    };
    assert_eq!(claimed(None, 0), [Some(restarted); 2]);
}

/// Another member claims the address of a guest, which the first replica hears. The second one receives a frame of the
/// guest each 450 milliseconds, and more made-up addresses than the replicas tell each other. With a small limit, these
/// addresses evict that of the guest.
#[test]
fn an_address_is_kept_for_an_owner_that_sends_beside_made_up_addresses() {
    for mac_limit in [Settings::MAC_LIMIT, 100] {
        address_is_kept(pair_with(mac_limit));
    }
}

fn address_is_kept(mut replicas: [VeswPort; 2]) {
    for replica in &mut replicas {
        hear(replica, 0, GUEST, HOME, &from(HOME, true));
    }
    for lid in 100..110 {
        hear(&mut replicas[0], SOON, GUEST, lid, &from(lid, true));
    }
    cross(SOON, &mut replicas);
    let mut made_up = 0;
    for now in SOON + 1..SOON + 9000 {
        hear(&mut replicas[0], now, GUEST, 99, &from(99, true));
        made_up_addresses(&mut replicas[1], now, 30, &mut made_up);
        if now.is_multiple_of(450) {
            hear(&mut replicas[1], now, GUEST, HOME, &from(HOME, true));
        }
        cross(now, &mut replicas);
    }
    let end = SOON + 9000;
    for replica in &mut replicas {
        let sent = send_at(replica, end, &frame(GUEST, mac(5)));
        assert_ne!(sent.dlid(), Some(Lid::new(99)));
    }
    hear(&mut replicas[1], end, GUEST, HOME, &from(HOME, true));
    cross(end, &mut replicas);
    for replica in &mut replicas {
        let sent = send_at(replica, end, &frame(GUEST, mac(5)));
        assert_eq!(sent.dlid(), Some(Lid::new(HOME)));
    }
}

/// Made-up addresses evict the kept address of a guest all the time.
#[test]
fn an_evicted_address_stays_kept_for_its_owner() {
    let settings = Settings {
        mac_limit: 100,
        ..settings(5)
    };
    let mut port = port_with(settings, &info(5));
    for now in [0, SOON] {
        hear(&mut port, now, GUEST, HOME, &from(HOME, true));
    }
    for lid in 100..110 {
        hear(&mut port, SOON, GUEST, lid, &from(lid, true));
    }
    let mut made_up = 0;
    for now in (SOON + 20..SOON + 9000).step_by(EVERY as usize) {
        made_up_addresses(&mut port, now, 200, &mut made_up);
        for (lid, to) in [(99, ALL), (HOME, Lid::new(HOME)), (99, Lid::new(HOME))] {
            hear(&mut port, now, GUEST, lid, &from(lid, true));
            let sent = send_at(&mut port, now, &frame(GUEST, mac(5)));
            assert_eq!(sent.dlid(), Some(to), "{now} ms, after a frame of {lid}");
        }
    }
}

/// Members with made-up LIDs make a port forget the address of a kept LID.
#[test]
fn a_forgotten_lid_stays_kept_for_its_owner() {
    let mut port = port(5);
    let claim = |number| NodeAddress {
        qpn: Qpn::new(number),
        ..address(HOME)
    };
    for now in [0, SOON] {
        hear(&mut port, now, GUEST, HOME, &from(HOME, true));
    }
    for number in 0x900..0x910 {
        let forged = from_address(claim(number), true);
        hear(&mut port, SOON, GUEST, HOME, &forged);
    }
    for now in (SOON + 20..SOON + 4000).step_by(1000) {
        for lid in 1000..18_000 {
            hear(&mut port, now, mac(lid), lid, &from(lid, true));
        }
        let found = [claim(0x999), address(HOME), claim(0x999)].map(|source| {
            hear(&mut port, now, GUEST, HOME, &from_address(source, true));
            port.find(Lid::new(HOME))
        });
        let kept = Some(address(HOME));
        assert_eq!(found, [None, kept, kept], "{now} ms");
    }
}

/// The second replica knew of the kept LID later, and so keeps the LID longer. The member has started again shortly
/// before, and only the first replica receives its frames.
#[test]
fn replicas_that_keep_a_lid_for_different_times_follow_together() {
    let mut replicas = pair();
    let restarted = Meta {
        src_qpn: Qpn::new(0x999),
        ..from(HOME, true)
    };
    for replica in &mut replicas {
        hear(replica, 0, GUEST, HOME, &from(HOME, true));
    }
    for number in 0x900..0x910 {
        let meta = Meta {
            src_qpn: Qpn::new(number),
            ..from(HOME, true)
        };
        hear(&mut replicas[0], SOON, GUEST, HOME, &meta);
    }
    cross(SOON + 5, &mut replicas);
    for now in SOON + 9000..SOON + 10_050 {
        hear(&mut replicas[0], now, GUEST, HOME, &restarted);
        cross(now, &mut replicas);
    }
    let found = replicas.map(|replica| replica.find(Lid::new(HOME)));
    assert_eq!(found, [Some(restarted.source()); 2]);
}

/// Two members send to each other every 20 ms. Before the flood, both changed their GID more than once, so each keeps a
/// former address of the other. Returns the times at which frames arrived at both, in milliseconds since the flood.
fn both_moved() -> [Vec<u64>; 2] {
    let lids = [5, HOME];
    let at = |lid, time| NodeAddress {
        qpn: Qpn::new(0x700 + time),
        ..address(lid)
    };
    let mut ports = lids.map(|lid| port_with(settings(lid), &info(lid)));
    let mut arrived = [vec![], vec![]];
    let mut local = lids.map(|lid| at(lid, 0));
    for now in (0..SOON + 9000).step_by(EVERY as usize) {
        // The last changes are 300 ms and less before the flood.
        if let Some(time) = [SOON - 300, SOON - 100].iter().position(|t| *t == now) {
            local = lids.map(|lid| at(lid, 1 + time as u32));
        }
        if now == SOON {
            for (port, lid) in ports.iter_mut().zip([HOME, 5]) {
                for number in 0x900..0x910 {
                    let forged = from_address(at(lid, number), true);
                    hear(port, now, mac(lid), lid, &forged);
                }
            }
        }
        for from in [0, 1] {
            let to = 1 - from;
            ports[from].set_local(Time(now), local[from]);
            let sent = send_at(
                &mut ports[from],
                now,
                &frame(mac(lids[to]), mac(lids[from])),
            );
            let Sent::Packet(_, (gid, qpn), bytes) = sent else {
                panic!("{sent:?}");
            };
            let by_group = qpn == Qpn::MULTICAST;
            if by_group || local[to] == (NodeAddress { gid, qpn }) {
                let source = from_address(local[from], by_group);
                assert!(ports[to].from_fabric(Time(now), &source, &bytes).is_ok());
                arrived[to].extend(now.checked_sub(SOON));
            }
        }
    }
    arrived
}

#[test]
fn members_that_both_moved_before_a_flood_find_each_other() {
    for arrived in both_moved() {
        let gaps = arrived.windows(2).map(|pair| pair[1] - pair[0]);
        let first = arrived.first().copied();
        assert!(
            first.is_some_and(|first| first <= 1300),
            "first frame after {first:?} ms"
        );
        assert_eq!(gaps.max(), Some(EVERY), "no gap after the first frame");
    }
}

/// A guest moved shortly before the flood and is silent after it: its frames are not lost at its former member.
#[test]
fn frames_for_a_silent_guest_go_to_all_members() {
    let mut port = port(5);
    for lid in [HOME, HOME + 1] {
        hear(&mut port, SOON, GUEST, lid, &from(lid, true));
    }
    for lid in 100..110 {
        hear(&mut port, SOON + 100, GUEST, lid, &from(lid, true));
    }
    let mut sent = |now| send_at(&mut port, SOON + now, &frame(GUEST, mac(5)));
    assert_eq!(sent(200).dlid(), Some(Lid::new(HOME)));
    assert_eq!(sent(1300).dlid(), Some(ALL));
    assert!(sent(1300).by_group());
}
