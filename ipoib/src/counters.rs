//! Counters: reasons of drops, and other events.

/// The reason why a frame or a datagram was dropped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum DropReason {
    /// Shorter than its headers, or with inconsistent lengths.
    Malformed,
    /// An EtherType that is not carried: 802.1Q, LLDP, STP, TIPC and others.
    UnsupportedType,
    /// From the TAP, to the interface's own MAC.
    ToSelf,
    /// A group MAC with a unicast IP destination, or the reverse.
    NotAGroup,
    /// The destination is unknown and did not answer recently.
    Unreachable,
    /// The destination is unknown and the queue of held frames is full, for it or in total.
    HoldFull,
    /// The destination is unknown and cannot be queried (no usable source address).
    Unresolvable,
    /// A multicast of this interface that came back.
    SelfEcho,
    /// ARP with other hardware addresses than 20-byte (from the fabric) or 6-byte (from the TAP), or other
    /// protocol addresses than 4-byte.
    BadArp,
    /// Neighbour discovery with invalid option lengths.
    BadNdOption,
    /// Neighbour discovery with a wrong ICMPv6 checksum.
    BadChecksum,
    /// Neighbour discovery from the fabric with a hop limit other than 255: it was forwarded.
    BadHopLimit,
    /// Fragmented neighbour discovery (RFC 6980).
    FragmentedNd,
    /// An invalid link-layer address.
    BadAddress,
    /// Neighbour discovery that is too long to be rewritten.
    TooLong,
    /// From the TAP, to a guest: flooded by a bridge, or already delivered to the guest.
    ToGuest,
    /// From the TAP, a frame of a peer: there is a loop behind the interface.
    Looped,
    /// A message of a connection that is unknown to the interface.
    NotConnected,
    /// ARP or neighbour discovery with the hardware address of another port or queue pair than its sender's.
    ForgedClaim,
    /// ARP or neighbour discovery that contradicts a pin or takes over a live address.
    RefusedClaim,
}

impl DropReason {
    /// All reasons, in the order of their numbers.
    pub const ALL: [DropReason; 20] = [
        DropReason::Malformed,
        DropReason::UnsupportedType,
        DropReason::ToSelf,
        DropReason::NotAGroup,
        DropReason::Unreachable,
        DropReason::HoldFull,
        DropReason::Unresolvable,
        DropReason::SelfEcho,
        DropReason::BadArp,
        DropReason::BadNdOption,
        DropReason::BadChecksum,
        DropReason::BadHopLimit,
        DropReason::FragmentedNd,
        DropReason::BadAddress,
        DropReason::TooLong,
        DropReason::ToGuest,
        DropReason::Looped,
        DropReason::NotConnected,
        DropReason::ForgedClaim,
        DropReason::RefusedClaim,
    ];

