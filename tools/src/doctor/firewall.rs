//! Firewall rules of this host that drop packets of a fabric port.
//!
//! `nft` prints the rules of nftables; `iptables-save` and `ip6tables-save` print those of xtables. A program
//! is only necessary if it has rules.

mod iptables;
mod local_users;
mod names;
mod nft;
mod packets;
mod rules;
#[cfg(test)]
mod tests;

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use super::finding::{Finding, Level};
pub use local_users::judge as judge_local_users;
pub use packets::PortAddress;
use packets::{Loss, Sample, samples};
use rules::{Chain, Dropped, Outcome, Tool, evaluate};

const CHECK: &str = "firewall";

/// Output of the installed programs, and other facts.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The output or the error of `nft -j list ruleset`; `None` without nft.
    nft: Option<Result<String, String>>,
    /// Output or errors of the installed programs of xtables.
    xtables: Vec<(Tool, Result<String, String>)>,
    /// Signs of rules that are visible without a program.
    signs: Vec<&'static str>,
    /// Entries of the connection tracking table, and their maximum.
    tracked: Option<(u64, u64)>,
}

/// Runs the installed programs in the calling thread's network namespace.
pub fn gather() -> Facts {
    let programs = [
        (Tool::Iptables, "iptables-save"),
        (Tool::Ip6tables, "ip6tables-save"),
        // If the first two are those for nftables, the old tables may also be in use.
        (Tool::Iptables, "iptables-legacy-save"),
        (Tool::Ip6tables, "ip6tables-legacy-save"),
    ];
    Facts {
        nft: answer("nft", &["-j", "list", "ruleset"]),
        xtables: programs
            .into_iter()
            .filter_map(|(tool, program)| Some((tool, answer(program, &[])?)))
            .collect(),
        signs: signs(),
        tracked: tracked(),
    }
}

/// The output or the error of a program; `None` if it is not installed.
fn answer(program: &str, arguments: &[&str]) -> Option<Result<String, String>> {
    match super::program(program).args(arguments).output() {
        Ok(done) if done.status.success() => {
            Some(Ok(String::from_utf8_lossy(&done.stdout).into_owned()))
        }
        Ok(done) => {
            let errors = String::from_utf8_lossy(&done.stderr);
            let line = errors.lines().next().unwrap_or_default();
            Some(Err(format!("{program}: {line}")))
        }
        Err(e) if e.kind() == ErrorKind::NotFound => None,
        Err(e) => Some(Err(format!("{program}: {e}"))),
    }
}

/// Kernel modules and tables that usually exist only with rules.
fn signs() -> Vec<&'static str> {
    let listed = |file: &str| fs::read_to_string(file).is_ok_and(|text| !text.trim().is_empty());
    let mut signs = Vec::new();
    if Path::new("/sys/module/nf_tables").exists() {
        signs.push("the kernel module nf_tables is loaded");
    }
    if listed("/proc/thread-self/net/ip_tables_names")
        || listed("/proc/thread-self/net/ip6_tables_names")
    {
        signs.push("iptables has tables");
    }
    signs
}

fn tracked() -> Option<(u64, u64)> {
    let number = |name: &str| {
        let path = format!("/proc/sys/net/netfilter/nf_conntrack_{name}");
        fs::read_to_string(path).ok()?.trim().parse().ok()
    };
    Some((number("count")?, number("max")?))
}

/// Judges the rules for the ports.
pub fn judge(facts: &Facts, ports: &[PortAddress]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let chains = chains(facts, &mut findings);
    let all_read = findings.is_empty();
    if facts.nft.is_none() && facts.xtables.is_empty() {
        findings.push(no_program(facts));
    } else {
        for port in ports {
            // "ok" is only true if all rules were read.
            let judged = judge_port(&chains, port);
            findings.extend(
                judged
                    .into_iter()
                    .filter(|f| all_read || f.level != Level::Ok),
            );
        }
    }
    findings.extend(facts.tracked.and_then(judge_tracked));
    findings
}

/// All chains, each once. Tables that iptables keeps in nftables come from iptables, which prints them
/// completely.
fn chains(facts: &Facts, findings: &mut Vec<Finding>) -> Vec<Chain> {
    let mut unread = |why: &str| {
        let finding = Finding::new(
            CHECK,
            Level::Note,
            "",
            format!("rules cannot be read: {why}"),
        );
        findings.push(finding.advise("run this as root to check them"));
    };
    let mut chains = match &facts.nft {
        Some(Ok(text)) => nft::parse(text).unwrap_or_else(|why| {
            unread(&why);
            Vec::new()
        }),
        Some(Err(why)) => {
            unread(why);
            Vec::new()
        }
        None => Vec::new(),
    };
    for (tool, text) in &facts.xtables {
        match text {
            Ok(text) => {
                let found = iptables::parse(text, *tool);
                if iptables::is_nftables(text) {
                    chains.retain(|c| !found.iter().any(|f| is_same_table(c, f)));
                }
                // "iptables-save" may be another name of "iptables-legacy-save".
                chains.retain(|c| !found.iter().any(|f| f == c));
                chains.extend(found);
            }
            Err(why) => unread(why),
        }
    }
    chains
}

