//! Handler of a ConnectRequest.

use proto::{Gid, IbMtu, Instant, PKey, Qpn, RejectReason, ServiceId};

use super::connections::{Connection, RemoteEnd, State};
use super::counts::{Drop, Group};
use super::messages::Ids;
use super::times;
use super::{Cm, CmEvent, CmId, Remote};
use crate::mad::cm::{self, Answered, Req};

/// Transport service type: reliable connection.
const TRANSPORT_RC: u8 = 0;

impl Cm {
    pub(super) fn on_req(
        &mut self,
        now: Instant,
        from: Gid,
        tid: u64,
        req: &Req,
        listens: impl Fn(ServiceId) -> bool,
    ) {
        let end = RemoteEnd {
            ca_guid: req.local_ca_guid,
            comm_id: req.local_comm_id.get(),
            qpn: req.local_qpn(),
        };
        if end.comm_id == 0 || end.qpn.is_reserved() {
            return self.counts.dropped(Drop::Malformed);
        }
        // A source over its rate gets no further processing.
        if !self.may_answer(now, from) {
            return;
        }
        if let Some(id) = self.table.by_comm_id(from, end.ca_guid, end.comm_id) {
            return self.on_req_again(now, from, tid, id, end);
        }
        let ids = Ids {
            local: 0,
            remote: end.comm_id,
        };
        let reject = |cm: &mut Cm, reason| cm.send_rej(from, tid, ids, Answered::Req, reason);
        let path_mtu = match check(from, req, listens) {
            Ok(path_mtu) => path_mtu,
            Err(reason) => return reject(self, reason),
        };
        if let Some(stale) = self.table.by_qpn(from, end.ca_guid, end.qpn) {
            reject(self, RejectReason::STALE_CONNECTION);
            return self.end_stale(now, stale);
        }
        self.make_room(from);
        if self.table.len() >= self.config.connections_max {
            return reject(self, RejectReason::NO_RESOURCES);
        }
        self.admit(now, from, tid, req, end, path_mtu);
    }

    /// A repeated request: our reply or rejection may be lost.
    fn on_req_again(&mut self, now: Instant, from: Gid, tid: u64, id: CmId, end: RemoteEnd) {
        let ids = Ids {
            local: 0,
            remote: end.comm_id,
        };
        match self.table.get(id).map(|c| c.state) {
            Some(State::RepSent) => self.repeat(now, id, cm::REQ),
            Some(State::Timewait | State::DreqSent) => {
                self.counts.message(Group::RxDuplicates, cm::REQ);
                self.send_rej(
                    from,
                    tid,
                    ids,
                    Answered::Req,
                    RejectReason::STALE_CONNECTION,
                );
            }
            _ => self.counts.message(Group::RxDuplicates, cm::REQ),
        }
    }

    /// Reduces the half-open connections below their maximum.
    fn make_room(&mut self, from: Gid) {
        if let Some(id) = self.too_many_of(from) {
            self.evict(id);
        }
        while self.table.half_open().len() >= self.config.half_open_max.max(1)
            && let Some(id) = self.oldest_half_open()
        {
            self.evict(id);
        }
    }

    fn oldest_half_open(&self) -> Option<CmId> {
        self.table.half_open().next()
    }

    /// The oldest half-open connection of a source that has a quarter of them, so that a flooding
    /// source evicts only its own requests.
    fn too_many_of(&self, from: Gid) -> Option<CmId> {
        let mut own = self.table.half_open_of(from);
        let oldest = own.next()?;
        let count = own.count() + 1;
        (count >= self.config.half_open_max.max(1).div_ceil(4)).then_some(oldest)
    }

    /// Evicts a half-open connection.
    fn evict(&mut self, id: CmId) {
        self.counts.dropped(Drop::HalfOpenEvicted);
        let Some(connection) = self.table.get(id) else {
            return;
        };
        let (peer, tid, ids) = (connection.peer, connection.tid, connection.ids(id));
        let answered = match connection.state {
            State::RepSent => Answered::Other,
            _ => Answered::Req,
        };
        self.send_rej(peer, tid, ids, answered, RejectReason::NO_RESOURCES);
        // The user does not see a request that ended before its event was taken.
        let unread = |e: &CmEvent| matches!(e, CmEvent::Requested { id: i, .. } if *i == id);
        if self.events.iter().any(unread) {
            self.events.retain(|e| !unread(e));
            self.table.remove(id);
        } else {
            self.notify(CmEvent::TimedOut { id });
            self.release(id);
        }
    }

    fn admit(
        &mut self,
        now: Instant,
        from: Gid,
        tid: u64,
        req: &Req,
        end: RemoteEnd,
        path_mtu: IbMtu,
    ) {
        let id = self.new_id();
        let pkey = PKey::new(req.pkey.get());
        let connection = Connection {
            peer: from,
            state: State::ReqRcvd,
            tid,
            local_qpn: Qpn::new(0),
            remote: Some(end),
            pkey,
            path_mtu,
            sent: None,
            interval: times::reply_interval(req.local_response_timeout()),
            retries: req.max_cm_retries().min(times::REPLY_RETRIES),
            extended: false,
            disowned: false,
        };
        self.table.insert(id, connection);
        self.table.set_timer(id, Some(now.after(times::ANSWER)));
        let remote = Remote {
            qpn: end.qpn,
            starting_psn: req.starting_psn(),
            pkey,
            path_mtu,
            retry_count: req.retry_count(),
            rnr_retry: req.rnr_retry(),
            ack_timeout: times::asked_ack_timeout(req.primary.ack_timeout()),
        };
        self.events.push_back(CmEvent::Requested {
            id,
            service: ServiceId(req.service_id.get()),
            peer: from,
            remote,
            private_data: Box::new(req.private_data),
        });
    }
}

/// Returns the path MTU of a request, or the reason to reject it. Ignores the alternate path.
fn check(from: Gid, req: &Req, listens: impl Fn(ServiceId) -> bool) -> Result<IbMtu, RejectReason> {
    if req.transport_service() != TRANSPORT_RC {
        return Err(RejectReason::INVALID_TRANSPORT_TYPE);
    }
    if !listens(ServiceId(req.service_id.get())) {
        return Err(RejectReason::INVALID_SERVICE_ID);
    }
    // The connection's packets will use these GIDs.
    if req.primary.local_gid != from.0 || !PKey::new(req.pkey.get()).is_valid() {
        return Err(RejectReason::INVALID_GID);
    }
    let path_mtu = req.path_mtu();
    let mtu = IbMtu::ALL.into_iter().find(|m| *m as u8 == path_mtu);
    mtu.ok_or(RejectReason::INVALID_MTU)
}
