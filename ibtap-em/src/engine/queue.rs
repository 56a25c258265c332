//! Agents that are to be looked at, each in its turn.

use std::collections::BTreeSet;
use std::ops::Bound;

use super::Engine;
use super::agent::AgentKey;
use super::transactions::WINDOW;

/// Requests that may be open to agents of which nobody knows that they answer. However many of those there
/// are, the others are asked and told without them.
const UNSURE_MAX: usize = WINDOW / 2;

/// Some agents.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: BTreeSet<AgentKey>,
    /// The last one whose turn it was.
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
    /// An agent is to be looked at.
    pub(super) fn touch(&mut self, key: AgentKey) {
        match self.is_sure(key) {
            true => self.ready.insert(key),
            false => self.unsure.insert(key),
        }
    }

    /// The next agent that is to be looked at.
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

    /// Whether an agent has answered what it was asked last. What it says of itself is no answer.
    fn is_sure(&self, key: AgentKey) -> bool {
        let agent = self.agents.get(&key);
        agent.is_some_and(|agent| agent.answered && agent.missed == 0)
    }
}
