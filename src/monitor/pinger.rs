//! Pings at the level of the fabric: requests, answers, timeouts.
//!
//! Sans-IO except for the type of the clock: times and answers in, requests and replies out.

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

/// Maximum number of replies that wait for one client. A slow client misses answers; its summary counts them.
const QUEUE_MAX: usize = 1024;

/// Minimum age of the peers' names before an unknown peer causes another read.
const NAMES_AGE: Duration = Duration::from_secs(1);

/// IP addresses of peers, by GID and queue pair number.
pub type Names = BTreeMap<(Gid, Qpn), Vec<IpAddr>>;

/// All pings in progress.
#[derive(Debug, Default)]
pub struct Pingers {
    all: BTreeMap<StreamId, Pinger>,
    next_id: u16,
}

/// An answer, as reported by a data thread.
#[derive(Clone, Copy, Debug)]
pub struct Answered {
    /// The address of the peer.
    pub from: HardwareAddress,
    /// The identifier in the request.
    pub id: u16,
    /// The sequence number in the request.
    pub sequence: u32,
    /// Bytes of IB payload.
    pub len: usize,
    /// Round trip in nanoseconds.
    pub round_trip: u64,
}

#[derive(Debug)]
struct Pinger {
    id: u16,
    plan: Plan,
    /// When the next request is due; `None` after the last one.
    next_send: Option<Instant>,
    waiting: BTreeMap<u32, Waiting>,
    tally: PingSummary,
    total_ns: u128,
    queue: VecDeque<PingReply>,
    /// The error that ends the ping.
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
    /// Begins a ping.
    pub fn add(&mut self, stream: StreamId, plan: Plan, names: Names, now: Instant) {
        // A ping without end may still use the identifier.
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

    /// Ends a ping, if the stream is one.
    pub fn remove(&mut self, stream: StreamId) {
        self.all.remove(&stream);
    }

    /// When [`Pingers::due`] must run next.
    pub fn deadline(&self) -> Option<Instant> {
        self.all.values().filter_map(Pinger::deadline).min()
    }

    /// Times out overdue requests, and returns the requests to send now.
    pub fn due(&mut self, now: Instant) -> Vec<(PortId, LinkId, EchoRequest)> {
        self.all
            .values_mut()
            .filter_map(|pinger| {
                pinger.give_up(now);
                Some((pinger.plan.port, pinger.plan.link, pinger.send(now)?))
            })
            .collect()
    }

    /// Whether the answer is from a peer without known names, and the names are old enough to read them
    /// again.
    pub fn lacks_names(&self, link: LinkId, answer: &Answered, now: Instant) -> bool {
        self.all.values().any(|p| {
            p.is(link, answer.id)
                && !p.names.contains_key(&peer(&answer.from))
                && now.duration_since(p.names_read) >= NAMES_AGE
        })
    }

    /// Sets the names of the peers of a link.
    pub fn set_names(&mut self, link: LinkId, names: &Names, now: Instant) {
        for pinger in self.all.values_mut().filter(|p| p.plan.link == link) {
            pinger.names.clone_from(names);
            pinger.names_read = now;
        }
    }

    /// Handles an answer.
    pub fn answered(&mut self, link: LinkId, answer: &Answered) {
        if let Some(pinger) = self.by_id(link, answer.id) {
            pinger.answered(answer);
        }
    }

    /// Handles a request that could not be sent.
    pub fn refused(&mut self, link: LinkId, id: u16, sequence: u32) {
        if let Some(pinger) = self.by_id(link, id) {
            pinger.refused(sequence);
        }
    }

    /// Ends the pings of a closed link.
    pub fn link_closed(&mut self, link: LinkId) {
        for pinger in self.all.values_mut().filter(|p| p.plan.link == link) {
            pinger.failed = Some(format!("{} is out of service", pinger.plan.interface));
        }
    }

    /// The next reply of a ping; `None` for an unknown stream. The last reply ends the ping.
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

    fn by_id(&mut self, link: LinkId, id: u16) -> Option<&mut Pinger> {
        self.all.values_mut().find(|p| p.is(link, id))
    }
}

fn peer(address: &HardwareAddress) -> (Gid, Qpn) {
    (address.gid(), address.qpn())
}

impl Pinger {
    fn is(&self, link: LinkId, id: u16) -> bool {
        self.plan.link == link && self.id == id
    }

    fn is_over(&self) -> bool {
        self.next_send.is_none() && self.waiting.is_empty()
    }

    fn deadline(&self) -> Option<Instant> {
        if self.failed.is_some() {
            return None;
        }
        // All requests have the same timeout.
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
        // After a delay, do not send two requests at once.
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
            // The answer is late, or for an unknown request.
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

    /// Handles a request that could not be sent. The first one ends the ping, because the peer is unknown; a
    /// later one counts as lost.
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
