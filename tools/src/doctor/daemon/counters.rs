//! Counters that tell why packets are lost.

use ibtap::api::InterfaceStats;

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
const SIGNS: [Sign; 21] = [
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
        "tx_errors",
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
        "tx_too_big",
        Level::Note,
        "packets larger than the link takes",
        "an MTU was lowered while packets were on their way; persisting: the same MTU everywhere",
    ),
    sign(
        "tx_no_room",
        Level::Note,
        "packets dropped because the underlay's queue was full",
        "a faster underlay, or a longer queue (txqueuelen)",
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
pub fn judge(stats: &InterfaceStats) -> Vec<Finding> {
    let mut findings: Vec<Finding> = SIGNS
        .iter()
        .filter_map(|sign| {
            let count = total(stats, sign.name);
            (count != 0).then(|| {
                Finding::new(
                    "counters",
                    sign.level,
                    &stats.name,
                    format!("{} is {count}: {}", sign.name, sign.means),
                )
                .advise(sign.advice)
            })
        })
        .collect();
    if findings.is_empty() {
        let found = "tell of no loss";
        findings.push(Finding::new("counters", Level::Ok, &stats.name, found));
    }
    findings
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
    use ibtap::api::{Counters, WorkerStats};

    use super::*;

    #[test]
    fn nothing_to_tell() {
        let stats = InterfaceStats {
            name: "ib0".into(),
            rx_packets: 7,
            ..InterfaceStats::default()
        };
        let found = judge(&stats);
        assert_eq!((found.len(), found[0].level), (1, Level::Ok));
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
        let found = judge(&stats);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].found.starts_with("rx_pkey_violations is 5"));
        assert!(found[0].advice.as_ref().unwrap().contains("P_Key"));
        assert!(found[1].found.starts_with("tx_errors is 3"));
        assert!(found.iter().all(|f| f.level == Level::Warn));
    }
}
