//! Handlers of received messages (as the handlers in drivers/infiniband/core/cm.c).

use proto::{Gid, Instant, RejectReason, ServiceId};

use super::connections::{RemoteEnd, State};
use super::counts::{Drop, Group};
use super::messages::{self, Ids};
use super::times::{self, RETRY_COUNT};
use super::{Cm, CmEvent, CmId, Remote};
use crate::mad::cm::{self, Answered, CLASS_VERSION, Message, Mra, Rep, Rtu};
use crate::mad::{MAD_LEN, Mad};

impl Cm {
    /// Handles a management datagram of this class from the QP1 of `from`. `listens` returns whether
    /// there is a listener for a service.
    pub fn receive(
        &mut self,
        now: Instant,
        from: Gid,
        mad: &[u8; MAD_LEN],
        listens: impl Fn(ServiceId) -> bool,
    ) {
        let Ok(mad) = Mad::parse(mad) else {
            return self.counts.dropped(Drop::Malformed);
        };
        let message = mad.communication_management();
        let (Some(message), CLASS_VERSION) = (message, mad.header.class_version) else {
            return self.counts.dropped(Drop::Malformed);
        };
        let tid = mad.header.transaction_id.get();
        self.counts
            .message(Group::RxMsgs, mad.header.attribute_id.get());
        match message {
            Message::Req(m) => self.on_req(now, from, tid, m, listens),
            Message::Mra(m) => self.on_mra(now, from, m),
            Message::Rej(m) => self.on_rej(now, from, m),
            Message::Rep(m) => self.on_rep(now, from, tid, m),
            Message::Rtu(m) => self.on_rtu(now, from, tid, m),
            Message::Dreq(m) => self.on_dreq(now, from, tid, m),
            Message::Drep(m) => self.on_drep(now, from, m),
            Message::SidrReq(m) => self.on_sidr_req(now, from, tid, m, listens),
            Message::SidrRep(m) => self.on_sidr_rep(from, m),
            // Not used: we send no LAP, and like Linux on RoCE load no alternate paths.
            Message::Lap(_) | Message::Apr(_) => {
                self.counts.dropped(Drop::Unmatched);
            }
        }
    }

    /// The connection of a message from `from` with these ids, as the sender sees them.
    pub(super) fn matching(
        &mut self,
        from: Gid,
        remote_comm_id: u32,
        local_comm_id: u32,
    ) -> Option<CmId> {
        let id = CmId(remote_comm_id);
        let found = self.table.get(id);
        let known = found.is_some_and(|c| c.remote.is_some_and(|r| r.comm_id == local_comm_id));
        match found {
            Some(c) if known && c.peer == from => return Some(id),
            Some(_) if known => self.counts.dropped(Drop::WrongSource),
            _ => self.counts.dropped(Drop::Unmatched),
        }
        None
    }

    /// Whether a source may get another answer that belongs to no connection; takes one of its tokens.
    pub(super) fn may_answer(&mut self, now: Instant, from: Gid) -> bool {
        let may = self.limits.take(now, from);
        if !may {
            self.counts.dropped(Drop::RateLimited);
        }
        may
    }

    fn on_rep(&mut self, now: Instant, from: Gid, tid: u64, rep: &Rep) {
        let id = CmId(rep.remote_comm_id.get());
        let end = RemoteEnd {
            ca_guid: rep.local_ca_guid,
            comm_id: rep.local_comm_id.get(),
            qpn: rep.local_qpn(),
        };
        if end.comm_id == 0 || end.qpn.is_reserved() {
            return self.counts.dropped(Drop::Malformed);
        }
        let Some(connection) = self.table.get(id) else {
            self.counts.dropped(Drop::Unmatched);
            let reason = RejectReason::INVALID_COMM_ID;
            return self.refuse_rep(now, from, id, tid, end.comm_id, reason);
        };
        if connection.peer != from {
            return self.counts.dropped(Drop::WrongSource);
        }
        match (connection.state, connection.remote) {
            (State::ReqSent, _) => self.on_first_rep(now, from, id, tid, end, rep),
            // We ended the connection before the reply, and the peer does not know. Reject as after a
            // timeout of the request: the peer finds the connection by our GUID and our communication
            // id.
            (State::Timewait, None) => {
                let reason = RejectReason::TIMEOUT;
                self.refuse_rep(now, from, id, tid, end.comm_id, reason);
            }
            // Our answer was lost: the ReadyToUse, or in TIMEWAIT a rejection.
            (State::Established | State::Timewait, Some(known)) if known.comm_id == end.comm_id => {
                self.repeat(now, id, cm::REP);
            }
            _ => self.counts.dropped(Drop::Unmatched),
        }
    }

