//! Forged datagrams: an attacker knows GID and identity of the manager, and perhaps its queue pair.

use super::*;

/// The manager's GID, from another queue pair.
const FORGED: Address = address(0xee, 0x99);
const ID: u64 = 9;
const LEASE_MS: u32 = 15_000;

impl World {
    /// The manager owns the agent and announces itself.
    fn owned() -> World {
        let mut w = World::forwarding();
        w.announce(MANAGER, ID, LEASE_MS, true);
        w.events();
        w
    }

    /// A Set of VeswPortInfo that may stay without an answer.
    fn set_silently(&mut self, index: u8, info: &VeswPortInfo) -> bool {
        let header = self.header(method::SET, attribute::VESW_PORT_INFO, index);
        let request = mad::write(&header, info);
        let answer = self
            .agent
            .handle(self.now, MANAGER, &request, &mut self.host);
        answer.is_some()
    }

    fn deletes(&mut self, count: usize) -> usize {
        for _ in 0..count {
            let header = self.header(method::SET, attribute::DELETE_VESW, 0);
            let request = mad::write_empty(&header);
            self.agent
                .handle(self.now, MANAGER, &request, &mut self.host);
        }
        let calls = self.calls();
        calls.iter().filter(|c| **c == Call::Delete(0)).count()
    }
}

fn on_switch(vesw_id: u16) -> VeswPortInfo {
    VeswPortInfo {
        vesw_id,
        ..forwarding()
    }
}

#[test]
fn an_announcement_as_standby_from_another_queue_pair_releases_nothing() {
    let mut w = World::owned();
    w.announce(FORGED, ID, LEASE_MS, false);
    assert_eq!(w.agent.owner(w.now).map(|o| o.qpn), Some(MANAGER.qpn));
    assert_eq!(w.try_set(OTHER), status::INVALID);
    assert_eq!(w.try_set(MANAGER), status::OK);
}

#[test]
fn an_announcement_from_another_queue_pair_takes_nothing_while_the_lease_is_renewed() {
    let mut w = World::owned();
    for n in 1..20 {
        w.at(n * 10_000).announce(MANAGER, ID, LEASE_MS, true);
        w.announce(FORGED, ID, LEASE_MS, true);
        assert_eq!(w.try_set(FORGED), status::INVALID);
        assert_eq!(w.try_set(MANAGER), status::OK);
    }
    // Its announcements do not renew the lease, either; a restarted manager follows when the lease has ended.
    w.at(204_999).announce(FORGED, ID, LEASE_MS, true);
    assert_eq!(w.try_set(FORGED), status::INVALID);
    w.at(205_000).announce(FORGED, ID, LEASE_MS, true);
    assert_eq!(w.try_set(FORGED), status::OK);
    assert_eq!(w.try_set(MANAGER), status::INVALID);
}

#[test]
fn another_identity_from_the_managers_queue_pair_releases_nothing() {
    let mut w = World::owned();
    w.announce(MANAGER, ID + 1, LEASE_MS, false);
    assert!(w.agent.owner(w.now).is_some());
}

/// Each change of the switch makes a queue pair.
#[test]
fn alternating_settings_change_a_port_16_times_and_then_once_a_second() {
    let mut w = World::owned();
    w.calls();
    let changes = |w: &mut World| {
        for n in 0..1000 {
            w.set_silently(0, &on_switch(3 + n % 2));
        }
        w.calls().len()
    };
    // `World::forwarding` was the first change.
    assert_eq!(changes(&mut w), 15);
    w.at(60_000);
    w.announce(MANAGER, ID, LEASE_MS, true);
    assert_eq!(changes(&mut w), 16);
    let before = w.agent.counts().sets_limited;
    w.at(63_000);
    assert_eq!(changes(&mut w), 3);
    assert!(w.agent.counts().sets_limited > before);
    // A Set without a change costs nothing and is answered.
    w.at(63_002);
    let now = w.info(0);
    assert!(w.set_silently(0, &now));
}

#[test]
fn ignored_sets_are_reported_once_a_minute() {
    let mut w = World::owned();
    for n in 0..600 {
        w.at(60_000 + u64::from(n) * 100);
        w.set_silently(0, &on_switch(3 + n % 2));
        w.announce(MANAGER, ID, LEASE_MS, true);
    }
    let lines = w.events();
    let line = "fe80::ee sends too many Sets: some are dropped (forged datagrams?)";
    assert_eq!(lines.iter().filter(|l| *l == line).count(), 1, "{lines:?}");
}

#[test]
fn sets_of_all_ports_together_are_limited() {
    let mut w = World::owned();
    let answered = |w: &mut World| {
        let own = w.info(0);
        (0..2000).filter(|_| w.set_silently(0, &own)).count()
    };
    w.at(10_000);
    assert_eq!(answered(&mut w), 512);
    w.at(10_100);
    assert_eq!(answered(&mut w), 50);
    // Gets are answered, and the owner keeps the agent.
    assert_eq!(w.try_get(MANAGER), status::OK);
    assert_eq!(w.agent.owner(w.now).map(|o| o.gid), Some(MANAGER.gid));
}

#[test]
fn deleting_what_is_deleted_changes_nothing() {
    let mut w = World::owned();
    w.calls();
    assert_eq!(w.deletes(100), 1);
    w.set(0, &forwarding());
    assert_eq!(w.deletes(100), 1);
}
