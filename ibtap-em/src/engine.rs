//! The engine: it brings the fabric to what the configuration asks for, and keeps it there.
//!
//! It is level-triggered. What is known of each agent is compared with what is wanted, and the first
//! difference becomes a request; its answer becomes knowledge, and so on until there is no difference. A
//! message that is lost, doubled or late is one more difference at worst. Each agent has one request open
//! at a time; for a virtual port the order is: hold it, set it up, tell it where the others are, give it
//! its MAC table, have it forward.
//!
//! Messages and the time go in, messages and a deadline come out; it logs what it does.

mod agent;
mod answer;
mod assign;
mod claims;
mod counters;
mod disputes;
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

/// Agents that are known; more are not heard.
const AGENTS_MAX: usize = 4096;
/// Milliseconds in which agents are found before anything is taken away from those that forward.
const DISCOVERY: u64 = 2_000;
/// How long agents that are known from before are waited for, before anything is taken away.
const HOLD: u64 = 10_000;
/// When all are asked to tell of themselves, in milliseconds from the beginning; then each minute.
const ASK_ALL: [u64; 3] = [0, 1_000, 3_000];
const ASK_ALL_LATER: u64 = 60_000;
/// Between two times at least, however many agents stop answering.
const ASK_ALL_PAUSE: u64 = 5_000;
/// How long a LID stays unused that was taken from a port, so that nobody sends to it any more.
const QUARANTINE: u64 = 60_000;

/// The Ethernet Manager without its way to the fabric and to the disk.
#[derive(Debug)]
pub struct Engine {
    config: Config,
    state: State,
    /// State has changed since it was taken to be saved.
    unsaved: bool,
    /// Why it could not be saved, and when to try again.
    save_failed: Option<(String, Time)>,
    own: Option<Endpoint>,
    /// Since when there is a fabric.
    attached: Time,
    active: bool,
    agents: BTreeMap<AgentKey, Agent>,
    /// Each agent, by where it is.
    by_endpoint: BTreeMap<Endpoint, AgentKey>,
    /// Until then nobody is looked for who makes room for more agents.
    full_until: Time,
    switches: BTreeMap<u16, Switch>,
    /// Who has a LID.
    lids: BTreeMap<Lid, PortKey>,
    /// Until when LIDs are in quarantine.
    quarantine: BTreeMap<Lid, Time>,
    open: Transactions,
    /// What the next tables are called.
    names: Names,
    /// Agents to look at: those that answer, and those of which that is not known.
    ready: Queue,
    unsure: Queue,
    /// When agents are to be looked at.
    wakes: BTreeSet<(Time, AgentKey)>,
    out: VecDeque<Outgoing>,
    ask_all: Time,
    asked_all: usize,
    asked_last: Option<Time>,
    inquiries: Inquiries,
    /// Counts configurations and parts: what was given by another one is looked at again.
    settings: u64,
    done: Done,
    /// What was told already, and is not told again while it is so.
    told: BTreeSet<String>,
    #[cfg(test)]
    log: Vec<String>,
}

/// What was done since the start.
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
    /// An engine that has nothing but what it is to do and what it did. `mark` was drawn for this run: by
    /// it answers are told from those to other managers of this node.
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
            told: BTreeSet::new(),
            #[cfg(test)]
            log: Vec::new(),
        };
        engine.make_switches(Time(0));
        engine
    }

    /// What is to survive a restart.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    fn tell(&mut self, level: Level, text: impl Into<String>) {
        let text = text.into();
        log::log!(target: "ibtap_em", level, "{text}");
        #[cfg(test)]
        self.log.push(text);
    }

    /// [`Engine::tell`], unless it was told already with this configuration.
    fn tell_once(&mut self, level: Level, text: String) {
        if self.told.len() < 4096 && self.told.insert(text.clone()) {
            self.tell(level, text);
        }
    }

    /// How people know a port.
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

    /// When an agent is to be looked at next if nothing happens.
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

    /// All agents are asked to tell of themselves.
    fn ask_everybody(&mut self, now: Time) {
        if self.own.is_none() || self.ask_all > now {
            return;
        }
        self.asked_all += 1;
        self.asked_last = Some(now);
        self.ask_all = match ASK_ALL.get(self.asked_all) {
            Some(after) => self.attached.after(*after).max(now.after(1)),
            // Who is not there may come back without a word, if it was only the network that went.
            None if self.somebody_is_missing() => now.after(self.config.em.poll_interval),
            None => now.after(ASK_ALL_LATER),
        };
        self.out.push_back(Outgoing {
            to: Destination::Group,
            mad: request::Request::NodeInfo(0).encode(0),
        });
    }

    /// The same soon: an agent does not answer, and may be elsewhere.
    fn ask_everybody_soon(&mut self, now: Time) {
        let last = self.asked_last.map(|at| at.after(ASK_ALL_PAUSE));
        self.ask_all = self.ask_all.min(last.map_or(now, |soon| soon.max(now)));
    }

    /// Whether there are members of before whose agents this run has not heard.
    fn somebody_is_missing(&self) -> bool {
        let mut members = self.state.members.iter().filter(|(_, m)| !m.gone);
        members.any(|(key, _)| !self.agents.contains_key(&AgentKey::of(*key)))
    }

    fn end_quarantine(&mut self, now: Time) {
        let before = self.quarantine.len();
        let state = &mut self.state;
        self.quarantine.retain(|lid, until| {
            // What a former run has left begins with this one.
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

    /// What was given is on the disk before anybody hears of it; unless the disk does not take it.
    fn waits_for_disk(&self) -> bool {
        self.unsaved && self.save_failed.is_none()
    }

    /// Begins requests, each agent in its turn. What is given on the way is on the disk before anybody is
    /// told, so that Sets wait for that; the others go on, and what they are given is saved with it.
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

    /// Begins an agent's next request. Returns false if it has to wait for the disk.
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

    /// Nothing is set any more, by what waits or would be sent again neither: setting is another manager's
    /// now.
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

    /// Everything open is given up; all is looked at again.
    fn restart(&mut self, now: Time) {
        self.out.clear();
        self.attached = now;
        self.ask_all = now;
        self.asked_all = 0;
        self.asked_last = None;
        let keys: Vec<AgentKey> = self.agents.keys().copied().collect();
        for key in keys {
            let why = "the way to the fabric was another one meanwhile";
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
