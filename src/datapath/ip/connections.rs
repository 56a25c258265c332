//! Connections: actions of the cores, and events of the fabric.

use std::io;

use fabric::{
    ConnectError, ConnectRequest, ConnectionEvent, ConnectionId, Connections, EndpointId, Gid,
    RejectReason,
};
use ipoib::{ConnectionAction, Time};

use super::super::thread::DataThread;

impl DataThread {
    /// Passes connection events to the cores, and carries out the cores' actions. Called at the end of a
    /// round; leaves no open train.
    pub(in crate::datapath) fn serve_connections(&mut self, now: Time) {
        while let Some(event) = self.io.fabric.connections().and_then(|c| c.poll_event()) {
            self.connection_event(&event, now);
        }
        let mut n = 0;
        while let Some(i) = self.ip.lanes.used(n) {
            // A sent frame may also have requested a connection.
            while self.act(i, now) {
                self.service(i, now);
            }
            n += 1;
        }
        self.io.flush_train();
    }

    fn connection_event(&mut self, event: &ConnectionEvent, now: Time) {
        let lane = match event {
            ConnectionEvent::Requested {
                connection,
                endpoint,
                peer,
                ..
            } => self.requested(*connection, *endpoint, peer),
            ConnectionEvent::Replied { connection, .. } => {
                self.ip.connections.get(connection).copied()
            }
            ConnectionEvent::Closed { connection, .. } => self.ip.connections.remove(connection),
        };
        let Some(i) = lane else { return };
        if let Some(lane) = self.ip.lanes.get_mut(i) {
            lane.core.connection_event(now, event);
            self.service(i, now);
        }
    }

    /// The lane for a peer's connection request. Rejects the request if the peer is not allowed, or if the lane
    /// has been removed.
    fn requested(
        &mut self,
        connection: ConnectionId,
        endpoint: EndpointId,
        peer: &Gid,
    ) -> Option<usize> {
        if !self.io.allowed.admits(peer) {
            self.with_connections(|c| c.reject(connection, RejectReason::CONSUMER, &[]));
            return None;
        }
        let lane = self.ip.lanes.of_endpoint(endpoint);
        match lane {
            Some(i) => {
                self.ip.connections.insert(connection, i);
            }
            None => self.with_connections(|c| {
                c.reject(connection, RejectReason::INVALID_SERVICE_ID, &[]);
            }),
        }
        lane
    }

    /// Carries out the actions of a core; true if there were any.
    pub(in crate::datapath) fn act(&mut self, i: usize, now: Time) -> bool {
        let mut acted = false;
        while let Some(lane) = self.ip.lanes.get_mut(i)
            && let Some(action) = lane.core.poll_connection()
        {
            acted = true;
            self.do_action(i, now, &action);
        }
        acted
    }

    fn do_action(&mut self, i: usize, now: Time, action: &ConnectionAction) {
        match action {
            ConnectionAction::Connect {
                request,
                peer,
                to,
                service,
                private_data,
            } => {
                let asked = ConnectRequest {
                    service: *service,
                    peer: *peer,
                    to: *to,
                    private_data,
                };
                let begun = self.connect(i, &asked);
                if let Some(lane) = self.ip.lanes.get_mut(i) {
                    lane.core.connecting(now, *request, begun);
                }
            }
            ConnectionAction::Accept {
                connection,
                private_data,
            } => self.with_connections(|c| c.accept(*connection, private_data)),
            ConnectionAction::Establish { connection } => {
                self.with_connections(|c| c.establish(*connection));
            }
            ConnectionAction::Reject {
                connection,
                reason,
                private_data,
            } => {
                self.ip.connections.remove(connection);
                self.with_connections(|c| c.reject(*connection, *reason, private_data));
            }
            ConnectionAction::Close { connection } => {
                self.ip.connections.remove(connection);
                // Send the packets of this round first.
                self.io.flush_train();
                self.with_connections(|c| c.close(*connection));
            }
        }
    }

    fn connect(
        &mut self,
        i: usize,
        request: &ConnectRequest<'_>,
    ) -> Result<ConnectionId, ConnectError> {
        let unsupported = || ConnectError::Os(io::ErrorKind::Unsupported.into());
        let lane = self.ip.lanes.get(i);
        let endpoint = lane.map(|l| l.base.endpoint).ok_or_else(unsupported)?;
        let connections = self.io.fabric.connections().ok_or_else(unsupported)?;
        let connection = connections.connect(endpoint, request)?;
        self.ip.connections.insert(connection, i);
        Ok(connection)
    }

    /// Listens for connection requests to a lane, on the current service ids of its core.
    pub(in crate::datapath) fn listen(&mut self, i: usize) {
        if let Some(lane) = self.ip.lanes.get(i)
            && lane.core.takes_connections()
        {
            let (endpoint, services) = (lane.base.endpoint, lane.core.service_ids());
            self.with_connections(|c| {
                for service in services {
                    c.listen(endpoint, service);
                }
            });
        }
    }

    /// Closes a lane's connections and listeners, and notifies the peers.
    pub(in crate::datapath) fn close_all(&mut self, i: usize) {
        self.io.flush_train();
        self.ip.connections.retain(|_, lane| *lane != i);
        if let Some(lane) = self.ip.lanes.get(i) {
            let endpoint = lane.base.endpoint;
            self.with_connections(|c| c.close_all(endpoint));
            self.io.fabric.flush();
        }
    }

    fn with_connections(&mut self, what: impl FnOnce(&mut dyn Connections)) {
        if let Some(connections) = self.io.fabric.connections() {
            what(connections);
        }
    }
}

#[cfg(test)]
mod tests;
