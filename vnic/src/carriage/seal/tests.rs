//! Attacks on sealed datagrams.

use super::*;

const KEY: [u8; KEY_LEN] = [7; KEY_LEN];
const OTHER_KEY: [u8; KEY_LEN] = [8; KEY_LEN];
const START: Time = Time(50_000);
/// 2026, in microseconds.
const WALL_US: u64 = 1_790_000_000_000_000;
const CLOCK: Clock = Clock {
    wall_us: WALL_US,
    now: START,
};
const MANAGER: (Gid, Qpn) = (Gid([1; 16]), Qpn::new(0x40));
const AGENT: (Gid, Qpn) = (Gid([2; 16]), Qpn::new(0x41));
const ROUTE: Route = Route {
    from: MANAGER,
    to: AGENT,
};
const PIECE: &[u8] = &[1, 0, 0, 48, 0, 0, 0, 0, 0, 0, 0, 9, 1, 2, 3, 4];

/// HMAC-SHA-256 of the datagram, by Python's `hmac` module.
const VECTOR: [u8; 16] = [
    0x29, 0xe9, 0xd4, 0x72, 0x34, 0x9c, 0xa4, 0xdd, 0x0f, 0x1a, 0x53, 0xc1, 0x39, 0x57, 0xe4, 0x71,
];

fn seal(keys: &[[u8; KEY_LEN]]) -> Seal {
    Seal::new(START, keys)
}

fn sealed(from: &mut Seal, wall_us: u64) -> Vec<u8> {
    from.seal(wall_us, &ROUTE, PIECE.to_vec())
}

#[test]
fn a_sealed_piece_opens_once() {
    let (mut manager, mut agent) = (seal(&[KEY]), seal(&[KEY]));
    let datagram = sealed(&mut manager, WALL_US);
    assert_eq!(datagram.len(), PIECE.len() + manager.overhead());
    assert_eq!(agent.open(CLOCK, &ROUTE, &datagram), Ok(PIECE));
    for _ in 0..3 {
        let again = agent.open(CLOCK, &ROUTE, &datagram);
        assert_eq!(again, Err(Refused::Repeated));
    }
    assert_eq!(agent.counts().repeated, 3);
}

#[test]
fn the_bytes_of_a_datagram_are_known() {
    let datagram = sealed(&mut seal(&[KEY]), WALL_US);
    let mut expected = vec![2, 0, 0, 0, 0, 0, 0, 0];
    expected.extend(WALL_US.to_be_bytes());
    expected.extend(VECTOR);
    expected.extend(PIECE);
    assert_eq!(datagram, expected);
}

#[test]
fn no_bit_can_be_changed() {
    let datagram = sealed(&mut seal(&[KEY]), WALL_US);
    for bit in 0..8 * datagram.len() {
        let mut forged = datagram.clone();
        forged[bit / 8] ^= 1 << (bit % 8);
        let mut agent = seal(&[KEY]);
        let opened = agent.open(CLOCK, &ROUTE, &forged);
        let wrong = match bit / 8 < COUNTER.start {
            true => Refused::NoMac,
            false => Refused::WrongMac,
        };
        assert_eq!(opened, Err(wrong), "bit {bit}");
    }
    for length in 0..datagram.len() {
        assert!(
            seal(&[KEY])
                .open(CLOCK, &ROUTE, &datagram[..length])
                .is_err()
        );
    }
}

#[test]
fn a_datagram_is_valid_for_its_sender_and_receiver_only() {
    let group = (Gid([0xff; 16]), Qpn::MULTICAST);
    let stranger = (Gid([3; 16]), Qpn::new(0x40));
    let datagram = sealed(&mut seal(&[KEY]), WALL_US);
    for (from, to) in [
        (stranger, AGENT),
        ((MANAGER.0, Qpn::new(0x99)), AGENT),
        (MANAGER, stranger),
        (MANAGER, group),
        (AGENT, MANAGER),
    ] {
        let opened = seal(&[KEY]).open(CLOCK, &Route { from, to }, &datagram);
        assert_eq!(opened, Err(Refused::WrongMac));
    }
}

#[test]
fn keys_must_agree() {
    let plain = sealed(&mut seal(&[]), WALL_US);
    assert_eq!(plain, PIECE);
    let datagram = sealed(&mut seal(&[KEY]), WALL_US);
    let refused = |keys: &[_], datagram: &[u8]| seal(keys).open(CLOCK, &ROUTE, datagram).err();
    assert_eq!(refused(&[], &plain), None);
    assert_eq!(refused(&[KEY], &plain), Some(Refused::NoMac));
    assert_eq!(refused(&[], &datagram), Some(Refused::NoKey));
    assert_eq!(refused(&[OTHER_KEY], &datagram), Some(Refused::WrongMac));
    // A new key is added on all nodes first, and comes first later.
    assert_eq!(refused(&[OTHER_KEY, KEY], &datagram), None);
}

