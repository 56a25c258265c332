//! Calls of the consumer: listen, connect, accept, close.

use proto::{
    CloseReason, ConnectError, ConnectionEvent, ConnectionId, EndpointId, Gid, IbMtu, Instant, Psn,
    Qpn, RejectReason, ServiceId, WcStatus,
};

use super::connection::{Connection, Stage, Wish};
use super::lookup::Place;
use super::{Engine, Partition, Standing, rdma_cm};
use crate::cm::{Ask, CmId, Consent};
use crate::connection::{ConnectRequest, Window, reaches};
use crate::soft::rc::RcQp;

/// Parameters of a new connection.
pub(super) struct Begin {
    pub id: ConnectionId,
    pub cm: CmId,
    pub endpoint: EndpointId,
    pub partition: Partition,
    pub peer: Gid,
    pub path_mtu: IbMtu,
    pub qpn: Qpn,
    pub rq_psn: Psn,
    /// Our request, if we requested the connection.
    pub wish: Option<Wish>,
}

impl Engine {
    /// See [`crate::Connections::listen`]; `standing` is the endpoint's P_Key table entry.
    pub fn listen(
        &mut self,
        endpoint: EndpointId,
        standing: impl Into<Standing>,
        service: ServiceId,
    ) {
        self.listeners.insert(endpoint, standing.into(), service);
    }

    /// See [`crate::Connections::close_all`].
    pub fn close_all(&mut self, now: Instant, endpoint: EndpointId) {
        self.listeners.remove(endpoint);
        self.datagrams.remove(endpoint);
        for place in self.table.places(|c| c.endpoint == endpoint) {
            self.drop_quietly(now, place);
        }
        self.drain_cm(now);
    }

    /// Removes the listeners of deleted endpoints. Ends the connections of deleted endpoints and of
    /// endpoints whose queue pair was restarted or has lost its P_Key (kernel
    /// drivers/infiniband/ulp/ipoib/ipoib_ib.c, `__ipoib_ib_dev_flush`: a heavy flush ends all
    /// connections).
    pub fn follow_endpoints(&mut self, now: Instant, standing: impl Fn(EndpointId) -> Standing) {
        self.listeners.follow(&standing);
        self.datagrams.follow(&standing);
        let stands = |c: &Connection| standing(c.endpoint) == Standing::Member(c.partition);
        for place in self.table.places(|c| !stands(c)) {
            let endpoint = self.table.get(place).map(|c| c.endpoint);
            let reason = match endpoint.map(&standing) {
                Some(Standing::Gone) | None => CloseReason::PortGone,
                Some(Standing::Waiting | Standing::Member(_)) => CloseReason::PKeyChange,
            };
            self.end(now, place, reason);
        }
        self.drain_cm(now);
    }

    /// See [`crate::Connections::connect`]; `partition` is the endpoint's P_Key table entry.
    ///
    /// # Errors
    /// [`ConnectError::Full`], [`ConnectError::Unreachable`].
    pub fn connect(
        &mut self,
        now: Instant,
        endpoint: EndpointId,
        partition: impl Into<Partition>,
        request: &ConnectRequest<'_>,
    ) -> Result<ConnectionId, ConnectError> {
        let peer = request.peer;
        let (true, Some(path_mtu)) = (reaches(self.port.gid, peer), self.port.path_mtu) else {
            return Err(ConnectError::Unreachable(peer));
        };
        let wish = Wish {
            service: request.service,
            private_data: self.request_data(request),
        };
        let id = self.new_id();
        let from = (endpoint, partition.into());
        self.ask(now, id, from, peer, path_mtu, wish)?;
        Ok(id)
    }

    /// The private data of a request. For a service of rdma_cm, rdma_cm's header precedes them.
    fn request_data(&mut self, request: &ConnectRequest<'_>) -> Box<[u8]> {
        if request.service.rdma_cm_port().is_none() {
            return request.private_data.into();
        }
        rdma_cm::request(self.port.gid, self.random.next(), request)
    }

    /// Requests a connection to a peer, from an endpoint in its partition.
    fn ask(
        &mut self,
        now: Instant,
        id: ConnectionId,
        (endpoint, partition): (EndpointId, Partition),
        peer: Gid,
        path_mtu: IbMtu,
        wish: Wish,
    ) -> Result<(), ConnectError> {
        let qpn = self.new_qpn();
        let rq_psn = Psn::new(self.random.next() as u32);
        let ask = Ask {
            service: wish.service,
            local_gid: self.port.gid,
            remote_gid: peer,
            primary: None,
            qpn,
            starting_psn: rq_psn,
            pkey: partition.pkey,
            path_mtu,
            srq: true,
            private_data: &wish.private_data,
        };
        let cm = self.cm.connect(now, &ask).map_err(|_| ConnectError::Full)?;
        let begin = Begin {
            id,
            cm,
            endpoint,
            partition,
            peer,
            path_mtu,
            qpn,
            rq_psn,
            wish: Some(wish),
        };
        self.begin(now, begin);
        Ok(())
    }

