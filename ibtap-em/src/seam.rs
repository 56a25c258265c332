//! What the program asks of the engine: events and the time go in, messages and a deadline come out.

use proto::{Gid, Qpn, Time};

use crate::api::{
    CountersInfo, DrainRequest, Drained, ExplainRequest, Explanation, MacInfo, PortInfo,
    PortSelection, VeswInfo, VeswSelection,
};
use crate::config::Config;
use crate::state::State;

/// Where management comes from, and goes to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Endpoint {
    /// The port.
    pub gid: Gid,
    /// The queue pair.
    pub qpn: Qpn,
}

/// Whom a message is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Destination {
    /// One agent.
    Agent(Endpoint),
    /// All agents and managers of the port's default partition.
    Group,
}

/// A message to send: a whole MAD, cut after the data it has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outgoing {
    /// Whom it is for.
    pub to: Destination,
    /// The MAD.
    pub mad: Vec<u8>,
}

/// Names a request for counters that agents are being asked for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Inquiry(pub u64);

/// What the engine knows for `status`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Overview {
    /// Agents that answer.
    pub agents: usize,
    /// Agents that do not any more.
    pub agents_away: usize,
    /// Switches of the configuration.
    pub switches: usize,
    /// Virtual ports that are members of one.
    pub members: usize,
    /// Those of them that forward.
    pub forwarding: usize,
    /// Requests that wait for an answer or for their turn.
    pub outstanding: usize,
    /// What goes wrong as a whole, sentences.
    pub problems: Vec<String>,
    /// What was done, by name.
    pub counters: Vec<(&'static str, u64)>,
}

/// The engine, as the program runs it. It is made of a configuration, the state on disk, and a number that
/// was drawn for this run (`Engine::new(config, state, seed)`). Errors are sentences for the user.
pub trait Manager {
    /// The fabric port has come, has another address, or (`None`) has gone.
    fn attach(&mut self, now: Time, own: Option<Endpoint>);

    /// It is the one that manages from now on, or no longer is: then it sets nothing.
    fn set_active(&mut self, now: Time, active: bool);

    /// The configuration is another one from now on.
    fn configure(&mut self, now: Time, config: Config);

    /// State that is to be on the disk before anything else is sent; `None` where nothing has changed since
    /// it was asked last, or it is too early to try again.
    fn take_unsaved(&mut self, now: Time) -> Option<State>;

    /// What was taken last could not be written. The engine goes on, has it among its problems, and offers
    /// it again after a while.
    fn not_saved(&mut self, now: Time, why: &str);

    /// Why state is not on the disk as it is in memory, a sentence.
    fn save_problem(&self) -> Option<&str>;

    /// A MAD has come. ManagerInfo is not among them.
    fn receive(&mut self, now: Time, from: Endpoint, mad: &[u8]);

    /// Does what the time has come for.
    fn advance(&mut self, now: Time);

    /// The next message that is to be sent now.
    fn poll_transmit(&mut self, now: Time) -> Option<Outgoing>;

    /// When [`Manager::advance`] is to be called at the latest.
    fn next_deadline(&self) -> Option<Time>;

    /// For `status`.
    fn overview(&self, now: Time) -> Overview;

    /// Switches, in the order of their ids.
    ///
    /// # Errors
    /// There is no such switch.
    fn vesws(&self, which: &VeswSelection) -> Result<Vec<VeswInfo>, String>;

    /// Virtual ports, in the order of GUID, port and index.
    ///
    /// # Errors
    /// There is no such switch.
    fn ports(&self, now: Time, which: &VeswSelection) -> Result<Vec<PortInfo>, String>;

    /// Addresses, by switch and address.
    ///
    /// # Errors
    /// There is no such switch.
    fn macs(&self, which: &VeswSelection) -> Result<Vec<MacInfo>, String>;

    /// Begins to ask agents for counters.
    ///
    /// # Errors
    /// No port matches, or the pattern is none.
    fn ask_counters(&mut self, now: Time, which: &PortSelection) -> Result<Inquiry, String>;

    /// The counters, once all agents have answered or were given up; `None` until then. What was taken
    /// is forgotten.
    fn take_counters(&mut self, inquiry: Inquiry) -> Option<Vec<CountersInfo>>;

    /// Nobody waits for these counters any longer.
    fn forget_counters(&mut self, inquiry: Inquiry);

    /// What becomes of a frame.
    ///
    /// # Errors
    /// There is no such switch.
    fn explain(&self, request: &ExplainRequest) -> Result<Explanation, String>;

    /// Has a switch or ports drop all, or forward again.
    ///
    /// # Errors
    /// There is no such switch nor port.
    fn drain(&mut self, now: Time, request: &DrainRequest) -> Result<Drained, String>;
}
