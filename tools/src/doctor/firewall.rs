//! Firewall rules of this host that drop what a fabric port lives on.
//!
//! nftables' rules are read by `nft`, those of the older xtables by `iptables-save` and
//! `ip6tables-save`; what is not installed is not needed unless there are rules.

mod iptables;
mod names;
mod nft;
mod packets;
mod rules;
#[cfg(test)]
mod tests;

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use super::finding::{Finding, Level};
pub use packets::Site;
use packets::{Loss, Sample, samples};
use rules::{Chain, Dropped, Outcome, Tool, evaluate};

const CHECK: &str = "firewall";

/// What is installed and what it says.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The answer of `nft -j list ruleset`, or why there is none; `None` without nft.
    nft: Option<Result<String, String>>,
    /// Answers of the programs of xtables that are installed.
    xtables: Vec<(Tool, Result<String, String>)>,
    /// Where rules are, as far as can be seen without a program.
    signs: Vec<&'static str>,
    /// Entries of the connection tracking table, and how many fit.
    tracked: Option<(u64, u64)>,
}

/// Asks the programs that are installed, in the calling thread's network namespace.
pub fn gather() -> Facts {
    let programs = [
        (Tool::Iptables, "iptables-save"),
        (Tool::Ip6tables, "ip6tables-save"),
        // Where the first two are those for nftables, the old tables may be in use besides.
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

/// What a program prints, or why it prints nothing; `None` if it is not installed.
fn answer(program: &str, arguments: &[&str]) -> Option<Result<String, String>> {
    // These are not in the PATH of an ordinary user.
    let path = std::env::var("PATH").unwrap_or_default();
    let done = Command::new(program)
        .args(arguments)
        .env("PATH", format!("{path}:/usr/sbin:/sbin"))
        .env("LC_ALL", "C")
        .output();
    match done {
        Ok(done) if done.status.success() => {
            Some(Ok(String::from_utf8_lossy(&done.stdout).into_owned()))
        }
        Ok(done) => {
            let said = String::from_utf8_lossy(&done.stderr);
            let line = said.lines().next().unwrap_or_default();
            Some(Err(format!("{program}: {line}")))
        }
        Err(e) if e.kind() == ErrorKind::NotFound => None,
        Err(e) => Some(Err(format!("{program}: {e}"))),
    }
}

/// Kernel modules and tables that there would not be without rules, or hardly.
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
pub fn judge(facts: &Facts, sites: &[Site]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let chains = chains(facts, &mut findings);
    let all_read = findings.is_empty();
    if facts.nft.is_none() && facts.xtables.is_empty() {
        findings.push(no_program(facts));
    } else {
        for site in sites {
            // Of rules that nobody has read nothing is said.
            let judged = judge_site(&chains, site);
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

/// All chains, each once: rules that iptables keeps in nftables are taken from where they are
/// complete.
fn chains(facts: &Facts, findings: &mut Vec<Finding>) -> Vec<Chain> {
    let mut unread = |why: &str| {
        let finding = Finding::new(
            CHECK,
            Level::Note,
            "",
            format!("rules cannot be read: {why}"),
        );
        findings.push(finding.advise("run this as root to have them judged"));
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
                // "iptables-save" may be "iptables-legacy-save" by another name.
                chains.retain(|c| !found.iter().any(|f| f == c));
                chains.extend(found);
            }
            Err(why) => unread(why),
        }
    }
    chains
}

/// Whether a chain of nftables is of the table that iptables has in its own words.
fn is_same_table(chain: &Chain, of_iptables: &Chain) -> bool {
    chain.id.tool == Tool::Nft
        && chain.id.family == of_iptables.id.family
        && chain.id.table == of_iptables.id.table
}

fn no_program(facts: &Facts) -> Finding {
    let advice = "install nftables (or iptables) and run this again to have the rules judged";
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
            "no sign of rules (and no program to read them: neither nft nor iptables-save)",
        ),
    }
}

fn judge_site(chains: &[Chain], site: &Site) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut doubtful: Vec<String> = Vec::new();
    for sample in samples(site) {
        let outcome = evaluate(chains, &sample);
        doubtful.extend(outcome.perhaps_dropped.clone());
        let found = judge_sample(&sample, outcome, site);
        // One rule that drops several kinds of packets is told once.
        findings.extend(found.filter(|f: &Finding| !is_told(&findings, f)));
    }
    doubtful.sort();
    doubtful.dedup();
    if findings.is_empty() {
        findings.push(Finding::new(
            CHECK,
            Level::Ok,
            &site.interface,
            "lets RoCEv2 and what it needs in and out",
        ));
    }
    findings.extend(doubtful.into_iter().map(|rule| {
        Finding::new(
            CHECK,
            Level::Note,
            &site.interface,
            format!("cannot judge whether this drops packets of the fabric: {rule}"),
        )
        .advise(
            "read it: UDP port 4791 must be let in and out, and for IPv6 ICMPv6 types 130 to 143",
        )
    }));
    findings
}

fn is_told(findings: &[Finding], new: &Finding) -> bool {
    findings.iter().any(|old| old.advice == new.advice)
}

fn judge_sample(sample: &Sample, outcome: Outcome, site: &Site) -> Option<Finding> {
    let dropped = outcome.dropped?;
    let way = if sample.inbound { "in" } else { "out" };
    let (what, by) = (sample.what, &dropped.by);
    let advice = advice(sample, &dropped, &site.interface);
    let level = match (sample.loss, outcome.perhaps_accepted.first()) {
        (_, Some(_)) | (Loss::Snooping, None) => Level::Warn,
        (Loss::Traffic, None) => Level::Fail,
    };
    let but = match outcome.perhaps_accepted.first() {
        Some(rule) => format!(", unless {rule} lets them through, which cannot be judged here"),
        None => String::new(),
    };
    Some(
        Finding::new(
            CHECK,
            level,
            &site.interface,
            format!("{what} are dropped on their way {way} by {by}{but}"),
        )
        .advise(advice),
    )
}

/// The command that lets such packets through before the chain's other rules.
fn advice(sample: &Sample, dropped: &Dropped, interface: &str) -> String {
    let base = &dropped.base;
    let (table, chain) = (&base.table, &base.name);
    let command = match base.tool {
        Tool::Nft => {
            let side = if sample.inbound { "iifname" } else { "oifname" };
            let (family, what) = (base.family, sample.nft);
            // A netdev chain has its device and knows no other.
            let device = match base.family {
                rules::Family::Netdev => String::new(),
                _ => format!("{side} \"{interface}\" "),
            };
            format!("nft 'insert rule {family} {table} {chain} {device}{what} accept'")
        }
        Tool::Iptables | Tool::Ip6tables => {
            let program = match base.tool {
                Tool::Iptables => "iptables",
                _ => "ip6tables",
            };
            let side = if sample.inbound { "-i" } else { "-o" };
            let what = sample.iptables;
            format!("{program} -t {table} -I {chain} {side} {interface} {what} -j ACCEPT")
        }
    };
    format!("let them through, here and in the saved configuration: {command}")
}

/// Packets of new flows are dropped when the table is full.
fn judge_tracked((count, max): (u64, u64)) -> Option<Finding> {
    (max != 0 && count >= max / 10 * 9).then(|| {
        Finding::new(
            CHECK,
            Level::Warn,
            "conntrack",
            format!("{count} of {max} connections are tracked; when the table is full, packets are dropped"),
        )
        .advise(
            "exclude UDP port 4791 from connection tracking (notrack, see docs/network.md, \
             \"Firewall\"), or raise net.netfilter.nf_conntrack_max",
        )
    })
}
