//! `ibtap res`: the resources of ports as lines, and filters, both as of `rdma resource show` (rdma-resource(8)).

use std::ops::RangeInclusive;

use control::api::{
    CmIdInfo, CompletionQueueInfo, LinkInfo, MemberInfo, MemoryRegionInfo, ProtectionDomainInfo,
    QueuePairInfo, ResourcesInfo, SharedReceiveQueueInfo,
};
use control::config::values::parse_number;

/// The name of a kind of resource, and the keys of its lines, which are also keys of filters.
struct Kind {
    name: &'static str,
    keys: &'static [&'static str],
}

const QP: Kind = Kind {
    name: "qp",
    keys: &[
        "lqpn", "type", "state", "pkey", "qkey", "rqpn", "lanes", "netdev",
    ],
};
const CQ: Kind = Kind {
    name: "cq",
    keys: &["cqn", "cqe", "worker"],
};
const SRQ: Kind = Kind {
    name: "srq",
    keys: &["contents", "srqe", "worker"],
};
const CM_ID: Kind = Kind {
    name: "cm_id",
    keys: &[
        "lqpn", "rqpn", "state", "role", "src-gid", "dst-gid", "netdev", "worker",
    ],
};
const MR: Kind = Kind {
    name: "mr",
    keys: &["lkey", "mrlen", "worker"],
};
const PD: Kind = Kind {
    name: "pd",
    keys: &["worker"],
};
const GROUP: Kind = Kind {
    name: "group",
    keys: &["mgid", "lqpn"],
};

/// The keys of a port's line, which has no kind.
const LINK_KEYS: &[&str] = &[
    "state",
    "link_layer",
    "lid",
    "sm_lid",
    "sm_sl",
    "guid",
    "gid",
    "gid_index",
    "mtu",
    "fw",
    "netdev",
];

/// The kinds that a query can name.
const KINDS: [&Kind; 7] = [&QP, &CQ, &SRQ, &CM_ID, &MR, &PD, &GROUP];

/// The keys of all lines.
const COMMON: [&str; 2] = ["link", "pid"];

/// The keys and values of a line.
type Words = Vec<(&'static str, String)>;

/// A wanted value.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Wanted {
    /// A text; capitals do not matter.
    Text(String),
    /// A number in one of the ranges.
    Numbers(Vec<RangeInclusive<u64>>),
}

impl Wanted {
    /// Numbers such as `0x48`, `0-6` or `1,5-7`; anything else is a text.
    fn parse(text: &str) -> Wanted {
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some(parse_number(first)?..=parse_number(last)?)
        };
        match text.split(',').map(range).collect() {
            Some(ranges) => Wanted::Numbers(ranges),
            None => Wanted::Text(text.to_owned()),
        }
    }

    fn is(&self, value: &str) -> bool {
        match self {
            Wanted::Text(text) => text.eq_ignore_ascii_case(value),
            Wanted::Numbers(ranges) => {
                parse_number(value).is_some_and(|n| ranges.iter().any(|range| range.contains(&n)))
            }
        }
    }
}

/// What to show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// The name of a kind; `None`: all kinds.
    kind: Option<&'static str>,
    filters: Vec<(&'static str, Wanted)>,
}

impl Query {
    /// Parses the words of a command line: `[show] [KIND] [KEY VALUE]...`.
    ///
    /// # Errors
    /// A sentence for the user.
    pub fn parse(words: &[String]) -> Result<Query, String> {
        let mut words = words.iter().map(String::as_str).peekable();
        words.next_if_eq(&"show");
        let named = |word: &str| KINDS.into_iter().find(|kind| kind.name == word);
        let kind = words.peek().and_then(|word| named(word));
        if kind.is_some() {
            words.next();
        }
        let of_kinds: Vec<&[&str]> = match kind {
            Some(kind) => vec![kind.keys],
            None => KINDS
                .iter()
                .map(|kind| kind.keys)
                .chain([LINK_KEYS])
                .collect(),
        };
        let mut filters = Vec::new();
        while let Some(key) = words.next() {
            let mut keys = COMMON.iter().chain(of_kinds.iter().copied().flatten());
            let Some(known) = keys.find(|known| **known == key) else {
                return Err(unknown(key, kind));
            };
            let Some(value) = words.next() else {
                return Err(format!("{key} needs a value"));
            };
            filters.push((*known, Wanted::parse(value)));
        }
        Ok(Query {
            kind: kind.map(|kind| kind.name),
            filters,
        })
    }

    /// Keeps the resources that the query selects, and the ports that have some.
    pub fn select(&self, ports: &mut Vec<ResourcesInfo>) {
        if *self == Query::default() {
            return;
        }
        for port in ports.iter_mut() {
            let common = common(port);
            let shows = |kind: Option<&Kind>, words: &Words| self.shows(kind, &common, words);
            port.link = port.link.take().filter(|l| shows(None, &link(l)));
            port.queue_pairs
                .retain(|o| shows(Some(&QP), &queue_pair(o)));
            port.completion_queues
                .retain(|o| shows(Some(&CQ), &completion_queue(o)));
            port.shared_receive_queues
                .retain(|o| shows(Some(&SRQ), &shared_receive_queue(o)));
            port.cm_ids.retain(|o| shows(Some(&CM_ID), &cm_id(o)));
            port.memory_regions
                .retain(|o| shows(Some(&MR), &memory_region(o)));
            port.protection_domains
                .retain(|o| shows(Some(&PD), &protection_domain(o)));
            port.groups.retain(|o| shows(Some(&GROUP), &group(o)));
        }
        ports.retain(|port| !lines(port).is_empty());
    }

