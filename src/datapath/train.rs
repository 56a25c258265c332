//! Gathers packets into trains: equal-sized packets to one destination leave in one send.

use fabric::{EndpointId, Sent, TrainTicket, UdDestination, Worker};

/// The train that is being filled, if any. A data thread has one at a time, because the provider
/// lends its memory once.
#[derive(Default)]
pub struct OpenTrain {
    open: Option<Open>,
}

struct Open {
    from: EndpointId,
    to: UdDestination,
    ticket: TrainTicket,
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
    /// Adds all packets of `packets`, sending trains as they fill.
    pub fn push(
        &mut self,
        fabric: &mut dyn Worker,
        from: EndpointId,
        to: &UdDestination,
        packets: &mut dyn Packets,
    ) -> Pushed {
        if !self.takes(fabric, from, to, packets) {
            self.flush(fabric);
        }
        while let Some(len) = packets.next_len() {
            if self.open.is_none() && !self.start(fabric, from, to, packets.full_len().max(len)) {
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
        if let Some(o) = self.open.take()
            && o.ticket.count > 0
        {
            // A blocked train is the provider's and a failed one is counted by it.
            let _: Sent = fabric.send(o.from, &o.to, o.ticket);
        }
    }

    /// Whether the open train can go on with these packets: the same destination, the same size
    /// (a single shorter packet may end a train), and room for all of them. Packets that fill more
    /// than a train of their own, as those of a guest's largest sends do, go on where there is any.
    fn takes(
        &self,
        fabric: &mut dyn Worker,
        from: EndpointId,
        to: &UdDestination,
        packets: &dyn Packets,
    ) -> bool {
        let Some(o) = &self.open else { return false };
        let fits = match packets.remaining() {
            1 => packets
                .next_len()
                .is_some_and(|len| len <= o.ticket.payload),
            _ => packets.full_len() == o.ticket.payload,
        };
        let room = fabric.resume(o.ticket).room();
        let left = packets.remaining();
        let has_room = room >= left || (room > 0 && left > o.ticket.count + room);
        o.from == from && o.to == *to && fits && has_room
    }

    fn start(
        &mut self,
        fabric: &mut dyn Worker,
        from: EndpointId,
        to: &UdDestination,
        payload: usize,
    ) -> bool {
        let Some(train) = fabric.train(payload) else {
            return false;
        };
        if train.room() == 0 {
            // The fabric's MTU has shrunk, and the command that says so is still on its way: no
            // packet of this size will ever fit.
            return false;
        }
        self.open = Some(Open {
            from,
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
        let mut train = fabric.resume(o.ticket);
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
#[path = "train_tests.rs"]
mod tests;
