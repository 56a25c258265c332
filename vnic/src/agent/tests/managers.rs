//! Permission, ownership and announcements.

use super::*;
use crate::attribute::ManagerInfo;

fn manager_info(tid: u64, id: u64, lease_ms: u32, active: bool) -> Vec<u8> {
    let header = Header::new(method::SEND, attribute::MANAGER_INFO, 0, tid);
    let info = ManagerInfo {
        id,
        priority: 5,
        active,
        lease_ms,
        gid: MANAGER.gid,
    };
    mad::write(&header, &info)
}

const fn to_all(from: Address) -> Address {
    Address {
        by_group: true,
        ..from
    }
}

impl World {
    pub(super) fn announce(&mut self, from: Address, id: u64, lease_ms: u32, active: bool) {
        self.next_tid += 1;
        let bytes = manager_info(self.next_tid, id, lease_ms, active);
        let answer = self
            .agent
            .handle(self.now, to_all(from), &bytes, &mut self.host);
        assert_eq!(answer, None);
    }

    pub(super) fn try_set(&mut self, from: Address) -> u16 {
        let header = self.header(method::SET, attribute::VESW_PORT_INFO, 0);
        self.send(from, &mad::write(&header, &forwarding())).0
    }

    pub(super) fn try_get(&mut self, from: Address) -> u16 {
        let header = self.header(method::GET, attribute::VESW_PORT_INFO, 0);
        self.send(from, &mad::write_empty(&header)).0
    }

    /// Times of the announcements in the next `for_ms` milliseconds.
    fn announced(&mut self, for_ms: u64) -> Vec<u64> {
        let end = self.now.after(for_ms);
        let mut at = Vec::new();
        while let Some(due) = self.agent.next_deadline().filter(|due| *due <= end) {
            if let Some(before) = due.0.checked_sub(1) {
                assert!(self.agent.poll_transmit(Time(before)).is_none());
            }
            let transmit = self.agent.poll_transmit(due).expect("due");
            assert_eq!(transmit.to, Destination::Group);
            let mad = Mad::parse(&transmit.mad).unwrap();
            assert_eq!(mad.header.method, method::SEND);
            assert_eq!(mad.attribute(), Ok(self.agent.node_info(0)));
            at.push(due.0);
        }
        self.now = end;
        at
    }
}

#[test]
fn a_manager_that_is_not_configured_is_refused_and_reported_once() {
    let mut w = World::with(Config {
        managers: vec![MANAGER.gid],
        ..config()
    });
    for _ in 0..3 {
        assert_eq!(w.try_set(OTHER), status::INVALID);
        assert_eq!(w.try_get(OTHER), status::INVALID);
    }
    let line = "refused management from fe80::dd: not in `managers` of this port";
    assert_eq!(w.events(), [line]);
    assert_eq!((w.agent.counts().not_manager, w.calls()), (6, vec![]));
    assert_eq!(w.try_set(MANAGER), status::OK);
    // Its announcements are ignored, too.
    w.announce(OTHER, 1, 60_000, true);
    assert_eq!(w.agent.counts().not_manager, 7);
}

#[test]
fn reports_of_refused_senders_are_bounded() {
    let mut w = World::with(Config {
        managers: vec![MANAGER.gid],
        ..config()
    });
    for n in 0..1000 {
        w.try_set(address(1, n));
    }
    assert_eq!(w.events().len(), 32);
    assert_eq!(w.agent.counts().not_manager, 1000);
}

#[test]
fn a_lease_excludes_sets_but_not_gets_of_another_manager() {
    let mut w = World::new();
    assert_eq!(w.try_set(MANAGER), status::OK);
    assert_eq!(w.at(14_999).try_set(OTHER), status::INVALID);
    assert_eq!(w.try_get(OTHER), status::OK);
    assert_eq!(w.agent.owner(w.now).unwrap().gid, MANAGER.gid);
    // After 15 silent seconds, the other manager may set.
    assert_eq!(w.at(15_000).try_set(OTHER), status::OK);
    assert_eq!(w.try_set(MANAGER), status::INVALID);
    let lines = [
        "managed by fe80::ee",
        "refused management from fe80::dd: fe80::ee manages this port (two active managers?)",
        "managed by fe80::dd",
        "refused management from fe80::ee: fe80::dd manages this port (two active managers?)",
    ];
    assert_eq!(w.events(), lines);
    assert_eq!(w.agent.counts().not_owner, 2);
}

