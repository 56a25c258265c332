//! Known agents: one for each endpoint, with limits for each node and in total.

use std::ops::RangeInclusive;

use log::Level;
use proto::{Gid, Qpn, Time};
use vnic::attribute::NodeInfo;

use super::agent::{Agent, AgentKey};
use super::request::Request;
use super::{AGENTS_MAX, Engine};
use crate::config::PortKey;
use crate::seam::Endpoint;
use crate::state::Member;

/// Maximum number of agents of one GID. A node has one; the limit keeps a forger from filling the table.
pub(super) const AGENTS_OF_GID: usize = 64;
/// Maximum number of virtual ports of all agents of one GID: twice those of one agent. The limit keeps a
/// forger from filling the state and the switches.
pub(super) const PORTS_OF_GID: usize = 512;
/// Minimum milliseconds before an endpoint can change its agent.
pub(super) const STAYS: u64 = 1_000;
/// Milliseconds between two searches of a full table for an agent to remove.
const SEARCH_AGAIN: u64 = 1_000;

impl Engine {
    /// Finds or adds the agent of a NodeInfo. Returns false if the NodeInfo must be ignored.
    pub(super) fn find_agent(
        &mut self,
        now: Time,
        key: AgentKey,
        from: Endpoint,
        info: &NodeInfo,
    ) -> bool {
        let Some(agent) = self.agents.get(&key) else {
            return self.vacate(now, from, key) && self.admit(now, key, from, info);
        };
        let elsewhere = agent.at.gid != from.gid;
        if elsewhere || (agent.doubted && agent.at != from) {
            self.hear_claim(now, key, from);
            return false;
        }
        if agent.doubted {
            return false;
        }
        self.stays(now, key);
        let there = self.vacate(now, from, key);
        if there {
            self.follow_agent(now, key, from, info);
        }
        there
    }

    /// Removes another agent from an endpoint. Returns false if that agent is too new to be replaced.
    pub(super) fn vacate(&mut self, now: Time, at: Endpoint, key: AgentKey) -> bool {
        let former = self.by_endpoint.get(&at).copied();
        let Some(former) = former.filter(|former| *former != key) else {
            return true;
        };
        let agent = self.agents.get(&former);
        if agent.is_some_and(|agent| now.since(agent.placed) < STAYS) {
            self.done.agents_refused += 1;
            return false;
        }
        self.replace_agent(now, former);
        true
    }

    /// Another agent uses the endpoint of this agent, for example after a node's ports were renumbered: the
    /// assignments of its ports are released.
    pub(super) fn replace_agent(&mut self, now: Time, key: AgentKey) {
        let ports: Vec<PortKey> = self.members_of(key).map(|(port, _)| *port).collect();
        for port in ports {
            self.release(now, port);
        }
        let Some(agent) = self.agents.get(&key) else {
            return;
        };
        let text = format!(
            "{} ({key}) is gone: another agent uses {} QPN {} now",
            agent.description, agent.at.gid, agent.at.qpn
        );
        self.log(Level::Info, text);
        self.drop_agent(key, "another agent replaced its agent");
    }

    /// Removes an agent; assignments of its ports stay. `why` answers requests for counters.
    pub(super) fn drop_agent(&mut self, key: AgentKey, why: &str) {
        self.interrupt(key, why);
        self.fail_asks(key, why);
        let Some(agent) = self.agents.remove(&key) else {
            return;
        };
        if self.by_endpoint.get(&agent.at) == Some(&key) {
            self.by_endpoint.remove(&agent.at);
        }
        self.ready.remove(key);
        self.unsure.remove(key);
    }

    /// Cancels the open request of an agent.
    pub(super) fn interrupt(&mut self, key: AgentKey, why: &str) {
        let busy = self.agents.get_mut(&key).and_then(|a| a.busy.take());
        let request = busy.and_then(|id| self.open.cancel(id));
        if let Some(Request::GetCounters(index, _, inquiry)) = request {
            self.no_counters(key, index, inquiry, why);
        }
    }

    fn members_of(&self, key: AgentKey) -> impl Iterator<Item = (&PortKey, &Member)> {
        let all = key.vport(0)..=key.vport(u8::MAX);
        self.state.members.range(all)
    }

    /// Whether a port of an agent is, or was, on a switch.
    pub(super) fn has_members(&self, key: AgentKey) -> bool {
        self.members_of(key).next().is_some()
    }

    /// Adds a new agent if there is room.
    fn admit(&mut self, now: Time, key: AgentKey, from: Endpoint, info: &NodeInfo) -> bool {
        if !self.has_room(now, from.gid) {
            self.done.agents_refused += 1;
            return false;
        }
        let mut agent = Agent::new(now, from, info);
        // Spreads the polls of many agents over the interval.
        let interval = self.config.em.poll_interval;
        let spread = u64::from(crc32fast::hash(&key.guid.to_be_bytes())) % interval.max(1);
        agent.next_poll = now.after(interval / 2 + spread / 2);
        self.agents.insert(key, agent);
        self.by_endpoint.insert(from, key);
        self.schedule(now, key);
        self.log(
            Level::Info,
            format!(
                "found {} ({key}) at {} QPN {}, with {} virtual ports",
                info.description,
                from.gid,
                from.qpn,
                info.ports.len()
            ),
        );
        true
    }

