//! The ends of memberships.

use std::time::Duration;

use proto::{Gid, Instant, PKey};

use super::{Attempt, Membership, State};
use crate::mad::sa::{JoinState, status};
use crate::sa::{Failure, Request};
use crate::subnet::{Purpose, Subnet};

/// Time after which a membership without packets ends. A worker that sends asks for the path again within
/// half of this time.
pub(in crate::subnet) const SENDER_IDLE: Duration = Duration::from_secs(600);

/// Time after which a join without an answer is taken back if nobody has repeated it. Owners repeat within 16 s: a slow
/// subnet administrator shall not end memberships, and their groups, only to begin them anew.
const TAKEN_BACK: Duration = Duration::from_secs(60);

/// The membership that a join without an answer may have begun. A port has some hundred at most: its requests in flight
/// are limited, and each ends without an answer after 6 s.
#[derive(Debug)]
pub(in crate::subnet) struct Doubtful {
    since: Instant,
    pkey: PKey,
    held: u8,
}

impl Subnet {
    /// A first join got no answer. The subnet administrator may have received it, and only the answers are lost.
    pub(super) fn doubt(&mut self, now: Instant, mgid: Gid, attempt: Attempt) {
        let Some(membership) = self.groups.get(&mgid) else {
            return;
        };
        let doubtful = Doubtful {
            since: now,
            pkey: membership.pkey,
            held: membership.held | attempt.join_state().0,
        };
        if doubtful.held != 0 {
            self.doubtful.insert(mgid, doubtful);
        }
    }

    /// Takes back the joins without an answer that nobody has repeated for this time.
    fn take_back(&mut self, now: Instant, after: Duration) {
        let mut old = Vec::new();
        self.doubtful.retain(|mgid, doubtful| {
            let is_young = now.since(doubtful.since) < after;
            if !is_young {
                old.push((*mgid, doubtful.pkey, doubtful.held));
            }
            is_young
        });
        for (mgid, pkey, held) in old {
            self.end(now, mgid, pkey, held);
        }
    }

    /// Ends the membership: no endpoint receives the group's packets any more.
    pub fn leave(&mut self, now: Instant, mgid: Gid) {
        let Some(membership) = self.forget(mgid, "the group was left") else {
            return;
        };
        self.answer_waiting(now, mgid, false);
        let held = membership.held | self.withdraw(now, membership.state);
        if membership.state != State::Lost {
            self.end(now, mgid, membership.pkey, held);
        }
    }

    /// Ends the memberships of these bits, except those that the kernel may have, too.
    fn end(&mut self, now: Instant, mgid: Gid, pkey: PKey, mut held: u8) {
        if self.port.is_shared(mgid, pkey) {
            held &= JoinState::SEND_ONLY_NON_MEMBER.0;
        }
        if held != 0 {
            self.ask_to_leave(now, mgid, JoinState(held));
        }
    }

    fn ask_to_leave(&mut self, now: Instant, mgid: Gid, state: JoinState) {
        let leave = Request::leave(mgid, self.port.gid, state);
        self.ask(now, leave, Purpose::Leave(mgid, state));
    }

    /// The subnet administrator refuses a request with a bit that the port does not have, and ends no membership.
    /// The port cannot know whether a request without an answer has set its bit: each bit gets a request.
    pub(in crate::subnet) fn leave_refused(
        &mut self,
        now: Instant,
        mgid: Gid,
        state: JoinState,
        why: Failure,
    ) {
        if why == Failure::Status(status::REQ_INVALID) && state.0.count_ones() > 1 {
            let bits = (0..u8::BITS).map(|n| state.0 & 1 << n);
            for bit in bits.filter(|bit| *bit != 0) {
                self.ask_to_leave(now, mgid, JoinState(bit));
            }
            return;
        }
        log::debug!("the subnet administrator did not end a membership of {mgid}: {why}");
    }

    /// Leaves all groups: the port closes.
    pub fn leave_all(&mut self, now: Instant) {
        for mgid in self.groups.keys().copied().collect::<Vec<_>>() {
            self.leave(now, mgid);
        }
        self.take_back(now, Duration::ZERO);
    }

    /// Leaves the groups to which the port has sent nothing for [`SENDER_IDLE`].
    pub(in crate::subnet) fn leave_idle(&mut self, now: Instant) {
        self.take_back(now, TAKEN_BACK);
        let is_over =
            |state| matches!(state, State::Member(_) | State::Lost | State::Unanswered(_));
        let is_idle =
            |m: &Membership| !m.receives && is_over(m.state) && now.since(m.used) >= SENDER_IDLE;
        let groups = self.groups.iter();
        let idle = groups.filter(|(_, membership)| is_idle(membership));
        for mgid in idle.map(|(mgid, _)| *mgid).collect::<Vec<_>>() {
            self.leave(now, mgid);
        }
    }

    /// Cancels the open requests to leave a group that would end this membership, too: they may be sent again after
    /// the join. Returns their bits of JoinState: perhaps none of the requests has reached the subnet administrator. Also
    /// those of an earlier join without an answer.
    pub(super) fn withdraw_leaves(&mut self, now: Instant, mgid: Gid, attempt: Attempt) -> u8 {
        let joined = match attempt {
            // The membership that the kernel has requested.
            Attempt::Adopt => JoinState::FULL,
            attempt => attempt.join_state(),
        };
        let doubtful = self.doubtful.remove(&mgid);
        let mut bits = doubtful.map_or(0, |doubtful| doubtful.held);
        let leaves = self.requests.extract_if(|_, purpose| match purpose {
            Purpose::Leave(of, state) if *of == mgid && state.0 & joined.0 != 0 => {
                bits |= state.0;
                true
            }
            _ => false,
        });
        for id in leaves.map(|(id, _)| id).collect::<Vec<_>>() {
            self.client.cancel(now, id);
        }
        bits
    }
}
