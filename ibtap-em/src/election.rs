//! Which of several managers manages: the one with the highest priority; of equals, the one with the
//! lowest id. Without input and output.
//!
//! Each manager announces itself in the management group ([`ManagerInfo`]) each third of its lease; who
//! was not heard for a lease is gone. A manager
//!
//! 1. *listens* for a sixth of a lease before it has a say. Meanwhile it announces priority 0, so that one
//!    that starts again and again keeps nobody from managing; who is active answers such a one at once;
//! 2. *stands by* while somebody outranks it;
//! 3. *claims*: says, with its own priority still, that it is active, and waits a sixth of a lease for a
//!    better one to do the same;
//! 4. is *active*, with its elevated priority from now on, until it hears of a better one that is, too.
//!    Because of that priority the one that it took over from does not take it back.
//!
//! While it listens or claims it says so four times, as datagrams get lost. A standby has taken over after
//! a lease and a sixth, and where two were cut off from each other, the worse one stops at the first word
//! that it hears. What both do in the moment between is bounded by the agents, which hold to one of them
//! for its lease.
//!
//! After a sleep (a suspended or stopped process) nothing that was heard before counts, and it listens anew.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use proto::{Gid, Time};
use vnic::attribute::ManagerInfo;

use crate::api::{OtherManager, Role};

/// Other managers that are remembered.
pub const OTHERS_MAX: usize = 32;

/// The highest priority.
pub const PRIORITY_MAX: u8 = 15;

/// A lease in milliseconds is taken for at least, and at most, this: others' come from the network. The
/// longest is what agents take for the longest.
const LEASE_MS: (u32, u32) = (300, *vnic::agent::LEASES_MS.end() as u32);

/// What the configuration says about it, and which one it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// Drawn once, and kept.
    pub id: u64,
    /// 0 to [`PRIORITY_MAX`].
    pub priority: u8,
    /// The priority while it is active; at least `priority`.
    pub elevated_priority: u8,
    /// In milliseconds.
    pub lease_ms: u32,
}

impl Candidate {
    fn lease(&self) -> u64 {
        u64::from(self.lease_ms.clamp(LEASE_MS.0, LEASE_MS.1))
    }

    /// Between two announcements.
    fn interval(&self) -> u64 {
        self.lease() / 3
    }

    /// How long it listens, and claims.
    fn pause(&self) -> u64 {
        self.lease() / 6
    }

    /// Between two announcements where somebody should hear soon.
    fn haste(&self) -> u64 {
        self.lease() / 18
    }
}

/// Greater is better.
type Rank = (u8, Reverse<u64>, Reverse<Gid>);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Detached,
    Listening { until: Time },
    Standby,
    Claiming { until: Time },
    Active,
}

#[derive(Clone, Debug)]
struct Other {
    info: ManagerInfo,
    heard: Time,
    /// When it is gone unless it is heard again.
    gone: Time,
}

impl Other {
    fn rank(&self) -> Rank {
        (
            self.info.priority,
            Reverse(self.info.id),
            Reverse(self.info.gid),
        )
    }
}

/// What has changed, for the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// It has another part.
    Role(Role),
    /// It was not running for too long, and listens anew.
    Slept,
    /// Another manager has the same id: its state was copied.
    Twin(Gid),
}

/// One manager's view of the election.
#[derive(Debug)]
pub struct Election {
    own: Candidate,
    gid: Gid,
    phase: Phase,
    others: BTreeMap<(Gid, u64), Other>,
    /// When to announce itself next.
    announce: Time,
    announced: Time,
    /// The latest time that was given: an earlier one is taken for it.
    now: Time,
    twins: Vec<Gid>,
    changes: Vec<Change>,
}

