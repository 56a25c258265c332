//! The views: their columns, and their rows from the daemon's answers.

mod peers;

use std::collections::HashMap;

use control::api::{InterfaceInfo, VnicInfo};
use control::output::printable;

pub use self::peers::{connection_sources, connections, macs, neighbours};
use super::cell::Cell;
use super::counts::{Counter, Kind, Source};
use super::losses::{is_loss, meaning};
use super::table::{Column, Row, Table};
use crate::text::qualified;

/// A view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum View {
    /// Interfaces with their rates.
    #[default]
    Interfaces,
    /// Counters of lost packets that are not zero, by reason.
    Drops,
    /// The neighbours of one interface.
    Neighbours,
    /// Reliable connections.
    Connections,
    /// All counters that are not zero.
    Counters,
}

impl View {
    /// All views, in the order of their keys.
    pub const ALL: [View; 5] = [
        View::Interfaces,
        View::Drops,
        View::Neighbours,
        View::Connections,
        View::Counters,
    ];

    /// The name, for wide and for narrow screens.
    pub fn names(self) -> (&'static str, &'static str) {
        match self {
            View::Interfaces => ("Interfaces", "If"),
            View::Drops => ("Drops", "Drop"),
            View::Neighbours => ("Neighbours", "Neigh"),
            View::Connections => ("Connections", "Conn"),
            View::Counters => ("Counters", "Count"),
        }
    }

    /// An empty table of the view, in its usual order.
    pub fn table(self) -> Table {
        match self {
            View::Interfaces => Table::new(INTERFACES, 0, false),
            View::Drops | View::Counters => Table::new(COUNTERS, 2, true),
            View::Neighbours => Table::new(NEIGHBOURS, 3, false),
            View::Connections => Table::new(CONNECTIONS, 4, true),
        }
    }
}

const INTERFACES: &[Column] = &[
    Column::text("NAME", 8, 24, 0),
    Column::text("STATE", 10, 10, 4),
    Column::number("RX-BIT/S", 8, 1),
    Column::number("TX-BIT/S", 8, 1),
    Column::number("RX-PKT/S", 8, 3),
    Column::number("TX-PKT/S", 8, 3),
    Column::number("DROP/S", 6, 2),
    Column::number("DROPS", 6, 5),
    Column::number("CONN", 5, 6),
    Column::text("MODE", 9, 9, 7),
    Column::number("MTU", 5, 8),
    Column::text("PORT", 10, 18, 9),
];

const COUNTERS: &[Column] = &[
    Column::text("OWNER", 8, 16, 1),
    Column::text("COUNTER", 18, 27, 0),
    Column::number("PER-S", 6, 1),
    Column::number("TOTAL", 6, 1),
    Column::text("MEANING", 16, 200, 2),
];

const NEIGHBOURS: &[Column] = &[
    Column::text("IP", 15, 25, 0),
    Column::text("MAC", 17, 17, 2),
    Column::text("STATE", 9, 9, 3),
    Column::number("IDLE", 5, 1),
    Column::number("QPN", 8, 4),
    Column::text("GID", 19, 39, 5),
];

const CONNECTIONS: &[Column] = &[
    Column::text("PEER", 12, 39, 0),
    Column::text("IF", 8, 15, 4),
    Column::text("ROLE", 7, 7, 5),
    Column::text("STATE", 11, 11, 6),
    Column::number("TX-BIT/S", 8, 1),
    Column::number("RX-BIT/S", 8, 1),
    Column::number("RETR/S", 6, 3),
    Column::number("RTT", 5, 2),
    Column::number("FLIGHT", 6, 7),
    Column::number("IDLE", 5, 8),
    Column::number("AGE", 5, 9),
];

/// The names of an interface's counters for the first view. `tx_dropped` of a VNIC includes `tx_errors`.
const RX_BYTES: &[&str] = &["rx_bytes"];
const TX_BYTES: &[&str] = &["tx_bytes"];
const RX_PACKETS: &[&str] = &["rx_packets"];
const TX_PACKETS: &[&str] = &["tx_packets"];
fn drops(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Ipoib => &["rx_dropped", "tx_dropped", "tx_errors"],
        _ => &["rx_dropped", "tx_dropped"],
    }
}

/// The rates of all interfaces together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sums {
    /// Bits and packets received per second.
    pub rx: [f64; 2],
    /// Bits and packets sent per second.
    pub tx: [f64; 2],
    /// Packets lost per second.
    pub drops: f64,
}

/// Sums the rates. `None`: no rate is known.
pub fn sums(sources: &[Source]) -> Option<Sums> {
    let mut all = None;
    for source in sources.iter().filter(|source| is_interface(source)) {
        let Some(drops) = source.rate(drops(source.kind)) else {
            continue;
        };
        let sums: &mut Sums = all.get_or_insert_default();
        let rate = |names| source.rate(names).unwrap_or(0.0);
        sums.rx[0] += 8.0 * rate(RX_BYTES);
        sums.rx[1] += rate(RX_PACKETS);
        sums.tx[0] += 8.0 * rate(TX_BYTES);
        sums.tx[1] += rate(TX_PACKETS);
        sums.drops += drops;
    }
    all
}