    /// Repeats a request with the next smaller path MTU: the peer rejected the path MTU without naming
    /// its own limit. The new request has a new queue pair, so a late duplicate of the old request
    /// belongs to another connection. False if no smaller MTU exists or the connection has no open
    /// request.
    pub(super) fn ask_for_less(&mut self, now: Instant, cm: CmId) -> bool {
        let place = self.table.by_cm(cm);
        let Some((place, c)) = place.and_then(|p| Some((p, self.table.get_mut(p)?))) else {
            return false;
        };
        let smaller = IbMtu::fitting(c.path_mtu.bytes() - 1);
        let (Some(path_mtu), Some(wish)) = (smaller, c.wish.take()) else {
            return false;
        };
        let (id, peer, from) = (c.id, c.peer, (c.endpoint, c.partition));
        self.forget(place);
        if self.ask(now, id, from, peer, path_mtu, wish).is_err() {
            let reason = CloseReason::Rejected(RejectReason::INVALID_MTU);
            let connection = id;
            self.events
                .push_back(ConnectionEvent::Closed { connection, reason });
        }
        true
    }

    /// An unused connection id.
    pub(super) fn new_id(&mut self) -> ConnectionId {
        let id = ConnectionId(self.next_id);
        self.next_id = self.next_id.wrapping_add(1).max(1);
        id
    }

    /// Creates a connection with its queue pair in INIT.
    pub(super) fn begin(&mut self, now: Instant, b: Begin) {
        let active = b.wish.is_some();
        let mut connection = Box::new(Connection {
            id: b.id,
            cm: b.cm,
            endpoint: b.endpoint,
            qp: RcQp::new(b.qpn),
            partition: b.partition,
            local: self.port.gid,
            peer: b.peer,
            path_mtu: b.path_mtu,
            rq_psn: b.rq_psn,
            remote: None,
            active,
            wish: b.wish,
            stage: if active { Stage::Asking } else { Stage::Asked },
            awaits_rtu: false,
            created: now,
            used: now,
            posted: 0,
            scheduled: None,
            ready: false,
            unflushed: false,
            touched: false,
            window: Window::default(),
            failing: false,
        });
        if let Err(e) = connection.init(&mut self.shared) {
            // Cannot happen: the attributes are those that the transition requires.
            log::error!("cannot initialize a new queue pair: {e}");
        }
        self.table.insert(connection);
    }

    /// Draws an unused queue pair number. Its low byte selects this worker. Numbers in TIMEWAIT count
    /// as used.
    pub(super) fn new_qpn(&mut self) -> Qpn {
        loop {
            let drawn = self.random.next() as u32;
            let low = drawn as usize & 0xff;
            let workers = self.config.workers.clamp(1, 256);
            let low = low - low % workers + self.config.worker % workers;
            if low > 0xff {
                continue;
            }
            let qpn = Qpn::new(drawn & !0xff | low as u32);
            if !qpn.is_reserved() && !self.table.is_taken(qpn) && !self.port.reserved.contains(&qpn)
            {
                return qpn;
            }
        }
    }

    /// See [`crate::Connections::accept`].
    pub fn accept(&mut self, now: Instant, connection: ConnectionId, private_data: &[u8]) {
        let Some(place) = self.in_stage(connection, Stage::Asked) else {
            return;
        };
        if !self.bring_up(now, place) {
            return;
        }
        if let Some(c) = self.table.get_mut(place) {
            c.awaits_rtu = true;
            let consent = Consent {
                qpn: c.qp.qpn(),
                starting_psn: c.rq_psn,
                srq: true,
                private_data,
            };
            self.cm.accept(now, c.cm, &consent);
        }
        self.drain_cm(now);
    }

    /// See [`crate::Connections::establish`].
    pub fn establish(&mut self, now: Instant, connection: ConnectionId) {
        let Some(place) = self.in_stage(connection, Stage::Replied) else {
            return;
        };
        if !self.bring_up(now, place) {
            return;
        }
        if let Some(c) = self.table.get(place) {
            self.cm.establish(c.cm);
        }
        self.drain_cm(now);
    }

    /// See [`crate::Connections::reject`].
    pub fn reject(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        reason: RejectReason,
        private_data: &[u8],
    ) {
        let asked = self.in_stage(connection, Stage::Asked);
        let Some(place) = asked.or_else(|| self.in_stage(connection, Stage::Replied)) else {
            return;
        };
        if let Some((_, cm)) = self.forget(place) {
            self.cm.reject(now, cm, reason, private_data);
        }
        self.drain_cm(now);
    }

    /// See [`crate::Connections::close`].
    pub fn close(&mut self, now: Instant, connection: ConnectionId) {
        if let Some(place) = self.table.by_id(connection) {
            self.drop_quietly(now, place);
            self.drain_cm(now);
        }
    }

    fn drop_quietly(&mut self, now: Instant, place: Place) {
        if let Some((_, cm)) = self.forget(place) {
            self.cm.disconnect(now, cm);
        }
    }

    /// The place of a connection, if the connection is in `stage`.
    pub(super) fn in_stage(&self, connection: ConnectionId, stage: Stage) -> Option<Place> {
        let place = self.table.by_id(connection)?;
        (self.table.get(place)?.stage == stage).then_some(place)
    }

    /// Moves the queue pair to RTS, because the peer may send as soon as it knows our queue pair. False
    /// if that failed; the connection has then ended.
    pub(super) fn bring_up(&mut self, now: Instant, place: Place) -> bool {
        let Engine {
            table,
            shared,
            port,
            ..
        } = self;
        let Some(c) = table.get_mut(place) else {
            return false;
        };
        let Some(remote) = c.remote else {
            return false;
        };
        c.qp.set_path(c.partition.pkey, port.send_max);
        match c.ready_to_send(shared, &remote) {
            Ok(()) => {
                c.stage = Stage::Open;
                true
            }
            Err(e) => {
                log::debug!("cannot set up the queue pair for {}: {e}", c.peer);
                self.end(now, place, CloseReason::Failed(WcStatus::LocQpOpErr));
                false
            }
        }
    }
}
