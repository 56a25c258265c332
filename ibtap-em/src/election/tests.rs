use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const LEASE: u64 = 900;

fn gid(last: u8) -> Gid {
    let mut raw = [0; 16];
    raw[0] = 0xfe;
    raw[1] = 0x80;
    raw[15] = last;
    Gid(raw)
}

fn candidate(id: u64, priority: u8, elevated_priority: u8) -> Candidate {
    Candidate {
        id,
        priority,
        elevated_priority,
        lease_ms: LEASE as u32,
    }
}

/// Managers on a network without delay, unless it is split. Time is a number.
struct World {
    now: u64,
    managers: Vec<Option<Election>>,
    /// Offset of each manager's clock.
    skew: Vec<u64>,
    /// Pairs (from, to) without connectivity.
    parted: BTreeSet<(usize, usize)>,
    /// Milliseconds with two active managers that could receive each other's announcements.
    doubled: u64,
    changes: Vec<(usize, Change)>,
}

impl World {
    fn new(candidates: &[Candidate]) -> World {
        let mut world = World {
            now: 1_000_000,
            managers: Vec::new(),
            skew: vec![0; candidates.len()],
            parted: BTreeSet::new(),
            doubled: 0,
            changes: Vec::new(),
        };
        for (i, own) in candidates.iter().enumerate() {
            world.managers.push(None);
            world.start(i, *own);
        }
        world
    }

    fn start(&mut self, i: usize, own: Candidate) {
        let mut election = Election::new(own);
        election.attach(Time(self.now + self.skew[i]), Some(gid(i as u8 + 1)));
        self.managers[i] = Some(election);
    }

    fn part(&mut self, a: usize, b: usize) {
        self.parted.extend([(a, b), (b, a)]);
    }

    fn run(&mut self, milliseconds: u64) {
        for _ in 0..milliseconds / 5 {
            self.now += 5;
            self.step();
        }
    }

    fn step(&mut self) {
        let mut sent = Vec::new();
        for (i, manager) in self.managers.iter_mut().enumerate() {
            let Some(manager) = manager else { continue };
            manager.advance(Time(self.now + self.skew[i]));
            sent.extend(manager.poll_announcement().map(|info| (i, info)));
            let changes = manager.take_changes().into_iter();
            self.changes.extend(changes.map(|change| (i, change)));
        }
        for (from, info) in sent {
            // All managers receive it, including the sender.
            for to in 0..self.managers.len() {
                if self.parted.contains(&(from, to)) {
                    continue;
                }
                let now = Time(self.now + self.skew[to]);
                if let Some(manager) = &mut self.managers[to] {
                    manager.heard(now, &info);
                }
            }
        }
        let active = self.active();
        let meet = |a: &usize, b: &usize| a != b && !self.parted.contains(&(*a, *b));
        if active.iter().any(|a| active.iter().any(|b| meet(a, b))) {
            self.doubled += 5;
        }
    }

    fn active(&self) -> Vec<usize> {
        let all = self.managers.iter().enumerate();
        all.filter(|(_, m)| m.as_ref().is_some_and(|m| m.role() == Role::Active))
            .map(|(i, _)| i)
            .collect()
    }

    fn role(&self, i: usize) -> Role {
        self.managers[i]
            .as_ref()
            .map_or(Role::Detached, Election::role)
    }
}

#[test]
fn alone_it_listens_claims_and_manages() {
    let mut world = World::new(&[candidate(1, 5, 8)]);
    assert_eq!(world.role(0), Role::Listening);
    world.run(LEASE / 6 - 10);
    assert_eq!(world.role(0), Role::Listening);
    world.run(LEASE / 6);
    assert_eq!(world.role(0), Role::Claiming);
    world.run(LEASE / 6);
    assert_eq!(world.active(), [0]);
    assert_eq!(world.managers[0].as_ref().unwrap().priority(), 8);
}

#[test]
fn without_a_port_it_does_nothing() {
    let mut election = Election::new(candidate(1, 5, 8));
    election.advance(Time(10 * LEASE));
    assert_eq!(election.role(), Role::Detached);
    assert_eq!(election.next_deadline(), None);
    assert_eq!(election.poll_announcement(), None);
    assert_eq!(election.farewell(), None);
}

#[test]
fn the_highest_priority_is_active_and_of_equals_the_lowest_id() {
    let mut world = World::new(&[
        candidate(9, 5, 8),
        candidate(3, 6, 8),
        candidate(2, 6, 8),
        candidate(1, 5, 8),
    ]);
    world.run(3 * LEASE);
    assert_eq!(world.active(), [2]);
    assert_eq!(world.doubled, 0);
}

