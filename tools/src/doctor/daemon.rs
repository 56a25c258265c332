//! The daemon: whether it answers, what it serves, what its counters tell.

mod counters;
mod partition;

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use control::api::{
    Interface, InterfaceInfo, InterfaceStats, NeighbourInfo, Nothing, PkeyTable, PkeysRequest,
    PortState, Selection, VersionInfo, VnicInfo, methods,
};
use control::{ClientError, ControlClient};
use rustix::net::sockopt::socket_peercred;

use super::finding::{Finding, Level};
pub use counters::judge as judge_counters;

const CHECK: &str = "daemon";

/// Neighbours that ibtapd keeps for each interface.
const NEIGHBOURS_MAX: usize = 16384;

/// What a daemon says.
#[derive(Clone, Debug)]
pub struct View {
    /// Itself.
    pub version: VersionInfo,
    /// Its process as this process namespace numbers it.
    pub pid: Option<u32>,
    /// Its interfaces, or the one asked for.
    pub interfaces: Vec<InterfaceInfo>,
    /// Its VNICs, or the one asked for.
    pub vnics: Vec<VnicInfo>,
    /// The counters of its interfaces, by qualified name.
    pub stats: BTreeMap<String, InterfaceStats>,
    /// Their neighbours, likewise.
    pub neighbours: BTreeMap<String, Vec<NeighbourInfo>>,
    /// How many guests' addresses each has behind it, likewise.
    pub guests: BTreeMap<String, usize>,
    /// The P_Key tables of its ports.
    pub tables: Vec<PkeyTable>,
}

/// Asks for everything.
///
/// # Errors
/// Those of the control socket.
pub fn gather(
    socket: &Path,
    timeout: Duration,
    interface: Option<&str>,
) -> Result<View, ClientError> {
    let mut client = ControlClient::connect(socket, timeout)?;
    let (vnics, interfaces) = match client.call(methods::VNICS, &Selection::of(interface)) {
        Ok(vnics) if interface.is_some() => (vnics, Vec::new()),
        Ok(vnics) => (vnics, client.call(methods::SHOW, &Selection::of(None))?),
        // Another interface's name; or an older daemon, whose version is a finding of its own.
        Err(ClientError::NoSuchInterface { .. } | ClientError::Protocol(_)) => (
            Vec::new(),
            client.call(methods::SHOW, &Selection::of(interface))?,
        ),
        Err(error) => return Err(error),
    };
    let mut neighbours = BTreeMap::new();
    let mut guests = BTreeMap::new();
    let mut stats = BTreeMap::new();
    for name in interfaces.iter().map(InterfaceInfo::qualified_name) {
        neighbours.insert(
            name.clone(),
            client.call(methods::NEIGHBOURS, &Interface::of(&name))?,
        );
        guests.insert(
            name.clone(),
            client.call(methods::GUESTS, &Interface::of(&name))?.len(),
        );
        let of_one = client
            .call(methods::STATS, &Selection::of(Some(&name)))?
            .into_iter()
            .next();
        stats.extend(of_one.map(|of_one| (name, of_one)));
    }
    let tables = match client.call(methods::PKEYS, &PkeysRequest::default()) {
        // An older daemon does not tell; its version is a finding of its own.
        Err(ClientError::Protocol(_)) => Vec::new(),
        told => told?,
    };
    Ok(View {
        version: client.call(methods::VERSION, &Nothing {})?,
        pid: pid(socket),
        stats,
        interfaces,
        vnics,
        neighbours,
        guests,
        tables,
    })
}

/// Who listens; the number in its version is that of its own process namespace.
fn pid(socket: &Path) -> Option<u32> {
    let stream = UnixStream::connect(socket).ok()?;
    let pid = socket_peercred(&stream).ok()?.pid;
    u32::try_from(pid.as_raw_nonzero().get()).ok()
}

/// Judges an answer that did not come. Who names an underlay or a file asks what would be, and
/// needs no daemon.
pub fn judge_absence(error: &ClientError, rehearsal: bool) -> Finding {
    match error {
        ClientError::Unreachable { path, source } => {
            let level = if rehearsal { Level::Warn } else { Level::Fail };
            let found = format!("no daemon answers: {source}");
            let advice = match source.kind() {
                std::io::ErrorKind::PermissionDenied => {
                    "run this as root or as a member of the socket's group"
                }
                _ => {
                    "systemctl start ibtapd, or ibtapd --underlay IF; if it runs, name its socket \
                     with --socket"
                }
            };
            Finding::new(CHECK, level, path.display().to_string(), found).advise(advice)
        }
        other => Finding::new(CHECK, Level::Fail, "", other.to_string())
            .advise("see its log (journalctl -u ibtapd); restart it if it hangs"),
    }
}

/// Judges what it is and serves.
pub fn judge(view: &View) -> Vec<Finding> {
    let mut findings = vec![version(&view.version)];
    if view.interfaces.is_empty() && view.vnics.is_empty() {
        findings.push(
            Finding::new(CHECK, Level::Warn, "", "it serves no interface")
                .advise("its interfaces were deleted: see its log"),
        );
    }
    for interface in &view.interfaces {
        findings.push(state(interface));
        findings.extend(partition::judge(interface, &view.tables));
        let name = interface.qualified_name();
        let known = view.neighbours.get(&name).map_or(0, Vec::len);
        findings.push(neighbours(&name, known));
    }
    findings.extend(view.vnics.iter().map(vnic));
    findings
}

/// Judges a VNIC. One that waits for its manager is nothing that this node can mend.
fn vnic(vnic: &VnicInfo) -> Finding {
    let name = match &vnic.netns {
        Some(netns) => format!("{netns}/{}", vnic.name),
        None => vnic.name.clone(),
    };
    let (vesw, lid, mtu) = (vnic.vesw, vnic.lid, vnic.mtu);
    if vnic.carrier {
        let found = format!("{}, switch {vesw}, LID {lid}, MTU {mtu}", vnic.state);
        return Finding::new("vnic", Level::Ok, name, found);
    }
    let reason = vnic.reason.as_deref().unwrap_or("no reason given");
    let found = format!("{}, carrier off: {reason}", vnic.state);
    match vnic.managed && vnic.state == PortState::Active {
        true => Finding::new("vnic", Level::Warn, name, found)
            .advise("see what its manager says: ibtap-em status, ibtap-em port, where that runs"),
        false => Finding::new("vnic", Level::Fail, name, found)
            .advise("do what the reason says; the VNIC follows by itself"),
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
        .advise("restart the daemon after an upgrade, or install both of one version")
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
    Finding::new("interface", Level::Fail, name, found)
        .advise("do what the reason says; the interface follows by itself")
}

fn neighbours(name: &str, known: usize) -> Finding {
    let finding = |level, found| Finding::new("neighbours", level, name, found);
    if known == 0 {
        return finding(Level::Note, "no other host was seen".to_owned()).advise(
            "if there are others: the same P_Key, multicast or --peers, and port 4791 open on all",
        );
    }
    if known >= NEIGHBOURS_MAX / 10 * 9 {
        return finding(
            Level::Warn,
            format!("{known} of at most {NEIGHBOURS_MAX} are kept"),
        )
        .advise("the oldest make room for new ones; more partitions spread them");
    }
    finding(Level::Ok, format!("{known} seen"))
}

#[cfg(test)]
pub mod tests;