    /// Whether there is room for another agent; removes a useless agent if necessary.
    fn has_room(&mut self, now: Time, gid: Gid) -> bool {
        let here = self.by_endpoint.range(endpoints(gid)).count();
        if here >= AGENTS_OF_GID {
            let useless =
                self.find_useless(self.by_endpoint.range(endpoints(gid)).map(|(_, k)| *k));
            if useless.is_none() {
                self.log_once(
                    Level::Warn,
                    format!("{gid} announces {AGENTS_OF_GID} agents; further ones are ignored"),
                );
            }
            return self.make_room(useless);
        }
        if self.agents.len() < AGENTS_MAX {
            return true;
        }
        if now < self.full_until {
            return false;
        }
        let useless = self.find_useless(self.agents.keys().copied());
        if useless.is_none() {
            self.full_until = now.after(SEARCH_AGAIN);
            self.log_once(
                Level::Warn,
                format!("more than {AGENTS_MAX} agents; further ones are not managed"),
            );
        }
        self.make_room(useless)
    }

    /// Time of the last announcement by any agent of a GID.
    pub(super) fn last_announced(&self, gid: Gid) -> Option<Time> {
        let here = self.by_endpoint.range(endpoints(gid));
        here.filter_map(|(_, key)| self.agents.get(key)?.announced)
            .max()
    }

    /// Maximum number of virtual ports of an agent, given those of other agents of its GID.
    pub(super) fn room_for_ports(&self, gid: Gid, key: AgentKey) -> usize {
        let here = self.by_endpoint.range(endpoints(gid));
        let others = here.filter(|(_, other)| **other != key);
        let ports = others.filter_map(|(_, other)| Some(self.agents.get(other)?.ports.len()));
        PORTS_OF_GID.saturating_sub(ports.sum())
    }

    fn make_room(&mut self, useless: Option<AgentKey>) -> bool {
        if let Some(key) = useless {
            self.drop_agent(key, "its agent was removed to make room");
        }
        useless.is_some()
    }

    /// The agent to remove first: one that does not answer and has no port on a switch, then one that is away
    /// and whose ports are gone.
    fn find_useless(&self, keys: impl Iterator<Item = AgentKey>) -> Option<AgentKey> {
        let rank = |key: AgentKey| {
            let agent = self.agents.get(&key)?;
            let mut members = self.members_of(key);
            match self.has_members(key) {
                false => (agent.missed > 0 || agent.is_deaf()).then_some((0, key)),
                true if agent.is_away() && members.all(|(_, m)| m.gone) => Some((1, key)),
                true => None,
            }
        };
        keys.filter_map(rank).min().map(|(_, key)| key)
    }

    /// A known agent may have restarted or moved: its state is unknown.
    fn follow_agent(&mut self, now: Time, key: AgentKey, from: Endpoint, info: &NodeInfo) {
        let Some(agent) = self.agents.get(&key) else {
            return;
        };
        let (old, former) = (agent.at, agent.incarnation);
        let (moved, restarted) = (old != from, former != info.incarnation);
        if !moved && !restarted {
            return;
        }
        self.interrupt(key, "its agent restarted");
        if moved {
            self.place(now, key, from);
        }
        let Some(agent) = self.agents.get_mut(&key) else {
            return;
        };
        let twice = agent.before == Some((from, info.incarnation));
        agent.before = Some((old, former));
        agent.incarnation = info.incarnation;
        agent.deaf = 0;
        agent.forget();
        if twice {
            let (a, b) = (old.min(from), old.max(from));
            self.log_once(
                Level::Warn,
                format!(
                    "two agents, at {} QPN {} and at {} QPN {}, announce the identity {key}; give one of \
                     them another GUID",
                    a.gid, a.qpn, b.gid, b.qpn
                ),
            );
            return;
        }
        let what = if restarted {
            "restarted"
        } else {
            "has a new address"
        };
        self.log(
            Level::Info,
            format!(
                "{} ({key}) {what}, at {} QPN {}",
                info.description, from.gid, from.qpn
            ),
        );
    }

    /// Moves an agent to an endpoint that no other agent uses.
    pub(super) fn place(&mut self, now: Time, key: AgentKey, to: Endpoint) {
        let Some(agent) = self.agents.get_mut(&key) else {
            return;
        };
        let old = std::mem::replace(&mut agent.at, to);
        agent.placed = now;
        if self.by_endpoint.get(&old) == Some(&key) {
            self.by_endpoint.remove(&old);
        }
        self.by_endpoint.insert(to, key);
    }
}

/// All queue pairs of a port.
const fn endpoints(gid: Gid) -> RangeInclusive<Endpoint> {
    let (first, last) = (Qpn::new(0), Qpn::new(0xff_ffff));
    Endpoint { gid, qpn: first }..=Endpoint { gid, qpn: last }
}