    /// Whether a line is selected. `kind` is `None` for the line of a port.
    fn shows(&self, kind: Option<&Kind>, common: &Words, words: &Words) -> bool {
        let is_kind = self.kind.is_none() || self.kind == kind.map(|kind| kind.name);
        is_kind
            && self.filters.iter().all(|(key, wanted)| {
                let mut all = common.iter().chain(words);
                all.any(|(known, value)| known == key && wanted.is(value))
            })
    }
}

/// The sentence for a word that is no kind and no key.
fn unknown(word: &str, kind: Option<&Kind>) -> String {
    let names = |names: Vec<&str>| names.join(", ");
    match kind {
        Some(kind) => {
            let keys = COMMON.iter().chain(kind.keys).copied().collect();
            format!(
                "{word:?} is not a filter of {}; use {}",
                kind.name,
                names(keys)
            )
        }
        None => {
            let kinds = KINDS.iter().map(|kind| kind.name).collect();
            format!(
                "{word:?} is neither a kind of resource nor a filter; the kinds are {}",
                names(kinds)
            )
        }
    }
}

/// `ibtap res`: a line for each resource.
pub fn text(ports: &[ResourcesInfo]) -> String {
    let lines = ports.iter().flat_map(lines);
    lines.map(|line| line + "\n").collect()
}

fn lines(port: &ResourcesInfo) -> Vec<String> {
    let process = match port.pid {
        0 => String::new(),
        pid => format!(" pid {pid} comm ibtapd"),
    };
    let link = port.link.iter().map(link);
    let objects = (port.queue_pairs.iter().map(queue_pair))
        .chain(port.completion_queues.iter().map(completion_queue))
        .chain(port.shared_receive_queues.iter().map(shared_receive_queue))
        .chain(port.cm_ids.iter().map(cm_id))
        .chain(port.memory_regions.iter().map(memory_region))
        .chain(port.protection_domains.iter().map(protection_domain))
        .chain(port.groups.iter().map(group));
    link.chain(objects)
        .map(|words| {
            let words = words.iter().map(|(key, value)| format!(" {key} {value}"));
            format!("link {}{}{process}", port.port, words.collect::<String>())
        })
        .collect()
}

fn common(port: &ResourcesInfo) -> Words {
    vec![("link", port.port.clone()), ("pid", port.pid.to_string())]
}

/// Adds a word if there is a value.
fn add(words: &mut Words, key: &'static str, value: Option<impl ToString>) {
    words.extend(value.map(|value| (key, value.to_string())));
}

/// A port, as `rdma link show` prints it.
fn link(l: &LinkInfo) -> Words {
    let mut words = vec![
        ("state", l.state.to_string()),
        ("link_layer", l.link_layer.to_string()),
    ];
    add(&mut words, "lid", l.lid.map(|lid| format!("{lid:#06x}")));
    add(
        &mut words,
        "sm_lid",
        l.sm_lid.map(|lid| format!("{lid:#06x}")),
    );
    add(&mut words, "sm_sl", l.sm_sl);
    words.push(("guid", l.guid.clone()));
    words.push(("gid", l.gid.to_string()));
    add(&mut words, "gid_index", l.gid_index);
    words.push(("mtu", l.link_mtu.to_string()));
    add(&mut words, "fw", l.firmware.as_ref());
    add(&mut words, "netdev", l.netdev.as_ref());
    words
}

fn queue_pair(qp: &QueuePairInfo) -> Words {
    let mut words = vec![
        ("lqpn", qp.qpn.to_string()),
        ("type", qp.kind.clone()),
        ("state", qp.state.clone()),
        ("pkey", qp.pkey.to_string()),
    ];
    add(&mut words, "qkey", qp.qkey);
    add(&mut words, "rqpn", qp.peer_qpn);
    words.push(("lanes", qp.lanes.to_string()));
    add(&mut words, "netdev", qp.interface.as_ref());
    words
}

fn completion_queue(cq: &CompletionQueueInfo) -> Words {
    vec![
        ("cqn", cq.cqn.to_string()),
        ("cqe", cq.cqe.to_string()),
        ("worker", cq.worker.to_string()),
    ]
}

fn shared_receive_queue(srq: &SharedReceiveQueueInfo) -> Words {
    vec![
        ("contents", srq.contents.clone()),
        ("srqe", srq.srqe.to_string()),
        ("worker", srq.worker.to_string()),
    ]
}

fn cm_id(id: &CmIdInfo) -> Words {
    let mut words = vec![("lqpn", id.qpn.to_string())];
    add(&mut words, "rqpn", id.peer_qpn);
    words.push(("state", id.state.clone()));
    words.push(("role", id.role.to_string()));
    words.push(("src-gid", id.gid.to_string()));
    words.push(("dst-gid", id.peer_gid.to_string()));
    add(&mut words, "netdev", id.interface.as_ref());
    words.push(("worker", id.worker.to_string()));
    words
}

fn memory_region(mr: &MemoryRegionInfo) -> Words {
    vec![
        ("lkey", format!("{:#010x}", mr.lkey)),
        ("mrlen", mr.mrlen.to_string()),
        ("worker", mr.worker.to_string()),
    ]
}

fn protection_domain(pd: &ProtectionDomainInfo) -> Words {
    vec![("worker", pd.worker.to_string())]
}

fn group(member: &MemberInfo) -> Words {
    vec![
        ("mgid", member.mgid.to_string()),
        ("lqpn", member.qpn.to_string()),
    ]
}

#[cfg(test)]
mod tests;
