//! What comes from the fabric: answers, announcements of agents, traps.

use log::Level;
use proto::Time;
use vnic::attribute::NodeInfo;
use vnic::mad::{Mad, Notice, TrapKind, attribute, method};

use super::Engine;
use super::agent::AgentKey;
use super::request::Request;
use super::roster::PORTS_OF_GID;
use crate::seam::Endpoint;

/// Milliseconds between two announcements of a node that are heard. Agents leave 200 between them.
const HASTE: u64 = 100;
/// Why there are no counters.
const NO_ANSWER: &str = "its agent does not answer";

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
                Ok(info) => self.hear_announcement(now, from, &info),
                Err(_) => self.done.malformed += 1,
            },
            (method::TRAP, attribute::NOTICE) => match mad.attribute::<Notice>() {
                Ok(notice) => self.hear_trap(now, from, &notice),
                Err(_) => self.done.malformed += 1,
            },
            _ => self.done.unexpected += 1,
        }
    }

    /// An agent tells who it is, on its own. Of a node that does so again sooner than any agent the next
    /// word counts: what it says may be a state that is to be written, and a line of the log.
    fn hear_announcement(&mut self, now: Time, from: Endpoint, info: &NodeInfo) {
        self.done.announcements += 1;
        let key = AgentKey::named(info);
        let known = self.agents.get(&key);
        let known = known.is_some_and(|agent| agent.at.gid == from.gid);
        let before = self.last_announced(from.gid).filter(|_| known);
        if before.is_some_and(|before| now.since(before) < HASTE) {
            self.done.announcements_early += 1;
            return;
        }
        self.hear_node(now, from, info);
        let agent = self.agents.get_mut(&key);
        if let Some(agent) = agent.filter(|agent| agent.at == from) {
            agent.announced = Some(now);
        }
    }

    fn hear_answer(&mut self, now: Time, from: Endpoint, mad: &Mad<'_>) {
        let Some((key, request)) = self.open.answered(from, &mad.header) else {
            // Late, doubled, or to another manager.
            self.done.unexpected += 1;
            return;
        };
        if let Some(agent) = self.agents.get_mut(&key) {
            agent.busy = None;
            agent.answered = true;
            agent.deaf = 0;
            agent.doubted = false;
        }
        self.heard(now, key);
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
        // Perhaps it hears nothing; then it waits for the next poll.
        agent.silent &= agent.is_deaf();
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
        agent.miss();
        let (away, went) = (agent.is_away(), agent.went_away());
        let deaf = agent.is_deaf();
        if let Some(index) = request.index()
            && let Some(vport) = agent.ports.get_mut(&index)
        {
            vport.doubt();
        }
        if let Request::GetCounters(index, _, inquiry) = request {
            self.no_counters(key, *index, *inquiry, NO_ANSWER);
        }
        self.fail_asks(key, NO_ANSWER);
        if self.follow_claim(now, key) {
            return;
        }
        if !away && !deaf {
            // It may be elsewhere, and its word about that be lost.
            self.ask_everybody_soon(now);
        } else if went {
            self.went_away(now, key);
        }
        self.schedule(now, key);
    }

    /// An agent has not answered for so long that it is away.
    fn went_away(&mut self, now: Time, key: AgentKey) {
        let Some(agent) = self.agents.get(&key) else {
            return;
        };
        let name = format!("{} ({key}) does not answer any more", agent.description);
        if self.has_members(key) {
            let grace = self.config.em.grace / 1000;
            let text = format!("{name}; the others keep its addresses for {grace} s");
            self.tell(Level::Warn, text);
            self.mark_members_dirty(now, key);
        } else {
            // There is nothing to remember of it, and should it come back it says so.
            self.drop_agent(key, NO_ANSWER);
            let text = format!("{name}; it has no port on a switch, and is forgotten");
            self.tell(Level::Info, text);
        }
    }

    fn hear_trap(&mut self, now: Time, from: Endpoint, notice: &Notice) {
        self.done.traps += 1;
        let Some(key) = self.by_endpoint.get(&from).copied() else {
            return;
        };
        if self.agents.get(&key).is_none_or(|agent| agent.doubted) {
            return;
        }
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
        let key = AgentKey::named(info);
        if !self.find_agent(now, key, from, info) {
            return;
        }
        self.heard(now, key);
        let room = self.room_for_ports(from.gid, key);
        let Some(agent) = self.agents.get_mut(&key) else {
            return;
        };
        // What is left of its ports is asked for.
        agent.page = info.next;
        agent.poll_due = info.next != 0;
        if agent.payload_max != info.payload_max || agent.description != info.description {
            agent.news = true;
            agent.payload_max = info.payload_max;
            agent.description.clone_from(&info.description);
        }
        let mut left_out = false;
        for wanted in &info.ports {
            if agent.ports.len() >= room && !agent.ports.contains_key(&wanted.index) {
                left_out = true;
                continue;
            }
            let vport = agent.ports.entry(wanted.index).or_default();
            if vport.interface.as_ref() != Some(&wanted.name) {
                agent.news = true;
                vport.interface = Some(wanted.name.clone());
            }
            if vport.qpn != Some(wanted.qpn) {
                agent.news = true;
                vport.qpn = Some(wanted.qpn);
                // The agent has made or changed it: what is known of it may be old.
                vport.info_due = true;
                vport.again = None;
            }
        }
        for (index, vport) in agent.ports.range_mut(info.told()) {
            let told = vport.interface.is_some() || vport.qpn.is_some();
            if told && !info.ports.iter().any(|wanted| wanted.index == *index) {
                agent.news = true;
                vport.interface = None;
                vport.qpn = None;
            }
        }
        // One that came from another GID brings some along.
        while agent.ports.len() > room {
            left_out |= agent.ports.pop_last().is_some();
            agent.news = true;
        }
        // Who was not told of yet is not gone.
        let news = info.next == 0 && std::mem::take(&mut agent.news);
        if left_out {
            let text = format!(
                "{} says that it has more than {PORTS_OF_GID} virtual ports; the others are left out",
                from.gid
            );
            self.tell_once(Level::Warn, text);
        }
        if news {
            self.match_ports(now, key);
            self.follow_node(now, key);
        }
        self.touch(key);
    }
}
