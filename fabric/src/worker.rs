//! The data side of a fabric port: one [`Worker`] for each data thread.
//!
//! Receiving: [`Worker::poll`] gives a [`Batch`] of datagrams that lie in the provider's memory;
//! letting go of the batch gives the memory back. Sending: [`Worker::train`] lends memory for
//! equal-sized packets side by side, the caller fills in the payloads, [`Worker::send`] sends them.

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;

use proto::{AddressHandle, ConnectionId, EndpointId, Gid, Instant, PKey, QKey, Qpn};

use crate::connection::Connections;
use crate::memory::ReceiveMemory;

/// What an address handle is made from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AhAttributes {
    /// The destination, unicast or multicast.
    pub dgid: Gid,
    /// Traffic class: a DSCP in the upper six bits. The lower two are the provider's (ECN).
    pub traffic_class: u8,
    /// Hop limit; 0 means that the provider chooses.
    pub hop_limit: u8,
}

impl AhAttributes {
    /// To `dgid`, with the provider's defaults.
    pub const fn to(dgid: Gid) -> AhAttributes {
        AhAttributes {
            dgid,
            traffic_class: 0,
            hop_limit: 0,
        }
    }
}

/// The destination of a train.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UdDestination {
    /// Below the queue pair.
    pub ah: AddressHandle,
    /// The queue pair; [`Qpn::MULTICAST`] for a group.
    pub qpn: Qpn,
    /// The remote Q_Key. With bit 31 set the endpoint's own is sent instead.
    pub qkey: QKey,
}

/// One received datagram of a [`Batch`].
#[derive(Clone, Debug)]
pub struct UdReceived {
    /// Who received it.
    pub endpoint: EndpointId,
    /// The sender's queue pair (DETH).
    pub src_qpn: Qpn,
    /// The sender's GID. Without a GRH (InfiniBand unicast) the provider gives what it knows.
    pub src_gid: Gid,
    /// The destination GID: the MGID of a multicast. With unicast copies (a list of peers) it is
    /// the port's own GID and `multicast` is set: the device takes the group from the payload.
    pub dst_gid: Gid,
    /// Sent to [`Qpn::MULTICAST`].
    pub multicast: bool,
    /// The P_Key in the packet.
    pub pkey: PKey,
    /// The device found the checksums of the IP packet in it right: that of an IPv4 header, and TCP's or
    /// UDP's. False where it did not look.
    pub checksum_ok: bool,
    /// For providers: where the payload lies in the batch's memory.
    pub range: Range<usize>,
}

/// One received message of a [`Batch`].
#[derive(Clone, Debug)]
pub struct RcReceived {
    /// Who received it.
    pub endpoint: EndpointId,
    /// Over which connection.
    pub connection: ConnectionId,
    /// Immediate data, as it came.
    pub immediate: Option<[u8; 4]>,
    /// Payload bytes.
    pub len: usize,
    /// For providers: its parts in the batch's list.
    pub parts: Range<usize>,
}

/// For providers: where a piece of a message lies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Part {
    /// Where the network put it.
    Arrived(Range<usize>),
    /// In a receive buffer, since the rest came later.
    Kept(Range<usize>),
}

/// The payload of a message: a gather list, in order. A message that came in one packet has one
/// part; one that came in many has up to one for each packet.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    arrived: ReceiveMemory<'a>,
    kept: ReceiveMemory<'a>,
    parts: &'a [Part],
}

impl<'a> Message<'a> {
    /// For providers: `parts` lie in `arrived`, the batch's memory, and in `kept`.
    pub(crate) const fn new(arrived: &'a [u8], kept: &'a [u8], parts: &'a [Part]) -> Message<'a> {
        Message {
            arrived: ReceiveMemory::Slice(arrived),
            kept: ReceiveMemory::Slice(kept),
            parts,
        }
    }

    /// The parts in order; none is empty.
    pub fn parts(self) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone + use<'a> {
        self.parts.iter().map(move |part| match part {
            Part::Arrived(range) => self.arrived.bytes(range),
            Part::Kept(range) => self.kept.bytes(range),
        })
    }
}

/// What one poll found. Holds the provider's receive memory; dropping it gives the memory back.
#[derive(Debug)]
pub struct Batch<'a> {
    memory: ReceiveMemory<'a>,
    received: &'a [UdReceived],
    kept: ReceiveMemory<'a>,
    messages: &'a [RcReceived],
    parts: &'a [Part],
}

