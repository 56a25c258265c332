//! Counters: reasons of drops, and other events.

use std::ops::{Deref, DerefMut};

use proto::counters::Description;

/// Defines the reasons with the names and descriptions of their counters.
macro_rules! drop_reasons {
    ($($(#[doc = $text:literal])+ $reason:ident => $name:literal,)*) => {
        /// The reason why a frame or a datagram was dropped.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        pub enum DropReason {
            $($(#[doc = $text])+ $reason,)*
        }

        impl DropReason {
            /// All reasons, in the order of their numbers.
            pub const ALL: [DropReason; [$($name),*].len()] = [$(DropReason::$reason),*];

            /// Names and descriptions of the counters of frames from the TAP.
            const TX: &[Description] =
                &[$((concat!("tx_", $name), concat!("Frames from the TAP dropped:", $($text),+)),)*];

            /// Names and descriptions of the counters of datagrams from the fabric.
            const RX: &[Description] =
                &[$((concat!("rx_", $name), concat!("Datagrams from the fabric dropped:", $($text),+)),)*];
        }
    };
}

drop_reasons! {
    /// Shorter than its headers, or with inconsistent lengths.
    Malformed => "malformed",
    /// An EtherType that is not carried: 802.1Q, LLDP, STP, TIPC and others.
    UnsupportedType => "unsupported_type",
    /// From the TAP, to the interface's own MAC.
    ToSelf => "to_self",
    /// A group MAC with a unicast IP destination, or the reverse.
    NotAGroup => "not_a_group",
    /// The destination is unknown and did not answer recently.
    Unreachable => "unreachable",
    /// The destination is unknown and the queue of held frames is full, for it or in total.
    HoldFull => "hold_full",
    /// The destination is unknown and cannot be queried (no usable source address).
    Unresolvable => "unresolvable",
    /// A multicast of this interface that came back.
    SelfEcho => "self_echo",
    /// ARP with other hardware addresses than 20-byte (from the fabric) or 6-byte (from the TAP), or other
    /// protocol addresses than 4-byte.
    BadArp => "bad_arp",
    /// Neighbour discovery with invalid option lengths.
    BadNdOption => "bad_nd_option",
    /// Neighbour discovery with a wrong ICMPv6 checksum.
    BadChecksum => "bad_checksum",
    /// Neighbour discovery from the fabric with a hop limit other than 255: it was forwarded.
    BadHopLimit => "bad_hop_limit",
    /// Fragmented neighbour discovery (RFC 6980).
    FragmentedNd => "fragmented_nd",
    /// An invalid link-layer address.
    BadAddress => "bad_address",
    /// Neighbour discovery that is too long to be rewritten.
    TooLong => "too_long",
    /// From the TAP, to a guest: flooded by a bridge, or already delivered to the guest.
    ToGuest => "to_guest",
    /// From the TAP, a frame of a peer: there is a loop behind the interface.
    Looped => "looped",
    /// A message of a connection that is unknown to the interface.
    NotConnected => "not_connected",
    /// ARP or neighbour discovery with the hardware address of another port or queue pair than its sender's.
    ForgedClaim => "forged_claim",
    /// ARP or neighbour discovery that contradicts a pin or takes over a live address.
    RefusedClaim => "refused_claim",
    /// ARP or neighbour discovery of a source that sends more of it than its limit.
    OverLimit => "over_limit",
}

proto::counters! {
    /// Counters of events in a replica; they only increase.
    pub struct EventCounters {
        /// ARP and RARP packets rewritten, in both directions.
        arp_translated,
        /// Neighbour discovery packets rewritten, in both directions.
        nd_translated,
        /// Signed neighbour discovery (SEND, RFC 3971), passed unchanged.
        nd_signed,
        /// Link-layer address options with the size of another link type, removed.
        nd_options_stripped,
        /// Neighbours learned.
        neighbours_learned,
        /// Neighbours evicted for others.
        neighbours_evicted,
        /// Sources refused because the table was full.
        neighbours_refused,
        /// Neighbours replaced by another queue pair of the same port.
        neighbours_superseded,
        /// MACs of peers that were already taken.
        mac_collisions,
        /// Send-only groups evicted for others.
        groups_evicted,
        /// ARP requests and neighbour solicitations sent by the core.
        resolutions_sent,
        /// Destinations that never answered.
        resolutions_failed,
        /// Frames that waited for a destination.
        frames_held,
        /// Held frames dropped because no answer came.
        held_dropped,
        /// Announcements of the interface's addresses.
        announcements_sent,
        /// Updates for other replicas lost between two drains because the queue was full.
        updates_lost,
        /// Events for the control side lost between two drains because the queue was full.
        events_lost,
        /// IP addresses of guests learned.
        guests_learned,
        /// IP addresses of guests evicted for others.
        guests_evicted,
        /// Peers that got another MAC, because a guest or the interface has theirs.
        mac_clashes,
        /// IP addresses that two hosts claimed repeatedly.
        address_conflicts,
        /// Claims of a pinned IP address by another neighbour.
        claims_against_pins,
        /// Claims of an IP address of another neighbour that is live, or of a guest.
        claims_of_live_addresses,
        /// DHCP messages changed, in both directions.
        dhcp_translated,
        /// Membership reports (IGMP, MLD) received from the host side.
        reports_snooped,
        /// Echo requests answered.
        echo_answered,
        /// Echo requests not answered: malformed, or above the limit for a second.
        echo_refused,
        /// MTU options of router advertisements lowered to the link's MTU.
        ra_mtu_clamped,
        /// Connections established by requests of this host.
        connections_made,
        /// Connections established by requests of peers.
        connections_accepted,
        /// Requests of peers that were rejected.
        connections_rejected,
        /// Peers that refused a connection or did not answer.
        connections_refused,
        /// Connections requested by this host that failed; not those closed by the peer.
        connections_failed,
        /// Connections ended because they were idle.
        connections_reaped,
        /// Connections evicted for others.
        connections_evicted,
        /// Packets that would have started a connection if there had been room.
        connections_no_room,
        /// Packets too large for a datagram that waited for a connection.
        too_big_held,
        /// Packets too large for a datagram, dropped: too many waited, or no answer came.
        too_big_hold_full,
        /// Packets too large for their path, answered by an ICMP error.
        too_big_answered,
        /// Packets too large for their path, not answered because of the destination's rate limit.
        too_big_limited,
        /// Packets too large for their path, not answered: fragments, ICMP errors, invalid IP packets.
        too_big_unanswerable,
        /// Multicast larger than a datagram.
        too_big_multicast,
    }
}

/// Counters of a replica; they only increase.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    tx_dropped: [u64; DropReason::ALL.len()],
    rx_dropped: [u64; DropReason::ALL.len()],
    events: EventCounters,
}

/// Events are counted as `counters.name += 1`.
impl Deref for Counters {
    type Target = EventCounters;

    fn deref(&self) -> &EventCounters {
        &self.events
    }
}

impl DerefMut for Counters {
    fn deref_mut(&mut self) -> &mut EventCounters {
        &mut self.events
    }
}

impl Counters {
    pub(crate) fn drop_tx(&mut self, reason: DropReason) {
        self.tx_dropped[reason as usize] += 1;
    }

    pub(crate) fn drop_rx(&mut self, reason: DropReason) {
        self.rx_dropped[reason as usize] += 1;
    }

    /// Frames from the TAP dropped for `reason`.
    pub fn tx_dropped(&self, reason: DropReason) -> u64 {
        self.tx_dropped[reason as usize]
    }

    /// Datagrams from the fabric dropped for `reason`.
    pub fn rx_dropped(&self, reason: DropReason) -> u64 {
        self.rx_dropped[reason as usize]
    }

    /// Names and values, in the order of [`Counters::descriptions`].
    pub fn named(&self) -> Vec<(&'static str, u64)> {
        let dropped = self.tx_dropped.iter().chain(&self.rx_dropped);
        let names = DropReason::TX.iter().chain(DropReason::RX);
        let mut all = self.events.named();
        all.extend(names.zip(dropped).map(|((name, _), n)| (*name, *n)));
        all
    }

    /// Names and descriptions.
    pub fn descriptions() -> impl Iterator<Item = &'static Description> {
        let dropped = DropReason::TX.iter().chain(DropReason::RX);
        EventCounters::DESCRIPTIONS.iter().chain(dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_counts_under_its_own_name() {
        for (i, reason) in DropReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, i);
            let mut c = Counters::default();
            c.drop_tx(reason);
            c.drop_rx(reason);
            let hit: Vec<_> = c.named().into_iter().filter(|(_, n)| *n == 1).collect();
            assert_eq!(hit.len(), 2);
            assert_eq!(
                hit[0].0.trim_start_matches("tx"),
                hit[1].0.trim_start_matches("rx")
            );
        }
    }
}
