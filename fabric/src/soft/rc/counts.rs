//! Counters of reliable connections, with the names of `/sys/class/infiniband/*/hw_counters` (kernel
//! drivers/infiniband/hw/mlx5/counters.c and drivers/infiniband/sw/rxe/rxe_hw_counters.c).

/// The counters of one worker for all its queue pairs, since its creation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RcCounts {
    /// Packets received and passed to their queue pair.
    pub rcvd_pkts: u64,
    /// Packets sent, including retransmissions.
    pub sent_pkts: u64,
    /// Duplicate requests received.
    pub duplicate_request: u64,
    /// Requests received ahead of the expected one.
    pub out_of_sequence: u64,
    /// NAKs of a sequence error received: our packets were lost.
    pub packet_seq_err: u64,
    /// Limit events of the shared receive queue: few buffers were left.
    pub srq_limit_reached: u64,
    /// RNR NAKs sent, because no receive buffer was left.
    pub send_rnr_err: u64,
    /// RNR NAKs received within the limit of retries.
    pub rnr_nak_retry_err: u64,
    /// Queue pairs failed because the peer had no receive buffer too often.
    pub retry_rnr_exceeded_err: u64,
    /// Timeouts of acknowledgements.
    pub local_ack_timeout_err: u64,
    /// Queue pairs failed because the peer did not acknowledge.
    pub retry_exceeded_err: u64,
    /// ACKs and NAKs received for packets that were not outstanding.
    pub out_of_window_ack: u64,
    /// Invalid requests received: wrong order or length, or an unsupported operation.
    pub resp_invalid_request: u64,
    /// Messages received that were longer than the receive buffer.
    pub resp_local_length_error: u64,
    /// Queue pairs failed because the peer reported an invalid request.
    pub req_remote_invalid_request: u64,
    /// Queue pairs failed because the peer reported an access or operational error.
    pub req_remote_access_errors: u64,
    /// Packets sent again.
    pub retransmitted: u64,
    /// Packets kept until the packets before them arrived.
    pub held_out_of_order: u64,
    /// Kept packets that were invalid in their place. All kept packets were dropped then, and the peer sent its
    /// packets again.
    pub held_invalid: u64,
    /// Queue pairs ended to free their receive buffer: a message was unfinished for too long, and buffers were
    /// scarce.
    pub unfinished_messages: u64,
    /// Congestion notifications received that reduced the window.
    pub rp_cnp_handled: u64,
    /// Congestion notifications received without effect: nothing was in flight, or too soon after
    /// another.
    pub rp_cnp_ignored: u64,
}

impl RcCounts {
    /// All counters with their names.
    pub fn named(&self) -> [(&'static str, u64); 22] {
        [
            ("rcvd_pkts", self.rcvd_pkts),
            ("sent_pkts", self.sent_pkts),
            ("duplicate_request", self.duplicate_request),
            ("out_of_sequence", self.out_of_sequence),
            ("packet_seq_err", self.packet_seq_err),
            ("srq_limit_reached", self.srq_limit_reached),
            ("send_rnr_err", self.send_rnr_err),
            ("rnr_nak_retry_err", self.rnr_nak_retry_err),
            ("retry_rnr_exceeded_err", self.retry_rnr_exceeded_err),
            ("local_ack_timeout_err", self.local_ack_timeout_err),
            ("retry_exceeded_err", self.retry_exceeded_err),
            ("out_of_window_ack", self.out_of_window_ack),
            ("resp_invalid_request", self.resp_invalid_request),
            ("resp_local_length_error", self.resp_local_length_error),
            (
                "req_remote_invalid_request",
                self.req_remote_invalid_request,
            ),
            ("req_remote_access_errors", self.req_remote_access_errors),
            ("retransmitted", self.retransmitted),
            ("held_out_of_order", self.held_out_of_order),
            ("held_invalid", self.held_invalid),
            ("unfinished_messages", self.unfinished_messages),
            ("rp_cnp_handled", self.rp_cnp_handled),
            ("rp_cnp_ignored", self.rp_cnp_ignored),
        ]
    }
}
