//! Why packets were dropped, and what else was seen.

/// Why a frame or a datagram was dropped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum DropReason {
    /// Shorter than its headers, or its lengths contradict each other.
    Malformed,
    /// An EtherType that IPoIB does not carry here: 802.1Q, LLDP, STP, TIPC and others.
    UnsupportedType,
    /// From the TAP, to our own Ethernet address.
    ToSelf,
    /// An Ethernet group address over a destination that is no group, or the reverse.
    NotAGroup,
    /// The destination is unknown and did not answer lately.
    Unreachable,
    /// The destination is unknown and enough frames wait for it, or for all such destinations.
    HoldFull,
    /// The destination is unknown and cannot be asked for (no usable source address).
    Unresolvable,
    /// Our own multicast come back.
    SelfEcho,
    /// ARP with other than 20-byte (from the fabric) or 6-byte (from the TAP) hardware addresses,
    /// or other than 4-byte protocol addresses.
    BadArp,
    /// Neighbour discovery with options whose lengths lie.
    BadNdOption,
    /// Neighbour discovery with a wrong ICMPv6 checksum.
    BadChecksum,
    /// Neighbour discovery from the fabric with a hop limit other than 255: it was forwarded.
    BadHopLimit,
    /// Fragmented neighbour discovery (RFC 6980).
    FragmentedNd,
    /// A link-layer address that cannot be one.
    BadAddress,
    /// Neighbour discovery too long to be rewritten.
    TooLong,
    /// From the TAP, to a guest: a bridge flooded it, or the guest has it already.
    ToGuest,
    /// From the TAP, a peer's own frame: there is a loop behind the interface.
    Looped,
    /// A message of a connection that this interface does not know (any more).
    NotConnected,
}

impl DropReason {
    /// All of them, in the order of their numbers.
    pub const ALL: [DropReason; 18] = [
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
    ];

    const NAMES: [[&'static str; 2]; 18] = [
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
    ];
}

/// Counters of one replica; plain numbers that only grow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    tx_dropped: [u64; DropReason::ALL.len()],
    rx_dropped: [u64; DropReason::ALL.len()],
    /// ARP and RARP packets rewritten, both ways.
    pub arp_translated: u64,
    /// Neighbour-discovery packets rewritten, both ways.
    pub nd_translated: u64,
    /// Signed neighbour discovery (SEND, RFC 3971), passed untouched.
    pub nd_signed: u64,
    /// Link-layer address options of another link's size, taken out.
    pub nd_options_stripped: u64,
    /// Neighbours learned.
    pub neighbours_learned: u64,
    /// Neighbours that made room for others.
    pub neighbours_evicted: u64,
    /// Sources that the full table had no room for.
    pub neighbours_refused: u64,
    /// Neighbours replaced by another queue pair of the same port.
    pub neighbours_superseded: u64,
    /// Synthetic Ethernet addresses that were taken already.
    pub mac_collisions: u64,
    /// Send-only groups that made room for others.
    pub groups_evicted: u64,
    /// ARP requests and neighbour solicitations of our own.
    pub resolutions_sent: u64,
    /// Destinations that never answered.
    pub resolutions_failed: u64,
    /// Frames that waited for a destination.
    pub frames_held: u64,
    /// Held frames dropped because nobody answered.
    pub held_dropped: u64,
    /// Announcements of our own addresses.
    pub announcements_sent: u64,
    /// Updates for other replicas that did not fit between two drains.
    pub updates_lost: u64,
    /// Events for the control side that did not fit between two drains.
    pub events_lost: u64,
    /// IP addresses of guests learned.
    pub guests_learned: u64,
    /// IP addresses of guests that made room for others.
    pub guests_evicted: u64,
    /// Peers that got another Ethernet address, since a guest or the interface has theirs.
    pub mac_clashes: u64,
    /// Addresses that two hosts claimed again and again.
    pub address_conflicts: u64,
    /// DHCP messages changed, both ways.
    pub dhcp_translated: u64,
    /// Membership reports (IGMP, MLD) read from the host's side.
    pub reports_snooped: u64,
    /// Echo requests answered.
    pub echo_answered: u64,
    /// Echo requests not answered: too many in one second, or malformed.
    pub echo_refused: u64,
    /// MTU options of router advertisements lowered to the link's MTU.
    pub ra_mtu_clamped: u64,
    /// Connections that we asked for and got.
    pub connections_made: u64,
    /// Connections that peers asked for and got.
    pub connections_accepted: u64,
    /// Requests of peers that were rejected.
    pub connections_rejected: u64,
    /// Peers that did not take a connection, or did not answer.
    pub connections_refused: u64,
    /// Connections of ours that failed; the peer did not end them.
    pub connections_failed: u64,
    /// Connections ended because nothing used them.
    pub connections_reaped: u64,
    /// Connections that made room for others.
    pub connections_evicted: u64,
    /// Packets that would have begun a connection, had there been room.
    pub connections_no_room: u64,
    /// Packets too large for a datagram that waited for a connection.
    pub too_big_held: u64,
    /// The same, dropped: enough waited, or they waited in vain for an answer.
    pub too_big_hold_full: u64,
    /// Packets too large for their way, answered by an ICMP error.
    pub too_big_answered: u64,
    /// The same, unanswered: enough were, for that destination.
    pub too_big_limited: u64,
    /// The same, unanswered: fragments, ICMP errors, what is no proper IP packet.
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