    fn on_first_rep(
        &mut self,
        now: Instant,
        from: Gid,
        id: CmId,
        tid: u64,
        end: RemoteEnd,
        rep: &Rep,
    ) {
        if let Some(stale) = self.table.by_qpn(from, end.ca_guid, end.qpn) {
            let ids = Ids {
                local: id.0,
                remote: end.comm_id,
            };
            self.send_rej(
                from,
                tid,
                ids,
                Answered::Rep,
                RejectReason::STALE_CONNECTION,
            );
            return self.end_stale(now, stale);
        }
        self.table.set_remote(id, end);
        self.table.set_state(id, State::RepRcvd);
        self.table.set_timer(id, Some(now.after(times::ANSWER)));
        let Some(connection) = self.table.get_mut(id) else {
            return;
        };
        connection.sent = None;
        let remote = Remote {
            qpn: end.qpn,
            starting_psn: rep.starting_psn(),
            pkey: connection.pkey,
            path_mtu: connection.path_mtu,
            retry_count: RETRY_COUNT,
            rnr_retry: rep.rnr_retry(),
            ack_timeout: times::ack_timeout(rep.target_ack_delay()),
        };
        self.events.push_back(CmEvent::Replied {
            id,
            remote,
            private_data: Box::new(rep.private_data),
        });
    }

    /// Rejects a reply that nobody waits for, so that its sender stops repeating it.
    fn refuse_rep(
        &mut self,
        now: Instant,
        from: Gid,
        id: CmId,
        tid: u64,
        remote: u32,
        reason: RejectReason,
    ) {
        if self.may_answer(now, from) {
            let ids = Ids {
                local: id.0,
                remote,
            };
            self.send_rej(from, tid, ids, Answered::Rep, reason);
        }
    }

    /// Repeats our message if the peer's repeated message of this attribute shows that it was lost.
    pub(super) fn repeat(&mut self, now: Instant, id: CmId, attribute: u16) {
        self.counts.message(Group::RxDuplicates, attribute);
        let Some(connection) = self.table.get(id) else {
            return;
        };
        let (peer, sent) = (connection.peer, connection.sent.clone());
        if let Some(datagram) = sent
            && self.may_answer(now, peer)
        {
            self.counts
                .message(Group::TxRetries, messages::attribute(&datagram));
            self.send(peer, *datagram);
        }
    }

    fn on_rtu(&mut self, now: Instant, from: Gid, tid: u64, rtu: &Rtu) {
        let (remote, local) = (rtu.remote_comm_id.get(), rtu.local_comm_id.get());
        let found = self.matching(from, remote, local);
        let state = found.and_then(|id| self.table.get(id)).map(|c| c.state);
        match (found, state) {
            (Some(id), Some(State::RepSent)) => {
                self.confirm(id);
            }
            // Too late: the connection was given up here, and the peer does not know. Linux lets the
            // peer notice when it sends.
            (_, None | Some(State::Timewait)) if self.may_answer(now, from) => {
                let ids = Ids {
                    local: remote,
                    remote: local,
                };
                self.send_rej(
                    from,
                    tid,
                    ids,
                    Answered::Other,
                    RejectReason::INVALID_COMM_ID,
                );
            }
            _ => self.counts.message(Group::RxDuplicates, cm::RTU),
        }
    }

    /// Changes REP_SENT to ESTABLISHED. False in any other state.
    pub(super) fn confirm(&mut self, id: CmId) -> bool {
        if self.table.get(id).map(|c| c.state) != Some(State::RepSent) {
            return false;
        }
        self.table.set_state(id, State::Established);
        self.table.set_timer(id, None);
        if let Some(connection) = self.table.get_mut(id) {
            connection.sent = None;
        }
        self.events.push_back(CmEvent::Established { id });
        true
    }

    /// The peer needs more time for our request or reply. Accepted once for each: repeated MRAs would
    /// keep the connection forever.
    fn on_mra(&mut self, now: Instant, from: Gid, mra: &Mra) {
        let id = CmId(mra.remote_comm_id.get());
        let state = match mra.answered() {
            Answered::Req => State::ReqSent,
            Answered::Rep => State::RepSent,
            Answered::Other | Answered::Reserved => {
                return self.counts.dropped(Drop::Unmatched);
            }
        };
        let found = self.table.get_mut(id).filter(|c| {
            let named = c
                .remote
                .is_none_or(|r| r.comm_id == mra.local_comm_id.get());
            c.peer == from && c.state == state && named
        });
        let Some(connection) = found else {
            return self.counts.dropped(Drop::Unmatched);
        };
        if std::mem::replace(&mut connection.extended, true) {
            return self.counts.message(Group::RxDuplicates, cm::MRA);
        }
        let service = mra.service_timeout().min(times::SERVICE_TIMEOUT_MAX);
        let longer = times::milliseconds(service) + times::milliseconds(times::LOCAL_ACK_TIMEOUT);
        self.table.set_timer(id, Some(now.after(longer)));
    }
}
