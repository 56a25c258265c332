//! What comes from the fabric: answers, announcements of agents, traps.

use log::Level;
use vnic::Time;
use vnic::attribute::NodeInfo;
use vnic::mad::{Mad, Notice, TrapKind, attribute, method};

use super::agent::{Agent, AgentKey, Vport};
use super::request::Request;
use super::{AGENTS_MAX, Engine};
use crate::seam::Endpoint;

impl Engine {
    pub(super) fn hear(&mut self, now: Time, from: Endpoint, bytes: &[u8]) {
        let Ok(mad) = Mad::parse(bytes) else {
            self.done.malformed += 1;
            return;
        };
        let is = (mad.header.method, mad.header.attribute_id.get());
        match is {
            (method::GET_RESP, _) => self.hear_answer(now, from, &mad),
            (method::SEND, attribute::NODE_INFO) => match mad.attribute::<NodeInfo>() {
                Ok(info) => {
                    self.done.announcements += 1;
                    self.hear_node(now, from, &info);
                }
                Err(_) => self.done.malformed += 1,
            },
            (method::TRAP, attribute::NOTICE) => match mad.attribute::<Notice>() {
                Ok(notice) => self.hear_trap(now, from, &notice),
                Err(_) => self.done.malformed += 1,
            },
            _ => self.done.unexpected += 1,
        }
    }

    fn hear_answer(&mut self, now: Time, from: Endpoint, mad: &Mad<'_>) {
        let Some((key, request)) = self.open.answered(from, &mad.header) else {
            // Late, doubled, or to another manager.
            self.done.unexpected += 1;
            return;
        };
        self.heard(now, key);
        if let Some(agent) = self.agents.get_mut(&key) {
            agent.busy = None;
        }
        self.take_answer(now, key, from, request, mad);
        self.touch(key);
    }

    /// An agent has said something.
    pub(super) fn heard(&mut self, now: Time, key: AgentKey) {
        let Some(agent) = self.agents.get_mut(&key) else {
            return;
        };
        let was_away = agent.is_away();
        agent.heard = now;
        agent.missed = 0;
        agent.silent = false;
        if was_away {
            agent.audit(now);
            let text = format!("{} ({key}) is back", agent.description);
            self.tell(Level::Info, text);
            self.not_gone(now, key);
        }
    }

    /// A request was sent often enough.
    pub(super) fn given_up(&mut self, now: Time, key: AgentKey, request: &Request) {
        self.done.given_up += 1;
        let Some(agent) = self.agents.get_mut(&key) else {
            return;
        };
        agent.busy = None;
        agent.missed = agent.missed.saturating_add(1);
        agent.silent = true;
        if let Some(index) = request.index()
            && let Some(vport) = agent.ports.get_mut(&index)
        {
            // Whether it was done is not known.
            vport.forget_table();
            vport.directory = None;
            vport.directory_due = true;
            vport.directory_sent = (0, 0);
            vport.info_due = true;
        }
        let asks = std::mem::take(&mut agent.asks);
        let went = agent.went_away().then(|| {
            format!(
                "{} ({key}) does not answer any more; the others keep its addresses for {} s",
                agent.description,
                self.config.em.grace / 1000
            )
        });
        if let Request::GetCounters(index, _, inquiry) = request {
            self.no_counters(key, *index, *inquiry, "its agent does not answer");
        }
        for (index, _, inquiry) in asks {
            self.no_counters(key, index, inquiry, "its agent does not answer");
        }
        if let Some(text) = went {
            self.tell(Level::Warn, text);
            self.mark_members_dirty(now, key);
        }
        self.schedule(now, key);
    }

    fn hear_trap(&mut self, now: Time, from: Endpoint, notice: &Notice) {
        self.done.traps += 1;
        let Some(key) = self.by_endpoint.get(&from).copied() else {
            return;
        };
        self.heard(now, key);
        if let Some(agent) = self.agents.get_mut(&key)
            && let Some(vport) = agent.ports.get_mut(&notice.index)
        {
            vport.info_due = true;
            match notice.kind {
                TrapKind::UcastMacs => vport.unicast.due = true,
                TrapKind::McastMacs => vport.multicast.due = true,
                TrapKind::LinkStatus => {}
            }
        }
        self.touch(key);
    }

    /// An agent tells who it is: on its own, or asked.
    pub(super) fn hear_node(&mut self, now: Time, from: Endpoint, info: &NodeInfo) {
        let key = AgentKey {
            guid: u64::from_be_bytes(info.guid.0),
            port: info.port,
        };
        if !self.agents.contains_key(&key) && !self.admit(now, key, from, info) {
            return;
        }
        self.heard(now, key);
        self.move_agent(key, from, info);
        let Some(agent) = self.agents.get_mut(&key) else {
            return;
        };
        // What is left of its ports is asked for.
        agent.page = info.next;
        agent.poll_due = info.next != 0;
        if agent.payload_max != info.payload_max || agent.description != info.description {
            agent.payload_max = info.payload_max;
            agent.description.clone_from(&info.description);
        }
        for wanted in &info.ports {
            let vport = agent.ports.entry(wanted.index).or_default();
            vport.interface = Some(wanted.name.clone());
            if vport.qpn != Some(wanted.qpn) {
                vport.qpn = Some(wanted.qpn);
                // The agent has made or changed it: what is known of it may be old.
                vport.info_due = true;
                vport.again = None;
            }
        }
        for (index, vport) in agent.ports.range_mut(info.told()) {
            if !info.ports.iter().any(|wanted| wanted.index == *index) {
                vport.interface = None;
                vport.qpn = None;
            }
        }
        // Who was not told of yet is not gone.
        if info.next == 0 {
            self.match_ports(now, key);
            self.follow_node(now, key);
        }
        self.touch(key);
    }

