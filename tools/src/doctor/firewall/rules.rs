//! Common model of the rules of nftables and iptables, and its evaluator for a packet with known properties.
//! Anything that the model does not express is unknown.
//!
//! Order and meaning of hooks, priorities and verdicts: nft(8), "ADDRESS FAMILIES" and "CHAINS". Accept ends
//! the current base chain; drop ends all chains.

use std::net::IpAddr;
use std::ops::RangeInclusive;

/// Maximum depth of jumps in the kernel (include/net/netfilter/nf_tables.h, NFT_JUMP_STACK_SIZE).
const JUMPS_MAX: usize = 16;

/// The packets that a table sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    Inet,
    Ipv4,
    Ipv6,
    /// All packets of one device.
    Netdev,
}

/// The place of a base chain in the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    Ingress,
    Prerouting,
    Input,
    Output,
    Postrouting,
    Egress,
}

/// The program that owns the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    Nft,
    Iptables,
    Ip6tables,
}

/// A chain and its rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    pub id: ChainId,
    pub base: Option<Base>,
    pub rules: Vec<Rule>,
}

/// The name of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainId {
    pub tool: Tool,
    pub family: Family,
    pub table: String,
    pub name: String,
}

/// The attachment of a base chain to a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base {
    pub hook: Hook,
    /// The devices of an ingress or egress chain.
    pub devices: Vec<String>,
    pub priority: i64,
    /// Whether the policy is drop.
    pub drops: bool,
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its place or text, for the user.
    pub text: String,
    pub steps: Vec<Step>,
}

/// A part of a rule. Parts apply in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The rule continues if the condition holds.
    Match(Condition),
    /// The action.
    Do(Action),
    /// A verdict map: the action depends on a property.
    Select(Field, Vec<(Value, Action)>),
}

/// A test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The property is, or is not, one of these values.
    Is {
        field: Field,
        values: Vec<Value>,
        negated: bool,
    },
    /// A condition outside the model.
    Unknown,
}

/// A property of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    InInterface,
    OutInterface,
    /// `ipv4` or `ipv6`.
    Network,
    /// The number of the transport protocol.
    Protocol,
    SourcePort,
    DestinationPort,
    Icmpv6Type,
    Source,
    Destination,
    HopLimit,
    /// The user id of the socket that sends the packet.
    User,
    /// `host` or `multicast`.
    PacketType,
    /// State in connection tracking: `new`, `untracked`, ...
    State,
}

/// A value of a property, or a set of values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A word; a `*` at the end matches any rest.
    Name(String),
    Numbers(RangeInclusive<u32>),
    Prefix(IpAddr, u8),
    /// A value outside the model.
    Unknown,
}

/// The action of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Accept,
    Drop,
    Return,
    /// Go to the next rule.
    Continue,
    Jump(String),
    Goto(String),
    /// Exclude the packet from connection tracking.
    Untrack,
    /// An action outside the model, which may accept or drop.
    Unknown,
}

impl Action {
    /// Whether the packet does not reach the next rule of the chain.
    fn ends_chain(&self) -> bool {
        match self {
            Action::Accept | Action::Drop | Action::Return | Action::Goto(_) => true,
            Action::Continue | Action::Jump(_) | Action::Untrack | Action::Unknown => false,
        }
    }
}

/// A packet with known properties.
pub trait Packet {
    /// A property; `None` if the packet does not have it, [`Value::Unknown`] if it is unknown. A range or a
    /// prefix contains the property.
    fn field(&self, field: Field) -> Option<Value>;
    /// Whether chains of the family see the packet.
    fn is_of(&self, family: Family) -> bool;
    /// Whether chains of the device see the packet.
    fn is_on(&self, device: &str) -> bool;
    /// The hooks that the packet passes, in order.
    fn hooks(&self) -> &'static [Hook];
}

/// The result of the rules for a packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The rule or policy that drops the packet, if any.
    pub dropped: Option<Dropped>,
    /// Earlier rules that perhaps accept the packet.
    pub perhaps_accepted: Vec<String>,
    /// Rules that perhaps drop the packet.
    pub perhaps_dropped: Vec<String>,
}

/// A drop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// The rule or policy.
    pub by: String,
    /// The base chain.
    pub base: ChainId,
}

