//! Packets larger than their path allows.

use proto::Time;

use super::super::{Ipoib, Target, TooBig};
use crate::connections::State;
use crate::too_big::Offender;

/// The path of a large packet to a peer.
enum Way {
    /// A connection in setup.
    Soon(u32),
    /// The largest packet that the path carries, in bytes.
    Takes(usize),
}

impl Ipoib {
    /// Handles a frame from the TAP to the target `to` with a packet of `len` bytes, which exceeds the
    /// path's limit and must not be cut.
    ///
    /// The frame waits while a connection is in setup. Otherwise it is answered with an error, as in the
    /// kernel also for IPv4 packets that may be fragmented; the host's IP then fragments them. The error's
    /// source is the destination of the packet. Multicast is dropped (`ipoib_set_mode` warns of it).
    pub fn too_big(
        &mut self,
        now: Time,
        to: Target,
        prefix: &[u8; 12],
        frame: &[u8],
        len: usize,
    ) -> TooBig<'_> {
        let Target::Neighbour(slot) = to else {
            self.counters.too_big_multicast += 1;
            return TooBig::Dropped;
        };
        match self.large_way(slot, len) {
            Way::Soon(at) => self.hold_large(at, prefix, frame),
            Way::Takes(mtu) => self.answer_large(now, frame, mtu, len),
        }
    }

    fn large_way(&self, slot: u32, len: usize) -> Way {
        if let Some(sibling) = self.sibling(Target::Neighbour(slot)) {
            return Way::Takes(sibling.mtu);
        }
        let at = self.neighbours.connection_of(slot);
        match self.connected.table.active(at).map(|a| a.state) {
            Some(State::Connecting { .. } | State::Waiting { .. }) => Way::Soon(at),
            Some(State::Up { mtu, .. }) if len > mtu => Way::Takes(mtu),
            // The packet is not for the connection.
            Some(State::Up { .. } | State::Refused { .. }) | None => {
                Way::Takes(self.config.link_mtu)
            }
        }
    }

    fn hold_large(&mut self, at: u32, prefix: &[u8; 12], frame: &[u8]) -> TooBig<'_> {
        let most = self.config.limits.held_per_neighbour.max(1);
        if self.connected.table.hold(at, most, prefix, frame) {
            self.counters.too_big_held += 1;
            return TooBig::Held;
        }
        self.counters.too_big_hold_full += 1;
        TooBig::Dropped
    }

    fn answer_large(&mut self, now: Time, frame: &[u8], mtu: usize, len: usize) -> TooBig<'_> {
        let offender = Offender::parse(frame);
        let Some(offender) = offender.filter(|_| len > mtu) else {
            self.counters.too_big_unanswerable += 1;
            return TooBig::Dropped;
        };
        if !self.connected.limiter.may_answer(now, offender.destination) {
            self.counters.too_big_limited += 1;
            return TooBig::Dropped;
        }
        self.counters.too_big_answered += 1;
        let len = offender.write_answer(mtu, len, &mut self.scratch);
        TooBig::Answer(&self.scratch[..len])
    }
}
