//! What a report is about: processes, interfaces and configuration files.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use control::ControlClient;
use control::api::{Selection, methods};
use control::config::{Config, PortName};

use super::collect::within;
use crate::doctor::{self, NamedFile};

/// The folder of configuration files.
const CONFIGURATION: &str = "/etc/ibtap";
/// Maximum number of interfaces, processes and files: a report shows a fault, not a whole site.
const MANY: usize = 16;

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Interface {
    /// Its network namespace; `None`: the daemon's.
    pub netns: Option<String>,
    /// Its name there.
    pub name: String,
    /// What the daemon says about it.
    pub kind: Kind,
}

/// Kinds of interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// An IPoIB interface of the daemon.
    Ip,
    /// A VNIC of the daemon.
    Vnic,
    /// An underlay, or an interface of a daemon that does not answer.
    Other,
}

/// The facts.
#[derive(Debug, Default)]
pub struct Facts {
    /// Why the daemon cannot be asked.
    pub silence: Option<String>,
    /// The processes of ibtapd: the one at the socket, or all.
    pub processes: Vec<u32>,
    /// The interfaces, without repeats.
    pub interfaces: Vec<Interface>,
    /// Configuration files.
    pub files: Vec<NamedFile>,
}

/// Asks the daemon, or looks for its traces.
pub fn gather(socket: &Path, limit: Duration) -> Facts {
    let mut facts = Facts::default();
    let path = socket.to_owned();
    let listener = move || ControlClient::connect(&path, limit).ok()?.process();
    let listener = within(limit, listener).flatten();
    facts.processes = match listener {
        Some(pid) => vec![pid],
        None => daemons(),
    };
    let path = socket.to_owned();
    // Two requests, each with the limit.
    let asked = within(3 * limit, move || served(&path, limit));
    let asked = asked.unwrap_or_else(|| Err("it does not answer".to_owned()));
    let interfaces: BTreeSet<_> = match asked {
        Ok(served) => served.into_iter().collect(),
        Err(silence) => {
            facts.silence = Some(silence);
            // Files are on any file system, also on one that hangs.
            let configs = facts
                .processes
                .iter()
                .filter_map(|&pid| within(limit, move || doctor::config_of(pid))?);
            let of_unit = || Config::from_file(&doctor::unit_file()?).ok();
            let unit = within(limit, of_unit).flatten();
            configs
                .chain(unit)
                .flat_map(|config| configured(&config))
                .collect()
        }
    };
    facts.interfaces = interfaces.into_iter().take(MANY).collect();
    let started = facts
        .processes
        .iter()
        .filter_map(|&pid| within(limit, move || doctor::file_of(pid))?);
    facts.files = started
        .chain(installed().into_iter().map(NamedFile::here))
        .take(MANY)
        .collect();
    facts
}

/// The interfaces of the daemon and their underlays.
fn served(socket: &Path, limit: Duration) -> Result<Vec<Interface>, String> {
    let ask = || {
        let mut client = ControlClient::connect(socket, limit)?;
        let interfaces = client.call(methods::SHOW, &Selection::of(None))?;
        // A daemon before VNICs refuses.
        let vnics = client.call(methods::VNICS, &Selection::of(None));
        Ok((interfaces, vnics.unwrap_or_default()))
    };
    let (interfaces, vnics) = ask().map_err(|error: control::ClientError| error.to_string())?;
    let mut served = Vec::new();
    for interface in interfaces {
        served.push(Interface {
            netns: interface.netns,
            name: interface.name,
            kind: Kind::Ip,
        });
        served.extend(interface.underlay.map(other));
    }
    for vnic in vnics {
        served.push(Interface {
            netns: vnic.netns,
            name: vnic.name,
            kind: Kind::Vnic,
        });
        served.extend(vnic.underlay.map(other));
    }
    Ok(served)
}

/// The interfaces that a daemon with this configuration has.
fn configured(config: &Config) -> Vec<Interface> {
    let underlays = config.ports.keys().filter_map(|port| match port {
        PortName::Underlay(name) => Some(name.clone()),
        PortName::Rdma { .. } => None,
    });
    let ip = config.ipoib.iter().map(|i| i.name.clone());
    let vnics = config.vnics.iter().map(|v| v.name.clone());
    ip.chain(vnics).chain(underlays).map(other).collect()
}

fn other(name: String) -> Interface {
    Interface {
        netns: None,
        name,
        kind: Kind::Other,
    }
}

/// The processes named ibtapd.
fn daemons() -> Vec<u32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_daemon = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "ibtapd")
    };
    pids.filter(is_daemon).take(MANY).collect()
}

/// The configuration files of the packages' folder, which also has keys: only `.toml` is configuration.
fn installed() -> Vec<PathBuf> {
    let files = fs::read_dir(CONFIGURATION).into_iter().flatten().flatten();
    let mut files: Vec<_> = files
        .map(|file| file.path())
        .filter(|path| path.extension().is_some_and(|end| end == "toml"))
        .collect();
    files.sort();
    files
}