impl<'a> Batch<'a> {
    /// For providers: datagrams whose ranges lie in `memory`.
    pub fn new(memory: impl Into<ReceiveMemory<'a>>, received: &'a [UdReceived]) -> Batch<'a> {
        Batch {
            memory: memory.into(),
            received,
            kept: ReceiveMemory::Slice(&[]),
            messages: &[],
            parts: &[],
        }
    }

    /// For providers: with messages whose parts lie in `memory` and in `kept`.
    pub fn with_messages(
        self,
        kept: impl Into<ReceiveMemory<'a>>,
        messages: &'a [RcReceived],
        parts: &'a [Part],
    ) -> Batch<'a> {
        Batch {
            kept: kept.into(),
            messages,
            parts,
            ..self
        }
    }

    /// The messages with their payloads; those of one connection in order.
    pub fn messages(
        &self,
    ) -> impl ExactSizeIterator<Item = (&'a RcReceived, Message<'a>)> + use<'a> {
        let (arrived, kept, parts) = (self.memory, self.kept, self.parts);
        self.messages.iter().map(move |m| {
            let parts = &parts[m.parts.clone()];
            (
                m,
                Message {
                    arrived,
                    kept,
                    parts,
                },
            )
        })
    }

    /// The datagrams with their payloads, in order of arrival. A UD payload has one part.
    pub fn datagrams(&self) -> impl ExactSizeIterator<Item = (&'a UdReceived, &'a [u8])> + use<'a> {
        let memory = self.memory;
        self.received
            .iter()
            .map(move |r| (r, memory.bytes(&r.range)))
    }

    /// Whether nothing was received.
    pub fn is_empty(&self) -> bool {
        self.received.is_empty() && self.messages.is_empty()
    }
}

/// Transmit memory: places for equal-sized packets side by side, the last one possibly shorter.
///
/// A place is `head` bytes for the provider, the payload, and room behind it for the provider.
#[derive(Debug)]
pub struct Train<'a> {
    memory: &'a mut [u8],
    head: usize,
    stride: usize,
    payload: usize,
    capacity: usize,
    ticket: TrainTicket,
}

/// A filled train, to be given to [`Worker::send`] of the worker that lent it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TrainTicket {
    /// Packets in it.
    pub count: usize,
    /// Payload bytes of every packet but the last.
    pub payload: usize,
    /// Payload bytes of the last packet.
    pub last: usize,
}

impl<'a> Train<'a> {
    /// For providers: `memory` holds `capacity` places of `stride` bytes, of which `payload` bytes
    /// from `head` on are the caller's. `ticket` is what the train holds already.
    pub fn new(
        memory: &'a mut [u8],
        head: usize,
        stride: usize,
        capacity: usize,
        ticket: TrainTicket,
    ) -> Train<'a> {
        Train {
            memory,
            head,
            stride,
            payload: ticket.payload,
            capacity,
            ticket,
        }
    }

    /// The next packet's payload of `len` bytes to be filled in, or `None` when the train is full,
    /// when `len` is over the train's payload size, or when a shorter packet has ended the train.
    pub fn next(&mut self, len: usize) -> Option<&mut [u8]> {
        let t = &mut self.ticket;
        let closed = t.count > 0 && t.last != self.payload;
        if closed || t.count == self.capacity || len > self.payload {
            return None;
        }
        let at = t.count * self.stride + self.head;
        t.count += 1;
        t.last = len;
        Some(&mut self.memory[at..at + len])
    }

    /// Takes places for `len` bytes, all full but the last; false, and none taken, if there are not
    /// as many. They are filled with [`Train::taken`].
    pub fn take(&mut self, len: usize) -> bool {
        let count = len.div_ceil(self.payload.max(1));
        if count == 0 || count > self.room() {
            return false;
        }
        self.ticket.count += count;
        self.ticket.last = len - (count - 1) * self.payload;
        true
    }

    /// The payload of packet `index`, counted from 0, if it was taken.
    #[inline]
    pub fn taken(&mut self, index: usize) -> Option<&mut [u8]> {
        let t = &self.ticket;
        let len = match t.count.checked_sub(index)? {
            0 => return None,
            1 => t.last,
            _ => self.payload,
        };
        let at = index * self.stride + self.head;
        self.memory.get_mut(at..at + len)
    }

    /// How many more full-sized packets fit.
    pub fn room(&self) -> usize {
        if self.ticket.count > 0 && self.ticket.last != self.payload {
            0
        } else {
            self.capacity - self.ticket.count
        }
    }

    /// Ends the loan.
    pub fn finish(self) -> TrainTicket {
        self.ticket
    }
}

/// How a send went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// Handed to the network; the memory may be lent again.
    Done,
    /// No room now. The train stays the worker's and is sent by itself when there is room;
    /// until [`Worker::has_room`] the caller must not ask for another one.
    Blocked,
    /// The network refused (no route, port down); counted by the provider, the train is gone.
    Failed,
}

