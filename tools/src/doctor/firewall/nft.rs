//! The output of `nft -j list ruleset` (libnftables-json(5)).

use std::net::IpAddr;

use serde_json::{Map, Value as Json};

use super::names::{icmpv6_type, protocol};
use super::rules::{
    Action, Base, Chain, ChainId, Condition, Family, Field, Hook, Rule, Step, Tool, Value,
};

/// Reads the chains and their rules. Anything that is not understood becomes unknown. Families that see no
/// IP packets of this host are left out.
///
/// # Errors
/// A sentence if the text is not output of nft.
pub fn parse(text: &str) -> Result<Vec<Chain>, String> {
    let json: Json = serde_json::from_str(text).map_err(|e| format!("output of nft: {e}"))?;
    let objects = json["nftables"]
        .as_array()
        .ok_or("the output of nft has no \"nftables\"")?;
    let dormant = dormant(objects);
    let mut chains: Vec<Chain> = objects
        .iter()
        .map(|object| &object["chain"])
        .filter(|chain| !dormant.contains(&(&chain["family"], &chain["table"])))
        .filter_map(chain)
        .collect();
    for object in objects {
        let rule = &object["rule"];
        let Some(id) = chain_id(rule, "chain") else {
            continue;
        };
        if let Some(chain) = chains.iter_mut().find(|c| c.id == id) {
            chain.rules.push(Rule {
                text: format!("rule {} of {id}", rule["handle"]),
                steps: steps(&rule["expr"], &Sets { objects, of: &id }),
            });
        }
    }
    Ok(chains)
}

/// Family and name of the dormant tables, whose chains are not attached to hooks.
fn dormant(objects: &[Json]) -> Vec<(&Json, &Json)> {
    let tables = objects.iter().map(|object| &object["table"]);
    tables
        .filter(|table| words(&table["flags"]).iter().any(|flag| flag == "dormant"))
        .map(|table| (&table["family"], &table["name"]))
        .collect()
}

fn chain_id(object: &Json, name: &str) -> Option<ChainId> {
    let family = match object["family"].as_str()? {
        "inet" => Family::Inet,
        "ip" => Family::Ipv4,
        "ip6" => Family::Ipv6,
        "netdev" => Family::Netdev,
        _ => return None,
    };
    Some(ChainId {
        tool: Tool::Nft,
        family,
        table: object["table"].as_str()?.to_owned(),
        name: object[name].as_str()?.to_owned(),
    })
}

fn chain(object: &Json) -> Option<Chain> {
    let hook = match object["hook"].as_str() {
        Some("ingress") => Some(Hook::Ingress),
        Some("prerouting") => Some(Hook::Prerouting),
        Some("input") => Some(Hook::Input),
        Some("output") => Some(Hook::Output),
        Some("postrouting") => Some(Hook::Postrouting),
        Some("egress") => Some(Hook::Egress),
        _ => None,
    };
    Some(Chain {
        id: chain_id(object, "name")?,
        base: hook.map(|hook| Base {
            hook,
            devices: words(&object["dev"]),
            priority: object["prio"].as_i64().unwrap_or_default(),
            drops: object["policy"] == "drop",
        }),
        rules: Vec::new(),
    })
}

/// A word, or a list of words.
fn words(json: &Json) -> Vec<String> {
    let word = |j: &Json| j.as_str().map(str::to_owned);
    match json {
        Json::Array(items) => items.iter().filter_map(word).collect(),
        one => word(one).into_iter().collect(),
    }
}

/// The named sets and maps that rules of a chain may use.
struct Sets<'a> {
    objects: &'a [Json],
    of: &'a ChainId,
}

impl<'a> Sets<'a> {
    /// The elements of a set or map.
    fn elements(&self, kind: &str, name: &str) -> Option<&'a [Json]> {
        let family = self.of.family.to_string();
        let found = self.objects.iter().map(|o| &o[kind]).find(|set| {
            set["name"] == name && set["table"] == self.of.table && set["family"] == family
        })?;
        // An empty set has no member "elem".
        Some(found["elem"].as_array().map_or(&[], Vec::as_slice))
    }
}

fn steps(expressions: &Json, sets: &Sets<'_>) -> Vec<Step> {
    let mut steps = Vec::new();
    for expression in expressions.as_array().into_iter().flatten() {
        // {"accept": null}: the name of the only member is the statement.
        let Some((name, body)) = expression.as_object().and_then(only) else {
            steps.push(Step::Match(Condition::Unknown));
            continue;
        };
        match name {
            "match" => matching(body, sets, &mut steps),
            "vmap" => select(body, sets, &mut steps),
            "limit" | "quota" | "ct count" => steps.push(Step::Match(Condition::Unknown)),
            "xt" if body["type"] == "match" => steps.push(Step::Match(Condition::Unknown)),
            // These do not decide about the packet.
            "counter" | "log" | "mangle" | "set" | "map" | "comment" | "meter" | "ct helper"
            | "ct timeout" | "ct expectation" | "last" | "flow" | "dup" | "secmark" => {}
            _ => steps.push(Step::Do(action(name, body))),
        }
    }
    steps
}

