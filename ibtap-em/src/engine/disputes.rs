//! Agents that are known at one node, and say that they are at another one.
//!
//! Who an agent is it says itself. So where it is known to be it is asked first: what answers there stays,
//! and whoever else takes its name gets nothing for it. What does not answer has moved, and what it says
//! counts once it answers there.

use log::Level;
use proto::Time;

use super::Engine;
use super::agent::AgentKey;
use super::roster::STAYS;
use crate::seam::Endpoint;

/// Milliseconds for which an agent that has answered is not asked about the next one that takes its name.
/// Should it have moved just then, its silence is seen by the next poll.
const CONFIRMED: u64 = 5_000;

impl Engine {
    /// Somebody says that it is this agent, from where it is not known to be.
    pub(super) fn hear_claim(&mut self, now: Time, key: AgentKey, to: Endpoint) {
        let Some(agent) = self.agents.get_mut(&key) else {
            return;
        };
        if agent.elsewhere == Some(to) {
            return;
        }
        let silent = agent.missed > 0 || agent.is_deaf();
        let confirmed = agent.confirmed.is_some_and(|at| now.since(at) < CONFIRMED);
        let just_moved = silent && now.since(agent.placed) < STAYS;
        if confirmed || just_moved || agent.elsewhere.is_some() {
            self.done.moves_refused += 1;
            return;
        }
        agent.elsewhere = Some(to);
        if silent {
            self.follow_claim(now, key);
        } else {
            agent.poll_due = true;
            self.touch(key);
        }
    }

    /// An agent has said something where it is known to be: nobody else is it.
    pub(super) fn stays(&mut self, now: Time, key: AgentKey) {
        let Some(agent) = self.agents.get_mut(&key) else {
            return;
        };
        let Some(to) = agent.elsewhere.take() else {
            return;
        };
        agent.confirmed = Some(now);
        let text = format!(
            "two nodes, at {} and at {}, say that they are {key}; the first, which was there before and \
             answers, is believed; if both are yours give one of them another GUID",
            agent.at.gid, to.gid
        );
        self.done.moves_refused += 1;
        self.tell_once(Level::Warn, text);
    }

    /// An agent has not answered where it was. Returns whether somebody else has said where it is: it is
    /// asked there then.
    pub(super) fn follow_claim(&mut self, now: Time, key: AgentKey) -> bool {
        let claim = self.agents.get_mut(&key).and_then(|a| a.elsewhere.take());
        let Some(to) = claim.filter(|to| self.vacate(now, *to, key)) else {
            return false;
        };
        self.interrupt(key, "its agent is somewhere else");
        self.place(now, key, to);
        let Some(agent) = self.agents.get_mut(&key) else {
            return false;
        };
        agent.forget();
        agent.answered = false;
        agent.doubted = true;
        agent.silent = false;
        agent.poll_due = true;
        agent.page = 0;
        let text = format!(
            "{} ({key}) does not answer where it was, and says that it is at {} QPN {}",
            agent.description, to.gid, to.qpn
        );
        self.tell(Level::Info, text);
        self.schedule(now, key);
        self.touch(key);
        true
    }
}
