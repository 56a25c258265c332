//! What to send again, and how much of it at once.
//!
//! The IBA's responder discards what comes behind a gap, so that a requester goes back and sends
//! everything again (IBA vol. 1, 9.7.5.1.2); one that keeps it needs only what was lost. Which kind
//! the peer is shows at the first loss: after a NAK only the missing packet is sent again, and the
//! acknowledgement for it either covers what was sent behind it or does not.

use std::ops::Range;

/// What a peer does with packets that come behind a gap.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Peer {
    /// Not known yet.
    #[default]
    Unknown,
    /// It discards them.
    Discards,
    /// It keeps them.
    Keeps,
}

/// Packets sent again at a time, at most, where a stretch of them was lost.
const BURST_MAX: u64 = 64;

/// Packets that were sent and are to be sent again.
#[derive(Clone, Debug)]
pub struct Recovery {
    /// What is still to be sent of what is meant to be sent again.
    resend: Range<u64>,
    /// Nothing from here on is part of it: what had been sent when it began.
    until: u64,
    /// The peer has said that something came behind a gap.
    gap: bool,
    /// Packets sent again at a time.
    burst: u64,
}

impl Recovery {
    /// The packet at `missing` is known to be missing, of what was sent up to `next`. `before` is
    /// the recovery that was under way.
    pub fn from_nak(peer: Peer, before: Option<&Recovery>, missing: u64, next: u64) -> Recovery {
        // Where one packet after the other turns out to be missing, a stretch of them is.
        let burst = match before {
            Some(before) if before.resend == (missing..missing) => {
                (before.burst * 2).min(BURST_MAX)
            }
            _ => 1,
        };
        let all = next - missing;
        let len = match peer {
            Peer::Discards => all,
            Peer::Keeps | Peer::Unknown => burst.min(all),
        };
        Recovery {
            resend: missing..missing + len,
            until: next,
            gap: true,
            burst,
        }
    }

    /// Nothing was heard of what was sent again after a NAK: the oldest packet goes once more.
    pub fn again(&self, oldest: u64, next: u64) -> Recovery {
        Recovery {
            resend: oldest..oldest + 1,
            until: next,
            burst: 1,
            ..*self
        }
    }

    /// Nothing was heard: one packet, the oldest at `oldest`, is to find out where the peer is.
    pub fn probe(oldest: u64, next: u64) -> Recovery {
        Recovery {
            resend: oldest..oldest + 1,
            until: next,
            gap: false,
            burst: 1,
        }
    }

    /// The peer names `missing`. If that lies behind what was sent again, the peer had kept what is
    /// in between.
    pub fn learn_from_nak(&self, peer: &mut Peer, missing: u64) {
        if self.gap && missing > self.resend.start && missing <= self.until {
            *peer = Peer::Keeps;
        }
    }

    /// What is still to be sent.
    pub fn resend(&self) -> Range<u64> {
        self.resend.clone()
    }

    /// How many packets are still to be sent.
    pub const fn remaining(&self) -> u64 {
        self.resend.end - self.resend.start
    }

    /// Whether the peer has named a gap, and keeps what is behind it.
    pub fn is_selective(&self, peer: Peer) -> bool {
        self.gap && peer == Peer::Keeps
    }

    /// Everything before `acknowledged` has arrived. False if that ends it.
    pub fn progress(&mut self, peer: &mut Peer, acknowledged: u64) -> bool {
        // Beyond what was sent again: the rest was there before.
        let beyond = acknowledged > self.resend.start;
        let exact = acknowledged == self.resend.start && self.resend.is_empty();
        if self.gap && beyond {
            *peer = Peer::Keeps;
        } else if self.gap && exact && *peer == Peer::Unknown && acknowledged < self.until {
            *peer = Peer::Discards;
        }
        if acknowledged >= self.until {
            return false;
        }
        if beyond {
            // What comes next may be there as well, or its acknowledgement on the way.
            self.resend = acknowledged..acknowledged + 1;
        } else if exact {
            // A peer that keeps packets would have named the next gap, if it knew of one.
            self.resend = acknowledged..self.until;
        }
        true
    }

    /// `count` packets from position `start` on were sent again.
    pub fn sent(&mut self, start: u64, count: u64) {
        if self.resend.start == start {
            self.resend.start = (start + count).min(self.resend.end);
        }
    }

    /// Whether new packets have to wait: they would come behind a gap, at a peer that may discard
    /// them.
    pub fn holds_back(&self, peer: Peer) -> bool {
        self.resend.end < self.until && !self.is_selective(peer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A recovery after a NAK of packet 10 of 30, sent again.
    fn after_nak(peer: Peer) -> Recovery {
        let mut recovery = Recovery::from_nak(peer, None, 10, 30);
        let resend = recovery.resend();
        recovery.sent(resend.start, resend.end - resend.start);
        recovery
    }

    #[test]
    fn a_peer_that_acknowledges_only_what_was_sent_again_gets_the_rest() {
        let mut peer = Peer::Unknown;
        let mut recovery = after_nak(peer);
        assert_eq!(recovery.resend(), 11..11);
        assert!(recovery.holds_back(peer));
        assert!(recovery.progress(&mut peer, 11));
        assert_eq!((peer, recovery.resend()), (Peer::Discards, 11..30));
        assert!(!recovery.holds_back(peer));
        assert_eq!(Recovery::from_nak(peer, None, 3, 9).resend(), 3..9);
    }

    #[test]
    fn a_peer_that_acknowledges_more_keeps_packets() {
        let mut peer = Peer::Unknown;
        let mut recovery = after_nak(peer);
        assert!(!recovery.progress(&mut peer, 30));
        assert_eq!(peer, Peer::Keeps);
        assert!(!after_nak(peer).holds_back(peer));
    }

    #[test]
    fn the_next_gap_tells_whether_what_came_before_it_was_kept() {
        let mut peer = Peer::Unknown;
        after_nak(peer).learn_from_nak(&mut peer, 11);
        assert_eq!(peer, Peer::Unknown);
        after_nak(peer).learn_from_nak(&mut peer, 12);
        assert_eq!(peer, Peer::Keeps);
    }

    #[test]
    fn a_stretch_of_losses_is_sent_again_in_growing_bursts() {
        let peer = Peer::Keeps;
        let mut recovery = after_nak(peer);
        for (missing, len) in [(11, 2), (13, 4), (17, 8)] {
            recovery = Recovery::from_nak(peer, Some(&recovery), missing, 30);
            assert_eq!(recovery.resend(), missing..missing + len);
            recovery.sent(missing, len);
        }
        recovery = Recovery::from_nak(peer, Some(&recovery), 28, 30);
        assert_eq!(recovery.resend(), 28..29);
    }

    #[test]
    fn a_probe_finds_out_where_the_peer_is() {
        let mut peer = Peer::Unknown;
        let mut recovery = Recovery::probe(10, 30);
        recovery.sent(10, 1);
        // It had more than it could tell.
        assert!(recovery.progress(&mut peer, 20));
        assert_eq!((peer, recovery.resend()), (Peer::Unknown, 20..21));
        recovery.sent(20, 1);
        // And nothing behind that.
        assert!(recovery.progress(&mut peer, 21));
        assert_eq!((peer, recovery.resend()), (Peer::Unknown, 21..30));
    }
}
