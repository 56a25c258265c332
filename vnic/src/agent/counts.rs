//! What an agent counts.

/// What an agent has counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AgentCounts {
    /// Requests.
    pub requests: u64,
    /// Datagrams that are none of this class.
    pub malformed: u64,
    /// Requests and announcements of who may not manage.
    pub not_manager: u64,
    /// Sets of a manager while another one manages.
    pub not_owner: u64,
    /// Requests with an invalid value.
    pub invalid: u64,
    /// Requests for what there is not.
    pub unsupported: u64,
    /// Requests that came to all, and are for one.
    pub to_all: u64,
    /// Traps sent.
    pub traps: u64,
    /// Traps not sent at once: there were five in the last second, or too many wait.
    pub traps_suppressed: u64,
    /// Traps not sent since no manager wants them.
    pub traps_unwanted: u64,
    /// Announcements sent.
    pub announcements: u64,
}

impl AgentCounts {
    /// Names and values.
    #[must_use]
    pub const fn named(&self) -> [(&'static str, u64); 11] {
        [
            ("requests", self.requests),
            ("malformed", self.malformed),
            ("not_manager", self.not_manager),
            ("not_owner", self.not_owner),
            ("invalid", self.invalid),
            ("unsupported", self.unsupported),
            ("to_all", self.to_all),
            ("traps", self.traps),
            ("traps_suppressed", self.traps_suppressed),
            ("traps_unwanted", self.traps_unwanted),
            ("announcements", self.announcements),
        ]
    }
}
