//! Multicast: joined groups, snooping bridges on the path, answers of other hosts.

mod probe;

use std::fs;
use std::net::Ipv6Addr;

use fabric::Gid;
use rtnl::{Bridge, Link, Requests};

use super::finding::{Finding, Level};
pub use probe::{Probe, echo, probe};

const CHECK: &str = "multicast";

/// Facts of an underlay.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Name and broadcast group of each interface of the daemon.
    pub groups: Vec<(String, Gid)>,
    /// Joined groups of the underlay.
    pub joined: Vec<Ipv6Addr>,
    /// Number of peers that get unicast copies of multicast; `None` without copies.
    pub peers: Option<usize>,
    /// Bridges of this namespace on the path.
    pub bridges: Vec<(String, Bridge)>,
}

/// Facts of an interface.
#[derive(Clone, Copy, Debug)]
pub struct Heard {
    /// Number of neighbours in the daemon.
    pub neighbours: usize,
    /// Multicast datagrams received.
    pub multicast: u64,
    /// Datagrams received.
    pub received: u64,
    /// Answers to a request to all hosts; `None` if it could not be sent.
    pub probe: Option<Probe>,
}

/// The joined groups of an interface (/proc/net/igmp6, kernel net/ipv6/mcast.c,
/// `igmp6_mc_seq_show`).
pub fn joined(interface: &str) -> Vec<Ipv6Addr> {
    let text = fs::read_to_string("/proc/thread-self/net/igmp6").unwrap_or_default();
    joined_in(&text, interface)
}

fn joined_in(text: &str, interface: &str) -> Vec<Ipv6Addr> {
    text.lines()
        .filter_map(|line| {
            let mut words = line.split_ascii_whitespace();
            if words.nth(1)? != interface {
                return None;
            }
            u128::from_str_radix(words.next()?, 16)
                .ok()
                .map(Ipv6Addr::from)
        })
        .collect()
}

/// Bridges on the way down from an interface, as far as this namespace sees it: the interface, the
/// interfaces below it, and the bridge at the other end of a veth.
pub fn bridges(name: &str, requests: &mut Requests) -> Vec<(String, Bridge)> {
    /// Maximum number of stacked interfaces.
    const DEPTH: usize = 8;
    let mut found: Vec<(String, Bridge)> = Vec::new();
    let mut next = requests.link_by_name(name).ok();
    for _ in 0..DEPTH {
        let Some(link) = next else { break };
        found.extend(link.bridge.map(|bridge| (link.name.clone(), bridge)));
        next = below(&link, requests);
    }
    found
}

fn below(link: &Link, requests: &mut Requests) -> Option<Link> {
    let index = link.link?;
    let lower = requests.link_by_index(index).ok()?;
    match lower.master {
        Some(master) => requests.link_by_index(master).ok(),
        None => Some(lower),
    }
}

/// Judges an underlay.
pub fn judge(name: &str, facts: &Facts) -> Vec<Finding> {
    if let Some(count) = facts.peers {
        let found = format!("is sent as unicast copies to {count} peers");
        return vec![Finding::new(CHECK, Level::Ok, name, found)];
    }
    let mut findings: Vec<Finding> = facts
        .groups
        .iter()
        .map(|(interface, group)| membership(name, interface, *group, &facts.joined))
        .collect();
    findings.extend(
        facts
            .bridges
            .iter()
            .filter_map(|(b, state)| snooping(b, *state)),
    );
    findings
}

fn membership(name: &str, interface: &str, group: Gid, joined: &[Ipv6Addr]) -> Finding {
    if joined.iter().any(|a| Gid::from(*a) == group) {
        let found = format!("the broadcast group {group} of {interface} is joined");
        return Finding::new(CHECK, Level::Ok, name, found);
    }
    Finding::new(
        CHECK,
        Level::Fail,
        name,
        format!("the broadcast group {group} of {interface} is not joined"),
    )
    .advise(format!(
        "no fault if the port has peers or an IPv4 GID. If not, see the log of ibtapd, and check the kernel's \
         limit (net.core.optmem_max, ip maddr show dev {name})"
    ))
}

/// Judges a bridge: a snooping bridge forgets groups without a querier.
fn snooping(bridge: &str, state: Bridge) -> Option<Finding> {
    (state.snooping && !state.querier && !state.mld_querier_seen).then(|| {
        Finding::new(
            CHECK,
            Level::Warn,
            bridge,
            "this bridge snoops, but the network has no MLD querier",
        )
        .advise(format!(
            "ip link set {bridge} type bridge mcast_querier 1, or mcast_snooping 0"
        ))
    })
}

