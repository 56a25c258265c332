//! Several managers behind one queue pair: an active one, and a standby on the same node.

use super::*;

/// The upper halves of the transaction ids of two managers.
const ACTIVE: u32 = 0x1111_0001;
const STANDBY: u32 = 0x2222_0002;

impl World {
    /// What is sent from now on is this manager's.
    fn by(&mut self, mark: u32) -> &mut World {
        self.next_tid = u64::from(mark) << 32 | self.next_tid & 0xffff_ffff;
        self
    }
}

#[test]
fn a_standby_behind_the_owners_queue_pair_neither_releases_nor_keeps_its_place() {
    let mut w = World::new();
    w.by(ACTIVE).announce(MANAGER, 9, 15_000, true);
    assert_eq!(w.try_set(MANAGER), status::OK);
    for now in (0..=40_000).step_by(5_000) {
        w.at(now).by(STANDBY).announce(MANAGER, 8, 15_000, false);
        assert_eq!(w.try_get(MANAGER), status::OK);
        assert_eq!(w.try_set(OTHER), status::INVALID, "{now}");
        assert_eq!(w.try_set(MANAGER), status::INVALID, "{now}: not its own");
        w.by(ACTIVE).announce(MANAGER, 9, 15_000, true);
    }
    let told = w.events();
    assert!(
        !told.iter().any(|line| line.contains("stands by")),
        "{told:?}"
    );
    // The active one is gone, however often the other one asks, and then that one may.
    w.at(54_999).by(STANDBY).announce(MANAGER, 8, 15_000, true);
    assert_eq!(w.try_get(MANAGER), status::OK);
    assert_eq!(w.try_set(MANAGER), status::INVALID);
    assert_eq!(w.at(55_000).try_set(MANAGER), status::OK);
    assert_eq!(w.by(ACTIVE).try_set(MANAGER), status::INVALID);
}

#[test]
fn one_that_sets_before_it_is_heard_of_is_known_by_its_announcement_alone() {
    let mut w = World::new();
    assert_eq!(w.by(ACTIVE).try_set(MANAGER), status::OK);
    w.by(STANDBY).announce(MANAGER, 8, 15_000, false);
    assert_eq!(w.try_set(MANAGER), status::INVALID);
    assert_eq!(w.by(ACTIVE).try_set(MANAGER), status::OK);
    w.announce(MANAGER, 9, 15_000, true);
    w.by(STANDBY).announce(MANAGER, 8, 15_000, false);
    assert!(w.agent.owner(w.now).is_some());
    w.by(ACTIVE).announce(MANAGER, 9, 15_000, false);
    assert_eq!(w.agent.owner(w.now), None);
    assert_eq!(w.by(STANDBY).try_set(MANAGER), status::OK);
}

/// Both ask before either has been heard of: the agent cannot tell them apart yet, and holds to the first.
#[test]
fn a_question_of_the_other_one_does_not_take_the_place() {
    let mut w = World::new();
    w.by(ACTIVE).try_set(MANAGER);
    w.by(STANDBY).try_get(MANAGER);
    w.by(ACTIVE).announce(MANAGER, 9, 15_000, true);
    assert_eq!(w.try_set(MANAGER), status::OK);
    assert_eq!(w.by(STANDBY).try_set(MANAGER), status::INVALID);
}

#[test]
fn a_manager_that_is_restarted_has_another_mark_and_the_same_place() {
    let mut w = World::new();
    w.by(ACTIVE).announce(MANAGER, 9, 15_000, true);
    w.try_set(MANAGER);
    w.by(0x3333_0003).announce(MANAGER, 9, 15_000, false);
    assert_eq!(w.agent.owner(w.now), None, "it stands by at first");
    w.announce(MANAGER, 9, 15_000, true);
    assert_eq!(w.try_set(MANAGER), status::OK);
    assert_eq!(w.by(ACTIVE).try_set(MANAGER), status::INVALID);
}

/// The transaction ids of one that never announces itself may be drawn each time.
#[test]
fn one_that_never_announces_itself_is_known_by_its_queue_pair() {
    let mut w = World::new();
    for mark in [0, 77, 0xffff_ffff] {
        assert_eq!(w.by(mark).try_set(MANAGER), status::OK, "{mark:#x}");
        assert_eq!(w.by(mark).try_set(OTHER), status::INVALID);
    }
}

#[test]
fn others_that_announce_themselves_do_not_make_the_owners_lease_forgotten() {
    let mut w = World::new();
    w.by(ACTIVE).announce(MANAGER, 9, 60_000, true);
    w.try_set(MANAGER);
    for n in 0..100 {
        let mark = 0x4444_0000 + n;
        w.by(mark).announce(MANAGER, mark.into(), 1_000, false);
        w.announce(address(n as u8, 0x60), 9, 1_000, true);
    }
    w.at(50_000).by(ACTIVE).try_get(MANAGER);
    assert_eq!(w.at(109_999).try_set(OTHER), status::INVALID);
    assert_eq!(w.at(110_000).try_set(OTHER), status::OK);
}
