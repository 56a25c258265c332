//! Posted messages of a connection that are not acknowledged yet.

use std::collections::VecDeque;

/// One post list. Only its last work request is signalled, so it has one completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PostList {
    /// Number of messages.
    pub messages: u32,
    /// Bytes of all messages.
    pub bytes: u64,
}

/// The post lists of one connection. A send queue completes in order (IBA vol. 1, 10.8.3.1).
#[derive(Debug, Default)]
pub struct Sends {
    lists: VecDeque<PostList>,
    messages: u32,
}

impl Sends {
    /// Adds a posted list.
    pub fn push(&mut self, list: PostList) {
        self.messages += list.messages;
        self.lists.push_back(list);
    }

    /// Removes the oldest list, which has completed.
    pub fn pop(&mut self) -> Option<PostList> {
        let list = self.lists.pop_front()?;
        self.messages -= list.messages;
        Some(list)
    }

    /// Outstanding messages, each with an entry of the send queue.
    pub const fn messages(&self) -> u32 {
        self.messages
    }

    /// Outstanding lists, each with a piece of memory.
    pub fn lists(&self) -> usize {
        self.lists.len()
    }

    /// Whether nothing is outstanding.
    pub fn is_empty(&self) -> bool {
        self.lists.is_empty()
    }
}
