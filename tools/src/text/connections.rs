//! `ibtap conn`: a table of connections.

use control::api::ConnectionInfo;

use super::{qualified, seconds};
use control::aligned_text::columns;

const HEADING: [&str; 19] = [
    "IF", "ROLE", "STATE", "QPN", "GID", "PEER-QPN", "PEER-GID", "P_KEY", "MTU", "AGE", "IDLE",
    "TX-MSGS", "TX-BYTES", "RX-MSGS", "RX-BYTES", "RETRANS", "SRTT", "PID", "IP",
];

/// A table; a dash for an unknown value.
pub fn connections(connections: &[ConnectionInfo]) -> String {
    columns(HEADING, connections.iter().map(row))
}

fn row(c: &ConnectionInfo) -> [String; 19] {
    let dash = || "-".to_owned();
    let ips: Vec<_> = c.ips.iter().map(ToString::to_string).collect();
    [
        qualified(&c.interface, c.netns.as_deref()),
        c.role.to_string(),
        c.state.clone(),
        c.qpn.to_string(),
        c.gid.to_string(),
        c.peer_qpn.map_or_else(dash, |qpn| qpn.to_string()),
        c.peer_gid.to_string(),
        c.pkey.to_string(),
        c.path_mtu.to_string(),
        seconds(c.age_ms),
        seconds(c.idle_ms),
        c.tx_messages.to_string(),
        c.tx_bytes.to_string(),
        c.rx_messages.to_string(),
        c.rx_bytes.to_string(),
        c.retransmits.to_string(),
        c.srtt_ns.map_or_else(dash, milliseconds),
        c.pid.to_string(),
        if ips.is_empty() {
            dash()
        } else {
            ips.join(",")
        },
    ]
}

/// Milliseconds with three decimal places, as in ping(8).
fn milliseconds(ns: u64) -> String {
    let us = ns / 1000;
    format!("{}.{:03}ms", us / 1000, us % 1000)
}
