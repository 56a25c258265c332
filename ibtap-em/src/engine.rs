//! The engine: configures the fabric as the configuration requires.
//!
//! The engine is level-triggered. It compares the known state of each agent with the wanted state; the first
//! difference becomes a request, the answer updates the known state, and so on until there is no difference.
//! A lost, repeated or late message is at worst one more difference. Each agent has one open request at a
//! time. The order for a virtual port is: stop it, set it up, send its directory, send its MAC table, let it
//! forward.
//!
//! Sans-IO: messages and time go in, messages and a deadline come out. The engine writes the log.

mod agent;
mod answer;
mod assign;
mod claims;
mod counters;
mod disputes;
mod drain;
mod explain;
mod hear;
mod manager;
mod matching;
mod next;
mod queue;
mod request;
mod roster;
mod switch;
mod tables;
mod target;
mod transactions;
mod view;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use log::Level;
use vnic::Lid;
use vnic::mad::{Mad, method};

use crate::config::{Config, PortKey};
use crate::seam::{Destination, Endpoint, Outgoing};
use crate::state::State;
use agent::{Agent, AgentKey};
use counters::Inquiries;
use proto::Time;
use queue::Queue;
use switch::Switch;
use tables::Names;
use transactions::{Expired, Transactions};

/// Maximum number of agents; further ones are ignored.
const AGENTS_MAX: usize = 4096;
/// Milliseconds of discovery, before anything is removed from members that forward.
const DISCOVERY: u64 = 2_000;
/// Milliseconds to wait for remembered agents, before anything is removed.
const HOLD: u64 = 10_000;
/// Times of the queries to all agents, in milliseconds from the start; then each minute.
const ASK_ALL: [u64; 3] = [0, 1_000, 3_000];
const ASK_ALL_LATER: u64 = 60_000;
/// Minimum interval of these queries when agents stop answering.
const ASK_ALL_PAUSE: u64 = 5_000;
/// Milliseconds before a released LID is used again, so that no other member still sends to it.
const QUARANTINE: u64 = 60_000;

/// The Ethernet Manager without fabric and disk.
#[derive(Debug)]
pub struct Engine {
    config: Config,
    state: State,
    /// State has changed since it was last returned for saving.
    unsaved: bool,
    /// Reason why it could not be saved, and the time of the next attempt.
    save_failed: Option<(String, Time)>,
    own: Option<Endpoint>,
    /// Time when the fabric port was attached.
    attached: Time,
    active: bool,
    agents: BTreeMap<AgentKey, Agent>,
    /// Agents by endpoint.
    by_endpoint: BTreeMap<Endpoint, AgentKey>,
    /// With a full table, no agent to replace is searched for before this time.
    full_until: Time,
    switches: BTreeMap<u16, Switch>,
    /// Owners of LIDs.
    lids: BTreeMap<Lid, PortKey>,
    /// End of the quarantine of LIDs.
    quarantine: BTreeMap<Lid, Time>,
    open: Transactions,
    /// Digests of the next tables.
    names: Names,
    /// Agents to process: those that answer, and those that may not.
    ready: Queue,
    unsure: Queue,
    /// Times at which agents are processed.
    wakes: BTreeSet<(Time, AgentKey)>,
    out: VecDeque<Outgoing>,
    ask_all: Time,
    asked_all: usize,
    asked_last: Option<Time>,
    inquiries: Inquiries,
    /// Number of changes of configuration and role. Assignments of an older number are checked again.
    settings: u64,
    done: Done,
    /// Texts of [`Engine::log_once`] since the last configuration.
    logged: BTreeSet<String>,
    #[cfg(test)]
    log: Vec<String>,
}

/// Events since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Done {
    requests: u64,
    sets: u64,
    repeated: u64,
    given_up: u64,
    refused: u64,
    malformed: u64,
    unexpected: u64,
    traps: u64,
    announcements: u64,
    announcements_early: u64,
    agents_refused: u64,
    moves_refused: u64,
    moves: u64,
    saves_failed: u64,
}

