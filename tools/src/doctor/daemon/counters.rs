//! Counters that show why packets are lost.

use control::api::InterfaceStats;

use crate::doctor::finding::{Finding, Level};

/// A counter that should be zero: name, severity, meaning, advice.
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

/// The counters, in the order in which a user should read them.
const SIGNS: [Sign; 31] = [
    sign(
        "rx_pkey_violations",
        Level::Warn,
        "packets of another partition, or between two limited members",
        "use the same P_Key on all hosts of a link; of any two hosts, one needs full membership (bit 15)",
    ),
    sign(
        "rx_qkey_violations",
        Level::Warn,
        "packets with another Q_Key",
        "use the same qkey on all hosts of a partition",
    ),
    sign(
        "rx_forged_claim",
        Level::Warn,
        "ARP or neighbour discovery with the hardware address of another port",
        "look for an attacker, or for a gateway that answers for others; claims = \"off\" accepts it",
    ),
    sign(
        "rx_over_limit",
        Level::Warn,
        "more ARP or neighbour discovery of one host than the limit",
        "find the sender: ibtap decode a capture of udp port 4791; exclude it with allow",
    ),
    sign(
        "rx_forged_own",
        Level::Warn,
        "a local process sent packets in this host's name, which ibtapd dropped; other hosts accept such \
         packets",
        "find the process (ss -uapn), and add the output rule of man ibtap-security, \"Local users\"",
    ),
    sign(
        "rx_icrc_errors",
        Level::Warn,
        "packets changed on their way, or sent with a wrong ICRC",
        "look for a router or an adapter that rewrites packets (NAT, a broken offload); ibtap decode checks captures",
    ),
    sign(
        "rx_socket_drops",
        Level::Warn,
        "packets arrived faster than the daemon read them",
        "use more --queues or CPUs; without CAP_NET_ADMIN, raise net.core.rmem_max",
    ),
    sign(
        "rx_truncated",
        Level::Warn,
        "packets longer than the link's MTU, or empty packets",
        "use one MTU on the underlays of all hosts, or the smallest --mtu on all hosts",
    ),
    sign(
        "rx_length_errors",
        Level::Note,
        "packets with inconsistent lengths",
        "capture them: tcpdump -i UNDERLAY -w x.pcap udp port 4791; ibtap decode x.pcap",
    ),
    sign(
        "tap_write_errors",
        Level::Note,
        "packets that the host did not accept",
        "the interface was down or a reader was too slow; see ip -s link show",
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
        "packets larger than the path MTU; unicast was answered by \"packet too big\", or could not wait \
         for a connection",
        "usual with peers that accept no connections (ibtap conn lists connections), and after a change \
         of the MTU; multicast must fit a datagram",
    ),
    sign(
        "tx_no_room",
        Level::Note,
        "packets dropped because the underlay's queue was full, or a peer in connected mode sent no \
         acknowledgements",
        "use a faster underlay, or a longer queue (txqueuelen); if local_ack_timeout_err of ibtap stats \
         also grows, check the peer",
    ),
    sign(
        "connections_no_room",
        Level::Warn,
        "packets sent as datagrams because the maximum number of connections was reached",
        "use more --connections, or datagram mode",
    ),
    sign(
        "cm_rx_rate_limited",
        Level::Warn,
        "connection requests over the limit for one host",
        "find the sender: ibtap decode a capture of udp port 4791; use a private underlay",
    ),
    sign(
        "cm_rx_wrong_source",
        Level::Warn,
        "messages about a connection that are not from its peer",
        "find the sender: ibtap decode a capture of udp port 4791; use a private underlay",
    ),
    sign(
        "rx_not_peer",
        Level::Warn,
        "packets to a connection that are not from its peer",
        "find the sender: ibtap decode a capture of udp port 4791; use a private underlay",
    ),
    sign(
        "resp_local_length_error",
        Level::Warn,
        "messages longer than the negotiated size",
        "a peer exceeds the negotiated size; ibtap conn lists the peers",
    ),
    sign(
        "retry_rnr_exceeded_err",
        Level::Warn,
        "connections that failed because the peer had no receive buffers for too long",
        "the peer is overloaded, or its receive queue is too short; ibtap conn lists the peers",
    ),
    sign(
        "retry_exceeded_err",
        Level::Note,
        "connections that failed because the peer did not acknowledge",
        "usual if a peer ended; otherwise ibtap ping the peer, and check the network between the hosts",
    ),
    sign(
        "packet_seq_err",
        Level::Note,
        "packets of connections that a peer missed; they were sent again",
        "the underlay or the peer's socket loses packets: see rx_socket_drops on the peer, ip -s link show",
    ),
    sign(
        "sa_timed_out",
        Level::Warn,
        "requests that the subnet administrator did not answer",
        "usual while a subnet manager restarts; otherwise check the subnet manager (sminfo) and the fabric",
    ),
    sign(
        "sa_refused",
        Level::Note,
        "requests that the subnet administrator refused",
        "usual for destinations that have left the subnet; the log of ibtapd has the reasons",
    ),
    sign(
        "neighbours_refused",
        Level::Warn,
        "neighbours refused because the table was full",
        "spread the hosts over more partitions",
    ),
    sign(
        "neighbours_evicted",
        Level::Note,
        "neighbours removed because the table was full",
        "spread the hosts over more partitions",
    ),
    sign(
        "mac_collisions",
        Level::Note,
        "neighbours with equal synthetic MACs",
        "no action: one neighbour got another MAC",
    ),
    sign(
        "mac_clashes",
        Level::Note,
        "neighbours whose synthetic MAC was that of a guest or of the interface",
        "no action: the neighbour got another MAC",
    ),
    sign(
        "address_conflicts",
        Level::Warn,
        "IP addresses that two hosts or guests claim",
        "the log of ibtapd names the hosts; give one of them another address",
    ),
    sign(
        "tx_mads_dropped",
        Level::Warn,
        "management datagrams dropped, most of them to addresses that the kernel did not find",
        "a host may request connections with false addresses: see ip neigh show on the underlay, and the key allow",
    ),
    sign(
        "tx_unsegmented",
        Level::Note,
        "trains that the kernel did not segment; they were sent packet by packet",
        "check the offloads of the underlay (ethtool -k)",
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
        let found = "show no loss";
        findings.push(Finding::new("counters", Level::Ok, name, found));
    }
    findings
}

