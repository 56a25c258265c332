//! What was posted on a connection and is not acknowledged yet.

use std::collections::VecDeque;

/// One post list. Its last work request alone is signalled, so that it has one completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PostList {
    /// Messages in it.
    pub messages: u32,
    /// Bytes of all of them.
    pub bytes: u64,
}

/// The post lists of one connection. A send queue completes in order (IBA vol. 1, 10.8.3.1).
#[derive(Debug, Default)]
pub struct Sends {
    lists: VecDeque<PostList>,
    messages: u32,
}

impl Sends {
    /// A list was posted.
    pub fn push(&mut self, list: PostList) {
        self.messages += list.messages;
        self.lists.push_back(list);
    }

    /// The oldest list is done.
    pub fn pop(&mut self) -> Option<PostList> {
        let list = self.lists.pop_front()?;
        self.messages -= list.messages;
        Some(list)
    }

    /// Messages outstanding: so many entries of the send queue are taken.
    pub const fn messages(&self) -> u32 {
        self.messages
    }

    /// Lists outstanding, each with a piece of memory.
    pub fn lists(&self) -> usize {
        self.lists.len()
    }

    /// Whether nothing is outstanding.
    pub fn is_empty(&self) -> bool {
        self.lists.is_empty()
    }
}
