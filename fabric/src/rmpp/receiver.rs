//! Putting the segments of one transfer together.

use std::collections::BTreeMap;
use std::time::Duration;

use proto::Instant;

use super::{PAYLOAD_MAX, SA_HEADER_LEN, VERSION, flag, kind, reply, status};
use crate::mad::sa::DATA_LEN;
use crate::mad::{Header, MAD_LEN, Mad, SaHeader};

/// Segments by which an acknowledgement opens the window: as many as Linux's.
const WINDOW: u32 = 64;

/// The longest time without a new segment. A sender repeats segments after two seconds.
const IDLE: Duration = Duration::from_secs(6);

/// The longest time of a transfer.
const TOTAL: Duration = Duration::from_secs(60);

/// What the receiver wants after a segment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Step {
    /// A datagram to send to the source of the segment.
    pub reply: Option<[u8; MAD_LEN]>,
    /// The end of the transfer: all records, or an RMPP status. The receiver takes no more segments,
    /// except to acknowledge repeated ones.
    pub end: Option<Result<Vec<u8>, u8>>,
}

/// The receiver of one transfer. It holds at most `segments_max` segments of 200 bytes.
#[derive(Debug)]
pub struct Receiver {
    segments_max: u32,
    /// Headers of the last segment, for replies.
    headers: (Header, SaHeader),
    /// Records of the segments 1 to `received`.
    data: Vec<u8>,
    received: u32,
    /// Segments behind a gap, at most [`WINDOW`].
    held: BTreeMap<u32, [u8; DATA_LEN]>,
    /// The last segment that the sender may send.
    window_last: u32,
    /// The last segment acknowledged.
    acknowledged: u32,
    /// Number of the last segment, and the bytes of records in it.
    last: Option<(u32, usize)>,
    ended: bool,
    idle: Instant,
    total: Instant,
}

impl Receiver {
    /// Creates the receiver of the transfer to which `mad` belongs; pass `mad` to
    /// [`Receiver::receive`], too. `None` if `mad` is no datagram of subnet administration.
    pub fn new(now: Instant, mad: &[u8; MAD_LEN], segments_max: u32) -> Option<Receiver> {
        let parsed = Mad::parse(mad).ok()?;
        let (head, _) = parsed.subnet_administration()?;
        Some(Receiver {
            segments_max,
            headers: (parsed.header, head),
            data: Vec::new(),
            received: 0,
            held: BTreeMap::new(),
            window_last: 1,
            acknowledged: 0,
            last: None,
            ended: false,
            idle: now.after(IDLE),
            total: now.after(TOTAL),
        })
    }

    /// Takes a segment of the transfer. Datagrams of other classes are ignored.
    pub fn receive(&mut self, now: Instant, mad: &[u8; MAD_LEN]) -> Step {
        let Ok(parsed) = Mad::parse(mad) else {
            return Step::default();
        };
        let Some((head, records)) = parsed.subnet_administration() else {
            return Step::default();
        };
        self.headers = (parsed.header, head);
        if self.ended {
            return self.again(&head);
        }
        if head.rmpp_version != VERSION {
            return self.give_up(status::UNSUPPORTED_VERSION);
        }
        match head.rmpp_type {
            kind::DATA => self.segment(now, &head, records),
            // For the sender of the other direction.
            kind::ACK => Step::default(),
            kind::STOP | kind::ABORT => {
                self.ended = true;
                Step {
                    reply: None,
                    end: Some(Err(head.rmpp_status)),
                }
            }
            _ => self.give_up(status::BAD_TYPE),
        }
    }

    /// When to end the transfer with [`Receiver::time_out`].
    pub fn deadline(&self) -> Instant {
        self.idle.min(self.total)
    }

    /// Ends the transfer; returns the datagram that tells the sender.
    pub fn time_out(&mut self) -> [u8; MAD_LEN] {
        self.ended = true;
        let (header, head) = &self.headers;
        let status = status::TOTAL_TIME_TOO_LONG;
        reply(header, head, kind::ABORT, status, [0; 2])
    }

