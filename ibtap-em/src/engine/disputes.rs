//! Conflicts of identity: a known agent is announced from another node.
//!
//! An announcement is no proof of identity. The known endpoint is queried first. If it answers, the agent
//! stays there and the other node gets nothing. Otherwise the agent has moved; the new endpoint counts once
//! it answers.

use log::Level;
use proto::Time;

use super::Engine;
use super::agent::AgentKey;
use super::roster::STAYS;
use crate::seam::Endpoint;

/// Milliseconds after an answer in which further claims to the same identity cause no query. If the agent
/// moved in that time, the next poll notices.
const CONFIRMED: u64 = 5_000;

impl Engine {
    /// Another endpoint announces the identity of this agent.
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

    /// The agent answered at its known endpoint: the claim of the other endpoint is refused.
    pub(super) fn stays(&mut self, now: Time, key: AgentKey) {
        let Some(agent) = self.agents.get_mut(&key) else {
            return;
        };
        let Some(to) = agent.elsewhere.take() else {
            return;
        };
        agent.confirmed = Some(now);
        let text = format!(
            "the nodes {} and {} both announce the identity {key}; the first was known before and answers, \
             so it keeps the identity; if both nodes are yours, give one another GUID",
            agent.at.gid, to.gid
        );
        self.done.moves_refused += 1;
        self.log_once(Level::Warn, text);
    }

    /// An agent did not answer at its known endpoint. Returns whether another endpoint claims its identity
    /// and is queried now.
    pub(super) fn follow_claim(&mut self, now: Time, key: AgentKey) -> bool {
        let claim = self.agents.get_mut(&key).and_then(|a| a.elsewhere.take());
        let Some(to) = claim.filter(|to| self.vacate(now, *to, key)) else {
            return false;
        };
        self.interrupt(key, "its agent has moved");
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
            "{} ({key}) does not answer at its known address; trying {} QPN {}, which announces it",
            agent.description, to.gid, to.qpn
        );
        self.log(Level::Info, text);
        self.schedule(now, key);
        self.touch(key);
        true
    }
}
