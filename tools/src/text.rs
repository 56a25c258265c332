//! Replies as text. Pure functions; each result ends with a newline or is empty.

mod children;
mod connections;
mod follow;
mod subnet;
mod vnics;

use control::api::{Counters, GuestInfo, InterfaceInfo, InterfaceStats, NeighbourInfo, Reloaded};

pub use children::{children, moderation, pkeys};
pub use connections::connections;
use control::aligned_text::{columns, labelled};
pub use follow::{event, ping_reply, ping_summary};
pub use subnet::{groups, paths};
pub use vnics::{show_vnic, vnic_macs, vnic_members, vnic_stats, vnics};

/// `ibtap show`: the block of an IPoIB interface, with labels as in `ibstat`.
pub fn show(interface: &InterfaceInfo) -> String {
    let properties = labelled(&properties(interface));
    format!("{}\n{properties}", interface.qualified_name())
}

fn properties(i: &InterfaceInfo) -> Vec<(&'static str, String)> {
    let mut lines = vec![("State", i.state.to_string())];
    if let Some(reason) = &i.reason {
        lines.push(("Reason", reason.clone()));
    }
    let port = match &i.underlay {
        Some(underlay) => format!("{} on {underlay}", i.port),
        None => i.port.clone(),
    };
    let on_off = |on| if on { "on" } else { "off" };
    let yes_no = |yes| if yes { "yes" } else { "no" };
    lines.extend([
        ("Interface", if i.up { "up" } else { "down" }.into()),
        ("Carrier", on_off(i.carrier).into()),
        ("Mode", i.mode.to_string()),
    ]);
    if let Some(connections) = i.connections {
        let of_max = format!("{connections} of {}", i.connections_max);
        lines.push(("Connections", of_max));
    }
    if let Some(parent) = &i.parent {
        lines.push(("Parent", parent.clone()));
    }
    lines.extend([
        ("P_Key", i.pkey.to_string()),
        ("Q_Key", i.qkey.to_string()),
        ("QPN", i.qpn.to_string()),
        ("Port", port),
        ("Link layer", i.link_layer.to_string()),
    ]);
    if let Some(lid) = i.lid {
        lines.push(("Port LID", format!("{lid:#06x}")));
        lines.push(("SM", subnet::manager(i)));
    }
    if let Some(gid) = i.sa_gid {
        lines.push(("SA", gid.to_string()));
    }
    lines.extend([
        ("Port GID", i.gid.to_string()),
        ("Address", i.address.to_string()),
        ("Broadcast", i.broadcast.to_string()),
    ]);
    if let Some(record) = &i.broadcast_record {
        lines.push(("Membership", subnet::membership(record)));
    }
    lines.extend([("MAC", i.mac.to_string()), ("Index", i.ifindex.to_string())]);
    if let Some(netns) = &i.netns {
        lines.push(("Namespace", netns.clone()));
    }
    lines.extend([
        ("MTU", i.mtu.to_string()),
        ("Link MTU", i.link_mtu.to_string()),
        ("Queues", i.queues.to_string()),
        ("Persistent", yes_no(i.persist).into()),
        ("DHCP", i.dhcp.to_string()),
        ("Reflecting", yes_no(i.reflect).into()),
    ]);
    if i.vlan_pkey {
        lines.push(("VLANs", "select partitions".into()));
    }
    lines.extend([(
        "Daemon",
        format!("ibtapd {} (process {})", i.version, i.pid),
    )]);
    lines
}

/// `ibtap stats`: the kernel's counters, and other counters that are not zero.
pub fn stats(interface: &InterfaceStats, zeros: bool) -> String {
    let name = qualified(&interface.name, interface.netns.as_deref());
    let mut text = format!("{name}\n");
    let kernel = interface.kernel().map(|(name, n)| (name, n.to_string()));
    text += &labelled(&kernel);
    text += &counters("device", &interface.device, zeros);
    text += &counters("protocol", &interface.protocol, zeros);
    text += &counters("subnet", &interface.subnet, zeros);
    for worker in &interface.workers {
        let title = format!("{} worker {}", worker.port, worker.worker);
        text += &counters(&title, &worker.counters, zeros);
    }
    text
}

/// The name of an interface: `NETNS/NAME` outside the daemon's network namespace.
pub fn qualified(name: &str, netns: Option<&str>) -> String {
    match netns {
        Some(netns) => format!("{netns}/{name}"),
        None => name.to_owned(),
    }
}

fn counters(title: &str, counters: &Counters, zeros: bool) -> String {
    let lines: Vec<_> = counters
        .0
        .iter()
        .filter(|(_, value)| zeros || *value != 0)
        .map(|(name, value)| (name.as_str(), value.to_string()))
        .collect();
    if lines.is_empty() {
        return String::new();
    }
    format!("  {title}\n{}", labelled(&lines))
}

/// `ibtap neigh`: a table, without the 20-byte address, which consists of flags, QPN and GID.
pub fn neighbours(neighbours: &[NeighbourInfo]) -> String {
    let rows = neighbours.iter().map(|n| {
        let ips: Vec<_> = n.ips.iter().map(ToString::to_string).collect();
        [
            n.mac.to_string(),
            n.state.to_string(),
            seconds(n.idle_ms),
            n.qpn.to_string(),
            n.gid.to_string(),
            if ips.is_empty() {
                "-".into()
            } else {
                ips.join(",")
            },
        ]
    });
    columns(["MAC", "STATE", "IDLE", "QPN", "GID", "IP"], rows)
}

/// `ibtap guests`: a table.
pub fn guests(guests: &[GuestInfo]) -> String {
    let rows = guests.iter().map(|g| {
        [
            g.mac.to_string(),
            g.state.to_string(),
            seconds(g.idle_ms),
            g.ip.to_string(),
        ]
    });
    columns(["MAC", "STATE", "IDLE", "IP"], rows)
}

fn seconds(ms: u64) -> String {
    format!("{}.{}s", ms / 1000, ms % 1000 / 100)
}

/// `ibtap reload`: a line for each applied or refused change.
pub fn reloaded(outcomes: &[Reloaded]) -> String {
    let mut text = String::new();
    for outcome in outcomes {
        let applied = outcome.applied.iter().map(|s| format!("applied  {s}\n"));
        let refused = outcome.refused.iter().map(|s| format!("refused  {s}\n"));
        text.extend(applied.chain(refused));
    }
    if text.is_empty() {
        text += "nothing has changed\n";
    }
    text
}

#[cfg(test)]
pub use vnics::tests as vnics_tests;

#[cfg(test)]
pub mod tests;
