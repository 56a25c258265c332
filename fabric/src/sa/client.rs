//! Transactions with the SA: at most a number of requests in flight, the others in a queue; retries with
//! back-off and jitter.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use proto::Instant;
use proto::backoff::doubled;

use super::counts::Counts;
use super::request::Request;
use super::response::{Failure, Received, Response};
use crate::mad::sa::{self, Notice, status};
use crate::mad::{MAD_LEN, method};
use crate::random::Random;
use crate::rmpp::status::{RESOURCES_EXHAUSTED as TOO_LONG, TOTAL_TIME_TOO_LONG};
use crate::rmpp::{Receiver, datagram};

/// Number of transaction ids of a request: more than it is sent while the carrier waits for the answers.
const SENDS: u32 = 16;

/// The longest wait for an answer, before jitter.
const LONGEST: Duration = Duration::from_secs(8);

/// Maximum number of Reports that wait for the consumer.
const REPORTS_MAX: usize = 256;

/// Maximum number of replies (to Reports and segments) that wait to be sent.
const REPLIES_MAX: usize = 256;

/// Maximum number of segments of an answer: 3.2 MB.
const SEGMENTS_MAX: u32 = 16_384;

/// Maximum number of complete transfers whose repeated segments are acknowledged.
const FINISHED_MAX: usize = 64;

/// Configuration of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientConfig {
    /// Unpredictable numbers: transaction ids and jitter follow from the seed.
    pub seed: [u64; 2],
    /// Whether the carrier delivers single segments, which the client puts together. The kernel does
    /// it for umad agents with RMPP version 1.
    pub own_rmpp: bool,
    /// The wait for the answer to the first try; it doubles with each try, up to 8 s, and gets up to a
    /// quarter of jitter.
    pub first_timeout: Duration,
    /// How often a request is sent, at least once.
    pub tries: u32,
    /// Maximum number of requests in flight.
    pub in_flight_max: usize,
    /// Maximum number of requests that wait for a place in flight.
    pub queue_max: usize,
}

/// The low 32 bits of a transaction id, a multiple of 16 and not 0. The kernel's umad layer replaces
/// the high bits. A request has another number each time it is sent: the umad layer refuses a request with the
/// number of one that waits for its answer, and delivers late answers to an earlier try.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TransactionId(pub u32);

/// The queue of requests is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("too many requests to the subnet administrator wait")]
pub struct Full;

/// What a client reports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A transaction ended.
    Answered {
        /// The transaction.
        id: TransactionId,
        /// The answer.
        result: Result<Response, Failure>,
    },
    /// The SA sent a Report. The client has answered.
    Reported(Notice),
}

#[derive(Debug)]
struct Transaction {
    request: Request,
    /// Tries so far, since the last [`Client::renew`].
    tries: u32,
    /// How often it was sent.
    sends: u32,
    /// When the next try is due; `None` while the request waits for a place in flight.
    deadline: Option<Instant>,
    /// The request is in the queue of datagrams to send.
    to_send: bool,
    /// The failure to report if no more tries are left.
    failure: Failure,
    /// Puts a long answer together.
    receiver: Option<Box<Receiver>>,
}

#[derive(Debug)]
enum Outgoing {
    Request(TransactionId),
    Reply(Box<[u8; MAD_LEN]>),
}

/// The client.
#[derive(Debug)]
pub struct Client {
    config: ClientConfig,
    random: Random,
    last_id: u32,
    open: BTreeMap<TransactionId, Transaction>,
    /// Requests in flight, by the time of the next try.
    timers: BTreeSet<(Instant, TransactionId)>,
    /// Requests that wait for a place in flight; ids of cancelled ones are skipped.
    waiting: VecDeque<TransactionId>,
    outgoing: VecDeque<Outgoing>,
    replies: usize,
    /// The last complete transfers: a sender whose acknowledgement was lost repeats its segments.
    finished: VecDeque<(u64, Box<Receiver>)>,
    events: VecDeque<Event>,
    reports: usize,
    counts: Counts,
}

impl Client {
    /// Creates a client without requests.
    pub fn new(config: ClientConfig) -> Client {
        let mut random = Random::new(config.seed);
        let last_id = random.next() as u32;
        Client {
            config,
            random,
            last_id,
            open: BTreeMap::new(),
            timers: BTreeSet::new(),
            waiting: VecDeque::new(),
            outgoing: VecDeque::new(),
            replies: 0,
            finished: VecDeque::new(),
            events: VecDeque::new(),
            reports: 0,
            counts: Counts::default(),
        }
    }

