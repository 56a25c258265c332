//! Counters that tell why packets are lost.

use control::api::InterfaceStats;

use crate::doctor::finding::{Finding, Level};

/// One that should be zero: its name, how bad it is, what it means, what to do.
struct Sign {
    name: &'static str,
    level: Level,
    means: &'static str,
    advice: &'static str,
}

const fn sign(name: &'static str, level: Level, means: &'static str, advice: &'static str) -> Sign {
    Sign {
        name,
        level,
        means,
        advice,
    }
}

/// In the order in which a user should see to them.
const SIGNS: [Sign; 25] = [
    sign(
        "rx_pkey_violations",
        Level::Warn,
        "packets of another partition, or of a limited member to a limited one",
        "the same P_Key on all hosts of a link, full (bit 15 set) on one of any two",
    ),
    sign(
        "rx_qkey_violations",
        Level::Warn,
        "packets with another Q_Key",
        "the same qkey on all hosts of a partition",
    ),
    sign(
        "rx_icrc_errors",
        Level::Warn,
        "packets changed on their way, or of a sender whose ICRC is wrong",
        "look for a device that rewrites packets (NAT, a broken offload); ibtap decode judges captures",
    ),
    sign(
        "rx_socket_drops",
        Level::Warn,
        "packets came faster than they were taken",
        "raise net.core.rmem_max where the daemon has no CAP_NET_ADMIN; more --queues; idle CPUs",
    ),
    sign(
        "rx_truncated",
        Level::Warn,
        "packets longer than this link's MTU, or empty ones",
        "one MTU on the underlays of all hosts, or the smaller --mtu everywhere",
    ),
    sign(
        "rx_length_errors",
        Level::Note,
        "packets whose lengths do not add up",
        "capture them: tcpdump -i UNDERLAY -w x.pcap udp port 4791; ibtap decode x.pcap",
    ),
    sign(
        "rx_dropped",
        Level::Note,
        "packets that the host did not take",
        "the interface was down or a reader too slow; ip -s link show",
    ),
    sign(
        TX_ERRORS,
        Level::Warn,
        "frames that could not be sent",
        "see the log of ibtapd; the firewall's output rules and the underlay's state are the usual causes",
    ),
    sign(
        "tx_failed",
        Level::Warn,
        "sends that the kernel refused",
        "see the log of ibtapd; the firewall's output rules and the underlay's state are the usual causes",
    ),
    sign(
        TOO_BIG,
        Level::Note,
        "packets larger than their way takes; unicast was answered by \"packet too big\", or did not \
         find room to wait for a connection",
        "usual with peers that take no connections (ibtap conn lists who does), and after a change \
         of MTU; multicast has to be as small as datagrams are",
    ),
    sign(
        "tx_no_room",
        Level::Note,
        "packets dropped because the underlay's queue was full, or a peer in connected mode \
         acknowledged nothing for a while",
        "a faster underlay, or a longer queue (txqueuelen); look at the peer where \
         local_ack_timeout_err of ibtap stats grows, too",
    ),
    sign(
        "connections_no_room",
        Level::Warn,
        "packets that went as datagrams, since there were as many connections as there may be",
        "more --connections, or datagram mode, which keeps nothing for each peer",
    ),
    sign(
        "cm_rx_rate_limited",
        Level::Warn,
        "requests for connections over what one host may ask for",
        "find who asks: ibtap decode a capture of udp port 4791; keep the underlay to yourself",
    ),
    sign(
        "cm_rx_wrong_source",
        Level::Warn,
        "messages about a connection that are not from its peer",
        "find who sends them: ibtap decode a capture of udp port 4791; keep the underlay to yourself",
    ),
    sign(
        "rx_not_peer",
        Level::Warn,
        "packets to a connection that are not from its peer",
        "find who sends them: ibtap decode a capture of udp port 4791; keep the underlay to yourself",
    ),
    sign(
        "resp_local_length_error",
        Level::Warn,
        "messages longer than connected mode carries",
        "ibtap conn names the peers; one of them does not keep to what was agreed on",
    ),
    sign(
        "retry_rnr_exceeded_err",
        Level::Warn,
        "connections that failed since the peer had no receive buffer for too long",
        "a peer that is overloaded, or whose receive queue is too short; ibtap conn names the peers",
    ),
    sign(
        "retry_exceeded_err",
        Level::Note,
        "connections that failed since the peer did not acknowledge",
        "a peer that went away; persisting: ibtap ping it, and look at the network between",
    ),
    sign(
        "packet_seq_err",
        Level::Note,
        "times that a peer missed a packet of a connection, which was then sent again",
        "losses of the underlay or of the peer's socket: rx_socket_drops there; ip -s link show",
    ),
    sign(
        "neighbours_refused",
        Level::Warn,
        "neighbours that found no room",
        "more hosts than the table takes: spread them over partitions",
    ),
    sign(
        "neighbours_evicted",
        Level::Note,
        "neighbours forgotten to make room",
        "more hosts than the table takes: spread them over partitions",
    ),
    sign(
        "mac_collisions",
        Level::Note,
        "neighbours whose synthetic MACs are equal",
        "nothing: one got another MAC",
    ),
    sign(
        "mac_clashes",
        Level::Warn,
        "guests whose MAC is one that ibtap gave to a neighbour",
        "give the guest another MAC",
    ),
    sign(
        "address_conflicts",
        Level::Warn,
        "IP addresses that two hosts or guests claim",
        "the log of ibtapd names them; give one of them another address",
    ),
    sign(
        "tx_unsegmented",
        Level::Note,
        "trains that the kernel would not cut and that went out packet by packet",
        "look at the underlay's offloads (ethtool -k)",
    ),
];

