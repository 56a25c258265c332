//! The counters of a worker.

use super::ud::Refusal;
use crate::worker::Counters;

proto::counters! {
    /// Counters of packets and trains of one worker.
    pub struct PacketCounts {
        /// Packets delivered.
        rx_packets,
        /// Payload bytes delivered.
        rx_bytes,
        /// Receive operations: single datagrams, or merged runs of datagrams.
        rx_trains,
        /// Multicast packets delivered.
        rx_multicast,
        /// Management datagrams to QP1 that nobody wants, dropped: of other classes, or of subnet administration
        /// from another port than the administrator's.
        rx_mads_unhandled,
        /// Packets received here and passed on to the worker they belong to.
        rx_handed_on,
        /// Datagrams dropped: empty, too long or of unknown destination address.
        rx_truncated,
        /// Datagrams dropped by the socket because its buffer was full.
        rx_socket_drops,
        /// Packets sent.
        tx_packets,
        /// UDP payload bytes sent.
        tx_bytes,
        /// Trains sent.
        tx_trains,
        /// Times that the socket buffer had no room for a train.
        tx_blocked,
        /// Management datagrams dropped because their socket buffer had no room: the kernel did not find many of
        /// their destinations.
        tx_mads_dropped,
        /// Trains refused by the network or by a check.
        tx_failed,
        /// Trains refused because packets exceed the MTU.
        tx_too_big,
        /// Trains sent without UDP_SEGMENT.
        tx_unsegmented,
    }
}

/// The counters of one worker, since its creation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Packets and trains.
    pub packets: PacketCounts,
    /// Packets dropped, by [`Refusal`].
    pub refused: [u64; Refusal::COUNT],
}

impl Counts {
    /// All counters with their names.
    pub fn named(&self) -> Counters {
        let mut all = self.packets.named();
        all.extend(Refusal::named(&self.refused));
        all
    }
}