    /// A new agent, if there is room.
    fn admit(&mut self, now: Time, key: AgentKey, from: Endpoint, info: &NodeInfo) -> bool {
        if self.agents.len() >= AGENTS_MAX && !self.forget_agent() {
            self.tell_once(
                Level::Warn,
                format!("there are more than {AGENTS_MAX} agents; others are not managed"),
            );
            return false;
        }
        let mut agent = Agent::new(now, from, info);
        // Polls of many agents are spread over the interval.
        let interval = self.config.em.poll_interval;
        let spread = u64::from(crc32fast::hash(&key.guid.to_be_bytes())) % interval.max(1);
        agent.next_poll = now.after(interval / 2 + spread / 2);
        self.agents.insert(key, agent);
        self.by_endpoint.insert(from, key);
        self.tell(
            Level::Info,
            format!(
                "{} ({key}) is there, at {} QPN {}, with {} virtual ports",
                info.description,
                from.gid,
                from.qpn,
                info.ports.len()
            ),
        );
        true
    }

    /// Makes room: an agent that is away, and whose ports are gone, is forgotten.
    fn forget_agent(&mut self) -> bool {
        let useless = |(key, agent): &(&AgentKey, &Agent)| {
            let all = key.vport(0)..=key.vport(u8::MAX);
            let mut members = self.state.members.range(all);
            agent.is_away() && members.all(|(_, member)| member.gone)
        };
        let found = self.agents.iter().find(useless);
        let Some((key, at)) = found.map(|(key, agent)| (*key, agent.at)) else {
            return false;
        };
        self.agents.remove(&key);
        if self.by_endpoint.get(&at) == Some(&key) {
            self.by_endpoint.remove(&at);
        }
        true
    }

    /// It has started anew, or is somewhere else: it knows nothing any more.
    fn move_agent(&mut self, key: AgentKey, from: Endpoint, info: &NodeInfo) {
        let Some(agent) = self.agents.get_mut(&key) else {
            return;
        };
        let moved = agent.at != from;
        let restarted = agent.incarnation != info.incarnation;
        if !moved && !restarted {
            return;
        }
        if let Some(id) = agent.busy.take()
            && let Some(Request::GetCounters(index, _, inquiry)) = self.open.cancel(id)
        {
            self.no_counters(key, index, inquiry, "its agent has started anew");
        }
        let Some(agent) = self.agents.get_mut(&key) else {
            return;
        };
        let twice = agent.before == Some((from, info.incarnation));
        let old = std::mem::replace(&mut agent.at, from);
        agent.before = Some((old, agent.incarnation));
        agent.incarnation = info.incarnation;
        agent.forget();
        if moved {
            if self.by_endpoint.get(&old) == Some(&key) {
                self.by_endpoint.remove(&old);
            }
            self.by_endpoint.insert(from, key);
        }
        if twice {
            let (a, b) = (old.gid.min(from.gid), old.gid.max(from.gid));
            self.tell_once(
                Level::Warn,
                format!(
                    "two nodes, at {a} and at {b}, say that they are {key}; give one of them another GUID"
                ),
            );
            return;
        }
        let what = if restarted {
            "has started anew"
        } else {
            "has another address"
        };
        self.tell(
            Level::Info,
            format!(
                "{} ({key}) {what}, at {} QPN {}",
                info.description, from.gid, from.qpn
            ),
        );
    }

    /// Which virtual ports of an agent are on which switch.
    pub(super) fn match_ports(&mut self, now: Time, key: AgentKey) {
        let Some(agent) = self.agents.get_mut(&key) else {
            return;
        };
        let patterns = || {
            self.config
                .switches
                .iter()
                .flat_map(|switch| &switch.members)
        };
        // Ports that nobody has named are made where the configuration names one.
        let made: Vec<u8> = patterns()
            .filter(|p| p.matches_node(&agent.description, key.guid, key.port))
            .filter_map(|pattern| pattern.exact_index())
            .collect();
        agent
            .ports
            .retain(|index, vport| vport.interface.is_some() || made.contains(index));
        for index in made {
            agent.ports.entry(index).or_insert_with(Vport::default);
        }
        let mut left = Vec::new();
        let mut twice = Vec::new();
        for (index, vport) in &mut agent.ports {
            let port = key.vport(*index);
            let mut matching = self.config.switches.iter().filter(|switch| {
                let mut members = switch.members.iter();
                members.any(|pattern| pattern.matches(&agent.description, port))
            });
            let switch = matching.next();
            if let (Some(first), Some(second)) = (switch, matching.next()) {
                twice.push((port, first.name.clone(), second.name.clone()));
            }
            let id = switch.map(|switch| switch.id);
            if vport.switch != id {
                vport.switch = id;
                vport.refused = None;
                vport.again = None;
            }
            if id.is_none() {
                left.push(port);
            }
        }
        for (port, first, second) in twice {
            let name = self.name(port);
            self.tell_once(
                Level::Warn,
                format!(
                    "{name} is a member of {first:?} and of {second:?}; {first:?}, the first in the \
                     file, has it"
                ),
            );
        }
        for port in left {
            self.release(now, port);
        }
    }
}