/// Whether a chain of nftables is in the same table as a chain of iptables.
fn is_same_table(chain: &Chain, of_iptables: &Chain) -> bool {
    chain.id.tool == Tool::Nft
        && chain.id.family == of_iptables.id.family
        && chain.id.table == of_iptables.id.table
}

fn no_program(facts: &Facts) -> Finding {
    let advice = "install nftables (or iptables) and run this again to check the rules";
    match facts.signs.first() {
        Some(sign) => Finding::new(
            CHECK,
            Level::Note,
            "",
            format!("{sign}, but no program to read the rules is installed"),
        )
        .advise(advice),
        None => Finding::new(
            CHECK,
            Level::Ok,
            "",
            "no sign of rules (but neither nft nor iptables-save is installed to read them)",
        ),
    }
}

fn judge_port(chains: &[Chain], port: &PortAddress) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut doubtful: Vec<String> = Vec::new();
    for sample in samples(port) {
        let outcome = evaluate(chains, &sample);
        doubtful.extend(outcome.perhaps_dropped.clone());
        let found = judge_sample(&sample, outcome, port);
        // A rule that drops several kinds of packets is reported once.
        findings.extend(found.filter(|f: &Finding| !is_reported(&findings, f)));
    }
    doubtful.sort();
    doubtful.dedup();
    if findings.is_empty() {
        findings.push(Finding::new(
            CHECK,
            Level::Ok,
            &port.interface,
            "lets all necessary packets in and out",
        ));
    }
    findings.extend(doubtful.into_iter().map(|rule| {
        Finding::new(
            CHECK,
            Level::Note,
            &port.interface,
            format!("cannot judge whether this rule drops packets of the fabric: {rule}"),
        )
        .advise(
            "read the rule: it must let UDP port 4791 in and out, and for IPv6 ICMPv6 types 130 to 143",
        )
    }));
    findings
}

fn is_reported(findings: &[Finding], new: &Finding) -> bool {
    findings.iter().any(|old| old.advice == new.advice)
}

fn judge_sample(sample: &Sample, outcome: Outcome, port: &PortAddress) -> Option<Finding> {
    let dropped = outcome.dropped?;
    let way = if sample.inbound { "in" } else { "out" };
    let (what, by) = (sample.what, &dropped.by);
    let advice = advice(sample, &dropped, &port.interface);
    let level = match (sample.loss, outcome.perhaps_accepted.first()) {
        (_, Some(_)) | (Loss::Snooping, None) => Level::Warn,
        (Loss::Traffic, None) => Level::Fail,
    };
    let but = match outcome.perhaps_accepted.first() {
        Some(rule) => format!(", unless {rule} accepts them, which cannot be judged here"),
        None => String::new(),
    };
    Some(
        Finding::new(
            CHECK,
            level,
            &port.interface,
            format!("{what} are dropped on their way {way} by {by}{but}"),
        )
        .advise(advice),
    )
}

/// The command that accepts such packets before the other rules of the chain.
fn advice(sample: &Sample, dropped: &Dropped, interface: &str) -> String {
    let base = &dropped.base;
    let (table, chain) = (&base.table, &base.name);
    let command = match base.tool {
        Tool::Nft => {
            let side = if sample.inbound { "iifname" } else { "oifname" };
            let (family, what) = (base.family, sample.nft);
            // A netdev chain sees one device only.
            let device = match base.family {
                rules::Family::Netdev => String::new(),
                _ => format!("{side} \"{interface}\" "),
            };
            format!("nft 'insert rule {family} {table} {chain} {device}{what} accept'")
        }
        Tool::Iptables | Tool::Ip6tables => {
            let program = iptables::program(base.tool);
            let side = if sample.inbound { "-i" } else { "-o" };
            let what = sample.iptables;
            format!("{program} -t {table} -I {chain} {side} {interface} {what} -j ACCEPT")
        }
    };
    format!("let them through, here and in the saved configuration: {command}")
}

/// Judges the connection tracking table: a full table drops packets of new flows.
fn judge_tracked((count, max): (u64, u64)) -> Option<Finding> {
    (max != 0 && count >= max / 10 * 9).then(|| {
        Finding::new(
            CHECK,
            Level::Warn,
            "conntrack",
            format!("{count} of {max} entries are in use; a full table drops packets"),
        )
        .advise(
            "exclude UDP port 4791 from connection tracking (notrack, see man ibtap-network, \
             \"Firewall\"), or raise net.netfilter.nf_conntrack_max",
        )
    })
}
