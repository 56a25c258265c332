//! The send queue: posted messages, the position of each packet, and packet headers.
//!
//! A position counts packets since the queue pair's start; the PSN is the first PSN plus the position
//! modulo 2^24. Posting assigns positions, so a packet sent again is the same packet.

use std::collections::VecDeque;

use proto::{PKey, Psn, Qpn};
use zerocopy::IntoBytes;
use zerocopy::big_endian::U16;

use super::buffer::HEAD;
use super::reply::{ACK_LEN, Ack};
use super::types::{Packets, SendRequest};
use super::{Layout, SendBuffer};
use crate::soft::train;
use crate::soft::wire::{Bth, ICRC_LEN, opcode, pad_count};

/// The longest message (IBA vol. 1, 9.7.7).
const MESSAGE_MAX: usize = 1 << 31;

/// The destination of packets and their sizes.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// The P_Key of packets.
    pub pkey: PKey,
    /// The peer's queue pair.
    pub dest_qpn: Qpn,
    /// Payload bytes of one packet.
    pub mtu: usize,
    /// Maximum UDP payload bytes of one send.
    pub run_max: usize,
}

/// A posted request.
#[derive(Debug)]
pub struct Posted {
    /// The request.
    pub request: SendRequest,
    /// The position of the first packet.
    pub first: u64,
    /// The number of the first message.
    pub ssn: u32,
}

impl Posted {
    fn count(&self) -> u64 {
        self.request.buffer.ticket.count as u64
    }

    /// The position after the last packet.
    pub fn end(&self) -> u64 {
        self.first + self.count()
    }

    /// Number of messages.
    pub fn messages(&self) -> u64 {
        match self.request.buffer.layout {
            Layout::Message => 1,
            Layout::Messages => self.count(),
        }
    }

    /// Payload bytes.
    pub fn bytes(&self) -> u64 {
        let ticket = self.request.buffer.ticket;
        ((ticket.count - 1) * ticket.payload + ticket.last) as u64
    }

    /// Number of contiguous packets from position `at` on: all except a last one with immediate data,
    /// which is longer than its place.
    fn side_by_side(&self, at: u64) -> u64 {
        let apart = u64::from(self.request.immediate.is_some());
        (self.end() - apart).saturating_sub(at)
    }

    fn opcode(&self, at: u64) -> u8 {
        let is_last = at + 1 == self.end();
        let immediate = is_last && self.request.immediate.is_some();
        let only = self.request.buffer.layout == Layout::Messages || self.count() == 1;
        match (only, at == self.first, is_last, immediate) {
            (true, _, _, false) => opcode::RC_SEND_ONLY,
            (true, _, _, true) => opcode::RC_SEND_ONLY_IMM,
            (false, true, _, _) => opcode::RC_SEND_FIRST,
            (false, false, false, _) => opcode::RC_SEND_MIDDLE,
            (false, false, true, false) => opcode::RC_SEND_LAST,
            (false, false, true, true) => opcode::RC_SEND_LAST_IMM,
        }
    }

    fn ends_message(&self, at: u64) -> bool {
        at + 1 == self.end() || self.request.buffer.layout == Layout::Messages
    }
}

/// Packets to send together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// The position of the first.
    pub start: u64,
    /// Number of packets.
    pub count: u64,
    /// The number of packets without the limit of [`SendQueue::run`].
    pub ideal: u64,
}

/// Which packets request an acknowledgement: the ends of messages, to which the peer may delay the
/// answer, and packets inside messages before the window is full.
#[derive(Clone, Copy, Debug)]
pub struct Asks {
    /// The position after the last packet that requested one inside a message.
    pub until: u64,
    /// Maximum distance of such packets.
    pub every: u64,
    /// The packets are sent again: the first and the last request one, too.
    pub again: bool,
}

impl Asks {
    fn at(&mut self, run: &Run, at: u64, is_end: bool) -> bool {
        let edge = self.again && (at == run.start || at + 1 == run.start + run.count);
        let inside = !is_end && (at + 1).saturating_sub(self.until) >= self.every;
        if inside {
            self.until = at + 1;
        }
        is_end || edge || inside
    }
}

