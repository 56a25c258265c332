//! Datagram services (IBA vol. 1, 12.11): a request names a service, the answer has its queue pair and
//! Q_Key. No state is kept for requests of peers: a repeated request is answered again.

use std::collections::{BTreeMap, VecDeque};

use proto::{Gid, Instant, PKey, QKey, Qpn, ServiceId};
use zerocopy::FromZeros;
use zerocopy::big_endian::{U16, U32, U64};

use super::counts::{Drop, Group};
use super::messages::{self, Datagram};
use super::{Cm, CmId, Full, times};
use crate::mad::cm::{self, SidrRep, SidrReq};

/// Maximum number of our requests that wait for an answer.
const ASKED_MAX: usize = 64;

/// Maximum number of peers' requests that wait for our answer; the user answers at once or never.
const EVENTS_MAX: usize = 256;

/// Identifies one of our requests for a datagram service.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct SidrId(pub u32);

/// A request for a datagram service.
#[derive(Clone, Copy, Debug)]
pub struct SidrAsk<'a> {
    /// The service.
    pub service: ServiceId,
    /// The peer's GID.
    pub peer: Gid,
    /// The partition.
    pub pkey: PKey,
    /// Private data, at most 216 bytes.
    pub private_data: &'a [u8],
}

/// A request of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SidrRequest {
    /// The peer's GID.
    pub peer: Gid,
    /// The service.
    pub service: ServiceId,
    /// The partition of the service.
    pub pkey: PKey,
    request_id: u32,
    tid: u64,
}

/// A UD queue pair as its peers address it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DatagramService {
    /// Queue pair number.
    pub qpn: Qpn,
    /// Q_Key.
    pub qkey: QKey,
}

/// Why a request has no queue pair (IBA vol. 1, 12.11.1.2, table 118; include/rdma/ib_cm.h, `enum
/// ib_cm_sidr_status`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoService {
    /// No listener has the service.
    #[error("no listener has the service")]
    Unsupported,
    /// The service rejected the request.
    #[error("the request was rejected")]
    Rejected,
    /// The service has no queue pair.
    #[error("the service has no queue pair")]
    NoQp,
    /// Another port has the service. Its address in the answer is ignored.
    #[error("another port has the service")]
    Redirected,
    /// The peer does not know the class version.
    #[error("the peer uses another version of communication management")]
    Version,
    /// Another reason.
    #[error("the request was refused with status {0}")]
    Other(u8),
    /// No answer came.
    #[error("the peer did not answer")]
    TimedOut,
}

impl NoService {
    const fn from_status(status: u8) -> NoService {
        match status {
            SidrRep::UNSUPPORTED => NoService::Unsupported,
            SidrRep::REJECTED => NoService::Rejected,
            SidrRep::NO_QP => NoService::NoQp,
            SidrRep::REDIRECTED => NoService::Redirected,
            SidrRep::UNSUPPORTED_VERSION => NoService::Version,
            other => NoService::Other(other),
        }
    }

    const fn to_status(self) -> u8 {
        match self {
            NoService::Unsupported => SidrRep::UNSUPPORTED,
            NoService::Rejected | NoService::TimedOut => SidrRep::REJECTED,
            NoService::NoQp => SidrRep::NO_QP,
            NoService::Redirected => SidrRep::REDIRECTED,
            NoService::Version => SidrRep::UNSUPPORTED_VERSION,
            NoService::Other(status) => status,
        }
    }
}

/// Events of datagram services.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SidrEvent {
    /// A request of a peer, to be answered by [`Cm::answer`].
    Requested {
        /// The request.
        request: SidrRequest,
        /// Private data, all 216 bytes.
        private_data: Box<[u8]>,
    },
    /// Our request was answered or timed out; no more events follow for it.
    Answered {
        /// The request.
        id: SidrId,
        /// The queue pair, or the reason why there is none.
        service: Result<DatagramService, NoService>,
    },
}

/// A request of ours.
#[derive(Debug)]
struct Asked {
    peer: Gid,
    datagram: Box<Datagram>,
    again: Instant,
    retries: u8,
}

/// Pending requests and events.
#[derive(Debug, Default)]
pub struct Sidr {
    asked: BTreeMap<SidrId, Asked>,
    events: VecDeque<SidrEvent>,
}

impl Sidr {
    pub fn next_deadline(&self) -> Option<Instant> {
        self.asked.values().map(|a| a.again).min()
    }
}

