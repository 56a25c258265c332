//! Which packets to send again, and how many at once.
//!
//! The IBA's responder discards packets after a gap, so the requester goes back and sends everything
//! again (IBA vol. 1, 9.7.5.1.2). For a responder that keeps them, only the lost packets are necessary.
//! The first loss shows the kind of peer: after a NAK only the missing packet is sent again, and its
//! acknowledgement either covers the packets after it or does not.

use std::ops::Range;

/// The peer's treatment of packets after a gap.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Peer {
    /// Not known yet.
    #[default]
    Unknown,
    /// The peer discards them.
    Discards,
    /// The peer keeps them.
    Keeps,
}

/// Maximum number of packets sent again at once, if consecutive packets were lost.
const BURST_MAX: u64 = 64;

/// The state of a recovery: packets to send again.
#[derive(Clone, Debug)]
pub struct Recovery {
    /// The packets still to send again.
    resend: Range<u64>,
    /// The end of the recovery: the next new packet when it began.
    until: u64,
    /// The peer has reported a gap.
    gap: bool,
    /// Number of packets sent again at once.
    burst: u64,
}

impl Recovery {
    /// Starts a recovery after a NAK of packet `missing`; packets before `next` were sent. `before` is
    /// the previous recovery.
    pub fn from_nak(peer: Peer, before: Option<&Recovery>, missing: u64, next: u64) -> Recovery {
        // Packets that are reported missing one after the other are part of one stretch.
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

    /// The packets sent again after a NAK were not acknowledged: sends the oldest packet once more.
    pub fn again(&self, oldest: u64, next: u64) -> Recovery {
        Recovery {
            resend: oldest..oldest + 1,
            until: next,
            burst: 1,
            ..*self
        }
    }

    /// Nothing was acknowledged: sends the oldest packet to learn the peer's position.
    pub fn probe(oldest: u64, next: u64) -> Recovery {
        Recovery {
            resend: oldest..oldest + 1,
            until: next,
            gap: false,
            burst: 1,
        }
    }

    /// Learns from a NAK of `missing`: if more packets arrived than were sent again, the peer keeps
    /// packets.
    pub fn learn_from_nak(&self, peer: &mut Peer, missing: u64) {
        if self.gap && missing > self.resend.start && missing <= self.until {
            *peer = Peer::Keeps;
        }
    }

    /// The packets still to send.
    pub fn resend(&self) -> Range<u64> {
        self.resend.clone()
    }

    /// Number of packets still to send.
    pub const fn remaining(&self) -> u64 {
        self.resend.end - self.resend.start
    }

    /// Whether the peer has reported a gap and keeps the packets after it.
    pub fn is_selective(&self, peer: Peer) -> bool {
        self.gap && peer == Peer::Keeps
    }

    /// Handles an acknowledgement of all packets before `acknowledged`. False if the recovery is
    /// complete.
    pub fn progress(&mut self, peer: &mut Peer, acknowledged: u64) -> bool {
        // More than was sent again: the peer had kept the rest.
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
            // The next packet may have arrived as well; its acknowledgement may be on the way.
            self.resend = acknowledged..acknowledged + 1;
        } else if exact {
            // A peer that keeps packets would have reported any further gap.
            self.resend = acknowledged..self.until;
        }
        true
    }

    /// Records that `count` packets from position `start` on were sent again.
    pub fn sent(&mut self, start: u64, count: u64) {
        if self.resend.start == start {
            self.resend.start = (start + count).min(self.resend.end);
        }
    }

    /// Whether new packets must wait: they would follow a gap, at a peer that may discard them.
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
    fn a_peer_that_acknowledges_only_retransmissions_gets_the_rest() {
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
    fn the_next_gap_shows_whether_the_peer_keeps_packets() {
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
        // The peer had more than it had acknowledged.
        assert!(recovery.progress(&mut peer, 20));
        assert_eq!((peer, recovery.resend()), (Peer::Unknown, 20..21));
        recovery.sent(20, 1);
        // And nothing after that.
        assert!(recovery.progress(&mut peer, 21));
        assert_eq!((peer, recovery.resend()), (Peer::Unknown, 21..30));
    }
}