/// Posted requests that are not completely acknowledged.
#[derive(Debug, Default)]
pub struct SendQueue {
    posted: VecDeque<Posted>,
    /// The PSN of position 0.
    origin: Psn,
    end: u64,
    /// The number of the last message.
    ssn: u32,
    /// A packet that is longer than its place.
    scratch: Vec<u8>,
}

impl SendQueue {
    /// Creates an empty queue; position 0 has the PSN `origin`.
    pub fn new(origin: Psn) -> SendQueue {
        SendQueue {
            origin,
            ..SendQueue::default()
        }
    }

    /// The position after the last posted packet.
    pub const fn end(&self) -> u64 {
        self.end
    }

    /// The PSN of a position.
    pub const fn psn(&self, at: u64) -> Psn {
        self.origin.advance((at & 0xff_ffff) as u32)
    }

    /// Appends a request.
    ///
    /// # Errors
    /// The request, if a message in it is longer than 2^31 bytes, the buffer is empty, or its packets
    /// are not cut for `mtu` bytes.
    pub fn post(&mut self, request: SendRequest, mtu: usize) -> Result<(), SendRequest> {
        if !is_well_cut(&request.buffer, mtu) {
            return Err(request);
        }
        let posted = Posted {
            first: self.end,
            ssn: self.ssn.wrapping_add(1) & 0xff_ffff,
            request,
        };
        self.end = posted.end();
        self.ssn = self.ssn.wrapping_add(posted.messages() as u32) & 0xff_ffff;
        self.posted.push_back(posted);
        Ok(())
    }

    /// The request that position `at` belongs to.
    pub fn find(&self, at: u64) -> Option<&Posted> {
        let index = self.posted.partition_point(|posted| posted.end() <= at);
        self.posted.get(index)
    }

    /// Removes the oldest request if all its packets lie before position `acknowledged`.
    pub fn complete(&mut self, acknowledged: u64) -> Option<Posted> {
        if self.posted.front()?.end() > acknowledged {
            return None;
        }
        self.posted.pop_front()
    }

    /// Removes the oldest request.
    pub fn pop(&mut self) -> Option<Posted> {
        self.posted.pop_front()
    }

    /// Releases memory that an idle queue does not need.
    pub fn trim(&mut self) {
        self.posted.shrink_to(1);
        self.scratch = Vec::new();
    }

    /// Allocated bytes.
    #[cfg(test)]
    pub fn heap_bytes(&self) -> usize {
        self.posted.capacity() * size_of::<Posted>() + self.scratch.capacity()
    }

    /// Whether [`SendQueue::trim`] would release memory.
    pub fn is_roomy(&self) -> bool {
        self.posted.capacity() > 4 || self.scratch.capacity() > 0
    }

    /// The run from position `start` on: as many contiguous packets as possible, at most `limit`. Long
    /// messages are cut into equal runs.
    pub fn run(&self, start: u64, limit: u64, path: &Path) -> Option<Run> {
        let posted = self.find(start)?;
        let beside = posted.side_by_side(start);
        let per_run = train_capacity(posted.request.buffer.stride(), path.run_max);
        let ideal = match beside {
            0 => 1,
            n => n.div_ceil(n.div_ceil(per_run)),
        };
        let count = ideal.min(limit);
        (count > 0).then_some(Run {
            start,
            count,
            ideal,
        })
    }

