//! Queues of agents to process, in turn.

use std::collections::BTreeSet;
use std::ops::Bound;

use super::Engine;
use super::agent::AgentKey;
use super::transactions::WINDOW;

/// Maximum number of open requests to agents that may not answer. Such agents, however many, do not delay the
/// others.
const UNSURE_MAX: usize = WINDOW / 2;

/// A set of agents.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: BTreeSet<AgentKey>,
    /// The agent processed last.
    turn: Option<AgentKey>,
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn insert(&mut self, key: AgentKey) {
        self.waiting.insert(key);
    }

    pub(super) fn remove(&mut self, key: AgentKey) {
        self.waiting.remove(&key);
    }

    fn next(&mut self) -> Option<AgentKey> {
        let after = self.turn.and_then(|turn| {
            let behind = (Bound::Excluded(turn), Bound::Unbounded);
            self.waiting.range(behind).next().copied()
        });
        let key = after.or_else(|| self.waiting.first().copied())?;
        self.turn = Some(key);
        self.waiting.remove(&key);
        Some(key)
    }
}

impl Engine {
    /// Queues an agent.
    pub(super) fn touch(&mut self, key: AgentKey) {
        match self.is_sure(key) {
            true => self.ready.insert(key),
            false => self.unsure.insert(key),
        }
    }

    /// The next agent to process.
    pub(super) fn next_ready(&mut self) -> Option<AgentKey> {
        if let Some(key) = self.ready.next() {
            return Some(key);
        }
        let open = self.open.agents().filter(|key| !self.is_sure(*key));
        if open.count() >= UNSURE_MAX {
            return None;
        }
        self.unsure.next()
    }

    /// Whether an agent answered the last request. Announcements are not answers.
    fn is_sure(&self, key: AgentKey) -> bool {
        let agent = self.agents.get(&key);
        agent.is_some_and(|agent| agent.answered && agent.missed == 0)
    }
}