/// Judges the received multicast of an interface.
pub fn judge_heard(interface: &str, heard: Heard) -> Finding {
    let finding = |level, found: String| Finding::new(CHECK, level, interface, found);
    let known = heard.neighbours;
    let advice = "a switch may snoop without a querier, or the network may lack multicast: add a querier \
                  (on a Linux bridge: mcast_querier 1), or list the hosts with --peers; also check the \
                  firewalls of the other hosts";
    match heard.probe {
        Some(Probe { question, answers }) if answers > 0 => finding(
            Level::Ok,
            format!("hosts that answer {question}: {answers}"),
        ),
        Some(Probe { question, .. }) if known > 0 => finding(
            Level::Warn,
            format!("of {known} known neighbours none answers {question}"),
        )
        .advise(advice),
        Some(Probe { question, .. }) if heard.received == 0 => finding(
            Level::Warn,
            format!("no packet was received, and no host answers {question}"),
        )
        .advise(format!(
            "if another host runs ibtapd on this segment and partition: {advice}"
        )),
        Some(Probe { question, .. }) => finding(
            Level::Note,
            format!("no other host is known, and no host answers {question}"),
        ),
        None if known > 0 && heard.multicast == 0 => finding(
            Level::Warn,
            format!("no multicast of the {known} known neighbours was received"),
        )
        .advise(advice),
        None if heard.multicast > 0 => finding(
            Level::Ok,
            format!("{} multicast datagrams were received", heard.multicast),
        ),
        None => finding(Level::Note, "no other host is known".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_groups_is_read() {
        let text = "1    lo              ff020000000000000000000000000001     1 0000000C 0\n\
                    2    eth0            ff12401bffff000000000000ffffffff     2 00000004 0\n";
        assert_eq!(
            joined_in(text, "eth0"),
            ["ff12:401b:ffff::ffff:ffff".parse::<Ipv6Addr>().unwrap()]
        );
        assert!(joined_in(text, "eth").is_empty());
        assert!(joined_in("nonsense\n2 eth0 xyz 1 0 0", "eth0").is_empty());
    }

    fn facts() -> Facts {
        let group: Ipv6Addr = "ff12:401b:ffff::ffff:ffff".parse().unwrap();
        Facts {
            groups: vec![("ib0".into(), group.into())],
            joined: vec![group],
            ..Facts::default()
        }
    }

    #[test]
    fn a_group_that_is_not_joined_fails() {
        let mut f = facts();
        assert_eq!(judge("eth0", &f)[0].level, Level::Ok);
        f.joined.clear();
        assert_eq!(judge("eth0", &f)[0].level, Level::Fail);
        // Unicast copies need no group.
        f.peers = Some(2);
        let found = judge("eth0", &f);
        assert_eq!((found.len(), found[0].level), (1, Level::Ok));
    }

    #[test]
    fn snooping_needs_a_querier() {
        let bridge = |snooping, querier, mld_querier_seen| Bridge {
            snooping,
            querier,
            mld_querier_seen,
        };
        let level = |b| snooping("br0", b).map(|f| f.level);
        assert_eq!(level(bridge(true, false, false)), Some(Level::Warn));
        assert_eq!(level(bridge(true, true, false)), None);
        assert_eq!(level(bridge(true, false, true)), None);
        assert_eq!(level(bridge(false, false, false)), None);
        let mut f = facts();
        f.bridges = vec![("br0".into(), bridge(true, false, false))];
        let advice = judge("br0", &f).pop().unwrap().advice.unwrap();
        assert!(advice.contains("ip link set br0 type bridge mcast_querier 1"));
    }

    #[test]
    fn silence_is_judged_by_known_neighbours() {
        let heard = |neighbours, multicast, received, answers: Option<usize>| {
            let probe = answers.map(|answers| Probe {
                question: "a ping",
                answers,
            });
            judge_heard(
                "ib0",
                Heard {
                    neighbours,
                    multicast,
                    received,
                    probe,
                },
            )
            .level
        };
        assert_eq!(heard(1, 9, 9, Some(1)), Level::Ok);
        assert_eq!(
            heard(1, 9, 9, Some(0)),
            Level::Warn,
            "it does not arrive now"
        );
        assert_eq!(heard(0, 0, 0, Some(0)), Level::Warn, "nothing ever came");
        assert_eq!(heard(0, 9, 9, Some(0)), Level::Note, "alone by now");
        assert_eq!(heard(2, 0, 9, None), Level::Warn, "unicast only");
        assert_eq!(heard(2, 5, 9, None), Level::Ok);
        assert_eq!(heard(0, 0, 0, None), Level::Note);
    }
}