    /// Writes the headers of a run's packets. Appends `rider`, an acknowledgement for the same peer, if a
    /// run with a shorter last packet may have it.
    pub fn write(
        &mut self,
        run: Run,
        asks: &mut Asks,
        rider: Option<&Ack>,
        path: &Path,
    ) -> Option<Packets<'_>> {
        let origin = self.origin;
        let index = self
            .posted
            .partition_point(|posted| posted.end() <= run.start);
        let posted = self.posted.get_mut(index)?;
        let mut header = |posted: &Posted, at: u64| {
            let is_end = posted.ends_message(at);
            let asks = asks.at(&run, at, is_end);
            let solicited = posted.request.solicited && at + 1 == posted.end();
            let len = posted
                .request
                .buffer
                .payload_len((at - posted.first) as usize);
            let psn = origin.advance((at & 0xff_ffff) as u32).get().to_be_bytes();
            Bth {
                opcode: posted.opcode(at),
                flags: if solicited { Bth::SOLICITED } else { 0 } | pad_count(len) << 4,
                pkey: U16::new(path.pkey.get()),
                fecn_becn: 0,
                dest_qp: path.dest_qpn.to_bytes(),
                ack_req: if asks { Bth::ACK_REQ } else { 0 },
                psn: [psn[1], psn[2], psn[3]],
            }
        };
        if posted.side_by_side(run.start) == 0 {
            let bth = header(posted, run.start);
            let memory = with_immediate(&mut self.scratch, posted, run.start, &bth);
            return Some(Packets {
                stride: memory.len(),
                memory,
                count: 1,
                carries: false,
            });
        }
        let stride = posted.request.buffer.stride();
        let from = (run.start - posted.first) as usize;
        for k in 0..run.count {
            let bth = header(posted, run.start + k);
            let place = (from + k as usize) * stride;
            let len = posted.request.buffer.payload_len(from + k as usize);
            let packet = &mut posted.request.buffer.memory[place..];
            packet[..HEAD].copy_from_slice(bth.as_bytes());
            packet[HEAD + len..][..usize::from(pad_count(len))].fill(0);
        }
        let count = run.count as usize;
        let last = posted.request.buffer.payload_len(from + count - 1);
        let end = (from + count - 1) * stride + SendBuffer::packet_len(last);
        // Behind the request's last packet, nothing is overwritten.
        let rider = rider.filter(|_| {
            run.start + run.count == posted.end()
                && end == (from + count) * stride
                && stride >= ACK_LEN
                && count < train::PACKETS_MAX
                && count * stride + ACK_LEN <= path.run_max
        });
        let memory = &mut posted.request.buffer.memory[from * stride..];
        let mut len = end - from * stride;
        let room = memory.get_mut(len..len + ACK_LEN);
        let carries = rider.zip(room).map(|(ack, room)| room.copy_from_slice(ack));
        if carries.is_some() {
            len += ACK_LEN;
        }
        Some(Packets {
            memory: &mut memory[..len],
            stride,
            count: count + usize::from(carries.is_some()),
            carries: carries.is_some(),
        })
    }
}

/// Builds the last packet of a request with immediate data.
fn with_immediate<'a>(
    scratch: &'a mut Vec<u8>,
    posted: &Posted,
    at: u64,
    bth: &Bth,
) -> &'a mut [u8] {
    let buffer = &posted.request.buffer;
    let k = (at - posted.first) as usize;
    let place = k * buffer.stride() + HEAD;
    let payload = &buffer.memory[place..place + buffer.payload_len(k)];
    scratch.clear();
    scratch.extend_from_slice(bth.as_bytes());
    scratch.extend_from_slice(&posted.request.immediate.unwrap_or_default());
    scratch.extend_from_slice(payload);
    let tail = usize::from(pad_count(payload.len())) + ICRC_LEN;
    scratch.resize(scratch.len() + tail, 0);
    scratch
}

/// Number of packets of `stride` bytes in a send of `run_max` bytes, at least one.
fn train_capacity(stride: usize, run_max: usize) -> u64 {
    (run_max / stride).clamp(1, train::PACKETS_MAX) as u64
}

/// Whether the ticket fits the buffer and the packets fit a path of `mtu`.
fn is_well_cut(buffer: &SendBuffer, mtu: usize) -> bool {
    let ticket = buffer.ticket;
    let (payload, last) = (ticket.payload, ticket.last);
    if ticket.count == 0 || payload > mtu || last > payload {
        return false;
    }
    if buffer.layout == Layout::Message && ticket.count > 1 {
        let length = (ticket.count - 1)
            .checked_mul(payload)
            .and_then(|bytes| bytes.checked_add(last));
        if payload != mtu || last == 0 || length.is_none_or(|bytes| bytes > MESSAGE_MAX) {
            return false;
        }
    }
    (ticket.count - 1)
        .checked_mul(buffer.stride())
        .and_then(|bytes| bytes.checked_add(SendBuffer::packet_len(last)))
        .is_some_and(|bytes| bytes <= buffer.memory.len())
}
