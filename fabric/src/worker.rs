//! The data side of a fabric port: one [`Worker`] for each data thread.
//!
//! Receiving: [`Worker::poll`] returns a [`Batch`] of datagrams in the provider's memory. Dropping the
//! batch releases the memory. Sending: [`Worker::train`] lends memory for equal-sized packets side by
//! side, the caller fills in the payloads, and [`Worker::send`] sends them.

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;

use proto::{AddressHandle, ConnectionId, EndpointId, Gid, Instant, PKey, QKey, Qpn};

use crate::connection::Connections;
use crate::memory::ReceiveMemory;

/// Attributes of an address handle.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AhAttributes {
    /// The destination, unicast or multicast.
    pub dgid: Gid,
    /// The partition. A subnet administrator may have another path in each partition.
    pub pkey: PKey,
    /// Traffic class: a DSCP in the upper six bits. The provider sets the lower two (ECN).
    pub traffic_class: u8,
    /// Hop limit; 0: the provider chooses.
    pub hop_limit: u8,
}

impl AhAttributes {
    /// Attributes for `dgid` in a partition, with the provider's defaults.
    pub const fn to(dgid: Gid, pkey: PKey) -> AhAttributes {
        AhAttributes {
            dgid,
            pkey,
            traffic_class: 0,
            hop_limit: 0,
        }
    }
}

/// The destination of a train.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UdDestination {
    /// Address handle.
    pub ah: AddressHandle,
    /// Queue pair number; [`Qpn::MULTICAST`] for a group.
    pub qpn: Qpn,
    /// The remote Q_Key. With bit 31 set, the endpoint's own Q_Key is sent instead.
    pub qkey: QKey,
}

/// One received datagram of a [`Batch`].
#[derive(Clone, Debug)]
pub struct UdReceived {
    /// The receiving endpoint.
    pub endpoint: EndpointId,
    /// The sender's queue pair number (DETH).
    pub src_qpn: Qpn,
    /// The sender's GID. Without a GRH (InfiniBand unicast) the provider gives the GID known for the
    /// sender.
    pub src_gid: Gid,
    /// The packet itself has the sender's GID. Without a GRH, `src_gid` comes from earlier packets: it may be
    /// unspecified, or that of the port which had the LID before.
    pub has_src_gid: bool,
    /// The destination GID: the MGID of a multicast packet. With unicast copies (a list of peers) it is
    /// the port's own GID and `multicast` is set; the caller takes the group from the payload.
    pub dst_gid: Gid,
    /// True if sent to [`Qpn::MULTICAST`].
    pub multicast: bool,
    /// The P_Key in the packet.
    pub pkey: PKey,
    /// The device verified the checksums of the IP packet in the datagram: IPv4 header, TCP and UDP.
    /// False if the device did not check.
    pub checksum_ok: bool,
    /// For providers: the payload's range in the batch's memory.
    pub range: Range<usize>,
}

/// One received message of a [`Batch`].
#[derive(Clone, Debug)]
pub struct RcReceived {
    /// The receiving endpoint.
    pub endpoint: EndpointId,
    /// The connection.
    pub connection: ConnectionId,
    /// Immediate data in wire order.
    pub immediate: Option<[u8; 4]>,
    /// Payload bytes.
    pub len: usize,
    /// For providers: the range of its parts in the batch's list.
    pub parts: Range<usize>,
}

/// For providers: the memory of a piece of a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Part {
    /// The receive memory.
    Arrived(Range<usize>),
    /// A receive buffer, because the rest arrived later.
    Kept(Range<usize>),
}

/// The payload of a message: a gather list, in order. A message of one packet has one part; a message
/// of several packets has up to one part for each.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    arrived: ReceiveMemory<'a>,
    kept: ReceiveMemory<'a>,
    parts: &'a [Part],
}

impl<'a> Message<'a> {
    /// For providers: `parts` lie in `arrived` (the batch's memory) and in `kept`.
    pub(crate) const fn new(arrived: &'a [u8], kept: &'a [u8], parts: &'a [Part]) -> Message<'a> {
        Message {
            arrived: ReceiveMemory::Slice(arrived),
            kept: ReceiveMemory::Slice(kept),
            parts,
        }
    }

    /// The parts, in order and never empty.
    pub fn parts(self) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone + use<'a> {
        self.parts.iter().map(move |part| match part {
            Part::Arrived(range) => self.arrived.bytes(range),
            Part::Kept(range) => self.kept.bytes(range),
        })
    }
}

/// The result of one poll. Holds the provider's receive memory; dropping the batch releases it.
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

    /// For providers: adds messages whose parts lie in `memory` and in `kept`.
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

    /// The messages with their payloads; messages of one connection are in order.
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

/// Transmit memory: places for equal-sized packets side by side; the last packet may be shorter.
///
/// A place consists of `head` bytes for the provider, the payload, and more bytes for the provider.
#[derive(Debug)]
pub struct Train<'a> {
    memory: &'a mut [u8],
    head: usize,
    stride: usize,
    payload: usize,
    capacity: usize,
    ticket: TrainTicket,
}

/// A filled train, for [`Worker::send`] of the worker that lent it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TrainTicket {
    /// Number of packets.
    pub count: usize,
    /// Payload bytes of each packet except the last.
    pub payload: usize,
    /// Payload bytes of the last packet.
    pub last: usize,
}