fn only(object: &Map<String, Json>) -> Option<(&str, &Json)> {
    let (name, body) = object.iter().next()?;
    Some((name, body))
}

fn action(name: &str, body: &Json) -> Action {
    let target = || body["target"].as_str().unwrap_or_default().to_owned();
    match name {
        "accept" => Action::Accept,
        "drop" | "reject" => Action::Drop,
        "return" => Action::Return,
        "continue" => Action::Continue,
        "jump" => Action::Jump(target()),
        "goto" => Action::Goto(target()),
        "notrack" => Action::Untrack,
        // queue, redirect, dnat, tproxy, fwd, synproxy, targets of xtables, ...
        _ => Action::Unknown,
    }
}

fn matching(body: &Json, sets: &Sets<'_>, steps: &mut Vec<Step>) {
    let negated = match body["op"].as_str() {
        Some("==" | "in") => false,
        Some("!=") => true,
        Some(op @ ("<" | ">" | "<=" | ">=")) => return compare(body, op, steps),
        _ => return steps.push(Step::Match(Condition::Unknown)),
    };
    let Some(field) = subject(&body["left"], steps) else {
        return;
    };
    steps.push(Step::Match(Condition::Is {
        field,
        values: values(field, &body["right"], sets),
        negated,
    }));
}

fn compare(body: &Json, op: &str, steps: &mut Vec<Step>) {
    let Some(field) = subject(&body["left"], steps) else {
        return;
    };
    let number = body["right"].as_u64().and_then(|n| u32::try_from(n).ok());
    let Some(n) = number else {
        return steps.push(Step::Match(Condition::Unknown));
    };
    // "< n" becomes "not n and above", which is also right for n = 0.
    let (range, negated) = match op {
        "<" => (n..=u32::MAX, true),
        "<=" => (0..=n, false),
        ">" => (0..=n, true),
        _ => (n..=u32::MAX, false),
    };
    steps.push(Step::Match(Condition::Is {
        field,
        values: vec![Value::Numbers(range)],
        negated,
    }));
}

fn select(body: &Json, sets: &Sets<'_>, steps: &mut Vec<Step>) {
    let cases = match &body["data"] {
        Json::String(name) => sets.elements("map", name.trim_start_matches('@')),
        data => data["set"].as_array().map(Vec::as_slice),
    };
    let (Some(field), Some(cases)) = (subject(&body["key"], steps), cases) else {
        return steps.push(Step::Do(Action::Unknown));
    };
    let case = |case: &Json| {
        let (name, body) = case[1].as_object().and_then(only)?;
        let action = action(name, body);
        Some(
            elements(field, &case[0])
                .into_iter()
                .map(move |value| (value, action.clone())),
        )
    };
    let cases = cases.iter().filter_map(case).flatten().collect();
    steps.push(Step::Select(field, cases));
}

/// The property that an expression reads. Other conditions of the expression are added to the steps, and an
/// unknown condition for an unknown property.
fn subject(left: &Json, steps: &mut Vec<Step>) -> Option<Field> {
    let (field, needs) = match left.as_object().and_then(only) {
        Some(("meta", body)) => (meta(body["key"].as_str().unwrap_or_default()), None),
        Some(("ct", body)) if body["key"] == "state" => (Some(Field::State), None),
        Some(("payload", body)) => {
            let word = |key| body[key].as_str().unwrap_or_default();
            payload(word("protocol"), word("field"))
        }
        _ => (None, None),
    };
    steps.extend(needs.map(Step::Match));
    if field.is_none() {
        steps.push(Step::Match(Condition::Unknown));
    }
    field
}

fn meta(key: &str) -> Option<Field> {
    Some(match key {
        "iif" | "iifname" => Field::InInterface,
        "oif" | "oifname" => Field::OutInterface,
        "l4proto" => Field::Protocol,
        "nfproto" | "protocol" => Field::Network,
        "pkttype" => Field::PacketType,
        "skuid" => Field::User,
        _ => return None,
    })
}

