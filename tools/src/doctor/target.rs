//! What is to be checked: fabric ports with their settings, and the interfaces on them.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use clap::Parser;
use control::api::{InterfaceInfo, VnicInfo};
use control::config::args::{Action, Args};
use control::config::{Config, GidChoice, PortConfig, PortName};
use fabric::Gid;
use rtnl::Link;

/// A port to check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// What it runs on.
    pub name: PortName,
    /// Its settings.
    pub port: PortConfig,
    /// Whether the settings are known, or taken to be the defaults.
    pub configured: bool,
    /// The interfaces that a daemon serves on it.
    pub interfaces: Vec<InterfaceInfo>,
}

/// The ports of the interfaces and VNICs that a daemon serves. `config` has their settings, where it names
/// them.
pub fn of_daemon(
    interfaces: &[InterfaceInfo],
    vnics: &[VnicInfo],
    config: Option<&Config>,
) -> Vec<Target> {
    let mut targets: Vec<Target> = Vec::new();
    for interface in interfaces {
        let Some(name) = PortName::of_running(&interface.port) else {
            continue;
        };
        match targets.iter_mut().find(|t| t.name == name) {
            Some(target) => target.interfaces.push(interface.clone()),
            None => targets.push(Target {
                interfaces: vec![interface.clone()],
                ..of_running(name, interface.gid, config)
            }),
        }
    }
    for vnic in vnics {
        if let Some(name) = PortName::of_running(&vnic.port)
            && targets.iter().all(|t| t.name != name)
        {
            targets.push(of_running(name, vnic.gid, config));
        }
    }
    targets
}

fn of_running(name: PortName, gid: Gid, config: Option<&Config>) -> Target {
    let configured = config.and_then(|c| c.ports.get(&name));
    Target {
        port: configured.cloned().unwrap_or_else(|| PortConfig {
            gid: choice_of(gid),
            ..PortConfig::default()
        }),
        configured: configured.is_some(),
        interfaces: Vec::new(),
        name,
    }
}

/// The setting that a GID in use comes from, most likely.
fn choice_of(gid: Gid) -> GidChoice {
    match gid.to_ip().to_canonical() {
        IpAddr::V6(a) if a.is_unicast_link_local() => GidChoice::Auto,
        address => GidChoice::Address(address),
    }
}

/// The ports of a configuration; only that of `interface`, if one is named.
pub fn of_config(config: &Config, interface: Option<&str>) -> Vec<Target> {
    let wanted = |port: &PortName| {
        interface.is_none_or(|name| {
            let mut devices = config.ipoib.iter();
            let mut vnics = config.vnics.iter();
            devices.any(|d| d.name == name && d.port == *port)
                || vnics.any(|v| v.name == name && v.port == *port)
        })
    };
    config
        .ports
        .iter()
        .filter(|(name, _)| wanted(name))
        .map(|(name, port)| Target {
            name: name.clone(),
            port: port.clone(),
            configured: true,
            interfaces: Vec::new(),
        })
        .collect()
}

/// A port that only has a name.
pub fn of_name(name: PortName) -> Target {
    Target {
        name,
        port: PortConfig::default(),
        configured: false,
        interfaces: Vec::new(),
    }
}

/// The interface that is the underlay most likely: Ethernet, not made by software above others,
/// nobody's port, and first of all one with carrier.
pub fn guess(links: &[Link]) -> Option<&Link> {
    /// ARPHRD_ETHER (include/uapi/linux/if_arp.h).
    const ETHER: u16 = 1;
    let plain = |kind: Option<&str>| matches!(kind, None | Some("veth" | "macvlan" | "bond"));
    links
        .iter()
        .filter(|l| l.hardware_type == ETHER && l.master.is_none() && plain(l.kind.as_deref()))
        .min_by_key(|l| (!l.is_usable(), !l.up, l.index))
}

/// The configuration that a running daemon was started with, from its command line
/// (proc_pid_cmdline(5)); the file may have changed since.
pub fn of_process(pid: u32) -> Option<Config> {
    let text = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words = text
        .split(|&b| b == 0)
        .filter(|word| !word.is_empty())
        .map(|word| String::from_utf8_lossy(word).into_owned());
    let mut args = Args::try_parse_from(words).ok()?;
    // A path is the daemon's, seen from its directory.
    let folder = PathBuf::from(format!("/proc/{pid}/cwd"));
    args.config = args.config.map(|file| folder.join(file));
    match args.action().ok()? {
        Action::Run(config, _) => Some(config),
        Action::Checked(..) => None,
    }
}

/// The file that the packaged unit reads, if it is there.
pub fn of_unit() -> Option<PathBuf> {
    let path = Path::new("/etc/ibtap/ibtapd.toml");
    path.exists().then(|| path.to_owned())
}
