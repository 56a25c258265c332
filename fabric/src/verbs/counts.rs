//! Counters of a worker.

use crate::worker::Counters;

/// Counters of one worker since its creation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Packets delivered.
    pub rx_packets: u64,
    /// Payload bytes delivered.
    pub rx_bytes: u64,
    /// Multicast packets delivered.
    pub rx_multicast: u64,
    /// Own multicast packets that came back and were dropped.
    pub rx_own_multicast: u64,
    /// Packets for queue pairs that no longer exist.
    pub rx_bad_qp: u64,
    /// Packets shorter than the route before them or longer than their place, or without a required
    /// route.
    pub rx_malformed: u64,
    /// Receives that completed with an error.
    pub rx_failed: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Payload bytes sent.
    pub tx_bytes: u64,
    /// Trains sent, one post list each.
    pub tx_trains: u64,
    /// Trains that found no room.
    pub tx_blocked: u64,
    /// Trains refused by the device or by a check.
    pub tx_failed: u64,
    /// Trains with packets over the MTU.
    pub tx_too_big: u64,
    /// Trains that waited for their address handle.
    pub tx_waited: u64,
    /// Trains dropped because their address handle cannot be created, or because too many wait.
    pub tx_no_ah: u64,
    /// Address handles created.
    pub ah_made: u64,
    /// Address handles that could not be created.
    pub ah_failed: u64,
    /// Restarts of queue pairs.
    pub qp_restarts: u64,
    /// Completions.
    pub cq_completions: u64,
    /// Completions with an error.
    pub cq_errors: u64,
    /// Completions that match no posted work.
    pub cq_unknown: u64,
    /// Events of completion channels.
    pub cq_events: u64,
    /// Completion queues armed.
    pub cq_arms: u64,
    /// Post lists, sends and receives.
    pub post_lists: u64,
    /// Calls of the verbs library on the data path: posts, polls, arms, events.
    pub verbs_calls: u64,
}

impl Counts {
    /// All counters with their names.
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
