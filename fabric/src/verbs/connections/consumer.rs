//! What a consumer asks for: listening, connecting, consenting, closing.

use std::io;

use super::connection::Connection;
use super::device::{Address, Device};
use super::lookup::Key;
use super::sends::Sends;
use super::state::{Input, State};
use super::{Engine, SWEEP};
use crate::connection::ConnectRequest;
use crate::mad::cm::RdmaCmData;
use crate::pkeys::Entry;
use proto::{
    ConnectError, ConnectionId, EndpointId, Gid, Instant, PKey, Qpn, RejectReason, ServiceId,
};
use zerocopy::IntoBytes;

/// What a connection begins with.
pub(super) struct Begin {
    pub endpoint: EndpointId,
    pub entry: Entry,
    pub active: bool,
    pub peer: Gid,
    pub private_data: Box<[u8]>,
}

impl<D: Device> Engine<D> {
    /// See [`crate::Connections::listen`].
    pub fn listen(&mut self, now: Instant, endpoint: EndpointId, service: ServiceId) {
        let Some(port) = service.rdma_cm_port() else {
            log::debug!("requests for service {service} do not reach a device of the kernel");
            return;
        };
        self.listeners.add(now, port, endpoint);
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
        let port = request.service.rdma_cm_port().ok_or_else(unsupported)?;
        if !self.reaches(peer) {
            return Err(ConnectError::Unreachable(peer));
        }
        self.speaks_for(entry)?;
        let begin = Begin {
            endpoint,
            entry,
            active: true,
            peer,
            private_data: RdmaCmData::new(request.to, request.private_data)
                .as_bytes()
                .into(),
        };
        let from = self.own_address(0);
        let to = Address {
            gid: peer,
            port,
            ..from
        };
        let device = self.device.as_mut();
        let device = device.ok_or(ConnectError::Unreachable(peer))?;
        let mut failure = None;
        let (key, id) = {
            let id = ConnectionId(self.next_id);
            let local = self.view.gid;
            let made = self.table.insert(|key| {
                let line = device.begin(key.context(), &from, &to);
                let line = line.map_err(|e| failure = Some(e)).ok()?;
                Some(Connection::new(now, id, local, begin, line))
            });
            match (made, failure) {
                (Some(key), _) => (key, id),
                (None, Some(e)) => return Err(refusal(peer, e)),
                (None, None) => return Err(ConnectError::Full),
            }
        };
        self.named(now, key, id);
        Ok(id)
    }

    /// Whether rdma_cm makes connections in a partition. On Ethernet it asks in the default one always
    /// (kernel drivers/infiniband/core/cma.c, `cma_resolve_iboe_route`), on InfiniBand it asks subnet
    /// administration for the way, which nothing here can yet.
    fn speaks_for(&self, entry: Entry) -> Result<(), ConnectError> {
        let why = if !self.view.ethernet {
            "rdma_cm cannot find peers on InfiniBand without subnet administration"
        } else if entry.pkey.full() != PKey::DEFAULT {
            "rdma_cm makes connections over Ethernet in the default partition alone"
        } else {
            return Ok(());
        };
        Err(io::Error::new(io::ErrorKind::Unsupported, why).into())
    }

    /// Our address, with a port number.
    pub(super) const fn own_address(&self, port: u16) -> Address {
        Address {
            gid: self.view.gid,
            scope: self.view.scope,
            port,
        }
    }

    /// The next connection's name is used.
    pub(super) fn named(&mut self, now: Instant, key: Key, id: ConnectionId) {
        self.table.name(key, id);
        self.next_id = self.next_id.wrapping_add(1).max(1);
        self.sweep_within(now, SWEEP);
    }

    /// See [`crate::Connections::accept`].
    pub fn accept(&mut self, now: Instant, connection: ConnectionId, private_data: &[u8]) {
        self.say(now, connection, Input::Accept, private_data);
    }

    /// See [`crate::Connections::establish`].
    pub fn establish(&mut self, now: Instant, connection: ConnectionId) {
        self.say(now, connection, Input::Establish, &[]);
    }

    /// See [`crate::Connections::reject`]. rdma_cm says [`RejectReason::CONSUMER`] whatever the reason
    /// (kernel drivers/infiniband/core/ucma.c, `ucma_reject`).
    pub fn reject(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        reason: RejectReason,
        private_data: &[u8],
    ) {
        log::debug!("connection {} is rejected: {reason}", connection.0);
        self.say(now, connection, Input::Reject, private_data);
    }

    /// See [`crate::Connections::close`].
    pub fn close(&mut self, now: Instant, connection: ConnectionId) {
        self.say(now, connection, Input::Close, &[]);
    }

    fn say(&mut self, now: Instant, connection: ConnectionId, input: Input, private_data: &[u8]) {
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
    /// One that begins.
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
            full: false,
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
    let why = "requests for this service do not go through rdma_cm";
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
