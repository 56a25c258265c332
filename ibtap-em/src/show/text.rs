//! Replies as text.

use std::fmt::Display;

use control::aligned_text::{columns, labelled};

use crate::api::{
    CountersInfo, Drained, Explanation, MacInfo, OtherManager, PortInfo, StatusInfo, StillDrained,
    VeswInfo,
};
use crate::server::Reply;

/// Formats a reply. Zero counters are omitted unless `zeros` is set.
pub fn of(reply: &Reply, zeros: bool) -> String {
    match reply {
        Reply::Status(status) => self::status(status),
        Reply::Vesws(all) => vesws(all),
        Reply::Ports(all) => ports(all),
        Reply::Macs(all) => macs(all),
        Reply::Counters(all) => all.iter().map(|port| counters(port, zeros)).collect(),
        Reply::Explanation(one) => explanation(one),
        Reply::Drain(one) => drained(one),
    }
}

fn or_dash(value: &Option<impl Display>) -> String {
    value
        .as_ref()
        .map_or_else(|| "-".into(), ToString::to_string)
}

fn seconds(milliseconds: u64) -> String {
    format!("{}.{} s", milliseconds / 1000, milliseconds % 1000 / 100)
}

fn status(status: &StatusInfo) -> String {
    let mut lines = vec![
        ("role", status.role.meaning().to_owned()),
        ("priority", status.priority.to_string()),
        ("lease", seconds(status.lease_ms)),
    ];
    match (&status.port, &status.gid, &status.qpn) {
        (Some(port), Some(gid), Some(qpn)) => {
            lines.push(("port", format!("{port} {gid} queue pair {qpn}")));
        }
        _ => lines.push(("port", "none".to_owned())),
    }
    lines.push(("ibtapd", status.ibtapd.clone()));
    lines.extend(status.detached.iter().map(|why| ("because", why.clone())));
    let away = match status.agents_away {
        0 => String::new(),
        n => format!(", {n} away"),
    };
    lines.push(("agents", format!("{}{away}", status.agents)));
    lines.push(("switches", status.switches.to_string()));
    let forwarding = format!("{}, {} forwarding", status.members, status.forwarding);
    lines.push(("members", forwarding));
    lines.push(("requests", format!("{} outstanding", status.outstanding)));
    lines.extend(status.problems.iter().map(|what| ("problem", what.clone())));
    let head = format!("ibtap-em {:016x} (process {})\n", status.id, status.pid);
    let managers = columns(
        ["MANAGER", "GID", "PRIORITY", "ROLE", "HEARD"],
        status.managers.iter().map(manager),
    );
    let gap = if managers.is_empty() { "" } else { "\n" };
    format!("{head}{}{gap}{managers}", labelled(&lines))
}

fn manager(other: &OtherManager) -> [String; 5] {
    let role = if other.active { "active" } else { "standby" };
    [
        format!("{:016x}", other.id),
        other.gid.to_string(),
        other.priority.to_string(),
        role.to_owned(),
        seconds(other.heard_ms),
    ]
}

fn vesws(all: &[VeswInfo]) -> String {
    let rows = all.iter().map(|vesw| {
        [
            vesw.name.clone(),
            vesw.id.to_string(),
            vesw.pkey.to_string(),
            or_dash(&vesw.eth_mtu),
            vesw.u_mcast_dlid.to_string(),
            vesw.groups.len().to_string(),
            format!("{}/{}", vesw.forwarding, vesw.members),
            vesw.mac_entries.to_string(),
            if vesw.drained { "drained" } else { "up" }.to_owned(),
        ]
    });
    let heading = [
        "SWITCH",
        "ID",
        "PKEY",
        "MTU",
        "MULTICAST",
        "GROUPS",
        "FORWARDING",
        "MACS",
        "STATE",
    ];
    let problems = all.iter().flat_map(|vesw| {
        let line = |what: &String| format!("{}: {what}\n", vesw.name);
        vesw.problems.iter().map(line)
    });
    with_problems(columns(heading, rows), problems.collect())
}

fn ports(all: &[PortInfo]) -> String {
    let rows = all.iter().map(|port| {
        [
            port.port.clone(),
            port.name.clone(),
            port.interface.clone(),
            or_dash(&port.vesw),
            or_dash(&port.lid),
            or_dash(&port.mac),
            port.condition.to_string(),
            or_dash(&port.heard_ms.map(seconds)),
        ]
    });
    let heading = [
        "PORT",
        "NAME",
        "IF",
        "SWITCH",
        "LID",
        "MAC",
        "CONDITION",
        "HEARD",
    ];
    let problems = all.iter().filter_map(|port| {
        let what = port.problem.as_ref()?;
        Some(format!("{}: {what}\n", port.name))
    });
    with_problems(columns(heading, rows), problems.collect())
}

/// Problems follow the table: as a column they would be too wide.
fn with_problems(table: String, problems: String) -> String {
    match problems.is_empty() {
        true => table,
        false => format!("{table}\n{problems}"),
    }
}

fn macs(all: &[MacInfo]) -> String {
    let rows = all.iter().map(|mac| {
        let how = if mac.in_table { "table" } else { "address" };
        [
            mac.vesw.clone(),
            mac.mac.to_string(),
            mac.lid.to_string(),
            or_dash(&mac.name),
            mac.origin.to_string(),
            how.to_owned(),
        ]
    });
    columns(["SWITCH", "MAC", "LID", "PORT", "ORIGIN", "FOUND BY"], rows)
}

fn counters(port: &CountersInfo, zeros: bool) -> String {
    let of = port
        .vesw
        .as_ref()
        .map_or_else(String::new, |vesw| format!(" on {vesw}"));
    let mut text = format!("{} ({}){of}\n", port.name, port.port);
    if let Some(problem) = &port.problem {
        text += &format!("    {problem}\n");
    }
    let shown = port
        .counters
        .0
        .iter()
        .filter(|(_, value)| zeros || *value > 0);
    let lines: Vec<(&str, String)> = shown
        .map(|(name, value)| (name.as_str(), value.to_string()))
        .collect();
    text + &labelled(&lines)
}

fn explanation(one: &Explanation) -> String {
    let to = match (&one.port, one.dlid.get()) {
        (_, 0) => "nowhere".to_owned(),
        (Some(port), _) => format!("LID {}, {port}", one.dlid),
        (None, _) if one.listeners_only => {
            format!("LID {}, members that listen to the group", one.dlid)
        }
        (None, _) if one.dlid.is_multicast() => format!("LID {}, all members", one.dlid),
        (None, _) => format!("LID {}, no port of this switch", one.dlid),
    };
    let head = format!("{} on {}\n", one.dst, one.vesw);
    let classes = format!("{}, routing control {}", one.sc, one.rc);
    head + &labelled(&[
        ("goes to", to),
        ("service class", classes),
        ("because", one.why.clone()),
    ])
}

fn drained(one: &Drained) -> String {
    let what = match (one.drained, one.in_force) {
        (true, true) => "drained",
        (false, true) => "forwards again",
        (true, false) => "drained once this manager is active; it is not active now",
        (false, false) => "forwards once this manager is active; it is not active now",
    };
    let still = &one.still_drained;
    let all = one.targets.iter();
    let changed = all.filter(|target| still.iter().all(|still| still.port != **target));
    let changed = changed.map(|target| format!("{target}: {what}\n"));
    let held = still.iter().map(|StillDrained { port, by }| {
        format!("{port}: still drained; ibtap-em drain {by} --undo ends that\n")
    });
    changed.chain(held).collect()
}

#[cfg(test)]
mod tests;
