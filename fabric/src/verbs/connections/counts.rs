//! Counters of connections.

/// The name of the counter of requests.
pub const REQUESTS: &str = "cm_rx_msgs_req";

/// Counters of one worker since its creation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Requests received.
    pub requests: u64,
    /// Requests rejected without asking the consumer: no listener, another partition, or a path MTU
    /// above the port's.
    pub not_served: u64,
    /// Requests rejected because their source exceeds its rate.
    pub rate_limited: u64,
    /// Requests rejected because the limit of connections is reached.
    pub table_full: u64,
    /// Events of rdma_cm for connections that no longer exist.
    pub unmatched: u64,
    /// Post lists.
    pub post_lists: u64,
    /// Post lists that the device refused, wholly or in part.
    pub post_failed: u64,
    /// Completions that match nothing outstanding.
    pub stray_completions: u64,
    /// Messages received by queue pairs that no longer exist.
    pub stray_messages: u64,
    /// Queue pairs that failed because the peer did not acknowledge.
    pub retry_exceeded: u64,
    /// Queue pairs that failed because the peer had no receive buffer too often or for too long.
    pub rnr_exceeded: u64,
    /// Queue pairs destroyed before all posted work came back.
    pub not_drained: u64,
}

impl Counts {
    /// All counters with their names; the kernel's name where there is one.
    pub fn named(&self) -> [(&'static str, u64); 12] {
        [
            (REQUESTS, self.requests),
            ("cm_not_served", self.not_served),
            ("cm_rx_rate_limited", self.rate_limited),
            ("cm_table_full", self.table_full),
            ("cm_rx_unmatched", self.unmatched),
            ("rc_post_lists", self.post_lists),
            ("rc_post_failed", self.post_failed),
            ("rc_stray_completions", self.stray_completions),
            ("rc_stray_messages", self.stray_messages),
            ("retry_exceeded_err", self.retry_exceeded),
            ("retry_rnr_exceeded_err", self.rnr_exceeded),
            ("rc_not_drained", self.not_drained),
        ]
    }
}
