//! What reliable connections count, under the names of `/sys/class/infiniband/*/hw_counters` (kernel
//! drivers/infiniband/hw/mlx5/counters.c and drivers/infiniband/sw/rxe/rxe_hw_counters.c).

/// One worker's counts over all its queue pairs since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RcCounts {
    /// Packets of reliable connections received and passed on to their queue pair.
    pub rcvd_pkts: u64,
    /// Packets of reliable connections sent, those sent again included.
    pub sent_pkts: u64,
    /// Requests that had been received before.
    pub duplicate_request: u64,
    /// Requests that came ahead of the one that was expected.
    pub out_of_sequence: u64,
    /// NAKs of a sequence error received: packets of ours were lost.
    pub packet_seq_err: u64,
    /// Times that few buffers of the shared receive queue were left (its limit event).
    pub srq_limit_reached: u64,
    /// RNR NAKs sent, for want of a receive buffer.
    pub send_rnr_err: u64,
    /// RNR NAKs received that did not exceed the limit of tries.
    pub rnr_nak_retry_err: u64,
    /// Queue pairs that failed since the peer had no receive buffer too often.
    pub retry_rnr_exceeded_err: u64,
    /// Times that no acknowledgement came in time.
    pub local_ack_timeout_err: u64,
    /// Queue pairs that failed since the peer did not acknowledge.
    pub retry_exceeded_err: u64,
    /// Acknowledgements of what was not outstanding, and NAKs of it.
    pub out_of_window_ack: u64,
    /// Requests refused as invalid: their order, their length, or an operation that is not served.
    pub resp_invalid_request: u64,
    /// Messages longer than the receive buffer.
    pub resp_local_length_error: u64,
    /// Queue pairs that failed since the peer found a request invalid.
    pub req_remote_invalid_request: u64,
    /// Queue pairs that failed since the peer found an access or operational error.
    pub req_remote_access_errors: u64,
    /// Packets sent again.
    pub retransmitted: u64,
    /// Packets held until those before them arrived.
    pub held_out_of_order: u64,
    /// Queue pairs that were ended for their receive buffer: a message was not finished in a second, and
    /// there was no other buffer.
    pub unfinished_messages: u64,
    /// Congestion notifications received that lowered a rate.
    pub rp_cnp_handled: u64,
    /// Congestion notifications for nobody, or too soon after another.
    pub rp_cnp_ignored: u64,
}

impl RcCounts {
    /// All of them with their names.
    pub fn named(&self) -> [(&'static str, u64); 21] {
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
            ("unfinished_messages", self.unfinished_messages),
            ("rp_cnp_handled", self.rp_cnp_handled),
            ("rp_cnp_ignored", self.rp_cnp_ignored),
        ]
    }
}