/// Whether the owner is an interface.
pub fn is_interface(source: &Source) -> bool {
    matches!(source.kind, Kind::Ipoib | Kind::Vnic)
}

/// What `ibtap show` knows about an interface.
#[derive(Clone, Debug)]
pub struct Shown {
    /// `NETNS/NAME` outside the daemon's network namespace.
    name: String,
    state: &'static str,
    connections: Option<u32>,
    mode: String,
    mtu: String,
    port: String,
    detail: String,
    alert: bool,
}

/// The state of an interface as one word or two, and whether it needs attention.
fn state(up: bool, carrier: bool) -> (&'static str, bool) {
    match (up, carrier) {
        (false, _) => ("down", false),
        (true, false) => ("no carrier", true),
        (true, true) => ("up", false),
    }
}

/// Joins the parts that are there.
fn detail(parts: impl IntoIterator<Item = Option<String>>) -> String {
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    printable(&parts.join(", "))
}

impl Shown {
    /// An IPoIB interface.
    pub fn ipoib(i: &InterfaceInfo) -> Shown {
        let (state, alert) = state(i.up, i.carrier);
        Shown {
            name: i.qualified_name(),
            state,
            connections: i.connections,
            mode: i.mode.to_string(),
            mtu: i.mtu.to_string(),
            port: i.port.clone(),
            detail: detail([
                i.reason.clone(),
                Some(format!("P_Key {}", i.pkey)),
                Some(format!("QPN {}", i.qpn)),
                Some(format!("GID {}", i.gid)),
                Some(format!("port {}", i.port)),
            ]),
            alert,
        }
    }

    /// A VNIC.
    pub fn vnic(v: &VnicInfo) -> Shown {
        let (state, alert) = state(v.up, v.carrier);
        Shown {
            name: qualified(&v.name, v.netns.as_deref()),
            state,
            connections: None,
            mode: "vnic".to_owned(),
            mtu: v.mtu.to_string(),
            port: v.port.clone(),
            detail: detail([
                v.reason.clone(),
                Some(format!("switch {}", v.vesw)),
                Some(format!("LID {}", v.lid)),
                Some(format!("QPN {}", v.qpn)),
                Some(format!("GID {}", v.gid)),
                Some(format!("port {}", v.port)),
            ]),
            alert,
        }
    }
}

/// The rows of [`View::Interfaces`]. VLANs have counters only.
pub fn interfaces(sources: &[Source], shown: &[Shown]) -> Vec<Row> {
    let shown: HashMap<&str, &Shown> = shown.iter().map(|of| (of.name.as_str(), of)).collect();
    let row = |source: &Source| {
        let of = shown.get(source.owner.as_str()).copied();
        let text = |text: Option<&str>| text.map_or(Cell::Unknown, Cell::text);
        let bits = |names| Cell::number(source.rate(names).map(|bytes| 8.0 * bytes));
        let packets = |names| Cell::number(source.rate(names));
        let drops = drops(source.kind);
        let lost = source.rate(drops);
        Row {
            key: source.owner.clone(),
            cells: vec![
                Cell::text(&source.owner),
                text(of.map(|of| of.state)),
                bits(RX_BYTES),
                bits(TX_BYTES),
                packets(RX_PACKETS),
                packets(TX_PACKETS),
                Cell::number(lost),
                Cell::Number(source.total(drops) as f64),
                Cell::number(of.and_then(|of| of.connections).map(f64::from)),
                text(of.map(|of| of.mode.as_str())),
                text(of.map(|of| of.mtu.as_str())),
                text(of.map(|of| of.port.as_str())),
            ],
            detail: of.map_or_else(String::new, |of| of.detail.clone()),
            alert: of.is_some_and(|of| of.alert) || lost > Some(0.0),
        }
    };
    let interfaces = sources.iter().filter(|source| is_interface(source));
    interfaces.map(row).collect()
}

/// The rows of [`View::Counters`], or with only losses of [`View::Drops`]: the largest first, which is the order
/// of equal rates.
pub fn counters(sources: &[Source], only_losses: bool) -> Vec<Row> {
    let mut all: Vec<(&Source, &Counter)> = (sources.iter())
        .flat_map(|source| source.counters.iter().map(move |counter| (source, counter)))
        .filter(|(_, counter)| counter.total > 0)
        .filter(|(source, counter)| !only_losses || is_loss(source.kind, &counter.name))
        .collect();
    all.sort_by_key(|(_, counter)| counter.total);
    let row = |(source, counter): (&Source, &Counter)| {
        let meaning = meaning(source.kind, &counter.name);
        Row {
            key: format!("{} {}", source.owner, counter.name),
            cells: vec![
                Cell::text(&source.owner),
                Cell::text(&counter.name),
                Cell::number(counter.rate),
                Cell::Number(counter.total as f64),
                meaning.map_or(Cell::Text(String::new()), Cell::text),
            ],
            detail: detail([
                Some(format!(
                    "{} {} {}",
                    source.owner, counter.name, counter.total
                )),
                meaning.map(str::to_owned),
            ]),
            alert: only_losses && counter.rate > Some(0.0),
        }
    };
    all.into_iter().rev().map(row).collect()
}
