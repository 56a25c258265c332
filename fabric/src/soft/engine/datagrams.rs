//! Datagram services: telling peers who has one, and asking them (IBA vol. 1, 12.11).

use proto::{ConnectError, EndpointId, Gid, Instant, Qpn, ServiceId};

use super::{Engine, Partition, Standing, rdma_cm};
use crate::cm::{DatagramService, NoService, SidrAsk, SidrEvent, SidrId, SidrRequest};

/// Answers that nobody has taken yet, at most.
const ANSWERS_MAX: usize = 64;

/// What came of a request for a datagram service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// The request.
    pub id: SidrId,
    /// The queue pair to send to.
    pub service: Result<DatagramService, NoService>,
}

impl Engine {
    /// Tells peers that ask for `service` the queue pair of an endpoint, until that or
    /// [`Engine::close_all`] ends it.
    pub fn listen_for_datagrams(
        &mut self,
        endpoint: EndpointId,
        standing: impl Into<Standing>,
        service: ServiceId,
    ) {
        let standing = standing.into();
        self.datagrams.insert(endpoint, standing, service);
    }

    /// Asks a peer for a service; [`Engine::poll_answer`] tells what came of it.
    ///
    /// # Errors
    /// [`ConnectError::Full`], [`ConnectError::Unreachable`].
    pub fn ask_for_datagrams(
        &mut self,
        now: Instant,
        partition: impl Into<Partition>,
        peer: Gid,
        service: ServiceId,
        private_data: &[u8],
    ) -> Result<SidrId, ConnectError> {
        if !self.reaches(peer) {
            return Err(ConnectError::Unreachable(peer));
        }
        if self.answers.len() >= ANSWERS_MAX {
            return Err(ConnectError::Full);
        }
        let port = self.random.next();
        let local = self.port.gid;
        let with_header = || rdma_cm::with_header(local, peer, port, private_data);
        let header = service.is_rdma_cm().then(with_header);
        let ask = SidrAsk {
            service,
            peer,
            pkey: partition.into().pkey,
            private_data: header.as_deref().unwrap_or(private_data),
        };
        let asked = self.cm.ask_for_datagrams(now, &ask);
        asked.map_err(|_| ConnectError::Full)
    }

    /// The next answer to a request of ours.
    pub fn poll_answer(&mut self) -> Option<Answer> {
        self.answers.pop_front()
    }

    /// Handles what communication management has to say of datagram services.
    pub(super) fn drain_sidr(&mut self) {
        while let Some(event) = self.cm.poll_sidr() {
            match event {
                SidrEvent::Requested {
                    request,
                    private_data,
                } => {
                    let service = self.judge_sidr(&request, &private_data);
                    self.cm.answer(&request, service);
                }
                SidrEvent::Answered { id, service } => {
                    self.answers.push_back(Answer { id, service });
                }
            }
        }
    }

    fn judge_sidr(
        &self,
        request: &SidrRequest,
        private_data: &[u8],
    ) -> Result<DatagramService, NoService> {
        let found = self.datagrams.find(request.service, Qpn::new(0));
        let (_, partition) = found.ok_or(NoService::Unsupported)?;
        let header_is_right = !request.service.is_rdma_cm()
            || rdma_cm::behind_header(request.peer, self.port.gid, private_data).is_ok();
        if !header_is_right || !partition.pkey.matches(request.pkey) {
            return Err(NoService::Rejected);
        }
        Ok(DatagramService {
            qpn: partition.qpn,
            qkey: partition.qkey,
        })
    }
}
