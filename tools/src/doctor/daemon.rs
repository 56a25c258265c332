//! The daemon: its answers, interfaces and counters.

mod counters;
mod group;
mod partition;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use control::api::{
    Interface, InterfaceInfo, InterfaceStats, LinkLayer, NeighbourInfo, Nothing, PkeyTable,
    PkeysRequest, PortState, ResourcesInfo, Selection, VersionInfo, VnicInfo, methods,
};
use control::{ClientError, ControlClient};

use super::finding::{Finding, Level};
use crate::text::qualified;
pub use counters::judge as judge_counters;

const CHECK: &str = "daemon";

/// Maximum number of neighbours of an interface in ibtapd.
const NEIGHBOURS_MAX: usize = 16384;

/// The answers of a daemon.
#[derive(Clone, Debug)]
pub struct View {
    /// The daemon's version.
    pub version: VersionInfo,
    /// Its process id in this process namespace.
    pub pid: Option<u32>,
    /// Its IPoIB interfaces, or the requested one.
    pub interfaces: Vec<InterfaceInfo>,
    /// Its VNICs, or the requested one.
    pub vnics: Vec<VnicInfo>,
    /// The counters of its interfaces, by qualified name.
    pub stats: BTreeMap<String, InterfaceStats>,
    /// The neighbours of its interfaces, by qualified name.
    pub neighbours: BTreeMap<String, Vec<NeighbourInfo>>,
    /// The numbers of guests' addresses behind its interfaces, by qualified name.
    pub guests: BTreeMap<String, usize>,
    /// The P_Key tables of its ports.
    pub tables: Vec<PkeyTable>,
    /// The resources of its ports.
    pub resources: Vec<ResourcesInfo>,
}

/// Requests all facts from the daemon.
///
/// # Errors
/// Errors of the control socket.
pub fn gather(client: &mut ControlClient, interface: Option<&str>) -> Result<View, ClientError> {
    let (vnics, interfaces) = match client.call(methods::VNICS, &Selection::of(interface)) {
        Ok(vnics) if interface.is_some() => (vnics, Vec::new()),
        Ok(vnics) => (vnics, client.call(methods::SHOW, &Selection::of(None))?),
        // The name of an IPoIB interface; or an older daemon, which `version` reports.
        Err(ClientError::NoSuchInterface { .. } | ClientError::Protocol(_)) => (
            Vec::new(),
            client.call(methods::SHOW, &Selection::of(interface))?,
        ),
        Err(error) => return Err(error),
    };
    let mut neighbours = BTreeMap::new();
    let mut guests = BTreeMap::new();
    let mut stats = BTreeMap::new();
    let mut there = Vec::new();
    for one in interfaces {
        let name = one.qualified_name();
        let mut details = || {
            let of_one = Interface::of(&name);
            let neighbours = client.call(methods::NEIGHBOURS, &of_one)?;
            let guests = client.call(methods::GUESTS, &of_one)?;
            let stats = client.call(methods::STATS, &Selection::of(Some(&name)))?;
            Ok((neighbours, guests, stats))
        };
        match details() {
            Ok((known, behind, counted)) => {
                neighbours.insert(name.clone(), known);
                guests.insert(name.clone(), behind.len());
                stats.extend(counted.into_iter().next().map(|of_one| (name, of_one)));
                there.push(one);
            }
            // Somebody has removed it since the daemon listed it, and nobody asked for it by name.
            Err(ClientError::NoSuchInterface { .. }) if interface.is_none() => {}
            Err(error) => return Err(error),
        }
    }
    let tables = match client.call(methods::PKEYS, &PkeysRequest::default()) {
        // An older daemon, which `version` reports.
        Err(ClientError::Protocol(_)) => Vec::new(),
        tables => tables?,
    };
    let resources = match client.call(methods::RESOURCES, &Nothing {}) {
        // More connections than one answer may have.
        Err(ClientError::Refused(_)) => Vec::new(),
        resources => resources?,
    };
    Ok(View {
        version: client.call(methods::VERSION, &Nothing {})?,
        pid: client.process(),
        stats,
        interfaces: there,
        vnics,
        neighbours,
        guests,
        tables,
        resources,
    })
}

/// Whether the daemon does not have the interface any more: somebody has removed it since the daemon listed it.
pub fn is_gone(socket: &Path, timeout: Duration, interface: &str) -> bool {
    let of_one = Selection::of(Some(interface));
    let asked = ControlClient::connect(socket, timeout)
        .and_then(|mut client| client.call(methods::SHOW, &of_one));
    matches!(asked, Err(ClientError::NoSuchInterface { .. }))
}

/// Whether the error shows that a daemon is there: it answers, hangs, or refuses this user.
pub fn is_there(error: &ClientError) -> bool {
    match error {
        ClientError::Unreachable { source, .. } => source.kind() == ErrorKind::PermissionDenied,
        ClientError::Ended { .. } => false,
        _ => true,
    }
}

