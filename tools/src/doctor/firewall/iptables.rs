//! The output of `iptables-save` and `ip6tables-save` (iptables-extensions(8)).

use std::net::IpAddr;

use super::names::{icmpv6_type, protocol};
use super::rules::{
    Action, Base, Chain, ChainId, Condition, Family, Field, Hook, Rule, Step, Tool, Value,
};

/// Matches with options that `field` knows or that do not select packets.
const KNOWN_MATCHES: [&str; 11] = [
    "udp",
    "tcp",
    "icmp6",
    "multiport",
    "comment",
    "conntrack",
    "state",
    "pkttype",
    "sctp",
    "owner",
    "hl",
];

/// Whether nftables keeps these rules; `nft` then also lists them.
pub fn is_nftables(text: &str) -> bool {
    text.lines()
        .any(|line| line.starts_with('#') && line.contains("(nf_tables)"))
}

/// Reads the chains and their rules. Anything that is not understood becomes unknown.
pub fn parse(text: &str, tool: Tool) -> Vec<Chain> {
    let family = match tool {
        Tool::Iptables => Family::Ipv4,
        Tool::Nft | Tool::Ip6tables => Family::Ipv6,
    };
    let mut chains: Vec<Chain> = Vec::new();
    let mut table = "";
    for line in text.lines() {
        let id = |name: &str| ChainId {
            tool,
            family,
            table: table.to_owned(),
            name: name.to_owned(),
        };
        if let Some(name) = line.strip_prefix('*') {
            table = name.trim();
        } else if let Some(declared) = line.strip_prefix(':') {
            let mut words = declared.split_ascii_whitespace();
            let (name, policy) = (words.next().unwrap_or_default(), words.next());
            chains.push(Chain {
                id: id(name),
                base: base(table, name, policy == Some("DROP")),
                rules: Vec::new(),
            });
        } else if let Some(rest) = line.strip_prefix("-A ") {
            let words = split(rest);
            let (Some(name), rule) = (words.first(), words.get(1..).unwrap_or_default()) else {
                continue;
            };
            let wanted = id(name);
            if let Some(chain) = chains.iter_mut().find(|chain| chain.id == wanted) {
                chain.rules.push(Rule {
                    text: format!("{} -t {table} {line}", program(tool)),
                    steps: steps(rule),
                });
            }
        }
    }
    chains
}

/// The name of the program.
pub fn program(tool: Tool) -> &'static str {
    match tool {
        Tool::Iptables => "iptables",
        Tool::Ip6tables => "ip6tables",
        Tool::Nft => "nft",
    }
}

/// The built-in chains; priorities of include/uapi/linux/netfilter_ipv4.h.
fn base(table: &str, name: &str, drops: bool) -> Option<Base> {
    let hook = match name {
        "PREROUTING" => Hook::Prerouting,
        "INPUT" => Hook::Input,
        "OUTPUT" => Hook::Output,
        "POSTROUTING" => Hook::Postrouting,
        _ => return None,
    };
    let priority = match (table, hook) {
        ("raw", _) => -300,
        ("mangle", _) => -150,
        ("nat", Hook::Prerouting | Hook::Output) => -100,
        ("nat", _) => 100,
        ("security", _) => 50,
        _ => 0,
    };
    Some(Base {
        hook,
        devices: Vec::new(),
        priority,
        drops,
    })
}

/// Words between spaces; a quoted word may contain spaces or be empty.
fn split(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let (mut quoted, mut escaped) = (false, false);
    // Whether the current word has quotes.
    let mut had_quotes = false;
    for c in line.chars() {
        match c {
            _ if escaped => {
                word.push(c);
                escaped = false;
            }
            '\\' => escaped = true,
            '"' => {
                quoted = !quoted;
                had_quotes = true;
            }
            ' ' if !quoted => {
                if had_quotes || !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                had_quotes = false;
            }
            _ => word.push(c),
        }
    }
    if had_quotes || !word.is_empty() {
        words.push(word);
    }
    words
}

