//! Packets that a requester sends again, and when to acknowledge them.
//!
//! The IBA's requester goes back: after a missing or unacknowledged packet it sends everything again
//! (IBA vol. 1, 9.7.5.1.2). Since we keep packets after a gap, we could acknowledge all of them at
//! once. But `rdma_rxe` must not receive an acknowledgement of a packet that it is about to send again:
//! its completer moves on without completing the request (drivers/infiniband/sw/rxe/rxe_comp.c,
//! `COMPST_WRITE_SEND`: the request is not `wqe_state_pending`). If then the repeated packet or its
//! acknowledgement is lost, the timer finds nothing to retry (`COMPST_ERROR_RETRY`), and the queue pair
//! stops for ever. So kept packets are acknowledged after they were repeated, or when the requester is
//! silent. The requester also goes back after an RNR NAK.
//!
//! Our requester sends only missing packets and waits for the acknowledgement. Each gap shows the kind
//! of requester. A requester of this kind gets the acknowledgement at once.

use std::ops::Range;
use std::time::Duration;

use proto::Instant;

/// A requester that has sent nothing for this time does not repeat kept packets. Less than our
/// requester waits before it retransmits.
const SILENCE: Duration = Duration::from_millis(1);

/// The same for a requester that has repeated packets before.
const PAUSE: Duration = Duration::from_millis(5);

/// Maximum certainty about the kind of requester.
const SURE: i8 = 2;

/// Received packets that the requester may send again.
#[derive(Clone, Debug)]
struct Tail {
    at: Range<u64>,
    /// Packets before this position were repeated, or lost once more.
    repeated: u64,
    /// The acknowledgement waits until then; `None` if it does not wait.
    until: Option<Instant>,
}

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub struct Repeats {
    /// Above 0 if the requester goes back, below 0 if it does not.
    goes_back: i8,
    tail: Option<Tail>,
}

impl Repeats {
    /// Whether the requester goes back, as far as known, and will repeat further gaps by itself.
    pub const fn are_expected(&self) -> bool {
        self.goes_back > 0
    }

    /// Whether acknowledgements must wait.
    pub fn hold(&self) -> bool {
        self.deadline().is_some()
    }

    /// Records packets that the requester may send again, possibly none: they were kept after a gap
    /// that is now filled, or follow a packet that the requester has repeated.
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

    /// Handles a duplicate of the packet at `position`; all packets before `expected` have arrived.
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
            // The requester got no acknowledgement: it goes back, or only probes.
            _ if position + 1 < expected => self.expect(now, position + 1..expected),
            _ => {}
        }
    }

    /// Ends the wait: the requester has sent something new, or another reply is due.
    pub fn end(&mut self) {
        let Some(Tail { at, repeated, .. }) = self.tail.take() else {
            return;
        };
        if at.is_empty() {
            return;
        }
        // Our requester may repeat a few received packets, where several were missing.
        let half = at.start + (at.end - at.start) / 2;
        let kind = if repeated > half { 1 } else { -1 };
        self.goes_back = (self.goes_back + kind).clamp(-SURE, SURE);
    }

    /// When to call [`Repeats::handle_timeout`] next.
    pub fn deadline(&self) -> Option<Instant> {
        self.tail.as_ref()?.until
    }

    /// Handles the deadline. True if the wait is over.
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

    /// A requester that has repeated all of `tails` tails, or none of them.
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

    /// Receives duplicates; all packets before 20 have arrived.
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
        // The requester was too slow; that does not change its kind.
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
        // It starts again.
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
