//! The ends of memberships.

use std::time::Duration;

use proto::{Gid, Instant};

use super::{Attempt, Membership, State};
use crate::mad::sa::{JoinState, status};
use crate::sa::{Failure, Request};
use crate::subnet::{Purpose, Subnet};

/// Time after which a membership without packets ends. A worker that sends asks for the path again within
/// half of this time.
pub(in crate::subnet) const SENDER_IDLE: Duration = Duration::from_secs(600);

impl Subnet {
    /// Ends the membership: no endpoint receives the group's packets any more.
    pub fn leave(&mut self, now: Instant, mgid: Gid) {
        let Some(membership) = self.forget(mgid, "the group was left") else {
            return;
        };
        self.answer_waiting(now, mgid, false);
        let mut held = membership.held | self.withdraw(now, membership.state);
        if self.port.is_shared(mgid, membership.pkey) {
            held &= JoinState::SEND_ONLY_NON_MEMBER.0;
        }
        if held == 0 || membership.state == State::Lost {
            return;
        }
        self.ask_to_leave(now, mgid, JoinState(held));
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
    }

    /// Leaves the groups to which the port has sent nothing for [`SENDER_IDLE`].
    pub(in crate::subnet) fn leave_idle(&mut self, now: Instant) {
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
    /// the join. Returns their bits of JoinState: perhaps none of the requests has reached the subnet administrator.
    pub(super) fn withdraw_leaves(&mut self, now: Instant, mgid: Gid, attempt: Attempt) -> u8 {
        let joined = match attempt {
            // The membership that the kernel has requested.
            Attempt::Adopt => JoinState::FULL,
            attempt => attempt.join_state(),
        };
        let mut bits = 0;
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