impl Engine {
    /// Creates an engine. `mark` is a random number of this run: it identifies the answers to this manager,
    /// if other managers run on the node.
    #[must_use]
    pub fn new(config: Config, state: State, mark: u32) -> Engine {
        let mut engine = Engine {
            open: Transactions::new(mark, config.em.poll_interval),
            names: Names::new(mark),
            lids: state.members.iter().map(|(k, m)| (m.lid, *k)).collect(),
            quarantine: state
                .quarantined
                .keys()
                .map(|lid| (*lid, Time(0)))
                .collect(),
            config,
            state,
            unsaved: true,
            save_failed: None,
            own: None,
            attached: Time(0),
            active: false,
            agents: BTreeMap::new(),
            by_endpoint: BTreeMap::new(),
            full_until: Time(0),
            switches: BTreeMap::new(),
            ready: Queue::default(),
            unsure: Queue::default(),
            wakes: BTreeSet::new(),
            out: VecDeque::new(),
            ask_all: Time(0),
            asked_all: 0,
            asked_last: None,
            inquiries: Inquiries::default(),
            settings: 1,
            done: Done::default(),
            logged: BTreeSet::new(),
            #[cfg(test)]
            log: Vec::new(),
        };
        engine.make_switches(Time(0));
        engine
    }

