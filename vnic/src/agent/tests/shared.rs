//! Several managers with one queue pair: an active one and a standby on one node.

use super::*;

/// Upper halves of the transaction ids of the two managers.
const ACTIVE: u32 = 0x1111_0001;
const STANDBY: u32 = 0x2222_0002;

impl World {
    /// Sends further messages as this manager.
    fn by(&mut self, mark: u32) -> &mut World {
        self.next_tid = u64::from(mark) << 32 | self.next_tid & 0xffff_ffff;
        self
    }
}

#[test]
fn a_standby_with_the_owners_queue_pair_neither_releases_nor_renews_ownership() {
    let mut w = World::new();
    w.by(ACTIVE).announce(MANAGER, 9, 15_000, true);
    assert_eq!(w.try_set(MANAGER), status::OK);
    for now in (0..=40_000).step_by(5_000) {
        w.at(now).by(STANDBY).announce(MANAGER, 8, 15_000, false);
        assert_eq!(w.try_get(MANAGER), status::OK);
        assert_eq!(w.try_set(OTHER), status::INVALID, "{now}");
        assert_eq!(
            w.try_set(MANAGER),
            status::INVALID,
            "{now}: another manager"
        );
        w.by(ACTIVE).announce(MANAGER, 9, 15_000, true);
    }
    let lines = w.events();
    assert!(
        !lines.iter().any(|line| line.contains("standby")),
        "{lines:?}"
    );
    // The active manager is gone. Requests of the standby do not renew the lease; after it, the standby may
    // set.
    w.at(54_999).by(STANDBY).announce(MANAGER, 8, 15_000, true);
    assert_eq!(w.try_get(MANAGER), status::OK);
    assert_eq!(w.try_set(MANAGER), status::INVALID);
    assert_eq!(w.at(55_000).try_set(MANAGER), status::OK);
    assert_eq!(w.by(ACTIVE).try_set(MANAGER), status::INVALID);
}

#[test]
fn a_manager_that_sets_first_is_identified_by_its_announcement() {
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

/// Both managers send Get before an announcement: the agent cannot distinguish them, and keeps the first
/// one.
#[test]
fn a_get_of_the_other_manager_does_not_take_ownership() {
    let mut w = World::new();
    w.by(ACTIVE).try_set(MANAGER);
    w.by(STANDBY).try_get(MANAGER);
    w.by(ACTIVE).announce(MANAGER, 9, 15_000, true);
    assert_eq!(w.try_set(MANAGER), status::OK);
    assert_eq!(w.by(STANDBY).try_set(MANAGER), status::INVALID);
}

#[test]
fn a_restarted_manager_has_another_mark_and_keeps_ownership() {
    let mut w = World::new();
    w.by(ACTIVE).announce(MANAGER, 9, 15_000, true);
    w.try_set(MANAGER);
    w.by(0x3333_0003).announce(MANAGER, 9, 15_000, false);
    w.at(14_999).announce(MANAGER, 9, 15_000, true);
    assert_eq!(
        w.try_set(MANAGER),
        status::INVALID,
        "the lease has not ended"
    );
    w.at(15_000).announce(MANAGER, 9, 15_000, true);
    assert_eq!(w.try_set(MANAGER), status::OK);
    assert_eq!(w.by(ACTIVE).try_set(MANAGER), status::INVALID);
}

/// A manager without announcements may draw each transaction id at random.
#[test]
fn a_manager_without_announcements_is_identified_by_its_queue_pair() {
    let mut w = World::new();
    for mark in [0, 77, 0xffff_ffff] {
        assert_eq!(w.by(mark).try_set(MANAGER), status::OK, "{mark:#x}");
        assert_eq!(w.by(mark).try_set(OTHER), status::INVALID);
    }
}

#[test]
fn announcements_of_others_do_not_evict_the_owners_lease() {
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