// tx_errors, a counter of the kernel, includes tx_too_big. The findings separate both.
const TX_ERRORS: &str = "tx_errors";
const TOO_BIG: &str = "tx_too_big";

/// The value of a sign.
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
    let sets = [&stats.device, &stats.protocol, &stats.subnet].into_iter();
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
    fn no_loss() {
        let stats = InterfaceStats {
            name: "ib0".into(),
            rx_packets: 7,
            ..InterfaceStats::default()
        };
        let found = judge("ib0", &stats);
        assert_eq!((found.len(), found[0].level), (1, Level::Ok));
    }

    /// "Packet too big" is usual if some peers accept no connections.
    #[test]
    fn packets_answered_by_packet_too_big_are_no_errors() {
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

    /// `rx_dropped` counts these packets, too.
    #[test]
    fn packets_that_ibtapd_dropped_are_no_fault_of_the_host() {
        let mut stats = InterfaceStats {
            name: "ib0".into(),
            rx_dropped: 5,
            protocol: Counters(vec![("rx_over_limit".into(), 5)]),
            ..InterfaceStats::default()
        };
        let found = judge("ib0", &stats);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].found.starts_with("rx_over_limit is 5"));
        stats.device = Counters(vec![("tap_write_errors".into(), 2)]);
        let found = judge("ib0", &stats);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[1].found.starts_with("tap_write_errors is 2"));
    }

    /// ibtapd has given the neighbour another MAC.
    #[test]
    fn a_mac_that_two_hosts_had_needs_no_action() {
        for name in ["mac_collisions", "mac_clashes"] {
            let stats = InterfaceStats {
                name: "ib0".into(),
                protocol: Counters(vec![(name.into(), 1)]),
                ..InterfaceStats::default()
            };
            let found = judge("ib0", &stats);
            assert_eq!((found.len(), found[0].level), (1, Level::Note), "{name}");
            let advice = found[0].advice.as_deref().unwrap();
            assert!(advice.starts_with("no action: "), "{advice}");
        }
    }

    #[test]
    fn strangers_on_the_fabric_are_reported() {
        for name in [
            "rx_not_peer",
            "cm_rx_wrong_source",
            "cm_rx_rate_limited",
            "rx_forged_own",
        ] {
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