/// Evaluates all chains for a packet.
pub fn evaluate(chains: &[Chain], packet: &dyn Packet) -> Outcome {
    let mut walk = Walk {
        chains,
        packet,
        untracked: false,
        outcome: Outcome::default(),
    };
    for hook in packet.hooks() {
        for (chain, base) in bases(chains, packet, *hook) {
            let drop = walk.base(chain, base);
            // nft 1.0 does not print the device of a netdev chain.
            let doubtful = chain.id.family == Family::Netdev && base.devices.is_empty();
            if doubtful {
                walk.outcome.perhaps_dropped.extend(drop);
            } else if let Some(by) = drop {
                walk.outcome.dropped = Some(Dropped {
                    by,
                    base: chain.id.clone(),
                });
                return walk.outcome;
            }
            // The packet has passed this chain.
            walk.outcome.perhaps_accepted.clear();
        }
    }
    walk.outcome
}

/// The base chains of a hook that see the packet, by priority.
fn bases<'a>(chains: &'a [Chain], packet: &dyn Packet, hook: Hook) -> Vec<(&'a Chain, &'a Base)> {
    let mut found: Vec<_> = chains
        .iter()
        .filter_map(|chain| Some((chain, chain.base.as_ref()?)))
        .filter(|(chain, base)| {
            base.hook == hook
                && packet.is_of(chain.id.family)
                && (base.devices.is_empty() || base.devices.iter().any(|d| packet.is_on(d)))
        })
        .collect();
    found.sort_by_key(|(_, base)| base.priority);
    found
}

/// The end of a chain.
enum End {
    /// No rule decided, or a rule returned.
    Through,
    Accepted,
    /// The rule.
    Dropped(String),
}

/// A three-valued answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Yes,
    No,
    Unknown,
}

struct Walk<'a> {
    chains: &'a [Chain],
    packet: &'a dyn Packet,
    untracked: bool,
    outcome: Outcome,
}

impl<'a> Walk<'a> {
    /// The rule or policy of a base chain that drops the packet.
    fn base(&mut self, chain: &Chain, base: &Base) -> Option<String> {
        match self.chain(chain, 0) {
            End::Dropped(by) => Some(by),
            End::Accepted => None,
            End::Through => base.drops.then(|| format!("the policy of {}", chain.id)),
        }
    }

    fn chain(&mut self, chain: &Chain, depth: usize) -> End {
        let mut perhaps_left = false;
        for rule in &chain.rules {
            let (action, sure) = self.rule(rule);
            let Some(action) = action else { continue };
            // No verdict is certain for a packet that has perhaps left the chain. Such a packet continues in the
            // calling chain.
            if !sure || perhaps_left {
                self.doubt(&rule.text, &action);
                if sure && action.ends_chain() {
                    return End::Through;
                }
                perhaps_left |= matches!(action, Action::Return | Action::Goto(_));
                continue;
            }
            match action {
                Action::Accept => return End::Accepted,
                Action::Drop => return End::Dropped(rule.text.clone()),
                Action::Return => return End::Through,
                Action::Continue => {}
                Action::Untrack => self.untracked = true,
                Action::Unknown => self.doubt(&rule.text, &Action::Unknown),
                Action::Jump(ref name) | Action::Goto(ref name) => {
                    let target = self.target(&chain.id, name);
                    let Some(target) = target.filter(|_| depth < JUMPS_MAX) else {
                        self.doubt(&rule.text, &Action::Unknown);
                        continue;
                    };
                    match self.chain(target, depth + 1) {
                        End::Through if matches!(action, Action::Goto(_)) => return End::Through,
                        End::Through => {}
                        end => return end,
                    }
                }
            }
        }
        End::Through
    }