/// The property of a header field, and the condition of its header. nft does not print implied conditions:
/// "udp dport 1" implies UDP.
fn payload(header: &str, name: &str) -> (Option<Field>, Option<Condition>) {
    let is = |field, value| Condition::Is {
        field,
        values: vec![value],
        negated: false,
    };
    let needs = match header {
        "ip" => Some(is(Field::Network, Value::Name("ipv4".into()))),
        "ip6" => Some(is(Field::Network, Value::Name("ipv6".into()))),
        transport => protocol(transport).map(|n| is(Field::Protocol, Value::Numbers(n..=n))),
    };
    let field = match (header, name) {
        ("ether", "type") => Some(Field::Network),
        ("ip" | "ip6", "saddr") => Some(Field::Source),
        ("ip" | "ip6", "daddr") => Some(Field::Destination),
        ("ip", "protocol") | ("ip6", "nexthdr") => Some(Field::Protocol),
        ("ip", "ttl") | ("ip6", "hoplimit") => Some(Field::HopLimit),
        ("icmpv6", "type") => Some(Field::Icmpv6Type),
        ("th" | "udp" | "tcp" | "sctp" | "udplite" | "dccp", "sport") => Some(Field::SourcePort),
        ("th" | "udp" | "tcp" | "sctp" | "udplite" | "dccp", "dport") => {
            Some(Field::DestinationPort)
        }
        _ => None,
    };
    (field, needs)
}

/// The values of the right side of a test, which may name a set.
fn values(field: Field, right: &Json, sets: &Sets<'_>) -> Vec<Value> {
    match right.as_str().and_then(|text| text.strip_prefix('@')) {
        Some(name) => match sets.elements("set", name) {
            Some(items) => items.iter().flat_map(|i| elements(field, i)).collect(),
            None => vec![Value::Unknown],
        },
        None => elements(field, right),
    }
}

/// The values of an element, or of a list of elements. Elements never name a set.
fn elements(field: Field, json: &Json) -> Vec<Value> {
    let all = |items: &[Json]| items.iter().flat_map(|i| elements(field, i)).collect();
    match json {
        Json::Array(items) => all(items),
        Json::Object(object) => match only(object) {
            Some(("set", Json::Array(items))) => all(items),
            // An element with a counter, a timeout or a comment.
            Some(("elem", element)) => elements(field, &element["val"]),
            Some(("range", range)) => vec![between(field, range)],
            Some(("prefix", prefix)) => vec![within(prefix)],
            _ => vec![Value::Unknown],
        },
        one => vec![value(field, one)],
    }
}

fn between(field: Field, range: &Json) -> Value {
    match (value(field, &range[0]), value(field, &range[1])) {
        (Value::Numbers(from), Value::Numbers(to)) => Value::Numbers(*from.start()..=*to.end()),
        _ => Value::Unknown,
    }
}

fn within(prefix: &Json) -> Value {
    let address = prefix["addr"].as_str().and_then(|a| a.parse().ok());
    let bits = prefix["len"].as_u64().and_then(|n| u8::try_from(n).ok());
    match (address, bits) {
        (Some(address), Some(bits)) => Value::Prefix(address, bits),
        _ => Value::Unknown,
    }
}

fn value(field: Field, json: &Json) -> Value {
    let number = json.as_u64().and_then(|n| u32::try_from(n).ok());
    if let Some(number) = number {
        return match field {
            Field::Protocol
            | Field::SourcePort
            | Field::DestinationPort
            | Field::Icmpv6Type
            | Field::HopLimit
            | Field::User => Value::Numbers(number..=number),
            _ => Value::Unknown,
        };
    }
    let Some(text) = json.as_str() else {
        return Value::Unknown;
    };
    let number = match field {
        Field::Protocol => protocol(text),
        Field::Icmpv6Type => icmpv6_type(text),
        Field::Source | Field::Destination => return host(text),
        Field::Network => {
            return match text {
                "ip" | "ipv4" => Value::Name("ipv4".into()),
                "ip6" | "ipv6" => Value::Name("ipv6".into()),
                other => Value::Name(other.into()),
            };
        }
        // nft's "unicast" is the kernel's PACKET_HOST.
        Field::PacketType if text == "unicast" => return Value::Name("host".into()),
        Field::InInterface | Field::OutInterface | Field::PacketType | Field::State => {
            return Value::Name(text.into());
        }
        Field::SourcePort | Field::DestinationPort | Field::HopLimit | Field::User => None,
    };
    number.map_or(Value::Unknown, |n| Value::Numbers(n..=n))
}

fn host(text: &str) -> Value {
    match text.parse::<IpAddr>() {
        Ok(address) => Value::Prefix(address, if address.is_ipv4() { 32 } else { 128 }),
        Err(_) => Value::Unknown,
    }
}