/// Judges the counters of an interface.
pub fn judge(name: &str, stats: &InterfaceStats) -> Vec<Finding> {
    let mut findings: Vec<Finding> = SIGNS
        .iter()
        .filter_map(|sign| {
            let count = count(stats, sign.name);
            (count != 0).then(|| {
                Finding::new(
                    "counters",
                    sign.level,
                    name,
                    format!("{} is {count}: {}", sign.name, sign.means),
                )
                .advise(sign.advice)
            })
        })
        .collect();
    if findings.is_empty() {
        let found = "tell of no loss";
        findings.push(Finding::new("counters", Level::Ok, name, found));
    }
    findings
}

/// What is too big is an error to the kernel's counter, and told apart here.
const TX_ERRORS: &str = "tx_errors";
const TOO_BIG: &str = "tx_too_big";

/// What a sign counts.
fn count(stats: &InterfaceStats, name: &str) -> u64 {
    match name {
        TX_ERRORS => {
            let too_big = stats.device.get(TOO_BIG).unwrap_or_default();
            stats.tx_errors.saturating_sub(too_big)
        }
        _ => total(stats, name),
    }
}

/// The sum of all counters of this name.
fn total(stats: &InterfaceStats, name: &str) -> u64 {
    let kernel = stats.kernel();
    let named = kernel.iter().filter(|(n, _)| *n == name).map(|(_, v)| *v);
    let sets = [&stats.device, &stats.protocol].into_iter();
    let others = sets
        .chain(stats.workers.iter().map(|w| &w.counters))
        .flat_map(|set| &set.0)
        .filter(|(n, _)| n == name)
        .map(|(_, v)| *v);
    named.chain(others).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use control::api::{Counters, WorkerStats};

    use super::*;

    #[test]
    fn nothing_to_tell() {
        let stats = InterfaceStats {
            name: "ib0".into(),
            rx_packets: 7,
            ..InterfaceStats::default()
        };
        let found = judge("ib0", &stats);
        assert_eq!((found.len(), found[0].level), (1, Level::Ok));
    }

    /// In a network where some take no connections, "packet too big" is no trouble.
    #[test]
    fn what_was_answered_by_packet_too_big_is_no_error() {
        let judged = |tx_errors| {
            judge(
                "ib0",
                &InterfaceStats {
                    name: "ib0".into(),
                    tx_errors,
                    device: Counters(vec![("tx_too_big".into(), 7)]),
                    ..InterfaceStats::default()
                },
            )
        };
        let found = judged(7);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].found.starts_with("tx_too_big is 7"));
        assert_eq!(found[0].level, Level::Note);
        let found = judged(9);
        assert_eq!((found.len(), found[0].level), (2, Level::Warn));
        assert!(found[0].found.starts_with("tx_errors is 2"));
    }

    #[test]
    fn strangers_on_the_fabric_are_told_of() {
        for name in ["rx_not_peer", "cm_rx_wrong_source", "cm_rx_rate_limited"] {
            let stats = InterfaceStats {
                name: "ib0".into(),
                workers: vec![WorkerStats {
                    counters: Counters(vec![(name.into(), 3)]),
                    ..WorkerStats::default()
                }],
                ..InterfaceStats::default()
            };
            let found = judge("ib0", &stats);
            assert_eq!((found.len(), found[0].level), (1, Level::Warn), "{name}");
            assert!(found[0].found.starts_with(&format!("{name} is 3")));
        }
    }

    #[test]
    fn a_counter_is_summed_over_all_that_count_it() {
        let worker = |n| WorkerStats {
            counters: Counters(vec![("rx_pkey_violations".into(), n)]),
            ..WorkerStats::default()
        };
        let stats = InterfaceStats {
            name: "ib0".into(),
            tx_errors: 3,
            workers: vec![worker(1), worker(4), worker(0)],
            ..InterfaceStats::default()
        };
        let found = judge("ib0", &stats);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].found.starts_with("rx_pkey_violations is 5"));
        assert!(found[0].advice.as_ref().unwrap().contains("P_Key"));
        assert!(found[1].found.starts_with("tx_errors is 3"));
        assert!(found.iter().all(|f| f.level == Level::Warn));
    }
}
