//! Joins to which the subnet administrator has given no answer, or none but that it is busy. OpenSM ignores requests
//! while it configures a subnet for the first time, for longer than all tries of a request.
//!
//! Who was a member until then keeps the group: its endpoints stay attached, and the join is repeated until there is
//! an answer, or until the group is left. A sender's join is repeated for its next packet.

use std::collections::BTreeSet;
use std::time::Duration;

use proto::backoff::Backoff;
use proto::{Gid, Instant};

use super::{Attempt, Membership, State, parent_of};
use crate::group::Joined;
use crate::sa::Failure;
use crate::subnet::{Subnet, Unreachable};

/// The pause before unanswered joins are repeated: at first, and at most. Each of them is a request with all its tries.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(16);

/// The joins to repeat.
#[derive(Debug)]
pub(in crate::subnet) struct Unanswered {
    /// Their groups. Some may have been left or joined since.
    groups: BTreeSet<Gid>,
    /// When they are repeated, all together.
    pause: Backoff,
}

impl Unanswered {
    pub const fn new() -> Unanswered {
        Unanswered {
            groups: BTreeSet::new(),
            pause: Backoff::new(FIRST_PAUSE, LONGEST_PAUSE),
        }
    }

    fn add(&mut self, now: Instant, mgid: Gid) {
        if self.groups.is_empty() {
            self.pause.failed(now);
        }
        self.groups.insert(mgid);
    }

    /// When the joins are repeated.
    pub fn due(&self) -> Option<Instant> {
        (!self.groups.is_empty()).then(|| self.pause.due())
    }

    /// The subnet administrator has answered a join.
    pub(super) fn answered(&mut self) {
        if self.groups.is_empty() {
            self.pause.succeeded();
        }
    }
}

impl Subnet {
    /// All tries of a join are over.
    pub(super) fn unanswered(
        &mut self,
        now: Instant,
        mgid: Gid,
        attempt: Attempt,
        why: Failure,
    ) -> Joined {
        let membership = self.groups.get_mut(&mgid);
        let Some(membership) = membership.filter(|m| m.record.is_some()) else {
            self.doubt(now, mgid, attempt);
            return self.failed(mgid, why.to_string());
        };
        log::debug!("the join of {mgid} is repeated: {why}");
        // Only the answer may be lost.
        membership.held |= attempt.join_state().0;
        membership.state = State::Unanswered(attempt);
        if membership.receives {
            self.unanswered.add(now, mgid);
        }
        self.release_packets(mgid);
        Joined::Pending
    }

    /// Answers the packets that wait for the path to a group, or for its broadcast group.
    fn release_packets(&mut self, mgid: Gid) {
        let concerns = |gid: Gid, m: &Membership| {
            gid == mgid || m.state == State::Waiting && parent_of(gid) == Some(mgid)
        };
        let mut released = Vec::new();
        for (gid, membership) in &mut self.groups {
            if membership.sends && concerns(*gid, membership) {
                membership.sends = false;
                released.push((*gid, membership.pkey));
            }
        }
        for (gid, pkey) in released {
            self.report_path(gid, pkey, Err(Unreachable::NoAnswer));
        }
    }

    /// Repeats the joins whose pause is over.
    pub(in crate::subnet) fn repeat_joins(&mut self, now: Instant) {
        if self.unanswered.due().is_none_or(|due| now < due) {
            return;
        }
        for mgid in std::mem::take(&mut self.unanswered.groups) {
            let Some(membership) = self.groups.get(&mgid) else {
                continue;
            };
            let attempt = match membership.state {
                State::Unanswered(Attempt::Adopt) => Attempt::Adopt,
                State::Unanswered(_) => self.first_attempt(membership.receives),
                _ => continue,
            };
            self.request_and_answer(now, mgid, attempt);
        }
    }
}
