//! Connections of a [`SoftWorker`] without communication management: both sides connect their RC queue
//! pairs by hand, as rdma-core's examples do. `ibtap-peer` uses these functions, and the datagram
//! services (SIDR, as rdma_cm's `RDMA_PS_UDP`); the fabric interface has neither.

use proto::{ConnectError, ConnectionId, EndpointId};

use super::engine::{LocalQp, RemoteQp};
use super::worker::SoftWorker;
use crate::kernel::clock;

impl SoftWorker {
    /// Creates an RC queue pair in the partition of an endpoint and returns its parameters for the
    /// peer. The peer's parameters go to [`SoftWorker::connect_unmanaged`]. The connection is one of
    /// [`crate::Connections`], but no messages of communication management are sent:
    /// [`crate::Connections::close`] does not notify the peer.
    ///
    /// # Errors
    /// Those of [`crate::Connections::connect`].
    pub fn begin_unmanaged(&mut self, endpoint: EndpointId) -> Result<LocalQp, ConnectError> {
        let partition = self.partition(endpoint)?;
        self.engine.begin_unmanaged(clock(), endpoint, partition)
    }

    /// Connects the queue pair to the peer's. Messages can be exchanged as soon as the peer has done
    /// the same.
    ///
    /// # Errors
    /// [`ConnectError::Unreachable`] if the peer's GID is of another address family, or packets of the
    /// path MTU do not fit; [`ConnectError::Os`] if the connection does not wait for parameters.
    pub fn connect_unmanaged(
        &mut self,
        connection: ConnectionId,
        remote: &RemoteQp,
    ) -> Result<(), ConnectError> {
        self.follow();
        self.engine.connect_unmanaged(clock(), connection, remote)
    }
}