    /// State that survives a restart.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    fn log(&mut self, level: Level, text: impl Into<String>) {
        let text = text.into();
        log::log!(target: "ibtap_em", level, "{text}");
        #[cfg(test)]
        self.log.push(text);
    }

    /// [`Engine::log`], once for each text and configuration.
    fn log_once(&mut self, level: Level, text: String) {
        if self.logged.len() < 4096 && self.logged.insert(text.clone()) {
            self.log(level, text);
        }
    }

    /// Name of a port for logs and output.
    fn name(&self, key: PortKey) -> String {
        let description = match self.agents.get(&AgentKey::of(key)) {
            Some(agent) => Some(&agent.description),
            None => self.state.members.get(&key).map(|m| &m.description),
        };
        match description.filter(|description| !description.is_empty()) {
            Some(description) => format!("{description}:{}:{}", key.port, key.index),
            None => key.to_string(),
        }
    }

    /// Schedules the next processing of an agent.
    fn schedule(&mut self, now: Time, key: AgentKey) {
        let Some(agent) = self.agents.get(&key) else {
            return;
        };
        let retries = agent.ports.values().filter_map(|vport| vport.again);
        let next = retries
            .chain(agent.traps_again)
            .filter(|time| *time > now && !agent.silent)
            .chain([agent.next_poll])
            .min();
        if let Some(next) = next {
            self.wakes.insert((next, key));
        }
    }

    fn wake(&mut self, now: Time) {
        while let Some((time, key)) = self.wakes.first().copied() {
            if time > now {
                return;
            }
            self.wakes.pop_first();
            let interval = self.config.em.poll_interval;
            if let Some(agent) = self.agents.get_mut(&key)
                && agent.next_poll <= now
            {
                agent.next_poll = now.after(agent.pause(interval));
                agent.silent = false;
                agent.audit(now);
            }
            self.schedule(now, key);
            self.touch(key);
        }
    }

    fn expire(&mut self, now: Time) {
        while let Some(expired) = self.open.expire(now) {
            match expired {
                Expired::Again { to, mad } => {
                    self.done.repeated += 1;
                    let to = Destination::Agent(to);
                    self.out.push_back(Outgoing { to, mad });
                }
                Expired::GivenUp { agent, request } => self.given_up(now, agent, &request),
            }
        }
    }

    /// Asks all agents for their NodeInfo.
    fn ask_all_agents(&mut self, now: Time) {
        if self.own.is_none() || self.ask_all > now {
            return;
        }
        if now >= self.attached.after(HOLD) {
            // The configuration of the run before had them, and their nodes are absent.
            self.release_strangers(now);
        }
        self.asked_all += 1;
        self.asked_last = Some(now);
        self.ask_all = match ASK_ALL.get(self.asked_all) {
            Some(after) => self.attached.after(*after).max(now.after(1)),
            // After a fault of the network, a missing agent may return without an announcement.
            None if self.is_member_missing() => now.after(self.config.em.poll_interval),
            None => now.after(ASK_ALL_LATER),
        };
        self.out.push_back(Outgoing {
            to: Destination::Group,
            mad: request::Request::NodeInfo(0).encode(0),
        });
    }

    /// Asks all agents soon: an agent does not answer and may have moved.
    fn ask_all_agents_soon(&mut self, now: Time) {
        let last = self.asked_last.map(|at| at.after(ASK_ALL_PAUSE));
        self.ask_all = self.ask_all.min(last.map_or(now, |soon| soon.max(now)));
    }

    /// Whether a remembered member's agent was not heard in this run.
    fn is_member_missing(&self) -> bool {
        let mut members = self.state.members.iter().filter(|(_, m)| !m.gone);
        members.any(|(key, _)| !self.agents.contains_key(&AgentKey::of(*key)))
    }

    fn end_quarantine(&mut self, now: Time) {
        let before = self.quarantine.len();
        let state = &mut self.state;
        self.quarantine.retain(|lid, until| {
            // The quarantine of a former run's LIDs starts now.
            if *until == Time(0) {
                *until = now.after(QUARANTINE);
            }
            let stays = *until > now;
            if !stays {
                state.quarantined.remove(lid);
            }
            stays
        });
        self.unsaved |= self.quarantine.len() != before;
    }

    /// Assignments must be on disk before they are sent, unless saving failed.
    fn waits_for_disk(&self) -> bool {
        self.unsaved && self.save_failed.is_none()
    }

    /// Starts requests, each agent in turn. Set requests wait until assignments are on disk; other agents
    /// continue, and their assignments are saved with the rest.
    fn pump(&mut self, now: Time) {
        let mut held = Vec::new();
        while !self.open.is_full() {
            let Some(key) = self.next_ready() else {
                break;
            };
            if !self.begin(now, key) {
                held.push(key);
            }
        }
        held.into_iter().for_each(|key| self.touch(key));
    }

    /// Starts the next request of an agent. Returns false if the request must wait for the disk.
    fn begin(&mut self, now: Time, key: AgentKey) -> bool {
        self.schedule(now, key);
        let Some(request) = self.next_request(now, key) else {
            return true;
        };
        if self.waits_for_disk() && request.is_set() {
            return false;
        }
        let Some(agent) = self.agents.get_mut(&key) else {
            return true;
        };
        self.done.requests += 1;
        self.done.sets += u64::from(request.is_set());
        let to = agent.at;
        let (id, mad) = self.open.begin(now, key, to, request);
        agent.busy = Some(id);
        let to = Destination::Agent(to);
        self.out.push_back(Outgoing { to, mad });
        true
    }

    /// Cancels all Set requests, sent or queued: another manager is active now.
    fn stop_sets(&mut self) {
        for (key, request) in self.open.cancel_sets() {
            let Some(agent) = self.agents.get_mut(&key) else {
                continue;
            };
            agent.busy = None;
            let index = request.index();
            if let Some(vport) = index.and_then(|index| agent.ports.get_mut(&index)) {
                vport.doubt();
            }
        }
        let is_set = |mad: &[u8]| Mad::parse(mad).is_ok_and(|mad| mad.header.method == method::SET);
        self.out.retain(|message| !is_set(&message.mad));
    }

    /// Cancels all requests and reads everything again.
    fn restart(&mut self, now: Time) {
        self.out.clear();
        self.attached = now;
        self.ask_all = now;
        self.asked_all = 0;
        self.asked_last = None;
        let keys: Vec<AgentKey> = self.agents.keys().copied().collect();
        for key in keys {
            let why = "the fabric port changed meanwhile";
            self.interrupt(key, why);
            self.fail_asks(key, why);
            if let Some(agent) = self.agents.get_mut(&key) {
                agent.silent = false;
                agent.deaf = 0;
                agent.audit(now);
            }
            self.touch(key);
        }
        for switch in self.switches.values_mut() {
            switch.unsettle(now);
        }
    }
}

#[cfg(test)]
mod tests;