    const NAMES: [[&'static str; 2]; 20] = [
        ["tx_malformed", "rx_malformed"],
        ["tx_unsupported_type", "rx_unsupported_type"],
        ["tx_to_self", "rx_to_self"],
        ["tx_not_a_group", "rx_not_a_group"],
        ["tx_unreachable", "rx_unreachable"],
        ["tx_hold_full", "rx_hold_full"],
        ["tx_unresolvable", "rx_unresolvable"],
        ["tx_self_echo", "rx_self_echo"],
        ["tx_bad_arp", "rx_bad_arp"],
        ["tx_bad_nd_option", "rx_bad_nd_option"],
        ["tx_bad_checksum", "rx_bad_checksum"],
        ["tx_bad_hop_limit", "rx_bad_hop_limit"],
        ["tx_fragmented_nd", "rx_fragmented_nd"],
        ["tx_bad_address", "rx_bad_address"],
        ["tx_too_long", "rx_too_long"],
        ["tx_to_guest", "rx_to_guest"],
        ["tx_looped", "rx_looped"],
        ["tx_not_connected", "rx_not_connected"],
        ["tx_forged_claim", "rx_forged_claim"],
        ["tx_refused_claim", "rx_refused_claim"],
    ];
}

/// Counters of a replica; they only increase.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    tx_dropped: [u64; DropReason::ALL.len()],
    rx_dropped: [u64; DropReason::ALL.len()],
    /// ARP and RARP packets rewritten, in both directions.
    pub arp_translated: u64,
    /// Neighbour discovery packets rewritten, in both directions.
    pub nd_translated: u64,
    /// Signed neighbour discovery (SEND, RFC 3971), passed unchanged.
    pub nd_signed: u64,
    /// Link-layer address options with the size of another link type, removed.
    pub nd_options_stripped: u64,
    /// Neighbours learned.
    pub neighbours_learned: u64,
    /// Neighbours evicted for others.
    pub neighbours_evicted: u64,
    /// Sources refused because the table was full.
    pub neighbours_refused: u64,
    /// Neighbours replaced by another queue pair of the same port.
    pub neighbours_superseded: u64,
    /// MACs of peers that were already taken.
    pub mac_collisions: u64,
    /// Send-only groups evicted for others.
    pub groups_evicted: u64,
    /// ARP requests and neighbour solicitations sent by the core.
    pub resolutions_sent: u64,
    /// Destinations that never answered.
    pub resolutions_failed: u64,
    /// Frames that waited for a destination.
    pub frames_held: u64,
    /// Held frames dropped because no answer came.
    pub held_dropped: u64,
    /// Announcements of the interface's addresses.
    pub announcements_sent: u64,
    /// Updates for other replicas lost between two drains because the queue was full.
    pub updates_lost: u64,
    /// Events for the control side lost between two drains because the queue was full.
    pub events_lost: u64,
    /// IP addresses of guests learned.
    pub guests_learned: u64,
    /// IP addresses of guests evicted for others.
    pub guests_evicted: u64,
    /// Peers that got another MAC, because a guest or the interface has theirs.
    pub mac_clashes: u64,
    /// IP addresses that two hosts claimed repeatedly.
    pub address_conflicts: u64,
    /// Claims of a pinned IP address by another neighbour.
    pub claims_against_pins: u64,
    /// Claims of an IP address of another neighbour that is live, or of a guest.
    pub claims_of_live_addresses: u64,
    /// DHCP messages changed, in both directions.
    pub dhcp_translated: u64,
    /// Membership reports (IGMP, MLD) received from the host side.
    pub reports_snooped: u64,
    /// Echo requests answered.
    pub echo_answered: u64,
    /// Echo requests not answered: malformed, or above the limit for a second.
    pub echo_refused: u64,
    /// MTU options of router advertisements lowered to the link's MTU.
    pub ra_mtu_clamped: u64,
    /// Connections established by requests of this host.
    pub connections_made: u64,
    /// Connections established by requests of peers.
    pub connections_accepted: u64,
    /// Requests of peers that were rejected.
    pub connections_rejected: u64,
    /// Peers that refused a connection or did not answer.
    pub connections_refused: u64,
    /// Connections requested by this host that failed; not those closed by the peer.
    pub connections_failed: u64,
    /// Connections ended because they were idle.
    pub connections_reaped: u64,
    /// Connections evicted for others.
    pub connections_evicted: u64,
    /// Packets that would have started a connection if there had been room.
    pub connections_no_room: u64,
    /// Packets too large for a datagram that waited for a connection.
    pub too_big_held: u64,
    /// Packets too large for a datagram, dropped: too many waited, or no answer came.
    pub too_big_hold_full: u64,
    /// Packets too large for their path, answered by an ICMP error.
    pub too_big_answered: u64,
    /// Packets too large for their path, not answered because of the destination's rate limit.
    pub too_big_limited: u64,
    /// Packets too large for their path, not answered: fragments, ICMP errors, invalid IP packets.
    pub too_big_unanswerable: u64,
    /// Multicast larger than a datagram.
    pub too_big_multicast: u64,
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

    /// Names and values.
    pub fn named(&self) -> Vec<(&'static str, u64)> {
        let mut all = vec![
            ("arp_translated", self.arp_translated),
            ("nd_translated", self.nd_translated),
            ("nd_signed", self.nd_signed),
            ("nd_options_stripped", self.nd_options_stripped),
            ("neighbours_learned", self.neighbours_learned),
            ("neighbours_evicted", self.neighbours_evicted),
            ("neighbours_refused", self.neighbours_refused),
            ("neighbours_superseded", self.neighbours_superseded),
            ("mac_collisions", self.mac_collisions),
            ("groups_evicted", self.groups_evicted),
            ("resolutions_sent", self.resolutions_sent),
            ("resolutions_failed", self.resolutions_failed),
            ("frames_held", self.frames_held),
            ("held_dropped", self.held_dropped),
            ("announcements_sent", self.announcements_sent),
            ("updates_lost", self.updates_lost),
            ("events_lost", self.events_lost),
            ("guests_learned", self.guests_learned),
            ("guests_evicted", self.guests_evicted),
            ("mac_clashes", self.mac_clashes),
            ("address_conflicts", self.address_conflicts),
            ("claims_against_pins", self.claims_against_pins),
            ("claims_of_live_addresses", self.claims_of_live_addresses),
            ("dhcp_translated", self.dhcp_translated),
            ("reports_snooped", self.reports_snooped),
            ("echo_answered", self.echo_answered),
            ("echo_refused", self.echo_refused),
            ("ra_mtu_clamped", self.ra_mtu_clamped),
            ("connections_made", self.connections_made),
            ("connections_accepted", self.connections_accepted),
            ("connections_rejected", self.connections_rejected),
            ("connections_refused", self.connections_refused),
            ("connections_failed", self.connections_failed),
            ("connections_reaped", self.connections_reaped),
            ("connections_evicted", self.connections_evicted),
            ("connections_no_room", self.connections_no_room),
            ("too_big_held", self.too_big_held),
            ("too_big_hold_full", self.too_big_hold_full),
            ("too_big_answered", self.too_big_answered),
            ("too_big_limited", self.too_big_limited),
            ("too_big_unanswerable", self.too_big_unanswerable),
            ("too_big_multicast", self.too_big_multicast),
        ];
        let tx = DropReason::NAMES.iter().zip(&self.tx_dropped);
        all.extend(tx.map(|([name, _], n)| (*name, *n)));
        let rx = DropReason::NAMES.iter().zip(&self.rx_dropped);
        all.extend(rx.map(|([_, name], n)| (*name, *n)));
        all
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
