//! Whether rules keep local users from sending RoCEv2 packets in this host's name.
//!
//! Any local user can send UDP packets to port 4791 of other hosts. Other hosts cannot distinguish them from
//! the daemon's packets.

use super::packets::{NOBODY, PortAddress, out};
use super::rules::{Chain, evaluate};
use super::{CHECK, Facts, chains};
use crate::doctor::finding::{Finding, Level};

/// Judges the rules, if all rules can be read.
pub fn judge(facts: &Facts, ports: &[PortAddress]) -> Vec<Finding> {
    let mut unread = Vec::new();
    let chains = chains(facts, &mut unread);
    let has_program = facts.nft.is_some() || !facts.xtables.is_empty();
    if !has_program || !unread.is_empty() {
        return Vec::new();
    }
    ports.iter().map(|port| judge_port(&chains, port)).collect()
}

/// Judges the rules for packets that the user "nobody" sends from the port's address. A rule that perhaps
/// accepts the packets, or drops packets to some destinations only, is not enough.
fn judge_port(chains: &[Chain], port: &PortAddress) -> Finding {
    let finding = |level, found: &str| Finding::new(CHECK, level, &port.interface, found);
    let outcomes: Vec<_> = out(port, NOBODY)
        .iter()
        .map(|sample| evaluate(chains, sample))
        .collect();
    let is_dropped = |o: &super::Outcome| o.dropped.is_some() && o.perhaps_accepted.is_empty();
    if outcomes.iter().all(is_dropped) {
        return finding(
            Level::Ok,
            "keeps local users from sending in this host's name",
        );
    }
    let found = "local users can send packets in this host's name to other hosts (UDP port 4791)";
    finding(Level::Note, found).advise(
        "if you do not trust the local users, add the output rule of man ibtap-security, \"Local users\"",
    )
}
