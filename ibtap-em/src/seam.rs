//! The interface between program and engine: events and time go in, messages and a deadline come out.

use proto::{Gid, Qpn, Time};

use crate::api::{
    CountersInfo, DrainRequest, Drained, ExplainRequest, Explanation, MacInfo, PortInfo,
    PortSelection, VeswInfo, VeswSelection,
};
use crate::config::Config;
use crate::state::State;

/// Source or destination of a management datagram.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Endpoint {
    /// The port.
    pub gid: Gid,
    /// The queue pair.
    pub qpn: Qpn,
}

/// Destination of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Destination {
    /// One agent.
    Agent(Endpoint),
    /// All agents and managers of the port's default partition.
    Group,
}

/// A message to send: a whole MAD, cut after its data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outgoing {
    /// Destination.
    pub to: Destination,
    /// The MAD.
    pub mad: Vec<u8>,
}

/// Identifies a request for counters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Inquiry(pub u64);

/// The engine's part of `status`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Overview {
    /// Agents that answer.
    pub agents: usize,
    /// Agents that no longer answer.
    pub agents_away: usize,
    /// Switches of the configuration.
    pub switches: usize,
    /// Virtual ports that are members of a switch.
    pub members: usize,
    /// Members that forward.
    pub forwarding: usize,
    /// Requests that wait for an answer or in a queue.
    pub outstanding: usize,
    /// Global problems, one sentence each.
    pub problems: Vec<String>,
    /// Counters since the start, by name.
    pub counters: Vec<(&'static str, u64)>,
}

/// The engine's interface to the program. An engine is created from a configuration, the state on disk and a
/// random number of this run (`Engine::new(config, state, seed)`). Errors are sentences for the user.
pub trait Manager {
    /// The fabric port was attached, has another address, or (`None`) was detached.
    fn attach(&mut self, now: Time, own: Option<Endpoint>);

    /// Becomes active or stops. An engine that is not active sets nothing.
    fn set_active(&mut self, now: Time, active: bool);

    /// Applies a new configuration.
    fn configure(&mut self, now: Time, config: Config);

    /// State to save before the next message; `None` if nothing has changed since the last call, or if it is
    /// too early to retry.
    fn take_unsaved(&mut self, now: Time) -> Option<State>;

    /// The last state could not be saved. The engine continues, reports the problem, and offers the state
    /// again later.
    fn not_saved(&mut self, now: Time, why: &str);

    /// Reason why the state on disk is out of date, one sentence.
    fn save_problem(&self) -> Option<&str>;

    /// Processes a MAD other than ManagerInfo.
    fn receive(&mut self, now: Time, from: Endpoint, mad: &[u8]);

    /// Processes everything that is due.
    fn advance(&mut self, now: Time);

    /// The next message to send.
    fn poll_transmit(&mut self, now: Time) -> Option<Outgoing>;

    /// Latest time for the next call of [`Manager::advance`].
    fn next_deadline(&self) -> Option<Time>;

    /// For `status`.
    fn overview(&self, now: Time) -> Overview;

    /// Switches, ordered by id.
    ///
    /// # Errors
    /// Unknown switch.
    fn vesws(&self, which: &VeswSelection) -> Result<Vec<VeswInfo>, String>;

    /// Virtual ports, ordered by GUID, port and index.
    ///
    /// # Errors
    /// Unknown switch.
    fn ports(&self, now: Time, which: &VeswSelection) -> Result<Vec<PortInfo>, String>;

    /// Addresses, ordered by switch and address.
    ///
    /// # Errors
    /// Unknown switch.
    fn macs(&self, which: &VeswSelection) -> Result<Vec<MacInfo>, String>;

    /// Starts a request for counters.
    ///
    /// # Errors
    /// No port matches, or the pattern is wrong.
    fn ask_counters(&mut self, now: Time, which: &PortSelection) -> Result<Inquiry, String>;

    /// Returns and removes the counters, once all agents have answered or were given up; `None` until then.
    fn take_counters(&mut self, inquiry: Inquiry) -> Option<Vec<CountersInfo>>;

    /// Ends a request whose client is gone.
    fn forget_counters(&mut self, inquiry: Inquiry);

    /// Where a frame goes.
    ///
    /// # Errors
    /// Unknown switch.
    fn explain(&self, request: &ExplainRequest) -> Result<Explanation, String>;

    /// Makes a switch or ports drop all frames, or forward again. After this call, the state can be saved before the
    /// retry time of a failed save.
    ///
    /// # Errors
    /// Unknown switch or port.
    fn drain(&mut self, now: Time, request: &DrainRequest) -> Result<Drained, String>;
}
