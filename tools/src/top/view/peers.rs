//! Rows of neighbours, of addresses, and of connections.

use std::net::IpAddr;

use control::api::{ConnectionInfo, NeighbourInfo, VnicMac};

use super::{RX_BYTES, TX_BYTES, detail};
use crate::text::qualified;
use crate::top::cell::Cell;
use crate::top::counts::{Kind, Source};
use crate::top::table::Row;

fn joined(ips: &[IpAddr]) -> String {
    let ips: Vec<_> = ips.iter().map(ToString::to_string).collect();
    ips.join(",")
}

/// The first address, and the number of the others.
fn first(ips: &[IpAddr]) -> Option<Cell> {
    Some(match ips {
        [] => return None,
        [ip] => Cell::text(ip.to_string()),
        [ip, others @ ..] => Cell::text(format!("{ip} +{}", others.len())),
    })
}

/// The rows of [`View::Neighbours`](super::View::Neighbours).
pub fn neighbours(neighbours: &[NeighbourInfo]) -> Vec<Row> {
    let row = |n: &NeighbourInfo| Row {
        key: n.mac.to_string(),
        cells: vec![
            first(&n.ips).unwrap_or(Cell::Unknown),
            Cell::text(n.mac.to_string()),
            Cell::text(n.state.to_string()),
            Cell::milliseconds(n.idle_ms),
            Cell::text(n.qpn.to_string()),
            Cell::text(n.gid.to_string()),
        ],
        detail: format!("{} QPN {} GID {}", joined(&n.ips), n.qpn, n.gid),
        alert: false,
    };
    neighbours.iter().map(row).collect()
}

/// The same for the addresses that a VNIC knows, which have LIDs in place of IP addresses.
pub fn macs(macs: &[VnicMac]) -> Vec<Row> {
    let row = |m: &VnicMac| {
        let text = |value: Option<String>| value.map_or(Cell::Unknown, Cell::text);
        let (qpn, gid) = (m.qpn.map(|q| q.to_string()), m.gid.map(|g| g.to_string()));
        Row {
            key: m.mac.to_string(),
            detail: detail([
                Some(format!("LID {}", m.lid)),
                qpn.as_ref().map(|qpn| format!("QPN {qpn}")),
                gid.as_ref().map(|gid| format!("GID {gid}")),
            ]),
            cells: vec![
                Cell::text(format!("LID {}", m.lid)),
                Cell::text(m.mac.to_string()),
                Cell::text(m.source.to_string()),
                m.idle_ms.map_or(Cell::Unknown, Cell::milliseconds),
                text(qpn),
                text(gid),
            ],
            alert: false,
        }
    };
    macs.iter().map(row).collect()
}

/// The counters of connections, by [`connection_key`].
pub fn connection_sources(connections: &[ConnectionInfo]) -> Vec<Source> {
    let source = |c: &ConnectionInfo| {
        let counters = [
            ("tx_bytes", c.tx_bytes),
            ("rx_bytes", c.rx_bytes),
            ("retransmits", c.retransmits),
        ];
        Source::new(connection_key(c), Kind::Connection, counters)
    };
    connections.iter().map(source).collect()
}

/// The identity of a connection: interface and queue pair on this side.
fn connection_key(c: &ConnectionInfo) -> String {
    let interface = qualified(&c.interface, c.netns.as_deref());
    format!("{interface} {} {} {}", c.worker, c.qpn, c.peer_gid)
}

/// The rows of [`View::Connections`](super::View::Connections); `sources` are those of the connections, in the same order.
pub fn connections(connections: &[ConnectionInfo], sources: &[Source]) -> Vec<Row> {
    let row = |(c, source): (&ConnectionInfo, &Source)| {
        let bits = |names| Cell::number(source.rate(names).map(|bytes| 8.0 * bytes));
        let retransmits = source.rate(&["retransmits"]);
        Row {
            key: source.owner.clone(),
            cells: vec![
                first(&c.ips).unwrap_or_else(|| Cell::text(c.peer_gid.to_string())),
                Cell::text(qualified(&c.interface, c.netns.as_deref())),
                Cell::text(c.role.to_string()),
                Cell::text(&c.state),
                bits(TX_BYTES),
                bits(RX_BYTES),
                Cell::number(retransmits),
                c.srtt_ns
                    .map_or(Cell::Unknown, |ns| Cell::Time(ns as f64 / 1e9)),
                Cell::Number(c.in_flight.into()),
                Cell::milliseconds(c.idle_ms),
                Cell::milliseconds(c.age_ms),
            ],
            detail: detail([
                Some(format!("{} retransmitted", c.retransmits)),
                Some(format!("{} of {} packets in flight", c.in_flight, c.window)),
                Some(format!("QPN {}", c.qpn)),
                c.peer_qpn.map(|qpn| format!("peer QPN {qpn}")),
                Some(format!("peer GID {}", c.peer_gid)),
                Some(joined(&c.ips)),
            ]),
            alert: retransmits > Some(0.0),
        }
    };
    connections.iter().zip(sources).map(row).collect()
}
