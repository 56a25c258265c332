//! What a requester sends again, and what it may hear meanwhile.
//!
//! The IBA's requester goes back: behind the packet that was missing, or that it has heard nothing of,
//! it sends everything again (IBA vol. 1, 9.7.5.1.2). Since we keep what comes behind a gap, we could
//! acknowledge all of it at once. But `rdma_rxe` must not hear of a packet that it is only about to
//! send again: its completer moves on without completing the request
//! (drivers/infiniband/sw/rxe/rxe_comp.c, `COMPST_WRITE_SEND`: the request is not
//! `wqe_state_pending`), and if then the repeated packet or its acknowledgement is lost, its timer
//! finds nothing to retry (`COMPST_ERROR_RETRY`), and the queue pair stands still for ever. So what
//! is there is acknowledged when it has been repeated, or when the requester is silent.
//!
//! One like ours sends only what is missing and waits for the acknowledgement. Which kind it is shows
//! each time; one that is known to be of this kind need not wait.

use std::ops::Range;
use std::time::Duration;

use proto::Instant;

/// So long nothing comes from a requester that may repeat what was kept, until it is taken for one
/// that does not: less than one like ours waits before it asks.
const SILENCE: Duration = Duration::from_millis(1);

/// The same for one that has repeated packets before.
const PAUSE: Duration = Duration::from_millis(5);

/// How sure one can be of either kind.
const SURE: i8 = 2;

/// Packets that are there and that the requester may send again.
#[derive(Clone, Debug)]
struct Tail {
    at: Range<u64>,
    /// What is to come of it: everything before this has been repeated, or lost once more.
    repeated: u64,
    /// Until when the acknowledgement waits; `None` if it does not.
    until: Option<Instant>,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Repeats {
    /// Above 0 for one that goes back, below 0 for one that does not.
    goes_back: i8,
    tail: Option<Tail>,
}

impl Repeats {
    /// Whether the requester goes back as far as is known, and will come to further gaps by itself.
    pub const fn are_expected(&self) -> bool {
        self.goes_back > 0
    }

    /// Whether acknowledgements have to wait.
    pub fn hold(&self) -> bool {
        self.deadline().is_some()
    }

    /// The requester may send these packets again, which may be none: they had been kept behind a gap
    /// that is filled now, or come behind one that it has repeated.
    pub fn expect(&mut self, now: Instant, at: Range<u64>) {
        self.end();
        let wait = match self.goes_back {
            i8::MIN..=-1 => None,
            0 => Some(SILENCE),
            1.. => Some(PAUSE),
        };
        self.tail = Some(Tail {
            repeated: at.start,
            until: wait.map(|wait| now.after(wait)),
            at,
        });
    }

    /// The packet at `position` came again; all before `expected` are there.
    pub fn came(&mut self, now: Instant, position: u64, expected: u64) {
        match &mut self.tail {
            Some(tail) if tail.at.contains(&position) => {
                tail.repeated = tail.repeated.max(position + 1);
                if let Some(until) = &mut tail.until {
                    *until = now.after(PAUSE);
                }
                if tail.repeated == tail.at.end {
                    self.end();
                }
            }
            // It has heard nothing and goes back, or only asks.
            _ if position + 1 < expected => self.expect(now, position + 1..expected),
            _ => {}
        }
    }

    /// The requester has gone on to something new, or is to hear something else: what was kept is
    /// behind it.
    pub fn end(&mut self) {
        let Some(Tail { at, repeated, .. }) = self.tail.take() else {
            return;
        };
        if at.is_empty() {
            return;
        }
        // A requester like ours repeats a few more packets than are missing where several were.
        let half = at.start + (at.end - at.start) / 2;
        let kind = if repeated > half { 1 } else { -1 };
        self.goes_back = (self.goes_back + kind).clamp(-SURE, SURE);
    }

    /// When [`Repeats::handle_timeout`] wants to be called.
    pub fn deadline(&self) -> Option<Instant> {
        self.tail.as_ref()?.until
    }