// E12
#[test]
fn a_standby_takes_over_within_three_leases_and_the_old_one_does_not_take_it_back() {
    let old = candidate(1, 6, 8);
    let mut world = World::new(&[old, candidate(2, 5, 8)]);
    world.run(3 * LEASE);
    assert_eq!(world.active(), [0]);
    world.managers[0] = None;
    let mut waited = 0;
    while world.active().is_empty() {
        world.run(5);
        waited += 5;
    }
    assert!(waited <= 2 * LEASE, "{waited} ms");
    world.start(0, old);
    world.run(10 * LEASE);
    assert_eq!(world.active(), [1]);
    assert_eq!(world.role(0), Role::Standby);
    assert_eq!(world.doubled, 0);
}

#[test]
fn one_that_is_better_than_an_elevated_one_takes_over_without_both_writing() {
    let mut world = World::new(&[candidate(1, 5, 8)]);
    world.run(3 * LEASE);
    world.managers.push(None);
    world.skew.push(0);
    world.start(1, candidate(2, 9, 9));
    world.run(3 * LEASE);
    assert_eq!(world.active(), [1]);
    assert_eq!((world.doubled, world.role(0)), (0, Role::Standby));
}

#[test]
fn who_takes_his_leave_is_followed_at_once() {
    let mut world = World::new(&[candidate(1, 6, 8), candidate(2, 5, 8)]);
    world.run(3 * LEASE);
    let farewell = world.managers[0].take().unwrap().farewell().unwrap();
    assert_eq!((farewell.active, farewell.lease_ms), (false, 0));
    let now = Time(world.now);
    world.managers[1].as_mut().unwrap().heard(now, &farewell);
    assert_eq!(world.role(1), Role::Claiming);
    world.run(LEASE / 3 + 10);
    assert_eq!(world.active(), [1]);
}

#[test]
fn parts_of_a_fabric_have_one_each_and_one_when_they_meet_again() {
    let mut world = World::new(&[candidate(1, 5, 8), candidate(2, 5, 8), candidate(3, 5, 9)]);
    world.run(3 * LEASE);
    assert_eq!(world.active(), [0]);
    for a in [0, 1] {
        world.part(a, 2);
    }
    world.run(4 * LEASE);
    assert_eq!(world.active(), [0, 2]);
    world.parted.clear();
    world.run(LEASE);
    // The third manager has the highest elevated priority.
    assert_eq!(world.active(), [2]);
    assert!(world.doubled <= LEASE / 3 + 10, "{} ms", world.doubled);
    world.run(10 * LEASE);
    assert_eq!(world.active(), [2]);
}

#[test]
fn a_link_that_works_one_way_leaves_one_active() {
    let mut world = World::new(&[candidate(1, 6, 8), candidate(2, 5, 8)]);
    // The better manager receives nothing from the worse one.
    world.parted.insert((1, 0));
    world.run(5 * LEASE);
    assert_eq!(world.active(), [0]);
}

#[test]
fn a_suspended_manager_listens_before_it_goes_on() {
    let mut world = World::new(&[candidate(1, 6, 8), candidate(2, 5, 8)]);
    world.run(3 * LEASE);
    let sleeping = world.managers[0].take();
    world.run(4 * LEASE);
    assert_eq!(world.active(), [1]);
    world.managers[0] = sleeping;
    world.changes.clear();
    world.step();
    assert_eq!(world.role(0), Role::Listening);
    assert!(world.changes.contains(&(0, Change::Slept)));
    world.run(5 * LEASE);
    assert_eq!(world.active(), [1]);
    assert_eq!(world.doubled, 0);
}

#[test]
fn a_suspended_standby_does_not_take_the_others_for_gone() {
    let mut world = World::new(&[candidate(1, 6, 8), candidate(2, 5, 8)]);
    world.run(3 * LEASE);
    let sleeping = world.managers[1].take();
    world.run(4 * LEASE);
    world.managers[1] = sleeping;
    world.run(5 * LEASE);
    assert_eq!(world.active(), [0]);
    assert_eq!(world.doubled, 0);
}

#[test]
fn a_clock_that_steps_changes_no_one_for_long() {
    let mut world = World::new(&[candidate(1, 6, 8), candidate(2, 5, 8)]);
    world.run(3 * LEASE);
    for (who, skew) in [(1, 100 * LEASE), (1, 0), (0, 50 * LEASE), (0, 0)] {
        // The new time is before the latest that it saw: its time stands still until then.
        world.skew[who] = skew;
        world.run(10);
        assert!(world.active().len() <= 1);
    }
    world.skew = vec![200 * LEASE; 2];
    world.run(6 * LEASE);
    assert_eq!(world.active().len(), 1);
    assert_eq!(world.doubled, 0);
}

