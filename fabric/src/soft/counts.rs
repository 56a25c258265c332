//! What a worker counts.

use super::ud::Refusal;
use crate::worker::Counters;

/// One worker's counts since it was made.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Packets delivered.
    pub rx_packets: u64,
    /// Payload bytes delivered.
    pub rx_bytes: u64,
    /// Reads: lone datagrams, or merged runs of them.
    pub rx_trains: u64,
    /// Packets delivered that were sent to [`crate::Qpn::MULTICAST`].
    pub rx_multicast: u64,
    /// Management datagrams for QP1 that are not communication management's, which nobody serves.
    pub rx_mads_unhandled: u64,
    /// Packets that came to this worker and are another's.
    pub rx_handed_on: u64,
    /// Datagrams that were empty, too long or of unknown destination.
    pub rx_truncated: u64,
    /// Datagrams that the socket dropped for want of room.
    pub rx_socket_drops: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes sent, UDP payload.
    pub tx_bytes: u64,
    /// Trains sent.
    pub tx_trains: u64,
    /// Times that a train found no room.
    pub tx_blocked: u64,
    /// Trains that the network or a check refused.
    pub tx_failed: u64,
    /// Trains with packets over the MTU.
    pub tx_too_big: u64,
    /// Trains that went out without UDP_SEGMENT.
    pub tx_unsegmented: u64,
    /// Packets dropped, by [`Refusal`].
    pub refused: [u64; Refusal::COUNT],
}

impl Counts {
    /// All of them with their names.
    pub fn named(&self) -> Counters {
        let c = self;
        let mut all = vec![
            ("rx_packets", c.rx_packets),
            ("rx_bytes", c.rx_bytes),
            ("rx_trains", c.rx_trains),
            ("rx_multicast", c.rx_multicast),
            ("rx_mads_unhandled", c.rx_mads_unhandled),
            ("rx_handed_on", c.rx_handed_on),
            ("rx_truncated", c.rx_truncated),
            ("rx_socket_drops", c.rx_socket_drops),
            ("tx_packets", c.tx_packets),
            ("tx_bytes", c.tx_bytes),
            ("tx_trains", c.tx_trains),
            ("tx_blocked", c.tx_blocked),
            ("tx_failed", c.tx_failed),
            ("tx_too_big", c.tx_too_big),
            ("tx_unsegmented", c.tx_unsegmented),
        ];
        all.extend(Refusal::NAMES.into_iter().zip(c.refused));
        all
    }
}