    /// Lets time pass. True if something has waited long enough.
    pub fn handle_timeout(&mut self, now: Instant) -> bool {
        let is_over = self.deadline().is_some_and(|until| until <= now);
        if is_over && let Some(tail) = &mut self.tail {
            tail.until = None;
        }
        is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Instant = Instant(1_000_000_000);

    /// A requester that has repeated all of so many tails, or none of them.
    fn known(tails: usize, goes_back: bool) -> Repeats {
        let mut repeats = Repeats::default();
        for _ in 0..tails {
            repeats.expect(START, 4..8);
            if goes_back {
                come(&mut repeats, 4..8);
            }
            repeats.end();
        }
        repeats
    }

    /// Packets of 20 come again.
    fn come(repeats: &mut Repeats, positions: Range<u64>) {
        for position in positions {
            repeats.came(START, position, 20);
        }
    }

    #[test]
    fn an_unknown_requester_is_waited_for_until_it_has_repeated_everything() {
        let mut repeats = Repeats::default();
        repeats.expect(START, 4..7);
        for position in 4..7 {
            assert!(repeats.hold());
            come(&mut repeats, position..position + 1);
        }
        assert!(!repeats.hold());
        assert!(repeats.are_expected());
    }

    #[test]
    fn each_repeated_packet_prolongs_the_wait() {
        let mut repeats = Repeats::default();
        repeats.expect(START, 4..7);
        assert_eq!(repeats.deadline(), Some(START.after(SILENCE)));
        repeats.came(START.after(SILENCE / 2), 4, 20);
        assert!(!repeats.handle_timeout(START.after(SILENCE)));
        assert!(repeats.hold());
        assert!(repeats.handle_timeout(START.after(SILENCE + PAUSE)));
        assert!(!repeats.hold());
        // It was too slow; that is no reason to take it for the other kind.
        come(&mut repeats, 6..7);
        assert!(repeats.are_expected());
    }

    #[test]
    fn a_silent_requester_is_waited_for_once() {
        let mut repeats = Repeats::default();
        repeats.expect(START, 4..7);
        assert!(repeats.handle_timeout(START.after(SILENCE)));
        repeats.expect(START, 14..17);
        assert!(!repeats.hold());
        assert!(!repeats.are_expected());
    }

    #[test]
    fn a_requester_that_asks_is_waited_for_once() {
        let mut repeats = Repeats::default();
        come(&mut repeats, 3..4);
        assert!(repeats.hold());
        come(&mut repeats, 3..4);
        assert!(!repeats.hold());
    }

    #[test]
    fn a_requester_that_goes_back_by_itself_is_waited_for() {
        let mut repeats = known(1, true);
        for _ in 0..5 {
            come(&mut repeats, 3..19);
            assert!(repeats.hold());
            come(&mut repeats, 19..20);
            assert!(!repeats.hold());
        }
        // It begins anew.
        come(&mut repeats, 3..9);
        come(&mut repeats, 3..19);
        assert!(repeats.hold());
    }

    #[test]
    fn the_last_packet_needs_no_others() {
        let mut repeats = Repeats::default();
        come(&mut repeats, 19..20);
        assert!(!repeats.hold());
    }

    #[test]
    fn lost_repetitions_and_bursts_change_no_sure_opinion() {
        let mut repeats = known(5, true);
        repeats.expect(START, 4..5);
        repeats.end();
        assert!(repeats.are_expected());
        let mut repeats = known(5, false);
        repeats.expect(START, 4..5);
        come(&mut repeats, 4..5);
        repeats.expect(START, 6..10);
        assert!(!repeats.hold());
        come(&mut repeats, 6..8);
        repeats.expect(START, 16..20);
        assert!(!repeats.hold());
    }

    #[test]
    fn where_nothing_was_kept_nothing_is_learned() {
        let mut repeats = known(1, true);
        for _ in 0..5 {
            repeats.expect(START, 4..4);
            assert!(repeats.hold());
            repeats.end();
        }
        assert!(repeats.are_expected());
    }
}
