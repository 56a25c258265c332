//! Which counters count lost packets, and what counters mean.

use vnic::agent::AgentCounts;
use vnic::carriage::fragment::FragmentCounts;
use vnic::carriage::seal::SealCounts;

use super::counts::Kind;

/// A counter's name and its description.
type Description = (&'static str, &'static str);

/// Counters of losses whose description does not say "dropped:".
const LOSSES: &[&str] = &[
    // Interfaces.
    "tap_write_errors",
    "tx_bad_frame",
    "tx_no_room",
    "tx_too_big",
    "tx_vlan_unserved",
    "connections_no_room",
    "held_dropped",
    "neighbours_refused",
    "too_big_limited",
    "too_big_multicast",
    "too_big_unanswerable",
    // VNICs.
    "rx_bad_l2",
    "rx_bad_l4",
    "rx_bad_lid",
    "rx_bad_pkey",
    "rx_bad_tail",
    "rx_bad_veswid",
    "rx_drop_state",
    "rx_fifo_errors",
    "rx_forged_lid",
    "rx_icrc",
    "rx_length_mismatch",
    "rx_other_lid",
    "rx_oversize",
    "rx_runt",
    "rx_self_mcast",
    "tx_carrier_errors",
    "tx_dlid_zero",
    "tx_drop_state",
    "tx_fifo_errors",
    // Ports.
    "bad_pieces",
    "contradicted",
    "evicted",
    "malformed",
    "no_key",
    "no_mac",
    "repeated",
    "rx_bad_qp",
    "rx_failed",
    "rx_mads_unhandled",
    "rx_malformed",
    "rx_not_allowed",
    "rx_own_multicast",
    "rx_socket_drops",
    "rx_unserved",
    "tx_failed",
    "timed_out",
    "tx_no_ah",
    "wrong_mac",
];

/// Whether the counter of an owner counts lost packets.
pub fn is_loss(kind: Kind, name: &str) -> bool {
    LOSSES.contains(&name) || meaning(kind, name).is_some_and(|text| text.contains("dropped:"))
}

/// The description of a counter of the protocols and the fabric. `ibtapd` alone knows those of its own counters.
pub fn meaning(kind: Kind, name: &str) -> Option<&'static str> {
    let find = |descriptions: &mut dyn Iterator<Item = &'static Description>| {
        let mut named = descriptions.filter(|(known, _)| *known == name);
        named.next().map(|(_, text)| text.trim())
    };
    match kind {
        Kind::Ipoib => find(&mut ipoib::Counters::descriptions()),
        Kind::Vnic => find(&mut vnic::counters::Counters::DESCRIPTIONS.iter()),
        Kind::Port => find(
            &mut (fabric::counter_descriptions())
                .chain(fabric::sa::Counts::DESCRIPTIONS)
                .chain(AgentCounts::DESCRIPTIONS)
                .chain(FragmentCounts::DESCRIPTIONS)
                .chain(SealCounts::DESCRIPTIONS),
        ),
        Kind::Connection => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [Kind; 3] = [Kind::Ipoib, Kind::Vnic, Kind::Port];

    #[test]
    fn reasons_of_drops_are_losses_and_traffic_is_not() {
        for (kind, name) in [
            (Kind::Ipoib, "rx_bad_arp"),
            (Kind::Ipoib, "tx_unreachable"),
            (Kind::Ipoib, "too_big_hold_full"),
            (Kind::Vnic, "rx_bad_pkey"),
            (Kind::Port, "rx_icrc_errors"),
            (Kind::Port, "cm_rx_malformed"),
        ] {
            assert!(is_loss(kind, name), "{name}");
        }
        for name in [
            "rx_packets",
            "tx_packets",
            "rx_dropped",
            "tap_reads",
            "neighbours_learned",
            "wakeups",
            "sa_requests",
        ] {
            assert!(!KINDS.iter().any(|kind| is_loss(*kind, name)), "{name}");
        }
    }

    /// ibtapd's own counters have no descriptions here.
    #[test]
    fn every_named_loss_is_a_counter() {
        let own = [
            "tap_write_errors",
            "tx_no_room",
            "tx_vlan_unserved",
            "rx_not_allowed",
            "rx_unserved",
        ];
        for name in LOSSES {
            let is_known = KINDS.iter().any(|kind| meaning(*kind, name).is_some());
            assert!(is_known || own.contains(name), "no counter {name}");
        }
    }

    #[test]
    fn a_counter_has_the_meaning_that_its_owner_gives() {
        let icrc = meaning(Kind::Port, "rx_icrc_errors");
        assert_eq!(icrc, Some("Packets dropped: the ICRC is wrong."));
        assert_eq!(meaning(Kind::Ipoib, "rx_icrc_errors"), None);
    }
}
