//! Election of the active manager: the highest priority wins; of equal priorities, the lowest id. Sans-IO.
//!
//! Each manager announces itself to the management group ([`ManagerInfo`]) every third of its lease. A
//! manager that is silent for a lease is gone. A manager
//!
//! 1. *listens* for a sixth of a lease. Meanwhile it announces priority 0, so that a manager that restarts
//!    again and again prevents no other from managing. The active manager answers such an announcement at
//!    once;
//! 2. *stands by* while another manager outranks it;
//! 3. *claims*: announces itself as active, still with its own priority, and waits a sixth of a lease for a
//!    better manager to do the same;
//! 4. is *active*, with its elevated priority, until a better active manager announces itself. The elevated
//!    priority keeps the former manager from taking over again.
//!
//! While a manager listens or claims, it sends four announcements, because datagrams get lost. A standby
//! takes over after a lease and a sixth. When a split fabric rejoins, the worse manager stops at the first
//! announcement that it receives. Agents accept one manager for its lease, which limits what two active
//! managers can do in between.
//!
//! After a pause of the process (suspend, SIGSTOP), a manager listens again before it claims.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use proto::{Gid, Time};
use vnic::attribute::ManagerInfo;

use crate::api::{OtherManager, Role};

/// Maximum number of remembered managers.
pub const OTHERS_MAX: usize = 32;

/// The highest priority.
pub const PRIORITY_MAX: u8 = 15;

/// Limits of a lease, in milliseconds; the leases of others come from the network. The maximum is that of the
/// agents.
const LEASE_MS: (u32, u32) = (300, *vnic::agent::LEASES_MS.end() as u32);

/// Identity and configuration of a manager.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// Drawn once and saved.
    pub id: u64,
    /// 0 to [`PRIORITY_MAX`].
    pub priority: u8,
    /// Priority while active; at least `priority`.
    pub elevated_priority: u8,
    /// Lease in milliseconds.
    pub lease_ms: u32,
}

impl Candidate {
    fn lease(&self) -> u64 {
        u64::from(self.lease_ms.clamp(LEASE_MS.0, LEASE_MS.1))
    }

    /// Interval of announcements.
    fn interval(&self) -> u64 {
        self.lease() / 3
    }

    /// Duration of listening and of claiming.
    fn pause(&self) -> u64 {
        self.lease() / 6
    }

    /// Interval of urgent announcements.
    fn haste(&self) -> u64 {
        self.lease() / 18
    }
}

/// A greater rank wins.
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
    /// Removed at this time, unless it announces itself again.
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

/// A change, for the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// New role.
    Role(Role),
    /// The manager did not run for too long and listens again.
    Slept,
    /// Another manager has the same id: its state is a copy.
    Twin(Gid),
}

/// One manager's view of the election.
#[derive(Debug)]
pub struct Election {
    own: Candidate,
    gid: Gid,
    phase: Phase,
    others: BTreeMap<(Gid, u64), Other>,
    /// Time of the next announcement.
    announce: Time,
    announced: Time,
    /// Latest time seen; earlier times are replaced by it.
    now: Time,
    twins: Vec<Gid>,
    changes: Vec<Change>,
}

impl Election {
    /// Creates an election without a fabric port.
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

    /// The fabric port was attached, has another GID, or was detached.
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

    /// Applies a new configuration. An active manager stays active unless another outranks it now.
    pub fn configure(&mut self, now: Time, own: Candidate) {
        self.advance(now);
        self.own = own;
        self.announce = self.now;
        self.decide();
    }

    /// Processes an announcement: another manager's, or the echo of its own.
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
            // The other manager ends.
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
            // The other manager may not have received an announcement yet.
            self.announce = self.announce.min(self.announced.after(self.own.haste()));
        }
        self.decide();
    }

    /// Processes everything that is due. Time never goes back.
    pub fn advance(&mut self, now: Time) {
        let due = self.next_deadline();
        self.now = now.max(self.now);
        if self.phase == Phase::Detached {
            return;
        }
        // After that time, other managers and the agents consider this manager gone.
        let tolerated = self.own.lease() - self.own.interval();
        if due.is_some_and(|due| self.now.since(due) > tolerated) {
            self.changes.push(Change::Slept);
            self.listen();
        }
        let now = self.now;
        self.others.retain(|_, other| other.gone > now);
        self.decide();
    }

    /// Latest time for the next [`Election::advance`] and [`Election::poll_announcement`].
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

    /// The announcement to send now.
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

    /// The last announcement of a manager that ends; other managers need not wait for the end of its lease.
    #[must_use]
    pub fn farewell(&self) -> Option<ManagerInfo> {
        (self.phase != Phase::Detached).then(|| ManagerInfo {
            active: false,
            lease_ms: 0,
            ..self.announcement()
        })
    }

    /// Current role.
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

    /// Announced priority.
    #[must_use]
    pub fn priority(&self) -> u8 {
        match self.phase {
            Phase::Detached | Phase::Standby | Phase::Claiming { .. } => self.own.priority,
            Phase::Listening { .. } => 0,
            Phase::Active => self.own.elevated_priority,
        }
    }

    /// Other managers within their lease, the best first.
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

    /// Changes since the last call.
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
                // Its own priority counts from now on, perhaps for this moment only.
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
                // If two claim at the same time, one of them has already received the other's announcement.
                self.decide();
            }
            Phase::Claiming { .. } | Phase::Active if self.is_outranked(|o| o.info.active) => {
                // Agents and other managers learn at once that this manager stops.
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

    /// Reports a copy of this manager's id, once for each port and for a limited number of ports.
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