#[test]
fn gets_renew_ownership_but_do_not_start_it() {
    let mut w = World::new();
    w.try_get(OTHER);
    assert_eq!(w.agent.owner(w.now), None);
    w.try_set(MANAGER);
    w.at(14_000).try_get(MANAGER);
    assert_eq!(w.at(28_999).try_set(OTHER), status::INVALID);
    assert_eq!(w.at(29_000).try_set(OTHER), status::OK);
}

#[test]
fn a_refused_set_makes_no_owner() {
    let mut w = World::new();
    let bad = VeswPortInfo {
        vesw_id: 0,
        ..forwarding()
    };
    let header = w.header(method::SET, attribute::VESW_PORT_INFO, 0);
    w.send(OTHER, &mad::write(&header, &bad));
    assert_eq!(w.agent.owner(w.now), None);
}

#[test]
fn announced_leases_are_clamped() {
    for (announced_ms, lease_ms) in [(5_000, 5_000), (0, 1_000), (u32::MAX, 300_000)] {
        let mut w = World::new();
        w.announce(MANAGER, 9, announced_ms, true);
        w.try_set(MANAGER);
        assert_eq!(
            w.at(lease_ms - 1).try_set(OTHER),
            status::INVALID,
            "{announced_ms}"
        );
        assert_eq!(w.at(lease_ms).try_set(OTHER), status::OK, "{announced_ms}");
    }
}

#[test]
fn only_announcements_of_the_owner_renew_ownership() {
    let mut w = World::new();
    w.try_set(MANAGER);
    for n in 1..10 {
        w.at(n * 10_000).announce(MANAGER, 9, 15_000, true);
        w.announce(OTHER, 8, 15_000, true);
    }
    assert_eq!(w.try_set(OTHER), status::INVALID);
    assert_eq!(w.at(105_000).try_set(OTHER), status::OK);
}

#[test]
fn an_owner_that_becomes_standby_gives_up_ownership_at_once() {
    let mut w = World::new();
    w.try_set(MANAGER);
    w.announce(OTHER, 8, 15_000, false);
    assert_eq!(w.try_set(OTHER), status::INVALID);
    w.announce(MANAGER, 9, 15_000, false);
    assert_eq!(w.try_set(OTHER), status::OK);
    assert!(
        w.events()
            .contains(&"manager fe80::ee is now standby".to_owned())
    );
}

#[test]
fn after_a_restart_of_the_daemon_ownership_moves_when_the_lease_has_ended() {
    let mut w = World::new();
    w.announce(MANAGER, 9, 15_000, true);
    w.try_set(MANAGER);
    let again = Address {
        qpn: Qpn::new(0x99),
        ..MANAGER
    };
    assert_eq!(w.try_set(again), status::INVALID);
    // Another manager on the same node does not get ownership.
    w.announce(again, 10, 15_000, true);
    assert_eq!(w.try_set(again), status::INVALID);
    w.announce(again, 9, 15_000, true);
    assert_eq!(w.try_set(again), status::INVALID);
    w.at(15_000).announce(again, 9, 15_000, true);
    assert_eq!(w.try_set(again), status::OK);
    assert_eq!(w.try_set(MANAGER), status::INVALID);
}

/// E05: the manager finds all settings unchanged and sends no Set.
#[test]
fn a_restarted_manager_regains_ownership_without_a_set() {
    let mut w = World::new();
    w.announce(MANAGER, 9, 15_000, true);
    w.try_set(MANAGER);
    // It starts as standby, perhaps with another queue pair, and then becomes active.
    let again = address(0xee, 0x99);
    w.announce(MANAGER, 9, 15_000, false);
    w.announce(OTHER, 8, 15_000, true);
    w.at(60_000).announce(again, 10, 15_000, true);
    assert_eq!(w.agent.owner(w.now), None);
    w.announce(again, 9, 15_000, true);
    assert_eq!(w.agent.owner(w.now).map(|owner| owner.qpn), Some(again.qpn));
    assert_eq!(w.try_set(OTHER), status::INVALID);
    assert_eq!(w.at(74_999).try_set(MANAGER), status::INVALID);
    // It does not regain ownership that another manager has taken.
    assert_eq!(w.at(75_000).try_set(OTHER), status::OK);
    w.at(200_000).announce(again, 9, 15_000, true);
    assert_eq!(w.agent.owner(w.now), None);
}

#[test]
fn an_owner_without_permission_loses_ownership() {
    let mut w = World::new();
    w.try_set(MANAGER);
    w.agent.set_managers(vec![OTHER.gid]);
    assert_eq!(w.try_set(MANAGER), status::INVALID);
    assert_eq!(w.try_set(OTHER), status::OK);
}

