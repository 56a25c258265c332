//! Counters of a client.

/// Counters, for display. All start at 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Requests sent for the first time.
    pub requests: u64,
    /// Requests sent again.
    pub retries: u64,
    /// Answers without an error.
    pub answered: u64,
    /// Answers with an error status.
    pub refused: u64,
    /// Answers with status busy.
    pub busy: u64,
    /// Requests given up without an answer.
    pub timed_out: u64,
    /// Answers to no open request: late, repeated, or unknown.
    pub unmatched: u64,
    /// Datagrams that are no answer of an SA, or do not fit their request.
    pub malformed: u64,
    /// Transfers of long answers that ended with an error.
    pub aborted: u64,
    /// Reports received.
    pub reports: u64,
    /// Reports dropped: the queue of events is full.
    pub reports_dropped: u64,
    /// Requests that found the queue full.
    pub queue_full: u64,
}

impl Counts {
    /// The counters by name.
    pub const fn list(&self) -> [(&'static str, u64); 12] {
        [
            ("sa_requests", self.requests),
            ("sa_retries", self.retries),
            ("sa_answered", self.answered),
            ("sa_refused", self.refused),
            ("sa_busy", self.busy),
            ("sa_timed_out", self.timed_out),
            ("sa_rx_unmatched", self.unmatched),
            ("sa_rx_malformed", self.malformed),
            ("sa_rmpp_aborted", self.aborted),
            ("sa_reports", self.reports),
            ("sa_reports_dropped", self.reports_dropped),
            ("sa_queue_full", self.queue_full),
        ]
    }
}