impl Election {
    /// Without a fabric port.
    #[must_use]
    pub fn new(own: Candidate) -> Election {
        Election {
            own,
            gid: Gid::UNSPECIFIED,
            phase: Phase::Detached,
            others: BTreeMap::new(),
            announce: Time::default(),
            announced: Time::default(),
            now: Time::default(),
            twins: Vec::new(),
            changes: Vec::new(),
        }
    }

    /// Its fabric port has come, has another GID, or has gone.
    pub fn attach(&mut self, now: Time, gid: Option<Gid>) {
        self.now = now.max(self.now);
        match gid {
            Some(gid) => {
                self.gid = gid;
                self.listen();
            }
            None => {
                self.others.clear();
                self.enter(Phase::Detached);
            }
        }
    }

    /// The configuration has changed. Who is active stays so unless it is outranked now.
    pub fn configure(&mut self, now: Time, own: Candidate) {
        self.advance(now);
        self.own = own;
        self.announce = self.now;
        self.decide();
    }

    /// Another manager's announcement, or the echo of its own.
    pub fn heard(&mut self, now: Time, info: &ManagerInfo) {
        self.advance(now);
        let key = (info.gid, info.id);
        if self.phase == Phase::Detached
            || key == (self.gid, self.own.id)
            || info.priority > PRIORITY_MAX
        {
            return;
        }
        if info.lease_ms == 0 {
            // It takes its leave.
            self.others.remove(&key);
            self.decide();
            return;
        }
        self.note_twin(info);
        let lease = u64::from(info.lease_ms.clamp(LEASE_MS.0, LEASE_MS.1));
        let other = Other {
            info: info.clone(),
            heard: self.now,
            gone: self.now.after(lease),
        };
        let rank = other.rank();
        self.others.insert(key, other);
        if self.others.len() > OTHERS_MAX {
            self.forget_worst();
        }
        let claims = matches!(self.phase, Phase::Active | Phase::Claiming { .. });
        let listens = !info.active && info.priority == 0;
        if claims && (listens || info.active && rank < self.rank()) {
            // It may not have heard of us.
            self.announce = self.announce.min(self.announced.after(self.own.haste()));
        }
        self.decide();
    }

    /// Does what the time has come for. An earlier time than one before is taken for that.
    pub fn advance(&mut self, now: Time) {
        let due = self.next_deadline();
        self.now = now.max(self.now);
        if self.phase == Phase::Detached {
            return;
        }
        // By then the others, and the agents, hold it for gone.
        let tolerated = self.own.lease() - self.own.interval();
        if due.is_some_and(|due| self.now.since(due) > tolerated) {
            self.changes.push(Change::Slept);
            self.listen();
        }
        let now = self.now;
        self.others.retain(|_, other| other.gone > now);
        self.decide();
    }

