//! Handlers of the messages that end a connection.

use proto::{Gid, Instant, RejectReason};

use super::connections::{Connection, State};
use super::counts::{Drop, Group};
use super::messages::{self, Ids};
use super::{Cm, CmEvent, CmId};
use crate::mad::cm::{self, Answered, Drep, Dreq, Rej};

impl Cm {
    pub(super) fn on_rej(&mut self, now: Instant, from: Gid, rej: &Rej) {
        let Some(id) = self.rejected_id(from, rej) else {
            return;
        };
        let Some(state) = self.table.get(id).map(|c| c.state) else {
            return;
        };
        let reason = RejectReason(rej.reason.get());
        match state {
            State::Timewait => {
                self.counts.message(Group::RxDuplicates, cm::REJ);
            }
            // A rejecting peer has no queue pair that could send to us, unless it reports a stale one.
            State::ReqSent if reason != RejectReason::STALE_CONNECTION => {
                self.notify(CmEvent::Rejected { id, reason });
                self.release(id);
            }
            _ => {
                self.notify(CmEvent::Rejected { id, reason });
                self.enter_timewait(now, id);
            }
        }
    }

    /// The connection that a peer has given up: after a timeout the peer may not know our communication id.
    pub(crate) fn given_up(&self, peer: Gid, rej: &Rej) -> Option<CmId> {
        let (reason, named) = (RejectReason(rej.reason.get()), rej.ari_length() >= 8);
        let ca_guid = rej.ari.first_chunk::<8>()?;
        let found = self
            .table
            .by_comm_id(peer, *ca_guid, rej.local_comm_id.get());
        found.filter(|_| named && reason == RejectReason::TIMEOUT)
    }

    /// The connection that a rejection refers to.
    fn rejected_id(&mut self, from: Gid, rej: &Rej) -> Option<CmId> {
        let (remote, local) = (rej.remote_comm_id.get(), rej.local_comm_id.get());
        if let Some(id) = self.given_up(from, rej) {
            return Some(id);
        }
        // Before a reply the peer's communication id is unknown.
        let waits = |id| {
            let found = self.table.get(id);
            found.is_some_and(|c| c.state == State::ReqSent && c.peer == from)
        };
        if rej.rejected() == Answered::Req {
            if waits(CmId(remote)) {
                return Some(CmId(remote));
            }
            // A rejection of a request that was replied to is late.
            self.counts.dropped(Drop::Unmatched);
            return None;
        }
        self.matching(from, remote, local)
    }

    pub(super) fn on_dreq(&mut self, now: Instant, from: Gid, tid: u64, dreq: &Dreq) {
        let (remote, local) = (dreq.remote_comm_id.get(), dreq.local_comm_id.get());
        let ids = Ids {
            local: remote,
            remote: local,
        };
        let Some(id) = self.matching(from, remote, local) else {
            // Confirm: the connection is gone here. In REQ_SENT do not: the peer has to keep its
            // connection until the reply, which may be on its way, identifies it.
            let is_known = |c: &Connection| c.peer != from || c.state == State::ReqSent;
            if !self.table.get(CmId(remote)).is_some_and(is_known) && self.may_answer(now, from) {
                self.send(from, messages::drep(tid, ids));
            }
            return;
        };
        let Some((state, qpn)) = self.table.get(id).map(|c| (c.state, c.local_qpn)) else {
            return;
        };
        if dreq.remote_qpn() != qpn {
            return self.counts.dropped(Drop::Unmatched);
        }
        match state {
            State::Established | State::RepSent | State::RepRcvd | State::DreqSent => {
                self.send(from, messages::drep(tid, ids));
                self.notify(CmEvent::Disconnected { id });
                self.enter_timewait(now, id);
            }
            State::Timewait => {
                self.counts.message(Group::RxDuplicates, cm::DREQ);
                if self.may_answer(now, from) {
                    self.send(from, messages::drep(tid, ids));
                }
            }
            // The peer cannot know our communication id yet.
            State::ReqSent | State::ReqRcvd | State::Unmanaged => {
                self.counts.dropped(Drop::Unmatched);
            }
        }
    }

    pub(super) fn on_drep(&mut self, now: Instant, from: Gid, drep: &Drep) {
        let (remote, local) = (drep.remote_comm_id.get(), drep.local_comm_id.get());
        let Some(id) = self.matching(from, remote, local) else {
            return;
        };
        if self.table.get(id).map(|c| c.state) == Some(State::DreqSent) {
            self.enter_timewait(now, id);
        } else {
            self.counts.message(Group::RxDuplicates, cm::DREP);
        }
    }
}
