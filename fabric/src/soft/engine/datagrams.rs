//! Datagram services: answering and sending SIDR requests (IBA vol. 1, 12.11).

use proto::{ConnectError, EndpointId, Gid, Instant, Qpn, ServiceId};

use super::{Engine, Partition, Standing, rdma_cm};
use crate::cm::{DatagramService, NoService, SidrAsk, SidrEvent, SidrId, SidrRequest};
use crate::connection::reaches;

/// Maximum number of queued answers.
const ANSWERS_MAX: usize = 64;

/// The answer to a request for a datagram service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// The request.
    pub id: SidrId,
    /// The queue pair to send to, or the reason for the refusal.
    pub service: Result<DatagramService, NoService>,
}

impl Engine {
    /// Answers requests for `service` with the queue pair of an endpoint, until [`Engine::close_all`]
    /// or the end of the endpoint.
    pub fn listen_for_datagrams(
        &mut self,
        endpoint: EndpointId,
        standing: impl Into<Standing>,
        service: ServiceId,
    ) {
        let standing = standing.into();
        self.datagrams.insert(endpoint, standing, service);
    }

    /// Requests a service from a peer; [`Engine::poll_answer`] returns the answer.
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
        if !reaches(self.port.gid, peer) {
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

    /// The next answer to a request.
    pub fn poll_answer(&mut self) -> Option<Answer> {
        self.answers.pop_front()
    }

    /// Handles the events of datagram services.
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
