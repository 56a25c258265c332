//! What a [`SoftWorker`] can do for programs that set their connections up without communication
//! management.
//!
//! A worker (`SoftWorker`) also answers and requests datagram services by SIDR, as rdma_cm's
//! `RDMA_PS_UDP` does, and makes RC queue pairs that both sides connect by hand, as rdma-core's
//! examples do. `ibtap-peer` uses this; the fabric interface does not have it.

use proto::{ConnectError, ConnectionId, EndpointId};

use super::engine::{LocalQp, RemoteQp, Standing};
use super::worker::SoftWorker;
use crate::kernel::clock;

impl SoftWorker {
    /// Makes a queue pair of type RC in the partition of an endpoint. What it gives is for the peer, who
    /// is to tell the same of its own: see [`SoftWorker::connect_unmanaged`]. The connection is one of
    /// [`crate::Connections`] and ends like any other, but for messages to the peer: there are none,
    /// and [`crate::Connections::close`] leaves it to the peer to find out.
    ///
    /// # Errors
    /// Those of [`crate::Connections::connect`].
    pub fn begin_unmanaged(&mut self, endpoint: EndpointId) -> Result<LocalQp, ConnectError> {
        self.follow();
        match self.table.endpoints.standing(endpoint) {
            Standing::Member(partition) => {
                self.engine.begin_unmanaged(clock(), endpoint, partition)
            }
            Standing::Waiting => Err(ConnectError::NoPKey(endpoint)),
            Standing::Gone => Err(ConnectError::NoSuchEndpoint(endpoint)),
        }
    }

    /// Connects it to the peer's queue pair. Messages may go and come from now on, as soon as the peer
    /// has done the same.
    ///
    /// # Errors
    /// [`ConnectError::Unreachable`] if the peer's GID is of another family, or packets of the path MTU
    /// do not fit; [`ConnectError::Os`] if the connection is not one that waits for this.
    pub fn connect_unmanaged(
        &mut self,
        connection: ConnectionId,
        remote: &RemoteQp,
    ) -> Result<(), ConnectError> {
        self.follow();
        self.engine.connect_unmanaged(clock(), connection, remote)
    }
}
