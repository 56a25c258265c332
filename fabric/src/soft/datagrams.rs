//! Datagram services of a [`SoftWorker`]: how programs find each other's queue pairs by SIDR. IPoIB
//! needs none of it, whose addresses have them.

use proto::{ConnectError, EndpointId, Gid, ServiceId};

use super::engine::{Answer, Standing};
use super::worker::SoftWorker;
use crate::cm::SidrId;
use crate::kernel::clock;

impl SoftWorker {
    /// Tells peers that ask for `service` the queue pair and Q_Key of an endpoint. Which worker is asked
    /// is the peer's choice: all of a port should listen. [`crate::Connections::close_all`] ends it.
    pub fn listen_for_datagrams(&mut self, endpoint: EndpointId, service: ServiceId) {
        self.follow();
        let standing = self.table.endpoints.standing(endpoint);
        self.engine
            .listen_for_datagrams(endpoint, standing, service);
    }

    /// Asks a peer, in the partition of an endpoint, which queue pair has a service, with private data of
    /// at most 216 bytes, or 180 for a service of [`ServiceId::rdma_cm_datagrams`]. It leaves with the
    /// next [`crate::Worker::flush`]; [`SoftWorker::poll_answer`] tells what came of it.
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
        self.follow();
        match self.table.endpoints.standing(endpoint) {
            Standing::Member(partition) => {
                self.engine
                    .ask_for_datagrams(clock(), partition, peer, service, private_data)
            }
            Standing::Waiting => Err(ConnectError::NoPKey(endpoint)),
            Standing::Gone => Err(ConnectError::NoSuchEndpoint(endpoint)),
        }
    }

    /// The next answer to one of these.
    pub fn poll_answer(&mut self) -> Option<Answer> {
        self.engine.poll_answer()
    }
}
