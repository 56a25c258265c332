//! What connections count.

/// One worker's counts since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Requests that came.
    pub requests: u64,
    /// Requests rejected without asking the consumer: for nobody here, of another partition, or for a
    /// larger path MTU than the port has.
    pub not_served: u64,
    /// Requests rejected since their source makes too many.
    pub rate_limited: u64,
    /// Requests rejected since there are as many connections as there may be.
    pub table_full: u64,
    /// Events of rdma_cm of connections that are gone.
    pub unmatched: u64,
    /// Post lists.
    pub post_lists: u64,
    /// Post lists that the device did not take, or not wholly.
    pub post_failed: u64,
    /// Completions that name nothing outstanding.
    pub stray_completions: u64,
    /// Messages received by queue pairs that are gone.
    pub stray_messages: u64,
    /// Queue pairs that failed since the peer did not acknowledge.
    pub retry_exceeded: u64,
    /// Queue pairs that failed since the peer had no receive buffer too often, or for too long.
    pub rnr_exceeded: u64,
    /// Queue pairs of which not everything came back before they were destroyed.
    pub not_drained: u64,
}

impl Counts {
    /// All of them with their names: the kernel's where it has one.
    pub fn named(&self) -> [(&'static str, u64); 12] {
        [
            ("cm_rx_msgs_req", self.requests),
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