/// Named counters of one worker: `(name, value)`, names as in
/// `/sys/class/infiniband/*/hw_counters` where they have a counterpart.
pub type Counters = Vec<(&'static str, u64)>;

/// The bits of an epoll data word that are the caller's ([`Worker::register`]).
pub const TOKEN: u64 = u64::MAX >> 8;

/// One data thread's part of a port.
pub trait Worker: Send {
    /// Adds the worker's descriptors to an epoll instance, all with the data word `token`, whose bits
    /// outside of [`TOKEN`] the worker sets as it likes: see [`Worker::woken`].
    ///
    /// # Errors
    /// What `epoll_ctl` says.
    fn register(&mut self, epoll: BorrowedFd<'_>, token: u64) -> io::Result<()>;

    /// Takes note of a data word that the epoll instance gave: it tells which descriptor is readable, so
    /// that the next poll asks no other. Who never calls this may still poll, and pays for asking.
    fn woken(&mut self, word: u64) {
        let _ = word;
    }

    /// Receives what is there, never waiting, in at most `depth` pieces as the network hands them
    /// over (a train of packets is one piece); what is left keeps the descriptors readable. A caller
    /// that expects no more than one saves the look for a second. An empty batch means that the
    /// readiness is used up.
    ///
    /// # Errors
    /// Only what makes the worker unusable; a bad packet is counted and dropped.
    fn poll(&mut self, depth: usize) -> io::Result<Batch<'_>>;

    /// To be called before the thread sleeps: from now on whatever arrives makes a descriptor readable.
    /// True if something is there already, which no descriptor will tell of: poll first. (The
    /// arm-then-poll-again rule of completion channels, IBA vol. 1, 11.4.2.2.)
    ///
    /// # Errors
    /// As [`Worker::poll`].
    fn arm(&mut self) -> io::Result<bool> {
        Ok(false)
    }

    /// Has the device gather completions: no wake-up before `frames` of them or `usecs` microseconds
    /// after the first. False if the device cannot, and the caller has to do it by time.
    fn moderate(&mut self, frames: u16, usecs: u16) -> bool {
        let _ = (frames, usecs);
        false
    }

    /// Makes an address handle. One that takes time to resolve is usable at once: sends to it wait
    /// or fail as the provider says.
    ///
    /// # Errors
    /// A GID of the wrong family, or a full table.
    fn create_ah(&mut self, attributes: &AhAttributes) -> io::Result<AddressHandle>;

    /// Ends an address handle, after the last send that names it.
    fn destroy_ah(&mut self, ah: AddressHandle);

    /// Lends memory for packets of up to `payload` bytes each; `None` while a send is blocked.
    fn train(&mut self, payload: usize) -> Option<Train<'_>>;

    /// Lends the memory of a train that was filled in part, to go on filling it.
    fn resume(&mut self, ticket: TrainTicket) -> Train<'_>;

    /// Sends a filled train.
    fn send(&mut self, from: EndpointId, to: &UdDestination, train: TrainTicket) -> Sent;

    /// Whether a train can be had. After [`Sent::Blocked`] it turns true in a [`Worker::poll`].
    fn has_room(&self) -> bool;

    /// Reliable connections, where the provider has them.
    fn connections(&mut self) -> Option<&mut dyn Connections> {
        None
    }

    /// Sends what waits for the end of a round, as acknowledgements do: to be called when what the
    /// last batch brought has been handled, and after messages were posted.
    fn flush(&mut self) {}

    /// When [`Worker::handle_timeout`] wants to be called next, on the clock CLOCK_MONOTONIC.
    fn next_deadline(&self) -> Option<Instant> {
        None
    }

    /// Lets time pass: retransmissions, and what communication management waits for. Connection
    /// events may follow.
    fn handle_timeout(&mut self) {}

    /// The worker's counters.
    fn counters(&self) -> Counters;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn train(memory: &mut [u8], payload: usize, capacity: usize) -> Train<'_> {
        let ticket = TrainTicket {
            payload,
            ..TrainTicket::default()
        };
        Train::new(memory, 2, 2 + payload + 1, capacity, ticket)
    }

    #[test]
    fn places_that_were_taken_are_full_but_the_last() {
        let mut memory = [0; 64];
        for (len, lengths) in [(1, &[1][..]), (10, &[10]), (11, &[10, 1]), (40, &[10; 4])] {
            let mut train = train(&mut memory, 10, 4);
            assert!(train.take(len), "{len}");
            let found: Vec<usize> = (0..9)
                .map_while(|i| train.taken(i).map(|place| place.len()))
                .collect();
            assert_eq!(found, lengths);
            let expected = TrainTicket {
                count: lengths.len(),
                payload: 10,
                last: lengths[lengths.len() - 1],
            };
            assert_eq!(train.finish(), expected);
        }
    }

    #[test]
    fn more_than_there_is_room_for_is_not_taken() {
        let mut memory = [0; 64];
        let mut train = train(&mut memory, 10, 4);
        assert!(!train.take(0) && !train.take(41));
        assert!(train.next(10).is_some());
        assert!(!train.take(31));
        assert!(train.take(5), "behind what is filled");
        assert!(!train.take(1), "a shorter packet has ended it");
        assert_eq!(train.taken(1).map(|p| p.len()), Some(5));
        assert_eq!(train.taken(2), None);
    }

    #[test]
    fn a_place_taken_is_the_one_that_next_gives() {
        let mut memory = [0; 64];
        let mut train = train(&mut memory, 4, 2);
        if let Some(place) = train.next(4) {
            place.fill(7);
        }
        assert_eq!(train.taken(0), Some(&mut [7; 4][..]));
    }
}
