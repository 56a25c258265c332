//! Gathers packets into trains: equal-sized packets to one destination leave in one send.

use fabric::{ConnectionId, EndpointId, Posted, Sent, Train, TrainTicket, UdDestination, Worker};

/// Messages that a place is asked for when more are likely to follow, and the bytes that are not
/// exceeded for it: the provider keeps the memory until the last of them is acknowledged.
const MESSAGES: usize = 32;
const MESSAGES_BYTES: usize = 1 << 15;

/// The train that is being filled, if any. A data thread has one at a time, because the provider
/// lends its memory once, and because what goes to one peer must leave in order.
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

/// Where a train goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum To {
    /// From an endpoint, each packet a datagram.
    Datagrams(EndpointId, UdDestination),
    /// Over a connection, each packet a message.
    Messages(ConnectionId),
}

/// Packets of one source that are to be written one after the other, all of one length but the
/// last.
pub trait Packets {
    /// Payload bytes of every packet but the last.
    fn full_len(&self) -> usize;
    /// Packets that are left.
    fn remaining(&self) -> usize;
    /// Payload bytes of the next packet.
    fn next_len(&self) -> Option<usize>;
    /// Writes the next packet; `out` has [`Packets::next_len`] bytes.
    fn write_next(&mut self, out: &mut [u8]);
}

/// What became of [`OpenTrain::push`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pushed {
    /// All packets are in a train or sent.
    All,
    /// The fabric has no room: the packets that were left are lost.
    NoRoom,
}

impl OpenTrain {
    /// Says whether more packets are likely to follow in this round.
    pub fn expect_more(&mut self, more: bool) {
        self.more = more;
    }

    /// Adds all packets of `packets`, sending trains as they fill.
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

    /// Sends what is there.
    pub fn flush(&mut self, fabric: &mut dyn Worker) {
        let Some(o) = self.open.take() else { return };
        if o.ticket.count == 0 {
            return;
        }
        match o.to {
            // A blocked train is the provider's and a failed one is counted by it.
            To::Datagrams(from, to) => {
                let _: Sent = fabric.send(from, &to, o.ticket);
            }
            // A full window stops the reading of TAPs, and what is refused ended with its
            // connection.
            To::Messages(connection) => {
                let _: Option<Posted> = fabric.connections().map(|c| c.post(connection, o.ticket));
            }
        }
    }

    /// Whether the open train can go on with these packets: the same destination, the same size
    /// (a single shorter packet may end a train), and room for all of them. Packets that fill more
    /// than a train of their own, as those of a guest's largest sends do, go on where there is any.
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
        // A train without a place: the fabric's MTU has shrunk, and the command that says so is
        // still on its way. No packet of this size will ever fit.
        let Some(train) = train.filter(|t| t.room() > 0) else {
            return false;
        };
        self.open = Some(Open {
            to: *to,
            ticket: train.finish(),
        });
        true
    }

    /// Fills the open train; true if it must be sent before the rest can go on. What does not fit
    /// one train is spread over equal ones: two of 8 travel faster than one of 15 and one of 1. A
    /// train that has packets already is filled up: then there is much to send.
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
    /// The memory again.
    fn resume<'w>(&self, fabric: &'w mut dyn Worker) -> Option<Train<'w>> {
        match self.to {
            To::Datagrams(..) => Some(fabric.resume(self.ticket)),
            To::Messages(_) => fabric.connections().map(|c| c.resume(self.ticket)),
        }
    }
}

/// One packet that lies in memory whole.
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
