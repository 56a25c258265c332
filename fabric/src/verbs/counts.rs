//! What a worker counts.

use crate::worker::Counters;

/// One worker's counts since it was made.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Packets delivered.
    pub rx_packets: u64,
    /// Payload bytes delivered.
    pub rx_bytes: u64,
    /// Packets delivered that were sent to a group.
    pub rx_multicast: u64,
    /// Own packets to a group that came back, and were dropped.
    pub rx_own_multicast: u64,
    /// Packets for queue pairs that are gone.
    pub rx_bad_qp: u64,
    /// Packets shorter than the route in front of them, or longer than their place, or without a route
    /// where there must be one.
    pub rx_malformed: u64,
    /// Receives that completed with an error.
    pub rx_failed: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Payload bytes sent.
    pub tx_bytes: u64,
    /// Trains sent, one post list each.
    pub tx_trains: u64,
    /// Times that a train found no room.
    pub tx_blocked: u64,
    /// Trains that the device or a check refused.
    pub tx_failed: u64,
    /// Trains with packets over the MTU.
    pub tx_too_big: u64,
    /// Trains that waited for their address handle.
    pub tx_waited: u64,
    /// Trains that were dropped since their address handle cannot be made, or too many wait.
    pub tx_no_ah: u64,
    /// Address handles made.
    pub ah_made: u64,
    /// Address handles that could not be made.
    pub ah_failed: u64,
    /// Times that a queue pair was restarted.
    pub qp_restarts: u64,
    /// Completions.
    pub cq_completions: u64,
    /// Completions with an error.
    pub cq_errors: u64,
    /// Completions of nothing that was posted.
    pub cq_unknown: u64,
    /// Events of completion channels.
    pub cq_events: u64,
    /// Times that a completion queue was armed.
    pub cq_arms: u64,
    /// Post lists, of sends and of receives.
    pub post_lists: u64,
    /// Calls of the verbs library on the data path: posts, polls, arms, events.
    pub verbs_calls: u64,
}

impl Counts {
    /// All of them with their names.
    pub fn named(&self) -> Counters {
        let c = self;
        vec![
            ("rx_packets", c.rx_packets),
            ("rx_bytes", c.rx_bytes),
            ("rx_multicast", c.rx_multicast),
            ("rx_own_multicast", c.rx_own_multicast),
            ("rx_bad_qp", c.rx_bad_qp),
            ("rx_malformed", c.rx_malformed),
            ("rx_failed", c.rx_failed),
            ("tx_packets", c.tx_packets),
            ("tx_bytes", c.tx_bytes),
            ("tx_trains", c.tx_trains),
            ("tx_blocked", c.tx_blocked),
            ("tx_failed", c.tx_failed),
            ("tx_too_big", c.tx_too_big),
            ("tx_waited", c.tx_waited),
            ("tx_no_ah", c.tx_no_ah),
            ("ah_made", c.ah_made),
            ("ah_failed", c.ah_failed),
            ("qp_restarts", c.qp_restarts),
            ("cq_completions", c.cq_completions),
            ("cq_errors", c.cq_errors),
            ("cq_unknown", c.cq_unknown),
            ("cq_events", c.cq_events),
            ("cq_arms", c.cq_arms),
            ("post_lists", c.post_lists),
            ("verbs_calls", c.verbs_calls),
        ]
    }
}