    /// Bytes of records that the receiver holds.
    pub fn held(&self) -> usize {
        self.data.len() + self.held.len() * DATA_LEN
    }

    fn segment(&mut self, now: Instant, head: &SaHeader, records: &[u8]) -> Step {
        let (number, length) = (head.data1.get(), head.data2.get());
        let first = head.rmpp_flags & flag::FIRST != 0;
        if head.rmpp_status != 0 {
            return self.give_up(status::ILLEGAL_STATUS);
        }
        if number == 0 || first != (number == 1) {
            return self.give_up(status::INCONSISTENT_FIRST);
        }
        if number <= self.received {
            return self.repeated(number);
        }
        if number > self.window_last {
            return Step::default();
        }
        let announced = if first {
            length.div_ceil(PAYLOAD_MAX)
        } else {
            number
        };
        if number > self.segments_max || announced > self.segments_max {
            return self.stop();
        }
        if head.rmpp_flags & flag::LAST != 0 {
            if !(SA_HEADER_LEN..=PAYLOAD_MAX).contains(&length) {
                return self.give_up(status::INCONSISTENT_LENGTH);
            }
            let used = (length - SA_HEADER_LEN) as usize;
            let beyond = self.held.last_key_value().is_some_and(|(n, _)| *n > number);
            if beyond || self.last.is_some_and(|l| l != (number, used)) {
                return self.give_up(status::INCONSISTENT_LENGTH);
            }
            self.last = Some((number, used));
        } else if self.last.is_some_and(|(last, _)| number >= last) {
            return self.give_up(status::INCONSISTENT_LENGTH);
        }
        let Some(segment) = records.first_chunk::<DATA_LEN>() else {
            return Step::default();
        };
        if self.held.insert(number, *segment).is_none() {
            self.idle = now.after(IDLE);
        }
        self.advance()
    }

    /// Takes held segments that are in order now; acknowledges at the end of the window and at the end.
    fn advance(&mut self) -> Step {
        while let Some(segment) = self.held.remove(&(self.received + 1)) {
            self.received += 1;
            self.data.extend_from_slice(&segment);
        }
        if let Some((last, used)) = self.last.filter(|(last, _)| *last == self.received) {
            self.ended = true;
            self.data.truncate((last as usize - 1) * DATA_LEN + used);
            return Step {
                reply: Some(self.acknowledge()),
                end: Some(Ok(std::mem::take(&mut self.data))),
            };
        }
        if self.received < self.window_last {
            return Step::default();
        }
        self.window_last += WINDOW;
        Step {
            reply: Some(self.acknowledge()),
            end: None,
        }
    }

    /// A segment that was received before. If the sender cannot know that it was received, the
    /// acknowledgement was lost.
    fn repeated(&mut self, number: u32) -> Step {
        let lost = number <= self.acknowledged;
        Step {
            reply: lost.then(|| self.acknowledge()),
            end: None,
        }
    }

    /// A datagram after the end: a repeated segment of a complete transfer is acknowledged.
    fn again(&mut self, head: &SaHeader) -> Step {
        let complete = self.last.is_some_and(|(last, _)| last == self.received);
        if complete && head.rmpp_type == kind::DATA {
            return self.repeated(head.data1.get());
        }
        Step::default()
    }

    fn acknowledge(&mut self) -> [u8; MAD_LEN] {
        self.acknowledged = self.received;
        let (header, head) = &self.headers;
        let window = [self.received, self.window_last.max(self.received)];
        reply(header, head, kind::ACK, 0, window)
    }

    fn stop(&mut self) -> Step {
        self.end(kind::STOP, status::RESOURCES_EXHAUSTED)
    }

    fn give_up(&mut self, status: u8) -> Step {
        self.end(kind::ABORT, status)
    }

    fn end(&mut self, kind: u8, status: u8) -> Step {
        self.ended = true;
        self.data = Vec::new();
        self.held.clear();
        let (header, head) = &self.headers;
        Step {
            reply: Some(reply(header, head, kind, status, [0; 2])),
            end: Some(Err(status)),
        }
    }
}