    /// Sends a request, as soon as there is a place in flight. [`Event::Answered`] follows, unless
    /// [`Client::cancel`] comes first.
    ///
    /// # Errors
    /// [`Full`]
    pub fn ask(&mut self, now: Instant, request: Request) -> Result<TransactionId, Full> {
        let places = self.config.in_flight_max.max(1);
        if self.timers.len() >= places && self.waiting.len() >= self.config.queue_max {
            self.counts.queue_full += 1;
            return Err(Full);
        }
        let id = self.new_id();
        let transaction = Transaction {
            request,
            tries: 0,
            sends: 0,
            deadline: None,
            to_send: false,
            failure: Failure::Timeout,
            receiver: None,
        };
        self.open.insert(id, transaction);
        self.waiting.push_back(id);
        self.fill(now);
        Ok(id)
    }

    /// Forgets a request: no event follows, and answers are ignored. The SA may have received it.
    pub fn cancel(&mut self, now: Instant, id: TransactionId) {
        if let Some(transaction) = self.remove(id) {
            if let Some(mut receiver) = transaction.receiver {
                self.reply(Box::new(receiver.time_out()));
            }
            self.waiting.retain(|w| *w != id);
            self.fill(now);
        }
        self.events
            .retain(|e| !matches!(e, Event::Answered { id: of, .. } if *of == id));
    }

    /// Sends all requests in flight again, within half of the first timeout, with all their tries: the
    /// subnet manager has changed, and an answer to an earlier try may never come.
    pub fn renew(&mut self, now: Instant) {
        let ids: Vec<TransactionId> = self.timers.iter().map(|(_, id)| *id).collect();
        let spread = self.config.first_timeout / 2;
        for id in ids {
            let wait = self.jitter(spread);
            if let Some(transaction) = self.open.get_mut(&id) {
                transaction.tries = 0;
                transaction.failure = Failure::Timeout;
                transaction.receiver = None;
            }
            self.set_deadline(id, now.after(wait));
        }
        self.finished.clear();
    }

    /// Takes a received datagram: 256 bytes, or more or fewer if the kernel put segments together. Then
    /// the headers of the first segment stand before all records. Other datagrams are counted.
    pub fn receive(&mut self, now: Instant, mad: &[u8]) {
        let Some(received) = Received::parse(mad) else {
            self.counts.malformed += 1;
            return;
        };
        match received.header.method {
            method::REPORT => self.report(&received),
            m if m & method::RESPONSE != 0 => self.answer(now, &received, mad),
            _ => self.counts.malformed += 1,
        }
    }

    /// The next datagram to send to QP1 of the subnet manager's port.
    pub fn poll_transmit(&mut self) -> Option<[u8; MAD_LEN]> {
        loop {
            match self.outgoing.pop_front()? {
                Outgoing::Reply(reply) => {
                    self.replies -= 1;
                    return Some(*reply);
                }
                Outgoing::Request(id) => {
                    let Some(transaction) = self.open.get_mut(&id) else {
                        continue;
                    };
                    if std::mem::take(&mut transaction.to_send) {
                        let sent = id.0 | (transaction.sends % SENDS);
                        return Some(transaction.request.datagram(u64::from(sent)));
                    }
                }
            }
        }
    }

    /// How long a carrier delivers answers to a datagram of [`Client::poll_transmit`]: until the last try of
    /// the request has ended, because a late answer to an earlier try is an answer. Zero if no answer
    /// follows. Each try has a transaction id of its own.
    pub fn patience(&self, mad: &[u8; MAD_LEN]) -> Duration {
        if mad[3] & method::RESPONSE != 0 {
            return Duration::ZERO;
        }
        let waits = (0..self.config.tries.max(1)).map(|tries| self.shortest_wait(tries));
        waits.sum::<Duration>() * 5 / 4
    }

