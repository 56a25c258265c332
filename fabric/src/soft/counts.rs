//! The counters of a worker.

use super::ud::Refusal;
use crate::worker::Counters;

/// The counters of one worker, since its creation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Packets delivered.
    pub rx_packets: u64,
    /// Payload bytes delivered.
    pub rx_bytes: u64,
    /// Receive operations: single datagrams, or merged runs of datagrams.
    pub rx_trains: u64,
    /// Packets to [`crate::Qpn::MULTICAST`] delivered.
    pub rx_multicast: u64,
    /// Management datagrams to QP1 that nobody wants, dropped: of other classes, or of subnet administration
    /// from another port than the administrator's.
    pub rx_mads_unhandled: u64,
    /// Packets received here and passed on to the worker they belong to.
    pub rx_handed_on: u64,
    /// Datagrams dropped: empty, too long or of unknown destination address.
    pub rx_truncated: u64,
    /// Datagrams dropped by the socket because its buffer was full.
    pub rx_socket_drops: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// UDP payload bytes sent.
    pub tx_bytes: u64,
    /// Trains sent.
    pub tx_trains: u64,
    /// Times that the socket buffer had no room for a train.
    pub tx_blocked: u64,
    /// Trains refused by the network or by a check.
    pub tx_failed: u64,
    /// Trains refused because packets exceed the MTU.
    pub tx_too_big: u64,
    /// Trains sent without UDP_SEGMENT.
    pub tx_unsegmented: u64,
    /// Packets dropped, by [`Refusal`].
    pub refused: [u64; Refusal::COUNT],
}

impl Counts {
    /// All counters with their names.
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
