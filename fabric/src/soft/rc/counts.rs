//! Counters of reliable connections, with the names of `/sys/class/infiniband/*/hw_counters` (kernel
//! drivers/infiniband/hw/mlx5/counters.c and drivers/infiniband/sw/rxe/rxe_hw_counters.c).

proto::counters! {
    /// The counters of one worker for all its queue pairs, since its creation.
    pub struct RcCounts {
        /// Packets received and passed to their queue pair.
        rcvd_pkts,
        /// Packets sent, including retransmissions.
        sent_pkts,
        /// Duplicate requests received.
        duplicate_request,
        /// Requests received ahead of the expected one.
        out_of_sequence,
        /// NAKs of a sequence error received: packets of this host were lost.
        packet_seq_err,
        /// Limit events of the shared receive queue: few buffers were left.
        srq_limit_reached,
        /// RNR NAKs sent, because no receive buffer was left.
        send_rnr_err,
        /// RNR NAKs received within the limit of retries.
        rnr_nak_retry_err,
        /// Queue pairs failed because the peer had no receive buffer too often.
        retry_rnr_exceeded_err,
        /// Timeouts of acknowledgements.
        local_ack_timeout_err,
        /// Queue pairs failed because the peer did not acknowledge.
        retry_exceeded_err,
        /// ACKs and NAKs received for packets that were not outstanding.
        out_of_window_ack,
        /// Invalid requests received: wrong order or length, or an unsupported operation.
        resp_invalid_request,
        /// Messages received that were longer than the receive buffer.
        resp_local_length_error,
        /// Queue pairs failed because the peer reported an invalid request.
        req_remote_invalid_request,
        /// Queue pairs failed because the peer reported an access or operational error.
        req_remote_access_errors,
        /// Packets sent again.
        retransmitted,
        /// Packets kept until the packets before them arrived.
        held_out_of_order,
        /// Kept packets that were invalid in their place. All kept packets were dropped then, and the peer sent its
        /// packets again.
        held_invalid,
        /// Queue pairs ended to free their receive buffer: a message was unfinished for too long, and buffers were
        /// scarce.
        unfinished_messages,
        /// Congestion notifications received that reduced the window.
        rp_cnp_handled,
        /// Congestion notifications received without effect: nothing was in flight, or too soon after
        /// another.
        rp_cnp_ignored,
    }
}
