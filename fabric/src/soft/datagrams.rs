//! Datagram services of a [`SoftWorker`]: programs find each other's queue pairs with SIDR. IPoIB does
//! not use SIDR, because IPoIB addresses contain queue pair numbers.

use proto::{ConnectError, EndpointId, Gid, ServiceId};

use super::engine::Answer;
use super::worker::SoftWorker;
use crate::cm::SidrId;
use crate::kernel::clock;

impl SoftWorker {
    /// Answers requests for `service` with the queue pair and Q_Key of an endpoint. The peer chooses
    /// the worker, so all workers of a port should listen. [`crate::Connections::close_all`] ends the
    /// service.
    pub fn listen_for_datagrams(&mut self, endpoint: EndpointId, service: ServiceId) {
        self.follow();
        let standing = self.table.endpoints.standing(endpoint);
        self.engine
            .listen_for_datagrams(endpoint, standing, service);
    }

    /// Requests the queue pair of a service from a peer, in the partition of an endpoint. Private data
    /// have at most 216 bytes, or 180 for a service of [`ServiceId::rdma_cm_datagrams`]. The next
    /// [`crate::Worker::flush`] sends the request; [`SoftWorker::poll_answer`] returns the answer.
    ///
    /// # Errors
    /// Those of [`crate::Connections::connect`].
    pub fn ask_for_datagrams(
        &mut self,
        endpoint: EndpointId,
        peer: Gid,
        service: ServiceId,
        private_data: &[u8],
    ) -> Result<SidrId, ConnectError> {
        let partition = self.partition(endpoint)?;
        self.engine
            .ask_for_datagrams(clock(), partition, peer, service, private_data)
    }

    /// The next answer to a request.
    pub fn poll_answer(&mut self) -> Option<Answer> {
        self.engine.poll_answer()
    }
}