#[test]
fn a_manager_that_restarts_again_and_again_prevents_no_other_from_managing() {
    let restless = candidate(1, 15, 15);
    let mut world = World::new(&[restless, candidate(2, 5, 8)]);
    for _ in 0..20 {
        world.start(0, restless);
        world.run(LEASE / 8);
    }
    assert_eq!(world.active(), [1]);
}

#[test]
fn a_copied_state_is_noticed_once_and_one_of_both_manages() {
    let mut world = World::new(&[candidate(7, 5, 8), candidate(7, 5, 8)]);
    world.run(6 * LEASE);
    assert_eq!(world.active(), [0]);
    let twins = world
        .changes
        .iter()
        .filter(|(_, change)| matches!(change, Change::Twin(_)));
    assert_eq!(twins.count(), 2);
}

#[test]
fn nonsense_from_the_network_is_ignored_and_bounded() {
    let mut election = Election::new(candidate(1, 5, 8));
    election.attach(Time(0), Some(gid(1)));
    let good = ManagerInfo {
        id: 2,
        priority: 1,
        active: false,
        lease_ms: u32::MAX,
        gid: gid(2),
    };
    let high = ManagerInfo {
        priority: PRIORITY_MAX + 1,
        ..good.clone()
    };
    election.heard(Time(1), &high);
    assert!(election.others().is_empty());
    for id in 0..10_000 {
        election.heard(Time(2), &ManagerInfo { id, ..good.clone() });
    }
    assert_eq!(election.others().len(), OTHERS_MAX);
    // A lease without end is limited.
    election.advance(Time(100));
    let mut now = 100;
    while now < 2 * u64::from(LEASE_MS.1) {
        now += 100;
        election.advance(Time(now));
        let _ = election.poll_announcement();
    }
    assert!(election.others().is_empty());
}

#[test]
fn a_better_configuration_takes_over_and_a_worse_one_keeps_what_it_has() {
    let mut world = World::new(&[candidate(1, 6, 8), candidate(2, 5, 8)]);
    world.run(3 * LEASE);
    let now = Time(world.now);
    world.managers[0]
        .as_mut()
        .unwrap()
        .configure(now, candidate(1, 1, 8));
    world.run(3 * LEASE);
    assert_eq!(world.active(), [0]);
    let now = Time(world.now);
    world.managers[1]
        .as_mut()
        .unwrap()
        .configure(now, candidate(2, 9, 9));
    world.run(3 * LEASE);
    assert_eq!((world.active(), world.doubled), (vec![1], 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// With full connectivity, two managers are never active at once, and in the end one is.
    #[test]
    fn never_two_at_once_on_a_whole_fabric(
        managers in prop::collection::vec((0u8..=15, 0u8..=15, any::<u64>()), 1..5),
        happenings in prop::collection::vec((0usize..5, any::<bool>(), 0u64..2 * LEASE), 0..12),
    ) {
        let candidates: Vec<Candidate> = managers
            .iter()
            .map(|&(priority, more, id)| candidate(id, priority, priority.max(more)))
            .collect();
        let mut world = World::new(&candidates);
        for (who, dies, pause) in happenings {
            let who = who % candidates.len();
            if dies {
                world.managers[who] = None;
            } else if world.managers[who].is_none() {
                world.start(who, candidates[who]);
            }
            world.run(pause);
            prop_assert_eq!(world.doubled, 0);
        }
        for (who, own) in candidates.iter().enumerate() {
            if world.managers[who].is_none() {
                world.start(who, *own);
            }
        }
        world.run(6 * LEASE);
        prop_assert_eq!((world.active().len(), world.doubled), (1, 0));
    }

    /// After any losses, once none occur, exactly one manager is active.
    #[test]
    fn one_at_last_after_any_partitions(
        ids in prop::collection::vec((any::<u64>(), 0u8..4), 2..5),
        cuts in prop::collection::vec((0usize..5, 0usize..5, 0u64..2 * LEASE), 0..12),
    ) {
        let candidates: Vec<Candidate> =
            ids.iter().map(|&(id, priority)| candidate(id, priority, priority + 3)).collect();
        let mut world = World::new(&candidates);
        for (from, to, pause) in cuts {
            let cut = (from % candidates.len(), to % candidates.len());
            if !world.parted.remove(&cut) {
                world.parted.insert(cut);
            }
            world.run(pause);
        }
        world.parted.clear();
        world.run(6 * LEASE);
        prop_assert_eq!(world.active().len(), 1);
    }
}