/// Judges a missing answer. A `rehearsal` checks an underlay or a file and needs no daemon.
pub fn judge_absence(error: &ClientError, rehearsal: bool) -> Finding {
    match error {
        ClientError::Unreachable { path, source } => {
            let level = if rehearsal { Level::Warn } else { Level::Fail };
            let found = format!("no daemon answers: {source}");
            let advice = match source.kind() {
                ErrorKind::PermissionDenied => {
                    "run this as root or as a member of the socket's group"
                }
                _ => {
                    "systemctl start ibtapd, or ibtapd --underlay IF; if ibtapd runs, name its socket \
                     with --socket"
                }
            };
            Finding::new(CHECK, level, path.display().to_string(), found).advise(advice)
        }
        other => Finding::new(CHECK, Level::Fail, "", other.to_string())
            .advise("see the log of ibtapd (journalctl -u ibtapd); restart ibtapd if it hangs"),
    }
}

/// Judges the answers.
pub fn judge(view: &View) -> Vec<Finding> {
    let mut findings = vec![version(&view.version)];
    if view.interfaces.is_empty() && view.vnics.is_empty() {
        findings.push(
            Finding::new(CHECK, Level::Warn, "", "ibtapd serves no interface")
                .advise("its interfaces were deleted; see the log of ibtapd"),
        );
    }
    for interface in &view.interfaces {
        findings.push(state(interface));
        findings.extend(partition::judge(interface, &view.tables));
        let name = interface.qualified_name();
        let known = view.neighbours.get(&name).map_or(0, Vec::len);
        findings.extend(group::judge(interface));
        findings.push(neighbours(&name, interface.link_layer, known));
    }
    findings.extend(view.vnics.iter().map(vnic));
    findings
}

/// Judges a VNIC. A VNIC that waits for its manager is only a warning: the manager may be on another node.
fn vnic(vnic: &VnicInfo) -> Finding {
    let name = qualified(&vnic.name, vnic.netns.as_deref());
    let (vesw, lid, mtu) = (vnic.vesw, vnic.lid, vnic.mtu);
    if vnic.carrier {
        let found = format!("{}, switch {vesw}, LID {lid}, MTU {mtu}", vnic.state);
        return Finding::new("vnic", Level::Ok, name, found);
    }
    let reason = vnic.reason.as_deref().unwrap_or("no reason given");
    let found = format!("{}, carrier off: {reason}", vnic.state);
    match vnic.managed && vnic.state == PortState::Active {
        true => Finding::new("vnic", Level::Warn, name, found)
            .advise("on the node of its manager: ibtap-em status, ibtap-em port"),
        false => Finding::new("vnic", Level::Fail, name, found)
            .advise("remove the reason; the VNIC then recovers without a restart"),
    }
}

fn version(version: &VersionInfo) -> Finding {
    let ours = env!("CARGO_PKG_VERSION");
    let subject = format!("process {}", version.pid);
    if version.version == ours {
        let found = format!("{} {ours} answers", version.product);
        return Finding::new(CHECK, Level::Ok, subject, found);
    }
    let found = format!(
        "{} is {}, this program {ours}",
        version.product, version.version
    );
    Finding::new(CHECK, Level::Warn, subject, found)
        .advise("restart the daemon after an upgrade, or install the same version of both")
}

fn state(interface: &InterfaceInfo) -> Finding {
    let name = &interface.qualified_name();
    if interface.state == PortState::Active && interface.carrier {
        let found = format!("ACTIVE, P_Key {}, MTU {}", interface.pkey, interface.mtu);
        return Finding::new("interface", Level::Ok, name, found);
    }
    let carrier = if interface.carrier { "on" } else { "off" };
    let reason = interface.reason.as_deref().unwrap_or("no reason given");
    let found = format!("{}, carrier {carrier}: {reason}", interface.state);
    Finding::new("interface", Level::Fail, name, found).advise(
        group::refused(interface)
            .unwrap_or("remove the reason; the interface then recovers without a restart"),
    )
}

fn neighbours(name: &str, link_layer: LinkLayer, known: usize) -> Finding {
    let finding = |level, found| Finding::new("neighbours", level, name, found);
    if known == 0 {
        let advice = match link_layer {
            LinkLayer::Ethernet => {
                "all hosts need the same P_Key, multicast or --peers, and an open UDP port 4791"
            }
            LinkLayer::InfiniBand => {
                "all hosts need the same P_Key, of any two hosts one as a full member"
            }
        };
        return finding(Level::Note, "no other host is known".to_owned()).advise(advice);
    }
    if known >= NEIGHBOURS_MAX / 10 * 9 {
        return finding(
            Level::Warn,
            format!("{known} are known, of at most {NEIGHBOURS_MAX}"),
        )
        .advise("new neighbours replace the oldest ones; spread the hosts over more partitions");
    }
    finding(Level::Ok, format!("{known} known"))
}

#[cfg(test)]
pub mod tests;
