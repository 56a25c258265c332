//! Counters of an agent.

/// Counters of an agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AgentCounts {
    /// Get and Set requests.
    pub requests: u64,
    /// Malformed datagrams, or datagrams of another class.
    pub malformed: u64,
    /// Requests and announcements of senders without permission.
    pub not_manager: u64,
    /// Sets while another manager owns the agent.
    pub not_owner: u64,
    /// Sets without an answer: there were too many.
    pub sets_limited: u64,
    /// Refused requests: invalid value, unknown port, or failure of the host.
    pub invalid: u64,
    /// Requests with an unsupported method or attribute.
    pub unsupported: u64,
    /// Requests to the group that must be sent to one agent.
    pub to_all: u64,
    /// Traps sent.
    pub traps: u64,
    /// Traps delayed: five were sent in the last second, or too many are pending.
    pub traps_suppressed: u64,
    /// Traps not sent because no manager wants them.
    pub traps_unwanted: u64,
    /// Announcements sent.
    pub announcements: u64,
}

impl AgentCounts {
    /// Names and values.
    #[must_use]
    pub const fn named(&self) -> [(&'static str, u64); 12] {
        [
            ("requests", self.requests),
            ("malformed", self.malformed),
            ("not_manager", self.not_manager),
            ("not_owner", self.not_owner),
            ("sets_limited", self.sets_limited),
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
