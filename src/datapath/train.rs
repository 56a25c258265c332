//! Collects packets in trains: one send for equal-sized packets to one destination.

use fabric::{ConnectionId, EndpointId, Posted, Sent, Train, TrainTicket, UdDestination, Worker};

/// Places to request for messages when more messages are likely to follow, and the maximum of bytes for
/// them: the provider keeps the memory until the last message is acknowledged.
const MESSAGES: usize = 32;
const MESSAGES_BYTES: usize = 1 << 15;

/// The open train, if any. A data thread has one open train at a time, because the provider lends its memory
/// once, and packets to one peer must leave in order.
#[derive(Default)]
pub struct OpenTrain {
    open: Option<Open>,
    /// More packets are likely to follow in this round.
    more: bool,
}

struct Open {
    to: To,
    ticket: TrainTicket,
}

/// The destination of a train.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum To {
    /// From an endpoint, each packet a datagram.
    Datagrams(EndpointId, UdDestination),
    /// Over a connection, each packet a message.
    Messages(ConnectionId),
}

/// Packets of one source, written in order. All have the same length except the last.
pub trait Packets {
    /// Payload bytes of every packet but the last.
    fn full_len(&self) -> usize;
    /// Packets not written yet.
    fn remaining(&self) -> usize;
    /// Payload bytes of the next packet.
    fn next_len(&self) -> Option<usize>;
    /// Writes the next packet; `out` has [`Packets::next_len`] bytes.
    fn write_next(&mut self, out: &mut [u8]);
}

/// The result of [`OpenTrain::push`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pushed {
    /// All packets are in a train or sent.
    All,
    /// The fabric has no room: the remaining packets are lost.
    NoRoom,
}

impl OpenTrain {
    /// Sets whether more packets are likely to follow in this round.
    pub fn expect_more(&mut self, more: bool) {
        self.more = more;
    }

    /// Adds all packets of `packets`; sends each full train.
    pub fn push(&mut self, fabric: &mut dyn Worker, to: &To, packets: &mut dyn Packets) -> Pushed {
        if !self.takes(fabric, to, packets) {
            self.flush(fabric);
        }
        while let Some(len) = packets.next_len() {
            if self.open.is_none() && !self.start(fabric, to, packets, len) {
                return Pushed::NoRoom;
            }
            if self.fill(fabric, packets) {
                self.flush(fabric);
            }
        }
        Pushed::All
    }

    /// Sends the open train.
    pub fn flush(&mut self, fabric: &mut dyn Worker) {
        let Some(o) = self.open.take() else { return };
        if o.ticket.count == 0 {
            return;
        }
        match o.to {
            // The provider keeps a blocked train and counts a failed one.
            To::Datagrams(from, to) => {
                let _: Sent = fabric.send(from, &to, o.ticket);
            }
            // A full window pauses the TAPs. A refused train belongs to a closed connection.
            To::Messages(connection) => {
                let _: Option<Posted> = fabric.connections().map(|c| c.post(connection, o.ticket));
            }
        }
    }

    /// Whether these packets may continue the open train: same destination, same size (a single shorter
    /// packet may end a train), and room for all of them. Packets that need more than one train, for example
    /// a guest's largest sends, need only some room.
    fn takes(&self, fabric: &mut dyn Worker, to: &To, packets: &dyn Packets) -> bool {
        let Some(o) = &self.open else { return false };
        let fits = match packets.remaining() {
            1 => packets
                .next_len()
                .is_some_and(|len| len <= o.ticket.payload),
            _ => packets.full_len() == o.ticket.payload,
        };
        if o.to != *to || !fits {
            return false;
        }
        let room = o.resume(fabric).map_or(0, |train| train.room());
        let left = packets.remaining();
        room >= left || (room > 0 && left > o.ticket.count + room)
    }

    fn start(
        &mut self,
        fabric: &mut dyn Worker,
        to: &To,
        packets: &dyn Packets,
        next_len: usize,
    ) -> bool {
        let payload = packets.full_len().max(next_len);
        let train = match to {
            To::Datagrams(..) => fabric.train(payload),
            To::Messages(connection) => {
                let likely = match self.more {
                    true => MESSAGES.min(MESSAGES_BYTES / payload.max(1)),
                    false => 1,
                };
                let count = packets.remaining().max(likely);
                fabric
                    .connections()
                    .and_then(|c| c.messages(*connection, payload, count))
            }
        };
        // A train without places: the fabric's MTU has shrunk and the command with the new MTU has not
        // arrived. No packet of this size will fit.
        let Some(train) = train.filter(|t| t.room() > 0) else {
            return false;
        };
        self.open = Some(Open {
            to: *to,
            ticket: train.finish(),
        });
        true
    }

    /// Fills the open train; true if it must be sent before the remaining packets. Packets for more than one
    /// train are divided equally: two trains of 8 are faster than one of 15 and one of 1. A train that
    /// already has packets is filled up, because there is much to send.
    fn fill(&mut self, fabric: &mut dyn Worker, packets: &mut dyn Packets) -> bool {
        let Some(o) = &mut self.open else {
            return false;
        };
        let Some(mut train) = o.resume(fabric) else {
            return true;
        };
        let room = train.room();
        let left = packets.remaining();
        let mut quota = match o.ticket.count {
            0 => left.div_ceil(left.div_ceil(room.max(1)).max(1)),
            _ => room,
        };
        while quota > 0
            && let Some(len) = packets.next_len()
            && let Some(out) = train.next(len)
        {
            packets.write_next(out);
            quota -= 1;
        }
        let full = train.room() == 0;
        o.ticket = train.finish();
        full || packets.next_len().is_some()
    }
}

impl Open {
    /// Borrows the memory of the train again.
    fn resume<'w>(&self, fabric: &'w mut dyn Worker) -> Option<Train<'w>> {
        match self.to {
            To::Datagrams(..) => Some(fabric.resume(self.ticket)),
            To::Messages(_) => fabric.connections().map(|c| c.resume(self.ticket)),
        }
    }
}

/// One packet that is contiguous in memory.
pub struct Single<'a>(pub Option<&'a [u8]>);

impl Packets for Single<'_> {
    fn full_len(&self) -> usize {
        self.0.map_or(0, <[u8]>::len)
    }

    fn remaining(&self) -> usize {
        usize::from(self.0.is_some())
    }

    fn next_len(&self) -> Option<usize> {
        self.0.map(<[u8]>::len)
    }

    fn write_next(&mut self, out: &mut [u8]) {
        if let Some(p) = self.0.take() {
            out.copy_from_slice(p);
        }
    }
}

#[cfg(test)]
mod tests;
