//! Sending an answer in segments.

use std::time::Duration;

use proto::Instant;

use super::{PAYLOAD_MAX, SA_HEADER_LEN, VERSION, datagram, flag, kind, reply, status};
use crate::mad::sa::DATA_LEN;
use crate::mad::{Header, MAD_LEN, Mad, SaHeader};

/// The wait for an acknowledgement: as long as Linux's.
const RESPONSE: Duration = Duration::from_secs(2);

/// How often segments are repeated without progress.
const RETRIES: u32 = 5;

/// The sender of one answer.
#[derive(Debug)]
pub struct Sender {
    header: Header,
    head: SaHeader,
    data: Vec<u8>,
    segments: u32,
    /// The last segment that was acknowledged.
    acknowledged: u32,
    /// The next segment to send.
    next: u32,
    /// The last segment ever sent.
    sent: u32,
    window_last: u32,
    retries: u32,
    deadline: Instant,
    /// A datagram that ends the transfer, to be sent.
    farewell: Option<Box<[u8; MAD_LEN]>>,
    end: Option<Result<(), u8>>,
}

impl Sender {
    /// Creates the sender of an answer: its common header, its header of subnet administration (fields
    /// of RMPP are set by the sender) and its records.
    pub fn new(now: Instant, header: Header, head: SaHeader, data: Vec<u8>) -> Sender {
        let segments = u32::try_from(data.len().div_ceil(DATA_LEN)).unwrap_or(u32::MAX);
        Sender {
            header,
            head,
            data,
            segments: segments.max(1),
            acknowledged: 0,
            next: 1,
            sent: 0,
            window_last: 1,
            retries: 0,
            deadline: now.after(RESPONSE),
            farewell: None,
            end: None,
        }
    }

    /// The next datagram to send.
    pub fn poll_transmit(&mut self) -> Option<[u8; MAD_LEN]> {
        if let Some(farewell) = self.farewell.take() {
            return Some(*farewell);
        }
        if self.end.is_some() || self.next > self.window_last.min(self.segments) {
            return None;
        }
        let number = self.next;
        self.next += 1;
        self.sent = self.sent.max(number);
        Some(self.segment(number))
    }

    /// Takes a datagram of the receiver: an acknowledgement, a stop or an abort.
    pub fn receive(&mut self, now: Instant, mad: &[u8]) {
        let Ok(parsed) = Mad::parse(mad) else {
            return;
        };
        let Some((head, _)) = parsed.subnet_administration() else {
            return;
        };
        if self.end.is_some() || head.rmpp_flags & flag::ACTIVE == 0 {
            return;
        }
        match head.rmpp_type {
            kind::ACK => self.acknowledgement(now, head.data1.get(), head.data2.get()),
            kind::STOP | kind::ABORT => self.end = Some(Err(head.rmpp_status)),
            _ => {}
        }
    }

    /// When to call [`Sender::handle_timeout`] next; `None` after the end.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.end.is_none().then_some(self.deadline)
    }

    /// Repeats segments without acknowledgement, or gives up.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.end.is_some() || now < self.deadline {
            return;
        }
        if self.retries >= RETRIES {
            self.give_up(status::TOO_MANY_RETRIES);
            return;
        }
        self.retries += 1;
        self.next = self.acknowledged + 1;
        self.deadline = now.after(RESPONSE);
    }

    /// The end: all segments acknowledged, or an RMPP status. `None` before the end.
    pub const fn end(&self) -> Option<Result<(), u8>> {
        self.end
    }

    fn acknowledgement(&mut self, now: Instant, segment: u32, window_last: u32) {
        if window_last < segment {
            return self.give_up(status::WINDOW_TOO_SMALL);
        }
        if segment > self.sent {
            return self.give_up(status::SEGMENT_TOO_BIG);
        }
        if segment < self.acknowledged || window_last < self.window_last {
            return;
        }
        if segment > self.acknowledged || window_last > self.window_last {
            self.retries = 0;
            self.deadline = now.after(RESPONSE);
        }
        self.acknowledged = segment;
        self.window_last = window_last;
        self.next = self.next.max(segment + 1);
        if segment == self.segments {
            self.end = Some(Ok(()));
        }
    }

    fn give_up(&mut self, status: u8) {
        self.end = Some(Err(status));
        let mut header = self.header;
        // A reply inverts the bit; this datagram has the direction of the answer.
        header.method ^= crate::mad::method::RESPONSE;
        let abort = reply(&header, &self.head, kind::ABORT, status, [0; 2]);
        self.farewell = Some(Box::new(abort));
    }

    fn segment(&self, number: u32) -> [u8; MAD_LEN] {
        let at = (number as usize - 1) * DATA_LEN;
        let rest = self.data.get(at..).unwrap_or_default();
        let records = rest.get(..DATA_LEN).unwrap_or(rest);
        let (first, last) = (number == 1, number == self.segments);
        let in_this = u32::try_from(records.len()).map_or(PAYLOAD_MAX, |n| SA_HEADER_LEN + n);
        let length = match (first, last) {
            (_, true) => in_this,
            (true, false) => self.total(),
            (false, false) => 0,
        };
        let mut head = self.head;
        head.rmpp_version = VERSION;
        head.rmpp_type = kind::DATA;
        head.rmpp_flags = head.rmpp_flags & 0xf8
            | flag::ACTIVE
            | (u8::from(first) * flag::FIRST)
            | (u8::from(last) * flag::LAST);
        head.rmpp_status = 0;
        head.data1 = number.into();
        head.data2 = length.into();
        datagram(&self.header, &head, records)
    }

    /// The payload length of all segments: each has the header of subnet administration.
    fn total(&self) -> u32 {
        let full = u64::from(self.segments) * u64::from(PAYLOAD_MAX);
        let padding = self.segments as usize * DATA_LEN - self.data.len();
        u32::try_from(full - padding as u64).unwrap_or(u32::MAX)
    }
}
