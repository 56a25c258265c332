//! Messages from the fabric: answers, announcements of agents, traps.

use log::Level;
use proto::Time;
use vnic::attribute::NodeInfo;
use vnic::mad::{Mad, Notice, TrapKind, attribute, method};

use super::Engine;
use super::agent::AgentKey;
use super::request::Request;
use super::roster::PORTS_OF_GID;
use crate::seam::Endpoint;

/// Minimum milliseconds between two announcements of a node; earlier ones are ignored. Agents leave 200
/// between them.
const HASTE: u64 = 100;
/// Reason for missing counters.
pub(super) const NO_ANSWER: &str = "its agent does not answer";

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

    /// Processes an unsolicited NodeInfo. Announcements that come faster than any agent sends them are
    /// ignored: each may cause a write of the state and a log line.
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
            // Late, repeated, or for another manager.
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

    /// An agent sent a message.
    pub(super) fn heard(&mut self, now: Time, key: AgentKey) {
        let Some(agent) = self.agents.get_mut(&key) else {
            return;
        };
        let was_away = agent.is_away();
        agent.heard = now;
        agent.missed = 0;
        // It may receive nothing; then it waits for the next poll.
        agent.silent &= agent.is_deaf();
        if was_away {
            agent.audit(now);
            let text = format!("{} ({key}) is back", agent.description);
            self.log(Level::Info, text);
            self.not_gone(now, key);
        }
    }

    /// A request was repeated without an answer.
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
            // The agent may have moved, and its announcement may be lost.
            self.ask_all_agents_soon(now);
        } else if went {
            self.went_away(now, key);
        }
        self.schedule(now, key);
    }

    /// An agent is away: it has not answered several polls.
    fn went_away(&mut self, now: Time, key: AgentKey) {
        let Some(agent) = self.agents.get(&key) else {
            return;
        };
        let name = format!("{} ({key}) no longer answers", agent.description);
        if self.has_members(key) {
            let grace = self.config.em.grace / 1000;
            let text = format!("{name}; other members keep its addresses for {grace} s");
            self.log(Level::Warn, text);
            self.mark_members_dirty(now, key);
        } else {
            // Nothing of it has to be remembered; if it returns, it announces itself.
            self.drop_agent(key, NO_ANSWER);
            let text = format!("{name}; it has no port on a switch and is forgotten");
            self.log(Level::Info, text);
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

    /// Processes a NodeInfo, unsolicited or requested.
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
        // The rest of its ports is queried next.
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
                // The agent created or changed the port: known information may be outdated.
                vport.info_due = true;
                vport.again = None;
            }
        }
        for (index, vport) in agent.ports.range_mut(info.range()) {
            let listed = vport.interface.is_some() || vport.qpn.is_some();
            if listed && !info.ports.iter().any(|wanted| wanted.index == *index) {
                agent.news = true;
                vport.interface = None;
                vport.qpn = None;
            }
        }
        // An agent that moved from another GID may bring more ports than there is room for.
        while agent.ports.len() > room {
            left_out |= agent.ports.pop_last().is_some();
            agent.news = true;
        }
        // Ports that are still to be listed are not gone.
        let news = info.next == 0 && std::mem::take(&mut agent.news);
        if left_out {
            let text = format!(
                "{} announces more than {PORTS_OF_GID} virtual ports; further ones are ignored",
                from.gid
            );
            self.log_once(Level::Warn, text);
        }
        if news {
            self.match_ports(now, key);
            self.follow_node(now, key);
        }
        self.touch(key);
    }
}