impl Cm {
    /// Sends a request for a datagram service and repeats it until it is answered or the retries are
    /// used up.
    ///
    /// # Errors
    /// [`Full`]
    pub fn ask_for_datagrams(&mut self, now: Instant, ask: &SidrAsk<'_>) -> Result<SidrId, Full> {
        if self.sidr.asked.len() >= ASKED_MAX {
            return Err(Full);
        }
        let id = self.new_sidr_id();
        let datagram = request(self.random.next(), id, ask);
        let asked = Asked {
            peer: ask.peer,
            datagram: Box::new(datagram),
            again: now.after(times::request_interval()),
            retries: times::MAX_CM_RETRIES,
        };
        self.sidr.asked.insert(id, asked);
        self.send(ask.peer, datagram);
        Ok(id)
    }

    /// Answers [`SidrEvent::Requested`].
    pub fn answer(&mut self, request: &SidrRequest, service: Result<DatagramService, NoService>) {
        self.send(request.peer, reply(request, service));
    }

    /// The next event of datagram services, in order of occurrence.
    pub fn poll_sidr(&mut self) -> Option<SidrEvent> {
        self.sidr.events.pop_front()
    }

    /// An unused request id. Answers find this worker by it, as by a communication id.
    fn new_sidr_id(&mut self) -> SidrId {
        loop {
            let (worker, workers) = (self.config.worker, self.config.workers);
            let id = SidrId(CmId::of_worker(&mut self.random, worker, workers).0);
            if !self.sidr.asked.contains_key(&id) {
                return id;
            }
        }
    }

    pub(super) fn on_sidr_req(
        &mut self,
        now: Instant,
        from: Gid,
        tid: u64,
        req: &SidrReq,
        listens: impl Fn(ServiceId) -> bool,
    ) {
        if !self.may_answer(now, from) {
            return;
        }
        let request = SidrRequest {
            peer: from,
            service: ServiceId(req.service_id.get()),
            pkey: PKey::new(req.pkey.get()),
            request_id: req.request_id.get(),
            tid,
        };
        if !listens(request.service) {
            self.answer(&request, Err(NoService::Unsupported));
        } else if self.sidr.events.len() < EVENTS_MAX {
            self.sidr.events.push_back(SidrEvent::Requested {
                request,
                private_data: Box::new(req.private_data),
            });
        }
    }

    pub(super) fn on_sidr_rep(&mut self, from: Gid, rep: &SidrRep) {
        let id = SidrId(rep.request_id.get());
        let Some(asked) = self.sidr.asked.get(&id) else {
            return self.counts.dropped(Drop::Unmatched);
        };
        if asked.peer != from {
            return self.counts.dropped(Drop::WrongSource);
        }
        let service = match rep.status {
            SidrRep::VALID if rep.local_qpn().is_reserved() => {
                return self.counts.dropped(Drop::Malformed);
            }
            SidrRep::VALID => Ok(DatagramService {
                qpn: rep.local_qpn(),
                qkey: QKey::new(rep.qkey.get()),
            }),
            status => Err(NoService::from_status(status)),
        };
        self.answered(id, service);
    }

    fn answered(&mut self, id: SidrId, service: Result<DatagramService, NoService>) {
        self.sidr.asked.remove(&id);
        self.sidr
            .events
            .push_back(SidrEvent::Answered { id, service });
    }

    /// Repeats unanswered requests, and gives up those without retries left.
    pub(super) fn sidr_timeout(&mut self, now: Instant) {
        let due = self.sidr.asked.iter().filter(|(_, a)| a.again <= now);
        let due: Vec<SidrId> = due.map(|(id, _)| *id).collect();
        for id in due {
            match self.sidr.asked.get_mut(&id) {
                Some(asked) if asked.retries > 0 => {
                    asked.retries -= 1;
                    asked.again = now.after(times::request_interval());
                    let (peer, datagram) = (asked.peer, *asked.datagram);
                    self.counts.message(Group::TxRetries, cm::SIDR_REQ);
                    self.send(peer, datagram);
                }
                _ => self.answered(id, Err(NoService::TimedOut)),
            }
        }
    }
}

fn request(tid: u64, id: SidrId, ask: &SidrAsk<'_>) -> Datagram {
    let mut m = SidrReq::new_zeroed();
    m.request_id = U32::new(id.0);
    m.pkey = U16::new(ask.pkey.get());
    m.service_id = U64::new(ask.service.0);
    messages::fill(&mut m.private_data, ask.private_data);
    messages::datagram(tid, cm::SIDR_REQ, &m)
}

fn reply(request: &SidrRequest, service: Result<DatagramService, NoService>) -> Datagram {
    let mut m = SidrRep::new_zeroed();
    m.request_id = U32::new(request.request_id);
    m.service_id = U64::new(request.service.0);
    match service {
        Ok(service) => {
            m.set_local_qpn(service.qpn);
            m.qkey = U32::new(service.qkey.get());
        }
        Err(why) => m.status = why.to_status(),
    }
    messages::datagram(request.tid, cm::SIDR_REP, &m)
}
