//! Events of communication management and their effects on queue pairs and consumer.

use proto::{
    CloseReason, ConnectionEvent, EndpointId, Gid, Instant, PKey, Psn, Qpn, RejectReason, ServiceId,
};

use super::consumer::Begin;
use super::{Engine, Partition, rdma_cm};
use crate::cm::{CmEvent, CmId, Remote};
use crate::mad::MAD_LEN;
use crate::soft::engine::connection::Stage;

impl Engine {
    /// Takes a management datagram of class communication management, received from `from`'s QP1 with
    /// this P_Key. Answers use the same partition, as it may be the only common one (IBA vol. 1,
    /// 13.5.4).
    pub fn mad(&mut self, now: Instant, from: Gid, pkey: PKey, mad: &[u8; MAD_LEN]) {
        let Engine {
            cm,
            listeners,
            datagrams,
            ..
        } = self;
        let listens = |service| listeners.any(service) || datagrams.any(service);
        cm.answer_in(Some(pkey));
        cm.receive(now, from, mad, listens);
        self.drain_cm(now);
        self.cm.answer_in(None);
    }

    /// Handles all queued events of communication management.
    pub(super) fn drain_cm(&mut self, now: Instant) {
        while let Some(event) = self.cm.poll_event() {
            self.managed(now, event);
        }
        self.drain_sidr();
    }

    fn managed(&mut self, now: Instant, event: CmEvent) {
        match event {
            CmEvent::Requested {
                id,
                service,
                peer,
                remote,
                private_data,
            } => self.requested(now, id, service, peer, &remote, private_data),
            CmEvent::Replied {
                id,
                remote,
                private_data,
            } => self.replied(now, id, remote, private_data),
            CmEvent::Established { id } => {
                let place = self.table.by_cm(id);
                if let Some(c) = place.and_then(|p| self.table.get_mut(p)) {
                    c.awaits_rtu = false;
                }
            }
            CmEvent::Rejected {
                id,
                reason: RejectReason::INVALID_MTU,
            } if self.ask_for_less(now, id) => {}
            CmEvent::Rejected { id, reason } => self.over(id, CloseReason::Rejected(reason)),
            CmEvent::Disconnected { id } => self.over(id, CloseReason::Disconnected),
            CmEvent::TimedOut { id } => self.over(id, CloseReason::TimedOut),
            CmEvent::Released { id } => self.table.release(id),
        }
    }

    fn requested(
        &mut self,
        now: Instant,
        cm: CmId,
        service: ServiceId,
        peer: Gid,
        remote: &Remote,
        private_data: Box<[u8]>,
    ) {
        let judged = self.judge(service, peer, remote, private_data);
        let (endpoint, partition, private_data) = match judged {
            Ok(judged) => judged,
            Err(reason) => {
                self.cm.reject(now, cm, reason, &[]);
                return;
            }
        };
        let begin = Begin {
            id: self.new_id(),
            cm,
            endpoint,
            partition,
            peer,
            path_mtu: remote.path_mtu,
            qpn: self.new_qpn(),
            rq_psn: Psn::new(self.random.next() as u32),
            wish: None,
        };
        let connection = begin.id;
        self.begin(now, begin);
        let place = self.table.by_id(connection);
        if let Some(c) = place.and_then(|p| self.table.get_mut(p)) {
            c.remote = Some(*remote);
        }
        self.note_start(peer, cm);
        self.events.push_back(ConnectionEvent::Requested {
            connection,
            endpoint,
            service,
            peer,
            private_data,
        });
    }

    /// Finds the listener of a request and its private data, or the reason to reject the request. Both
    /// sides must use one path MTU: a SEND First has exactly that many bytes (IBA vol. 1, 9.7.4.1.6),
    /// and a reply has no field for another. The IBA has no reason code for a P_Key mismatch
    /// (12.6.7.2); the kernel uses this one (drivers/infiniband/core/cm.c, `cm_req_handler`).
    fn judge(
        &self,
        service: ServiceId,
        peer: Gid,
        remote: &Remote,
        private_data: Box<[u8]>,
    ) -> Result<(EndpointId, Partition, Box<[u8]>), RejectReason> {
        let (to, private_data) = match service.rdma_cm_port() {
            Some(_) => rdma_cm::requested(peer, self.port.gid, &private_data)?,
            None => (Qpn::new(0), private_data),
        };
        let serving = self.listeners.find(service, to);
        let (endpoint, partition) = serving.ok_or(RejectReason::INVALID_SERVICE_ID)?;
        if !partition.pkey.matches(remote.pkey) {
            return Err(RejectReason::INVALID_GID);
        }
        if self.port.path_mtu.is_none_or(|own| remote.path_mtu > own) {
            return Err(RejectReason::INVALID_MTU);
        }
        Ok((endpoint, partition, private_data))
    }

    fn replied(&mut self, now: Instant, id: CmId, remote: Remote, private_data: Box<[u8]>) {
        let place = self.table.by_cm(id);
        let Some(c) = place.and_then(|p| self.table.get_mut(p)) else {
            self.cm.disconnect(now, id);
            return;
        };
        c.remote = Some(remote);
        c.stage = Stage::Replied;
        c.wish = None;
        let (connection, peer) = (c.id, c.peer);
        self.note_start(peer, id);
        self.events.push_back(ConnectionEvent::Replied {
            connection,
            private_data,
        });
    }

    fn note_start(&self, peer: Gid, id: CmId) {
        if let Some(guid) = self.cm.guid_of_peer(id) {
            self.starts.note(peer, guid);
        }
    }

    /// Removes a connection that communication management has ended.
    fn over(&mut self, id: CmId, reason: CloseReason) {
        let place = self.table.by_cm(id);
        if let Some((connection, _)) = place.and_then(|p| self.forget(p)) {
            self.events
                .push_back(ConnectionEvent::Closed { connection, reason });
        }
        // A connection that was never established has no TIMEWAIT, so no `Released` event follows.
        if self.cm.state(id).is_none() {
            self.table.release(id);
        }
    }
}