    /// When [`Election::advance`] is to be called, and [`Election::poll_announcement`] asked, at the latest.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        let until = match self.phase {
            Phase::Detached => return None,
            Phase::Listening { until } | Phase::Claiming { until } => Some(until),
            Phase::Standby | Phase::Active => None,
        };
        let gone = self.others.values().map(|other| other.gone);
        gone.chain(until).chain([self.announce]).min()
    }

    /// What to send to the management group now.
    pub fn poll_announcement(&mut self) -> Option<ManagerInfo> {
        if self.phase == Phase::Detached || self.now < self.announce {
            return None;
        }
        self.announced = self.now;
        let pause = match self.phase {
            Phase::Listening { .. } | Phase::Claiming { .. } => self.own.haste(),
            _ => self.own.interval(),
        };
        self.announce = self.now.after(pause);
        Some(self.announcement())
    }

    /// The last word of a manager that ends: others need not wait for its lease to be over.
    #[must_use]
    pub fn farewell(&self) -> Option<ManagerInfo> {
        (self.phase != Phase::Detached).then(|| ManagerInfo {
            active: false,
            lease_ms: 0,
            ..self.announcement()
        })
    }

    /// Its part.
    #[must_use]
    pub fn role(&self) -> Role {
        match self.phase {
            Phase::Detached => Role::Detached,
            Phase::Listening { .. } => Role::Listening,
            Phase::Standby => Role::Standby,
            Phase::Claiming { .. } => Role::Claiming,
            Phase::Active => Role::Active,
        }
    }

    /// The priority that it announces.
    #[must_use]
    pub fn priority(&self) -> u8 {
        match self.phase {
            Phase::Detached | Phase::Standby | Phase::Claiming { .. } => self.own.priority,
            Phase::Listening { .. } => 0,
            Phase::Active => self.own.elevated_priority,
        }
    }

    /// The others that were heard within their lease, the best first.
    #[must_use]
    pub fn others(&self) -> Vec<OtherManager> {
        let mut others: Vec<&Other> = self.others.values().collect();
        others.sort_by_key(|other| Reverse((other.info.active, other.rank())));
        let shown = |other: &&Other| OtherManager {
            id: other.info.id,
            gid: other.info.gid,
            priority: other.info.priority,
            active: other.info.active,
            heard_ms: self.now.since(other.heard),
        };
        others.iter().map(shown).collect()
    }

    /// What has changed since it was asked last.
    pub fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    fn announcement(&self) -> ManagerInfo {
        ManagerInfo {
            id: self.own.id,
            priority: self.priority(),
            active: matches!(self.phase, Phase::Claiming { .. } | Phase::Active),
            lease_ms: self.own.lease() as u32,
            gid: self.gid,
        }
    }

    fn rank(&self) -> Rank {
        (self.priority(), Reverse(self.own.id), Reverse(self.gid))
    }

    fn listen(&mut self) {
        let until = self.now.after(self.own.pause());
        self.announce = self.now;
        self.enter(Phase::Listening { until });
    }

    fn decide(&mut self) {
        match self.phase {
            Phase::Detached => {}
            Phase::Listening { until } if self.now < until => {}
            Phase::Listening { .. } => {
                // With its own priority from now on; perhaps for no longer than this.
                self.phase = Phase::Standby;
                self.decide();
                if self.phase == Phase::Standby {
                    self.changes.push(Change::Role(Role::Standby));
                }
            }
            Phase::Standby if self.is_outranked(|_| true) => {}
            Phase::Standby => {
                let until = self.now.after(self.own.pause());
                self.announce = self.now;
                self.enter(Phase::Claiming { until });
                // Of two that claim at once, one has heard the other already.
                self.decide();
            }
            Phase::Claiming { .. } | Phase::Active if self.is_outranked(|o| o.info.active) => {
                // Agents and others hear at once that it lets go.
                self.announce = self.now;
                self.enter(Phase::Standby);
            }
            Phase::Claiming { until } if self.now >= until => {
                self.announce = self.now;
                self.enter(Phase::Active);
            }
            Phase::Claiming { .. } | Phase::Active => {}
        }
    }

    fn is_outranked(&self, counts: impl Fn(&Other) -> bool) -> bool {
        let own = self.rank();
        let mut others = self.others.values();
        others.any(|other| counts(other) && other.rank() > own)
    }

    fn enter(&mut self, phase: Phase) {
        let before = self.role();
        self.phase = phase;
        if self.role() != before {
            self.changes.push(Change::Role(self.role()));
        }
    }

    /// Tells once of each port, as far as those are remembered.
    fn note_twin(&mut self, info: &ManagerInfo) {
        let known = self.twins.contains(&info.gid) || self.twins.len() >= OTHERS_MAX;
        if info.id == self.own.id && !known {
            self.twins.push(info.gid);
            self.changes.push(Change::Twin(info.gid));
        }
    }

    fn forget_worst(&mut self) {
        let by_rank = |(_, other): &(&(Gid, u64), &Other)| (other.info.active, other.rank());
        let worst = self.others.iter().min_by_key(by_rank);
        if let Some(key) = worst.map(|(key, _)| *key) {
            self.others.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests;