impl<'a> Train<'a> {
    /// For providers: `memory` holds `capacity` places of `stride` bytes; `payload` bytes from `head`
    /// on belong to the caller. `ticket` describes the packets already in the train.
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

    /// The next packet's payload of `len` bytes, to be filled in. `None` if the train is full, if `len`
    /// exceeds the train's payload size, or if a shorter packet has ended the train.
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

    /// Takes places for `len` bytes, all full except the last, to be filled with [`Train::taken`].
    /// Returns false and takes none if the train lacks room.
    pub fn take(&mut self, len: usize) -> bool {
        let count = len.div_ceil(self.payload.max(1));
        if count == 0 || count > self.room() {
            return false;
        }
        self.ticket.count += count;
        self.ticket.last = len - (count - 1) * self.payload;
        true
    }

    /// The payload of packet `index`, counted from 0; `None` if it was not taken.
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

    /// Number of full-sized packets that still fit.
    pub fn room(&self) -> usize {
        if self.ticket.count > 0 && self.ticket.last != self.payload {
            0
        } else {
            self.capacity - self.ticket.count
        }
    }

    /// Ends the loan and returns the ticket for it.
    pub fn finish(self) -> TrainTicket {
        self.ticket
    }
}

/// Result of a send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// Handed to the network; the memory may be lent again.
    Done,
    /// No room now. The worker keeps the train and sends it when there is room. The caller must not ask
    /// for another train until [`Worker::room`] changes.
    Blocked,
    /// The network refused the train (no route, port down); the provider counted and dropped it.
    Failed,
}

/// What a worker has room for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Room {
    /// Nothing: no train is available.
    Nothing,
    /// A train, but a connection is full, and its peer is not gone.
    Datagrams,
    /// A train, and a message over each connection.
    Messages,
}

/// Named counters of one worker: `(name, value)`, with the names of
/// `/sys/class/infiniband/*/hw_counters` where these have a counterpart.
pub type Counters = Vec<(&'static str, u64)>;

/// The caller's bits of an epoll data word ([`Worker::register`]).
pub const TOKEN: u64 = u64::MAX >> 8;

/// The part of a port that belongs to one data thread.
pub trait Worker: Send {
    /// Adds the worker's descriptors to an epoll instance with the data word `token`. The worker uses
    /// the bits outside of [`TOKEN`]: see [`Worker::woken`].
    ///
    /// # Errors
    /// Errors of epoll_ctl(2).
    fn register(&mut self, epoll: BorrowedFd<'_>, token: u64) -> io::Result<()>;

    /// Notes a data word that epoll returned. The word identifies the readable descriptor, and the next
    /// poll skips the others. Polling without this call works, at a higher cost.
    fn woken(&mut self, word: u64) {
        let _ = word;
    }

    /// Receives without waiting, in at most `depth` pieces as the network delivers them: a train is one piece, and a few
    /// single packets may be one. The descriptors stay readable while more is left. A `depth` of 1 saves the attempt to
    /// read a second piece. An empty batch means that nothing is left.
    ///
    /// # Errors
    /// Only errors that make the worker unusable; a bad packet is counted and dropped.
    fn poll(&mut self, depth: usize) -> io::Result<Batch<'_>>;

    /// Call this before the thread sleeps: new arrivals make a descriptor readable from now on. True if
    /// something has arrived already, which no descriptor reports: poll first. (The arm-then-poll-again
    /// rule of completion channels, IBA vol. 1, 11.4.2.2.)
    ///
    /// # Errors
    /// As [`Worker::poll`].
    fn arm(&mut self) -> io::Result<bool> {
        Ok(false)
    }

    /// Sets completion moderation: no wake-up before `frames` completions or `usecs` microseconds after
    /// the first. False if the device cannot do it; the caller then has to delay by time.
    fn moderate(&mut self, frames: u16, usecs: u16) -> bool {
        let _ = (frames, usecs);
        false
    }

    /// Creates an address handle, usable at once. While it is being resolved, sends to it wait or fail,
    /// depending on the provider.
    ///
    /// # Errors
    /// A GID of the wrong family, or a full table.
    fn create_ah(&mut self, attributes: &AhAttributes) -> io::Result<AddressHandle>;

    /// Destroys an address handle. No later send may use it.
    fn destroy_ah(&mut self, ah: AddressHandle);

    /// Lends memory for packets of up to `payload` bytes each; `None` while a send is blocked.
    fn train(&mut self, payload: usize) -> Option<Train<'_>>;

    /// Lends the memory of a partly filled train again.
    fn resume(&mut self, ticket: TrainTicket) -> Train<'_>;

    /// Sends a filled train.
    fn send(&mut self, from: EndpointId, to: &UdDestination, train: TrainTicket) -> Sent;

    /// What there is room for. After [`Sent::Blocked`] or [`Posted::Full`](crate::Posted::Full), a
    /// [`Worker::poll`] or [`Worker::handle_timeout`] makes room.
    fn room(&self) -> Room;

    /// Reliable connections, if the provider has them.
    fn connections(&mut self) -> Option<&mut dyn Connections> {
        None
    }

    /// Sends what is delayed to the end of a round, such as acknowledgements. Call this after a batch
    /// was handled and after messages were posted.
    fn flush(&mut self) {}

    /// When to call [`Worker::handle_timeout`] next, on CLOCK_MONOTONIC.
    fn next_deadline(&self) -> Option<Instant> {
        None
    }

    /// Handles timers: retransmissions and communication management. Connection events may follow.
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
