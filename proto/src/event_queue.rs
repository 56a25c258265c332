//! A bounded queue of events for the control side.

use std::collections::VecDeque;

/// A queue of at most `MAX` events. Events that find it full are dropped and counted.
#[derive(Debug)]
pub struct EventQueue<T, const MAX: usize> {
    queue: VecDeque<T>,
    lost: u64,
}

impl<T, const MAX: usize> Default for EventQueue<T, MAX> {
    fn default() -> EventQueue<T, MAX> {
        EventQueue {
            queue: VecDeque::new(),
            lost: 0,
        }
    }
}

impl<T, const MAX: usize> EventQueue<T, MAX> {
    /// Appends an event, unless the queue is full.
    pub fn push(&mut self, event: T) {
        if self.queue.len() < MAX {
            self.queue.push_back(event);
        } else {
            self.lost += 1;
        }
    }

    /// Removes and returns the oldest event.
    pub fn pop(&mut self) -> Option<T> {
        self.queue.pop_front()
    }

    /// Whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Number of events dropped because the queue was full.
    pub const fn lost(&self) -> u64 {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_lost_and_counted() {
        let mut queue = EventQueue::<u8, 2>::default();
        (1..=5).for_each(|n| queue.push(n));
        assert_eq!((queue.pop(), queue.lost()), (Some(1), 3));
        queue.push(6);
        assert_eq!(
            [queue.pop(), queue.pop(), queue.pop()],
            [Some(2), Some(6), None]
        );
        assert_eq!((queue.is_empty(), queue.lost()), (true, 3));
    }
}