#[test]
fn an_agent_announces_itself_three_times_at_its_start_and_after_each_change() {
    let mut w = World::new();
    let at = w.announced(20_000);
    assert_eq!(at.len(), 3);
    assert!(at[0] < 500);
    assert_eq!([at[1] - at[0], at[2] - at[1]], [1000, 3000]);
    w.agent.set_qpn(w.now, 0, Qpn::new(0x555));
    let at = w.announced(20_000);
    assert_eq!(at.len(), 3);
    assert!(at[0] < 20_100);
    // Equal settings are no change.
    w.agent.set_qpn(w.now, 0, Qpn::new(0x555));
    w.agent.set_name(w.now, 0, "vnic0");
    w.agent.set_payload_max(w.now, 4096);
    assert!(w.announced(20_000).is_empty());
    w.agent.set_name(w.now, 0, "lan0");
    w.agent.remove_port(w.now, 0);
    assert_eq!(w.announced(20_000).len(), 3);
    // The first address is no change.
    let places = [address(1, 0x30), address(2, 0x30), address(2, 0x31)];
    for (place, times) in places.into_iter().zip([0, 3, 3]) {
        let (gid, qpn) = (place.gid, place.qpn);
        for _ in 0..2 {
            w.agent.set_address(w.now, NodeAddress { gid, qpn });
        }
        assert_eq!(w.announced(20_000).len(), times);
    }
}

#[test]
fn agents_announce_themselves_at_different_times() {
    let firsts: std::collections::BTreeSet<u64> = (0..50)
        .map(|seed| {
            let mut w = World::with(Config { seed, ..config() });
            w.announced(500)[0]
        })
        .collect();
    assert!(firsts.len() > 25, "{firsts:?}");
}

#[test]
fn requests_to_the_group_are_answered_to_the_group_at_a_limited_rate() {
    let mut w = World::new();
    w.announced(20_000);
    let header = Header::new(method::GET, attribute::NODE_INFO, 0, 1);
    let request = mad::write_empty(&header);
    let ask = |w: &mut World| {
        let answer = w.agent.handle(w.now, to_all(OTHER), &request, &mut w.host);
        assert_eq!(answer, None);
    };
    ask(&mut w);
    assert_eq!(w.announced(1000).len(), 1);
    let mut sent = 0;
    for _ in 0..1000 {
        ask(&mut w);
        sent += w.announced(1).len();
    }
    assert!(sent <= 6, "{sent}");
}

#[test]
fn other_requests_to_the_group_are_not_answered() {
    let mut w = World::new();
    let requests = [
        (method::GET, attribute::VESW_PORT_INFO),
        (method::SET, attribute::DELETE_VESW),
        (method::SET, attribute::NODE_INFO),
    ];
    for (method, id) in requests {
        let request = mad::write_empty(&Header::new(method, id, 0, 1));
        let answer = w
            .agent
            .handle(w.now, to_all(MANAGER), &request, &mut w.host);
        assert_eq!(answer, None);
    }
    assert_eq!((w.agent.counts().to_all, w.calls()), (3, vec![]));
}

#[test]
fn other_methods_are_ignored() {
    let mut w = World::new();
    for method in [method::GET_RESP, method::TRAP, method::SEND, 0x07, 0x85] {
        let bytes = mad::write_empty(&Header::new(method, attribute::VESW_PORT_INFO, 0, 1));
        assert_eq!(w.agent.handle(w.now, MANAGER, &bytes, &mut w.host), None);
    }
    assert_eq!(w.agent.handle(w.now, MANAGER, &[1; 50], &mut w.host), None);
    assert_eq!(
        (w.agent.counts().requests, w.agent.counts().malformed),
        (0, 1)
    );
}

#[test]
fn reports_of_handovers_are_limited() {
    let mut w = World::new();
    assert_eq!(w.try_set(MANAGER), status::OK);
    w.events();
    let reported = |w: &mut World| {
        let mut lines = 0;
        for n in 0..100 {
            w.announce(MANAGER, 1, 3_000, n % 2 == 0);
            lines += w.events().len();
        }
        lines
    };
    // The first minute had one more: the initial Set.
    assert_eq!(reported(&mut w), 9);
    w.now = w.now.after(60_000);
    assert_eq!(reported(&mut w), 10);
    assert!(w.agent.owner(w.now).is_none());
}
