//! Calls of a consumer: listen, connect, accept, close.

use std::io;

use super::connection::Connection;
use super::device::{Address, Device, Source};
use super::lookup::Key;
use super::sends::Sends;
use super::state::{Input, State};
use super::{Engine, SWEEP};
use crate::connection::{ConnectRequest, Window, reaches};
use crate::mad::cm::request_data;
use crate::pkeys::Entry;
use proto::{
    ConnectError, ConnectionId, EndpointId, Gid, Instant, PKey, Qpn, RejectReason, ServiceId,
    Services,
};

/// Parameters of a new connection.
pub(super) struct Begin {
    pub endpoint: EndpointId,
    pub entry: Entry,
    pub active: bool,
    pub service: ServiceId,
    pub peer: Gid,
    pub private_data: Box<[u8]>,
}

impl<D: Device> Engine<D> {
    /// See [`crate::Connections::listen`].
    pub fn listen(&mut self, now: Instant, endpoint: EndpointId, service: ServiceId) {
        if !self.view.services.receives(service) {
            log::debug!("cannot listen on service {service}: its requests do not reach the port");
            return;
        }
        self.listeners.add(now, service, endpoint);
        self.open_listeners(now);
    }

    /// See [`crate::Connections::close_all`].
    pub fn close_all(&mut self, now: Instant, endpoint: EndpointId) {
        self.listeners.retain(|e| e != endpoint);
        for key in self.table.keys(|c| c.endpoint == endpoint) {
            self.drive(now, key, Input::Close);
        }
    }

    /// See [`crate::Connections::connect`].
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect(
        &mut self,
        now: Instant,
        endpoint: EndpointId,
        request: &ConnectRequest<'_>,
    ) -> Result<ConnectionId, ConnectError> {
        let peer = request.peer;
        let member = self.view.members.get(&endpoint);
        let member = member.ok_or(ConnectError::NoSuchEndpoint(endpoint))?;
        let entry = member.entry.ok_or(ConnectError::NoPKey(endpoint))?;
        let service = request.service;
        if !self.view.services.requests(service) {
            return Err(unsupported());
        }
        if self.view.gid == Gid::UNSPECIFIED {
            return Err(ConnectError::NoGid);
        }
        if !reaches(self.view.gid, peer) {
            return Err(ConnectError::Unreachable(peer));
        }
        self.check_partition(entry)?;
        let begin = Begin {
            endpoint,
            entry,
            active: true,
            service,
            peer,
            private_data: request_data(service, request.to, request.private_data),
        };
        let from = Source {
            gid: self.view.gid,
            entry,
        };
        let to = Address {
            gid: peer,
            scope: self.view.scope,
            service,
        };
        let device = self.device.as_mut();
        let device = device.ok_or(ConnectError::Unreachable(peer))?;
        let mut failure = None;
        let (id, local) = (ConnectionId(self.next_id), self.view.gid);
        let made = self.table.insert(|key| {
            let line = device.begin(key.context(), &from, &to);
            let line = line.map_err(|e| failure = Some(e)).ok()?;
            Some(Connection::new(now, id, local, begin, line))
        });
        let key = made.ok_or_else(|| failure.map_or(ConnectError::Full, |e| refusal(peer, e)))?;
        self.named(now, key, id);
        Ok(id)
    }

    /// Refuses partitions that rdma_cm does not support. On Ethernet it always uses the default one
    /// (kernel drivers/infiniband/core/cma.c, `cma_resolve_iboe_route`).
    fn check_partition(&self, entry: Entry) -> Result<(), ConnectError> {
        if self.view.services != Services::RdmaCm || entry.pkey.full() == PKey::DEFAULT {
            return Ok(());
        }
        let why = "over Ethernet, rdma_cm connects in the default partition only";
        Err(io::Error::new(io::ErrorKind::Unsupported, why).into())
    }

    /// Stores the identifier of a new connection and advances to the next.
    pub(super) fn named(&mut self, now: Instant, key: Key, id: ConnectionId) {
        self.table.name(key, id);
        self.next_id = self.next_id.wrapping_add(1).max(1);
        self.sweep_within(now, SWEEP);
    }

    /// See [`crate::Connections::accept`].
    pub fn accept(&mut self, now: Instant, connection: ConnectionId, private_data: &[u8]) {
        self.apply(now, connection, Input::Accept, private_data);
    }

    /// See [`crate::Connections::establish`].
    pub fn establish(&mut self, now: Instant, connection: ConnectionId) {
        self.apply(now, connection, Input::Establish, &[]);
    }

    /// See [`crate::Connections::reject`].
    pub fn reject(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        reason: RejectReason,
        private_data: &[u8],
    ) {
        log::debug!("rejecting connection {}: {reason}", connection.0);
        let key = self.table.by_id(connection);
        if let Some(c) = key.and_then(|key| self.table.get_mut(key)) {
            c.reason = reason;
        }
        self.apply(now, connection, Input::Reject, private_data);
    }

    /// See [`crate::Connections::close`].
    pub fn close(&mut self, now: Instant, connection: ConnectionId) {
        self.apply(now, connection, Input::Close, &[]);
    }

    fn apply(&mut self, now: Instant, connection: ConnectionId, input: Input, private_data: &[u8]) {
        let Some(key) = self.table.by_id(connection) else {
            return;
        };
        if let Some(c) = self.table.get_mut(key) {
            c.private_data = private_data.into();
        }
        self.drive(now, key, input);
    }
}

impl<D: Device> Connection<D> {
    /// Creates a connection in its first state.
    pub(super) fn new(
        now: Instant,
        id: ConnectionId,
        local: Gid,
        begin: Begin,
        line: D::Id,
    ) -> Connection<D> {
        Connection {
            id,
            endpoint: begin.endpoint,
            entry: begin.entry,
            active: begin.active,
            service: begin.service,
            reason: RejectReason::CONSUMER,
            state: if begin.active {
                State::Resolving
            } else {
                State::Asked
            },
            since: now,
            pair: None,
            qpn: Qpn::new(0),
            line,
            local,
            peer: begin.peer,
            remote_qpn: Qpn::new(0),
            path_mtu: 0,
            private_data: begin.private_data,
            sends: Sends::default(),
            progress: now,
            window: Window::default(),
            quiet: false,
            created: now,
            used: now,
            tx_messages: 0,
            tx_bytes: 0,
            rx_messages: 0,
            rx_bytes: 0,
        }
    }
}

fn unsupported() -> ConnectError {
    let why = "the port cannot send requests for this service";
    io::Error::new(io::ErrorKind::Unsupported, why).into()
}

fn refusal(peer: Gid, error: io::Error) -> ConnectError {
    match error.kind() {
        io::ErrorKind::AddrNotAvailable
        | io::ErrorKind::NetworkUnreachable
        | io::ErrorKind::HostUnreachable => ConnectError::Unreachable(peer),
        _ => ConnectError::Os(error),
    }
}