    /// The next event, in order of occurrence.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        if matches!(event, Event::Reported(_)) {
            self.reports -= 1;
        }
        Some(event)
    }

    /// When to call [`Client::handle_timeout`] next.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Sends requests again whose answer is late, and ends those without further tries.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(&(at, id)) = self.timers.first() {
            if at > now {
                break;
            }
            let tries = self.config.tries.max(1);
            let late = self.open.get_mut(&id).and_then(|t| t.receiver.take());
            if let Some(mut receiver) = late {
                self.reply(Box::new(receiver.time_out()));
                self.aborted(now, id, TOTAL_TIME_TOO_LONG);
                continue;
            }
            match self.open.get(&id) {
                Some(transaction) if transaction.tries < tries => self.send(now, id),
                Some(transaction) => {
                    let failure = transaction.failure;
                    if failure == Failure::Timeout {
                        self.counts.timed_out += 1;
                    }
                    self.end(now, id, Err(failure));
                }
                // Every timer has its transaction.
                None => {
                    self.timers.remove(&(at, id));
                }
            }
        }
    }

    /// Number of open requests: in flight, and waiting for a place.
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// The counters.
    pub const fn counts(&self) -> &Counts {
        &self.counts
    }

    fn answer(&mut self, now: Instant, received: &Received<'_>, mad: &[u8]) {
        let id = TransactionId(received.header.transaction_id.get() as u32 & !(SENDS - 1));
        let Some(transaction) = self.open.get_mut(&id).filter(|t| t.deadline.is_some()) else {
            if !self.repeated(now, received, mad) {
                self.counts.unmatched += 1;
            }
            return;
        };
        let request = &transaction.request;
        let attribute = received.header.attribute_id.get();
        if (received.header.method, attribute) != (request.answer_method(), request.attribute) {
            self.counts.malformed += 1;
            return;
        }
        let status = received.header.status.get();
        if status & 0xff == status::BUSY {
            self.counts.busy += 1;
            transaction.failure = Failure::Status(status);
            // The next try is due when an answer would be late.
            return;
        }
        if status == 0 && self.config.own_rmpp && received.is_segment() {
            return self.segment(now, id, received, mad);
        }
        let result = if status == 0 {
            received.response().map_err(Failure::Malformed)
        } else {
            Err(Failure::Status(status))
        };
        self.answered(now, id, result);
    }

    fn answered(&mut self, now: Instant, id: TransactionId, result: Result<Response, Failure>) {
        match &result {
            Ok(_) => self.counts.answered += 1,
            Err(_) => self.counts.refused += 1,
        }
        self.end(now, id, result);
    }

    /// A segment of a long answer, or the end of its transfer.
    fn segment(&mut self, now: Instant, id: TransactionId, received: &Received<'_>, mad: &[u8]) {
        let Ok(mad) = <&[u8; MAD_LEN]>::try_from(mad) else {
            self.counts.malformed += 1;
            return;
        };
        let Some(transaction) = self.open.get_mut(&id) else {
            return;
        };
        let mut receiver = match transaction.receiver.take() {
            Some(receiver) => receiver,
            None => match Receiver::new(now, mad, SEGMENTS_MAX) {
                Some(receiver) => Box::new(receiver),
                None => return,
            },
        };
        let step = receiver.receive(now, mad);
        // A table beyond our own limit is as long at the next try.
        let too_long = step.reply.is_some() && step.end == Some(Err(TOO_LONG));
        match step.end {
            None => {
                // The answer is on its way: the request must not be sent again.
                let deadline = receiver.deadline();
                transaction.receiver = Some(receiver);
                self.set_deadline(id, deadline);
            }
            Some(Ok(data)) => {
                if self.finished.len() >= FINISHED_MAX {
                    self.finished.pop_front();
                }
                let tid = received.header.transaction_id.get();
                self.finished.push_back((tid, receiver));
                let result = received.table(data, false).map_err(Failure::Malformed);
                self.answered(now, id, result);
            }
            Some(Err(status)) if too_long => {
                self.counts.aborted += 1;
                self.end(now, id, Err(Failure::Aborted(status)));
            }
            Some(Err(status)) => self.aborted(now, id, status),
        }
        if let Some(reply) = step.reply {
            self.reply(Box::new(reply));
        }
    }

    /// The transfer of an answer ended with an error: the request is sent again after a wait.
    fn aborted(&mut self, now: Instant, id: TransactionId, status: u8) {
        self.counts.aborted += 1;
        let Some(transaction) = self.open.get_mut(&id) else {
            return;
        };
        transaction.receiver = None;
        transaction.failure = Failure::Aborted(status);
        let tries = transaction.tries;
        let wait = self.wait(tries);
        self.set_deadline(id, now.after(wait));
    }

    /// A repeated segment of a complete transfer: true if there is such a transfer.
    fn repeated(&mut self, now: Instant, received: &Received<'_>, mad: &[u8]) -> bool {
        let tid = received.header.transaction_id.get();
        let Some((_, receiver)) = self.finished.iter_mut().find(|(of, _)| *of == tid) else {
            return false;
        };
        let Ok(mad) = mad.try_into() else {
            return false;
        };
        let step = receiver.receive(now, mad);
        if let Some(reply) = step.reply {
            self.reply(Box::new(reply));
        }
        true
    }

    /// Answers a Report; without room for the event or the answer, the SA must send it again.
    fn report(&mut self, received: &Received<'_>) {
        let notice = Notice::parse(received.data)
            .filter(|_| received.header.attribute_id.get() == sa::NOTICE);
        let Some(notice) = notice else {
            self.counts.malformed += 1;
            return;
        };
        if self.reports >= REPORTS_MAX || self.replies >= REPLIES_MAX {
            self.counts.reports_dropped += 1;
            return;
        }
        self.counts.reports += 1;
        self.reports += 1;
        self.events.push_back(Event::Reported(notice));
        let mut header = received.header;
        header.method = method::REPORT_RESP;
        header.status = 0.into();
        let data = received.data.get(..Notice::LEN).unwrap_or_default();
        self.reply(Box::new(datagram(&header, &received.head, data)));
    }

    /// Queues a reply. Without room the reply is dropped, like a datagram lost on the way.
    fn reply(&mut self, reply: Box<[u8; MAD_LEN]>) {
        if self.replies >= REPLIES_MAX {
            return;
        }
        self.replies += 1;
        self.outgoing.push_back(Outgoing::Reply(reply));
    }

    /// Brings waiting requests into flight.
    fn fill(&mut self, now: Instant) {
        while self.timers.len() < self.config.in_flight_max.max(1) {
            let Some(id) = self.waiting.pop_front() else {
                return;
            };
            self.send(now, id);
        }
    }

    /// Sends a request for the first time or again.
    fn send(&mut self, now: Instant, id: TransactionId) {
        let Some(transaction) = self.open.get_mut(&id) else {
            return;
        };
        if transaction.deadline.is_none() {
            self.counts.requests += 1;
        } else {
            self.counts.retries += 1;
        }
        let tries = transaction.tries;
        transaction.tries += 1;
        transaction.sends = transaction.sends.wrapping_add(1);
        transaction.failure = Failure::Timeout;
        if !std::mem::replace(&mut transaction.to_send, true) {
            self.outgoing.push_back(Outgoing::Request(id));
        }
        let wait = self.wait(tries);
        self.set_deadline(id, now.after(wait));
    }

    /// The wait before the next try after `tries` earlier ones.
    fn wait(&mut self, tries: u32) -> Duration {
        let wait = self.shortest_wait(tries);
        wait + self.jitter(wait / 4)
    }

    fn shortest_wait(&self, tries: u32) -> Duration {
        let first = self.config.first_timeout.as_nanos() as u64;
        Duration::from_nanos(doubled(first, tries, LONGEST.as_nanos() as u64))
    }

    fn end(&mut self, now: Instant, id: TransactionId, result: Result<Response, Failure>) {
        if self.remove(id).is_some() {
            self.events.push_back(Event::Answered { id, result });
            self.fill(now);
        }
    }

    fn remove(&mut self, id: TransactionId) -> Option<Transaction> {
        let transaction = self.open.remove(&id)?;
        if let Some(at) = transaction.deadline {
            self.timers.remove(&(at, id));
        }
        if transaction.to_send {
            self.outgoing
                .retain(|o| !matches!(o, Outgoing::Request(of) if *of == id));
        }
        Some(transaction)
    }

    fn set_deadline(&mut self, id: TransactionId, at: Instant) {
        if let Some(transaction) = self.open.get_mut(&id) {
            if let Some(old) = transaction.deadline.replace(at) {
                self.timers.remove(&(old, id));
            }
            self.timers.insert((at, id));
        }
    }

    fn jitter(&mut self, most: Duration) -> Duration {
        Duration::from_nanos(self.random.below(most.as_nanos() as u64))
    }

    /// An unused transaction id, one after the last.
    fn new_id(&mut self) -> TransactionId {
        loop {
            self.last_id = self.last_id.wrapping_add(SENDS);
            let id = TransactionId(self.last_id & !(SENDS - 1));
            if id.0 != 0 && !self.open.contains_key(&id) {
                return id;
            }
        }
    }
}