#[test]
fn datagrams_may_overtake_each_other_within_the_window() {
    let (mut manager, mut agent) = (seal(&[KEY]), seal(&[KEY]));
    let all: Vec<_> = (0..100).map(|_| sealed(&mut manager, WALL_US)).collect();
    let mut open = |n: usize| agent.open(CLOCK, &ROUTE, &all[n]).is_ok();
    assert!(open(40));
    assert!((9..40).rev().all(&mut open));
    assert!(!open(8), "older than the window");
    assert!(open(99));
    assert!(open(60));
    assert!(!(0..=11).any(&mut open));
    assert!(!open(60));
}

/// An attacker repeats what it recorded before a receiver or a sender was restarted.
#[test]
fn what_was_sent_before_a_restart_is_refused_after_it() {
    let minutes = |n: u64| n * 60_000_000;
    let old = sealed(&mut seal(&[KEY]), WALL_US - minutes(6));
    assert_eq!(
        seal(&[KEY]).open(CLOCK, &ROUTE, &old),
        Err(Refused::Repeated)
    );
    // A sender whose clock is somewhat late is heard, also by a receiver that has run for a long time.
    let late = sealed(&mut seal(&[KEY]), WALL_US - minutes(4));
    let mut agent = seal(&[KEY]);
    let later = Clock {
        wall_us: WALL_US + minutes(10),
        now: START.after(600_000),
    };
    assert!(agent.open(later, &ROUTE, &late).is_ok());
    // The sender restarts: its counters go on.
    let new = sealed(&mut seal(&[KEY]), WALL_US + minutes(9));
    assert!(agent.open(later, &ROUTE, &new).is_ok());
    let many: Vec<_> = {
        let mut manager = seal(&[KEY]);
        let send = |_| sealed(&mut manager, WALL_US + minutes(10));
        (0..WINDOW).map(send).collect()
    };
    assert!(many.iter().all(|d| agent.open(later, &ROUTE, d).is_ok()));
    assert_eq!(agent.open(later, &ROUTE, &late), Err(Refused::Repeated));
}

/// The same attacker waits until the receiver knows the sender.
#[test]
fn the_first_datagram_of_a_sender_does_not_admit_those_of_before_the_restart() {
    let minutes = |n: u64| n * 60_000_000;
    let mut manager = seal(&[KEY]);
    let [old, late, new] =
        [minutes(6), minutes(4), 0].map(|ago| sealed(&mut manager, WALL_US - ago));
    let mut agent = seal(&[KEY]);
    let mut open = |datagram| agent.open(CLOCK, &ROUTE, datagram);
    assert_eq!(open(&new), Ok(PIECE));
    assert_eq!(open(&old), Err(Refused::Repeated));
    assert_eq!(open(&late), Ok(PIECE), "it was overtaken");
    assert_eq!(open(&late), Err(Refused::Repeated));
}

/// The receiver knows one sender again. What it knew of the sender before is forgotten.
#[test]
fn a_sender_that_was_forgotten_does_not_repeat_counters_after_a_new_one() {
    let (mut manager, mut agent) = (seal(&[KEY]), seal(&[KEY]));
    let old = sealed(&mut manager, WALL_US - 1000);
    assert_eq!(agent.open(CLOCK, &ROUTE, &old), Ok(PIECE));
    agent.forget_one();
    let new = sealed(&mut manager, WALL_US);
    assert_eq!(agent.open(CLOCK, &ROUTE, &new), Ok(PIECE));
    let again = agent.open(CLOCK, &ROUTE, &old);
    assert_eq!(again, Err(Refused::Repeated));
}

#[test]
fn a_clock_that_is_set_back_does_not_repeat_counters() {
    let (mut manager, mut agent) = (seal(&[KEY]), seal(&[KEY]));
    for wall_us in [WALL_US, WALL_US - 1_000_000_000, WALL_US] {
        let datagram = sealed(&mut manager, wall_us);
        assert!(agent.open(CLOCK, &ROUTE, &datagram).is_ok());
    }
}

#[test]
fn senders_are_bounded_and_the_forgotten_are_not_repeated() {
    let (mut manager, mut agent) = (seal(&[KEY]), seal(&[KEY]));
    let mut send = |n: u32| {
        let from = (MANAGER.0, Qpn::new(n));
        let route = Route { from, to: AGENT };
        (route, manager.seal(WALL_US, &route, PIECE.to_vec()))
    };
    let first = send(0);
    assert!(agent.open(CLOCK, &first.0, &first.1).is_ok());
    for n in 1..=SENDERS_MAX as u32 + 10 {
        let (route, datagram) = send(n);
        assert!(agent.open(CLOCK, &route, &datagram).is_ok());
    }
    assert_eq!(agent.senders.len(), SENDERS_MAX);
    let again = agent.open(CLOCK, &first.0, &first.1);
    assert_eq!(again, Err(Refused::Repeated));
}

#[test]
fn each_reason_is_logged_once_a_minute() {
    let mut agent = seal(&[KEY]);
    for refused in [Refused::NoMac, Refused::Repeated, Refused::WrongMac] {
        assert!(agent.should_log(START, refused));
        assert!(!agent.should_log(START.after(59_999), refused));
        assert!(agent.should_log(START.after(60_000), refused));
    }
}

#[test]
fn keys_do_not_appear_in_debug_output() {
    assert_eq!(format!("{:?}", seal(&[KEY])), "Seal { keys: 1 }");
}
