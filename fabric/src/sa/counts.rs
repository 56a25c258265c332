//! Counters of a client.

proto::counters! {
    /// Counters, for display. All start at 0.
    pub struct Counts {
        /// Requests sent for the first time.
        requests => "sa_requests",
        /// Requests sent again.
        retries => "sa_retries",
        /// Answers without an error.
        answered => "sa_answered",
        /// Answers with an error status.
        refused => "sa_refused",
        /// Answers with status busy.
        busy => "sa_busy",
        /// Requests given up without an answer.
        timed_out => "sa_timed_out",
        /// Answers to no open request: late, repeated, or unknown.
        unmatched => "sa_rx_unmatched",
        /// Datagrams that are no answer of an SA, or do not fit their request.
        malformed => "sa_rx_malformed",
        /// Transfers of long answers that ended with an error.
        aborted => "sa_rmpp_aborted",
        /// Reports received.
        reports => "sa_reports",
        /// Reports dropped: the queue of events is full.
        reports_dropped => "sa_reports_dropped",
        /// Requests that found the queue full.
        queue_full => "sa_queue_full",
    }
}
