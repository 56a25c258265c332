//! Counters of connections.

/// The name of the counter of requests.
pub const REQUESTS: &str = "cm_rx_msgs_req";

proto::counters! {
    /// Counters of one worker since its creation.
    pub struct Counts {
        /// Requests received.
        requests => REQUESTS,
        /// Requests rejected without asking the consumer: no listener, another partition, or a path MTU
        /// above the port's.
        not_served => "cm_not_served",
        /// Requests rejected because their source exceeds its rate.
        rate_limited => "cm_rx_rate_limited",
        /// Requests rejected because the limit of connections is reached.
        table_full => "cm_table_full",
        /// Events of rdma_cm for connections that no longer exist.
        unmatched => "cm_rx_unmatched",
        /// Post lists.
        post_lists => "rc_post_lists",
        /// Post lists that the device refused, wholly or in part.
        post_failed => "rc_post_failed",
        /// Completions that match nothing outstanding.
        stray_completions => "rc_stray_completions",
        /// Messages received by queue pairs that no longer exist.
        stray_messages => "rc_stray_messages",
        /// Queue pairs that failed because the peer did not acknowledge.
        retry_exceeded => "retry_exceeded_err",
        /// Queue pairs that failed because the peer had no receive buffer too often or for too long.
        rnr_exceeded => "retry_rnr_exceeded_err",
        /// Connections ended because their peers acknowledged nothing while no memory for messages was left.
        stalled => "rc_stalled",
        /// Queue pairs destroyed before all posted work came back.
        not_drained => "rc_not_drained",
    }
}
