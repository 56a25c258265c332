//! The connections of a [`SoftWorker`]: adds the clock and the network to the engine.

use proto::{ConnectError, ConnectionEvent, ConnectionId, EndpointId, RejectReason, ServiceId};

use super::worker::SoftWorker;
use crate::connection::{ConnectRequest, ConnectionInfo, Connections, Posted};
use crate::kernel::clock;
use crate::worker::{Train, TrainTicket};

impl Connections for SoftWorker {
    fn listen(&mut self, endpoint: EndpointId, service: ServiceId) {
        self.follow();
        let standing = self.table.endpoints.standing(endpoint);
        self.engine.listen(endpoint, standing, service);
    }

    fn close_all(&mut self, endpoint: EndpointId) {
        self.engine.close_all(clock(), endpoint);
    }

    fn connect(
        &mut self,
        endpoint: EndpointId,
        request: &ConnectRequest<'_>,
    ) -> Result<ConnectionId, ConnectError> {
        let partition = self.partition(endpoint)?;
        if !self.table.is_reachable() {
            return Err(ConnectError::NoGid);
        }
        self.engine.connect(clock(), endpoint, partition, request)
    }

    fn accept(&mut self, connection: ConnectionId, private_data: &[u8]) {
        self.engine.accept(clock(), connection, private_data);
    }

    fn establish(&mut self, connection: ConnectionId) {
        self.engine.establish(clock(), connection);
    }

    fn reject(&mut self, connection: ConnectionId, reason: RejectReason, private_data: &[u8]) {
        self.engine
            .reject(clock(), connection, reason, private_data);
    }

    fn close(&mut self, connection: ConnectionId) {
        self.engine.close(clock(), connection);
    }

    fn poll_event(&mut self) -> Option<ConnectionEvent> {
        self.engine.poll_event()
    }

    fn message(&mut self, connection: ConnectionId, len: usize) -> Option<Train<'_>> {
        self.engine.message(clock(), connection, len)
    }

    fn messages(
        &mut self,
        connection: ConnectionId,
        len: usize,
        count: usize,
    ) -> Option<Train<'_>> {
        self.engine.messages(clock(), connection, len, count)
    }

    fn resume(&mut self, ticket: TrainTicket) -> Train<'_> {
        self.engine.resume(ticket)
    }

    /// Sends at once as much as the window allows, while the bytes are in the processor's caches.
    fn post(&mut self, connection: ConnectionId, ticket: TrainTicket) -> Posted {
        let now = clock();
        let posted = self.engine.post(now, connection, ticket);
        if posted != Posted::Refused {
            self.pump(now, false);
        }
        posted
    }

    fn path_mtu(&self, connection: ConnectionId) -> usize {
        self.engine.path_mtu(connection)
    }

    fn list(&self) -> Vec<ConnectionInfo> {
        self.engine.list()
    }
}
