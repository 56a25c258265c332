//! Receive buffers of messages that peers begin and do not end. Such messages would block all other
//! connections of the worker.
//!
//! Buffers are scarce when messages hold more than half of them. Then the GID with the most unfinished
//! messages gives first, and its oldest message before the others, until half of the buffers are free or no
//! GID has more than [`SHARE`]. A live peer ends a message within milliseconds.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

use proto::{CloseReason, Gid, Instant, WcStatus};

use super::Engine;
use super::lookup::Place;

/// How long a message may be unfinished while buffers are scarce.
const UNFINISHED_MAX: Duration = Duration::from_millis(100);

/// Unfinished messages that a GID may have longer than that: one for each thread of a peer.
const SHARE: usize = 4;

/// If no buffer is left, the longest time that any message may be unfinished.
const UNFINISHED_OF_SHARE_MAX: Duration = Duration::from_secs(1);

/// The interval of the search for such messages.
const LOOK_AT_UNFINISHED: Duration = Duration::from_millis(20);

impl Engine {
    /// If receive buffers are scarce, ends connections whose peers began a message and do not end it.
    pub(super) fn reclaim_buffers(&mut self, now: Instant) {
        let srq = &self.shared.srq;
        // The buffers of complete messages come back with the next batch.
        let free = srq.available() + self.shared.inbox.messages.len();
        let wanted = srq.count() / 2;
        if free >= wanted || now < self.look_at_unfinished {
            return;
        }
        self.look_at_unfinished = now.after(LOOK_AT_UNFINISHED);
        for place in self.held_too_long(now, free == 0, wanted - free) {
            self.shared.counts.unfinished_messages += 1;
            self.end(now, place, CloseReason::Failed(WcStatus::GeneralErr));
        }
    }

    /// The connections that must give their buffers: up to `missing` of those beyond the shares, and all
    /// very old ones if no buffer is left.
    fn held_too_long(&self, now: Instant, none_left: bool, missing: usize) -> Vec<Place> {
        let mut by_peer: HashMap<Gid, Vec<(Instant, Place)>> = HashMap::new();
        for place in self.table.places(|c| c.qp.unfinished_since().is_some()) {
            let c = self.table.get(place);
            if let Some((since, c)) = c.and_then(|c| Some((c.qp.unfinished_since()?, c))) {
                by_peer.entry(c.peer).or_default().push((since, place));
            }
        }
        let is_older = |since, than| now.since(since) > than;
        // Each old message with the number of messages that its peer has if the newer ones stay.
        let mut held = Vec::new();
        for messages in by_peer.values_mut() {
            messages.sort_unstable_by_key(|message| Reverse(*message));
            let numbered = messages.iter().zip(1..);
            let old = numbered.filter(|((since, _), _)| is_older(*since, UNFINISHED_MAX));
            held.extend(old.map(|(&(since, place), number)| (number, since, place)));
        }
        held.sort_unstable_by_key(|&(number, ..)| Reverse(number));
        let beyond = held.iter().take_while(|(number, ..)| *number > SHARE);
        let mut given: Vec<Place> = beyond.take(missing).map(|&(_, _, place)| place).collect();
        let rest = held[given.len()..].iter();
        let too_old =
            rest.filter(|(_, since, _)| none_left && is_older(*since, UNFINISHED_OF_SHARE_MAX));
        given.extend(too_old.map(|&(_, _, place)| place));
        given
    }
}
