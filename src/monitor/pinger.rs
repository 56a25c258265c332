//! Pings at the level of the fabric: paces the requests, matches the answers, gives up on time.
//!
//! Sans-IO but for the clock's type: it is told the time and what came, and says what to send.

mod plan;

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use control::api::{ApiError, EchoAnswer, EchoTimeout, PingReply, PingSummary, Reply};
use control::{StreamId, Streamed};
use fabric::{Gid, Qpn};
use ipoib::{EchoRequest, HardwareAddress};

use crate::datapath::LinkId;
use crate::port::PortId;
pub use plan::{Link, Plan};

/// Replies that wait for one client; a slow one misses answers, which its summary still counts.
const QUEUE_MAX: usize = 1024;

/// How old the names of peers may be before an unknown peer is reason to read them again.
const NAMES_AGE: Duration = Duration::from_secs(1);

/// IP addresses of peers.
pub type Names = BTreeMap<(Gid, Qpn), Vec<IpAddr>>;

/// All pings that go on.
#[derive(Debug, Default)]
pub struct Pingers {
    all: BTreeMap<StreamId, Pinger>,
    next_id: u16,
}

/// An answer, as the data threads report it.
#[derive(Clone, Copy, Debug)]
pub struct Answered {
    /// By whom.
    pub from: HardwareAddress,
    /// What the request carried.
    pub id: u16,
    /// What the request carried.
    pub sequence: u32,
    /// Bytes of IB payload.
    pub len: usize,
    /// Nanoseconds.
    pub round_trip: u64,
}

#[derive(Debug)]
struct Pinger {
    id: u16,
    plan: Plan,
    /// When the next request is due; none when all are out.
    next_send: Option<Instant>,
    waiting: BTreeMap<u32, Waiting>,
    tally: PingSummary,
    total_ns: u128,
    queue: VecDeque<PingReply>,
    /// Why it cannot go on.
    failed: Option<String>,
    names: Names,
    names_read: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    until: Instant,
    answered: bool,
}

impl Pingers {
    /// Begins one.
    pub fn add(&mut self, stream: StreamId, plan: Plan, names: Names, now: Instant) {
        // One that never ends may have the number still.
        let taken = |id: u16| self.all.values().any(|p| p.id == id);
        self.next_id = std::iter::successors(Some(self.next_id.wrapping_add(1)), |id| {
            Some(id.wrapping_add(1))
        })
        .find(|id| !taken(*id))
        .unwrap_or_default();
        let pinger = Pinger {
            id: self.next_id,
            plan,
            next_send: Some(now),
            waiting: BTreeMap::new(),
            tally: PingSummary::default(),
            total_ns: 0,
            queue: VecDeque::new(),
            failed: None,
            names,
            names_read: now,
        };
        self.all.insert(stream, pinger);
    }

    /// Ends one, if it is one of these.
    pub fn remove(&mut self, stream: StreamId) {
        self.all.remove(&stream);
    }

    /// When [`Pingers::due`] has something to do.
    pub fn deadline(&self) -> Option<Instant> {
        self.all.values().filter_map(Pinger::deadline).min()
    }

    /// Gives up on requests that have waited too long, and gives those that are to be sent now.
    pub fn due(&mut self, now: Instant) -> Vec<(PortId, LinkId, EchoRequest)> {
        self.all
            .values_mut()
            .filter_map(|pinger| {
                pinger.give_up(now);
                Some((pinger.plan.port, pinger.plan.device, pinger.send(now)?))
            })
            .collect()
    }

    /// Whether the answer comes from a peer whose names are unknown but may have been learned since.
    pub fn lacks_names(&self, device: LinkId, answer: &Answered, now: Instant) -> bool {
        self.all.values().any(|p| {
            p.is(device, answer.id)
                && !p.names.contains_key(&peer(&answer.from))
                && now.duration_since(p.names_read) >= NAMES_AGE
        })
    }

    /// New names for the peers of a device.
    pub fn set_names(&mut self, device: LinkId, names: &Names, now: Instant) {
        for pinger in self.all.values_mut().filter(|p| p.plan.device == device) {
            pinger.names.clone_from(names);
            pinger.names_read = now;
        }
    }

    /// A peer answered.
    pub fn answered(&mut self, device: LinkId, answer: &Answered) {
        if let Some(pinger) = self.by_id(device, answer.id) {
            pinger.answered(answer);
        }
    }

    /// A request could not be sent.
    pub fn refused(&mut self, device: LinkId, id: u16, sequence: u32) {
        if let Some(pinger) = self.by_id(device, id) {
            pinger.refused(sequence);
        }
    }

