//! Counters of an agent.

proto::counters! {
    /// Counters of an agent.
    pub struct AgentCounts {
        /// Get and Set requests.
        requests,
        /// Malformed datagrams, or datagrams of another class.
        malformed,
        /// Requests and announcements of senders without permission.
        not_manager,
        /// Sets while another manager owns the agent.
        not_owner,
        /// Sets without an answer: there were too many.
        sets_limited,
        /// Refused requests: invalid value, unknown port, or failure of the host.
        invalid,
        /// Requests with an unsupported method or attribute.
        unsupported,
        /// Requests to the group that must be sent to one agent.
        to_all,
        /// Traps sent.
        traps,
        /// Traps delayed: five were sent in the last second, or too many are pending.
        traps_suppressed,
        /// Traps not sent because no manager wants them.
        traps_unwanted,
        /// Announcements sent.
        announcements,
    }
}