    fn target(&self, from: &ChainId, name: &str) -> Option<&'a Chain> {
        self.chains.iter().find(|c| {
            c.id.name == name
                && c.id.table == from.table
                && c.id.family == from.family
                && c.id.tool == from.tool
        })
    }

    /// The action of a rule, and whether the rule certainly applies.
    fn rule(&self, rule: &Rule) -> (Option<Action>, bool) {
        let mut sure = true;
        for step in &rule.steps {
            match step {
                Step::Match(condition) => match self.holds(condition) {
                    Answer::Yes => {}
                    Answer::No => return (None, true),
                    Answer::Unknown => sure = false,
                },
                Step::Do(action) => return (Some(action.clone()), sure),
                Step::Select(field, cases) => {
                    let (action, known) = self.select(*field, cases);
                    if action.is_some() {
                        return (action, sure && known);
                    }
                }
            }
        }
        (None, sure)
    }

    fn select(&self, field: Field, cases: &[(Value, Action)]) -> (Option<Action>, bool) {
        for wanted in [Answer::Yes, Answer::Unknown] {
            let found = cases
                .iter()
                .find(|(value, _)| self.is_one(field, std::slice::from_ref(value)) == wanted);
            if let Some((_, action)) = found {
                return (Some(action.clone()), wanted == Answer::Yes);
            }
        }
        (None, true)
    }

    fn holds(&self, condition: &Condition) -> Answer {
        let Condition::Is {
            field,
            values,
            negated,
        } = condition
        else {
            return Answer::Unknown;
        };
        // A packet without the property does not match, negated or not.
        if self.seen(*field).is_none() {
            return Answer::No;
        }
        match (self.is_one(*field, values), negated) {
            (Answer::Yes, false) | (Answer::No, true) => Answer::Yes,
            (Answer::No, false) | (Answer::Yes, true) => Answer::No,
            (Answer::Unknown, _) => Answer::Unknown,
        }
    }

    fn seen(&self, field: Field) -> Option<Value> {
        if field == Field::State && self.untracked {
            return Some(Value::Name("untracked".into()));
        }
        self.packet.field(field)
    }

    fn is_one(&self, field: Field, values: &[Value]) -> Answer {
        let Some(seen) = self.seen(field) else {
            return Answer::No;
        };
        let mut answer = Answer::No;
        for value in values {
            match covers(value, &seen) {
                Answer::Yes => return Answer::Yes,
                Answer::Unknown => answer = Answer::Unknown,
                Answer::No => {}
            }
        }
        answer
    }

    fn doubt(&mut self, text: &str, action: &Action) {
        let text = || text.to_owned();
        match action {
            Action::Accept => self.outcome.perhaps_accepted.push(text()),
            Action::Drop => self.outcome.perhaps_dropped.push(text()),
            Action::Return | Action::Continue | Action::Untrack => {}
            Action::Jump(_) | Action::Goto(_) | Action::Unknown => {
                self.outcome.perhaps_accepted.push(text());
                self.outcome.perhaps_dropped.push(text());
            }
        }
    }
}

/// Whether a value covers all possible values of a packet's property (yes), none (no), or some (unknown).
fn covers(value: &Value, seen: &Value) -> Answer {
    let decide = |all: bool, some: bool| match (all, some) {
        (true, _) => Answer::Yes,
        (false, true) => Answer::Unknown,
        (false, false) => Answer::No,
    };
    match (value, seen) {
        (Value::Name(pattern), Value::Name(name)) => {
            let yes = match pattern.strip_suffix('*') {
                Some(start) => name.starts_with(start),
                None => pattern == name,
            };
            decide(yes, false)
        }
        (Value::Numbers(a), Value::Numbers(b)) => decide(
            a.contains(b.start()) && a.contains(b.end()),
            a.start() <= b.end() && b.start() <= a.end(),
        ),
        (Value::Prefix(a, a_bits), Value::Prefix(b, b_bits)) => {
            let meet = same_bits(*a, *b, (*a_bits).min(*b_bits));
            decide(meet && a_bits <= b_bits, meet)
        }
        _ => Answer::Unknown,
    }
}

/// Whether two addresses of one family agree in their first bits.
fn same_bits(a: IpAddr, b: IpAddr, bits: u8) -> bool {
    let (a, b, width) = match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (u32::from(a).into(), u32::from(b).into(), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => (u128::from(a), u128::from(b), 128),
        _ => return false,
    };
    let bits = u32::from(bits).min(width);
    // Shifting a u128 by 128 bits overflows.
    bits == 0 || (a ^ b) >> (width - bits) == 0
}

impl std::fmt::Display for ChainId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (table, name) = (&self.table, &self.name);
        match self.tool {
            Tool::Nft => write!(f, "nft chain {} {table} {name}", self.family),
            Tool::Iptables => write!(f, "iptables -t {table} {name}"),
            Tool::Ip6tables => write!(f, "ip6tables -t {table} {name}"),
        }
    }
}

impl std::fmt::Display for Family {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Family::Inet => "inet",
            Family::Ipv4 => "ip",
            Family::Ipv6 => "ip6",
            Family::Netdev => "netdev",
        })
    }
}