    /// A device is gone.
    pub fn device_gone(&mut self, device: LinkId) {
        for pinger in self.all.values_mut().filter(|p| p.plan.device == device) {
            pinger.failed = Some(format!("{} is out of service", pinger.plan.interface));
        }
    }

    /// What the client has not got yet; `None` if it is none of these. The last reply ends it.
    pub fn next(&mut self, stream: StreamId) -> Option<Streamed> {
        let pinger = self.all.get_mut(&stream)?;
        if let Some(reply) = pinger.queue.pop_front() {
            return Some(Streamed::Reply(Reply::Ping(reply)));
        }
        let last = if let Some(message) = pinger.failed.take() {
            Err(ApiError::Refused { message })
        } else if pinger.is_over() {
            Ok(Reply::Ping(PingReply::Summary(pinger.summary())))
        } else {
            return Some(Streamed::Nothing);
        };
        self.all.remove(&stream);
        Some(Streamed::Last(last))
    }

    fn by_id(&mut self, device: LinkId, id: u16) -> Option<&mut Pinger> {
        self.all.values_mut().find(|p| p.is(device, id))
    }
}

fn peer(address: &HardwareAddress) -> (Gid, Qpn) {
    (address.gid(), address.qpn())
}

impl Pinger {
    fn is(&self, device: LinkId, id: u16) -> bool {
        self.plan.device == device && self.id == id
    }

    fn is_over(&self) -> bool {
        self.next_send.is_none() && self.waiting.is_empty()
    }

    fn deadline(&self) -> Option<Instant> {
        if self.failed.is_some() {
            return None;
        }
        // All wait equally long.
        let first = self.waiting.first_key_value().map(|(_, w)| w.until);
        first.into_iter().chain(self.next_send).min()
    }

    fn send(&mut self, now: Instant) -> Option<EchoRequest> {
        let due = self.next_send.filter(|due| *due <= now)?;
        if self.failed.is_some() {
            return None;
        }
        self.tally.sent += 1;
        let more = self.plan.count.is_none_or(|count| self.tally.sent < count);
        // One that is late is not made up for by two at once.
        self.next_send = more.then(|| (due + self.plan.interval).max(now));
        let waiting = Waiting {
            until: now + self.plan.timeout,
            answered: false,
        };
        self.waiting.insert(self.tally.sent, waiting);
        Some(EchoRequest {
            target: self.plan.target,
            id: self.id,
            sequence: self.tally.sent,
            stamp: 0,
            len: self.plan.size,
        })
    }

    fn give_up(&mut self, now: Instant) {
        while let Some((&sequence, waiting)) = self.waiting.first_key_value()
            && waiting.until <= now
        {
            let answered = waiting.answered;
            self.waiting.remove(&sequence);
            if !answered {
                self.push(PingReply::Timeout(EchoTimeout { sequence }));
            }
        }
    }

    fn answered(&mut self, answer: &Answered) {
        let Some(waiting) = self.waiting.get_mut(&answer.sequence) else {
            // Too late, or not ours.
            return;
        };
        if !std::mem::replace(&mut waiting.answered, true) {
            self.tally.answered += 1;
        }
        if !self.plan.asks_many() {
            self.waiting.remove(&answer.sequence);
        }
        let tally = &mut self.tally;
        tally.answers = tally.answers.saturating_add(1);
        tally.min_ns = match tally.answers {
            1 => answer.round_trip,
            _ => tally.min_ns.min(answer.round_trip),
        };
        tally.max_ns = tally.max_ns.max(answer.round_trip);
        self.total_ns += u128::from(answer.round_trip);
        let ips = self.names.get(&peer(&answer.from)).cloned();
        self.push(PingReply::Answer(EchoAnswer {
            sequence: answer.sequence,
            gid: answer.from.gid(),
            qpn: answer.from.qpn(),
            ips: ips.unwrap_or_default(),
            bytes: u32::try_from(answer.len).unwrap_or(u32::MAX),
            round_trip_ns: answer.round_trip,
        }));
    }

    /// The first request shows whether the peer is known at all; a later one is like a lost one.
    fn refused(&mut self, sequence: u32) {
        if self.waiting.remove(&sequence).is_none() {
            return;
        }
        if sequence == 1 {
            self.failed = Some(self.plan.refusal());
        } else {
            self.push(PingReply::Timeout(EchoTimeout { sequence }));
        }
    }

    fn push(&mut self, reply: PingReply) {
        if self.queue.len() < QUEUE_MAX {
            self.queue.push_back(reply);
        }
    }

    fn summary(&self) -> PingSummary {
        let mean = self.total_ns / u128::from(self.tally.answers.max(1));
        PingSummary {
            mean_ns: u64::try_from(mean).unwrap_or(u64::MAX),
            ..self.tally
        }
    }
}

#[cfg(test)]
mod tests;