fn steps(words: &[String]) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut negated = false;
    let mut words = words.iter().map(String::as_str).peekable();
    while let Some(word) = words.next() {
        if word == "!" {
            negated = true;
            continue;
        }
        let mut argument = || words.next().unwrap_or_default();
        match word {
            "-j" => {
                let target = argument();
                let untracks = target == "NOTRACK" || words.any(|w| w == "--notrack");
                steps.extend(action(target, untracks).map(Step::Do));
                break;
            }
            "-g" => {
                steps.push(Step::Do(Action::Goto(argument().to_owned())));
                break;
            }
            "-m" => {
                if !KNOWN_MATCHES.contains(&argument()) {
                    steps.push(Step::Match(Condition::Unknown));
                }
            }
            "--comment" => drop(argument()),
            _ => {
                let known = field(word);
                let condition = match known {
                    Some(field) => is(field, argument(), negated),
                    None => Condition::Unknown,
                };
                steps.push(Step::Match(condition));
                if known.is_none() {
                    // Skip the values of the unknown option.
                    while words
                        .peek()
                        .is_some_and(|w| !w.starts_with('-') && *w != "!")
                    {
                        words.next();
                    }
                }
            }
        }
        negated = false;
    }
    steps
}

fn action(target: &str, untracks: bool) -> Option<Action> {
    Some(match target {
        "ACCEPT" => Action::Accept,
        "DROP" | "REJECT" => Action::Drop,
        "RETURN" => Action::Return,
        _ if untracks => Action::Untrack,
        // These do not decide about the packet.
        "LOG" | "NFLOG" | "MARK" | "CONNMARK" | "CT" | "TRACE" | "AUDIT" | "DSCP" | "TOS"
        | "CLASSIFY" | "CHECKSUM" | "TCPMSS" | "TTL" | "HL" | "SET" | "SECMARK" | "CONNSECMARK"
        | "TEE" => return None,
        "QUEUE" | "NFQUEUE" | "DNAT" | "SNAT" | "MASQUERADE" | "REDIRECT" | "TPROXY"
        | "SYNPROXY" | "NETMAP" => Action::Unknown,
        chain => Action::Jump(chain.to_owned()),
    })
}

fn field(option: &str) -> Option<Field> {
    Some(match option {
        "-i" => Field::InInterface,
        "-o" => Field::OutInterface,
        "-p" => Field::Protocol,
        "-s" => Field::Source,
        "-d" => Field::Destination,
        "--sport" | "--sports" => Field::SourcePort,
        "--dport" | "--dports" => Field::DestinationPort,
        "--hl-eq" => Field::HopLimit,
        "--icmpv6-type" => Field::Icmpv6Type,
        "--ctstate" | "--state" => Field::State,
        "--pkt-type" => Field::PacketType,
        "--uid-owner" => Field::User,
        _ => return None,
    })
}

fn is(field: Field, argument: &str, negated: bool) -> Condition {
    let values = match field {
        Field::InInterface | Field::OutInterface => {
            vec![Value::Name(match argument.strip_suffix('+') {
                Some(start) => format!("{start}*"),
                None => argument.to_owned(),
            })]
        }
        Field::PacketType if argument == "unicast" => vec![Value::Name("host".into())],
        Field::Source | Field::Destination => vec![prefix(argument)],
        Field::State | Field::PacketType | Field::Network => argument
            .split(',')
            .map(|name| Value::Name(name.to_ascii_lowercase()))
            .collect(),
        Field::Protocol | Field::Icmpv6Type | Field::HopLimit => {
            let number = match field {
                Field::Icmpv6Type => icmpv6_type(argument),
                _ => protocol(argument),
            };
            vec![number.map_or(Value::Unknown, |n| Value::Numbers(n..=n))]
        }
        Field::SourcePort | Field::DestinationPort => {
            argument.split(',').map(|text| numbers(text, ':')).collect()
        }
        Field::User => vec![numbers(argument, '-')],
    };
    Condition::Is {
        field,
        values,
        negated,
    }
}

/// `53`, or `4000:4791` with the separator `:`.
fn numbers(text: &str, separator: char) -> Value {
    let (from, to) = text.split_once(separator).unwrap_or((text, text));
    match (from.parse(), to.parse()) {
        (Ok(from), Ok(to)) => Value::Numbers(from..=to),
        _ => Value::Unknown,
    }
}

/// `fe80::/10`, or an address alone.
fn prefix(text: &str) -> Value {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, bits.parse().ok()),
        None => (text, Some(if text.contains(':') { 128 } else { 32 })),
    };
    match (address.parse::<IpAddr>(), bits) {
        (Ok(address), Some(bits)) => Value::Prefix(address, bits),
        _ => Value::Unknown,
    }
}
