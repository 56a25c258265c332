//! The ports to check, with their settings and interfaces.

use std::fs;
use std::io::{self, Read};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use clap::Parser;
use control::api::{InterfaceInfo, VnicInfo};
use control::config::args::{Action, Args};
use control::config::{Config, GidChoice, InterfaceConfig, PortConfig, PortName};
use fabric::{Gid, PKey};
use rtnl::Link;

use super::named_file::NamedFile;

/// A port to check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The port's name in the configuration.
    pub name: PortName,
    /// Its settings.
    pub port: PortConfig,
    /// Its data threads.
    pub data_threads: usize,
    /// The daemon's interfaces on the port.
    pub interfaces: Vec<InterfaceInfo>,
    /// The interfaces that a daemon would create on the port, with their P_Keys.
    pub wanted: Vec<(String, PKey)>,
}

/// The ports of the interfaces and VNICs of a daemon. Settings come from `config`, if it has the port.
pub fn of_daemon(
    interfaces: &[InterfaceInfo],
    vnics: &[VnicInfo],
    config: Option<&Config>,
) -> Vec<Target> {
    let mut targets: Vec<Target> = Vec::new();
    for interface in interfaces {
        let (gid, queues) = (interface.gid, interface.queues);
        if let Some(target) = running(&mut targets, &interface.port, gid, queues, config) {
            target.interfaces.push(interface.clone());
        }
    }
    for vnic in vnics {
        running(&mut targets, &vnic.port, vnic.gid, vnic.queues, config);
    }
    targets
}

/// The target of a running port, on which an interface has this number of TAP queues. `None` if the text names no port.
fn running<'a>(
    targets: &'a mut Vec<Target>,
    port: &str,
    gid: Gid,
    queues: u32,
    config: Option<&Config>,
) -> Option<&'a mut Target> {
    let name = PortName::of_running(port)?;
    let known = targets.iter().position(|t| t.name == name);
    let index = known.unwrap_or_else(|| {
        targets.push(of_running(name, gid, config));
        targets.len() - 1
    });
    let target = &mut targets[index];
    target.data_threads = target.data_threads.max(queues as usize);
    Some(target)
}

fn of_running(name: PortName, gid: Gid, config: Option<&Config>) -> Target {
    let configured = config.and_then(|c| c.ports.get(&name));
    Target {
        data_threads: 1,
        port: configured.cloned().unwrap_or_else(|| PortConfig {
            gid: choice_of(gid),
            ..PortConfig::default()
        }),
        interfaces: Vec::new(),
        wanted: Vec::new(),
        name,
    }
}

/// The most likely setting for a GID in use.
fn choice_of(gid: Gid) -> GidChoice {
    match gid.to_ip().to_canonical() {
        IpAddr::V6(a) if a.is_unicast_link_local() => GidChoice::Auto,
        address => GidChoice::Address(address),
    }
}

/// The ports of a configuration; with `interface`, only its port.
pub fn of_config(config: &Config, interface: Option<&str>) -> Vec<Target> {
    let is_called = |i: &InterfaceConfig, name: &str| match name.rsplit_once('/') {
        Some((netns, name)) => i.name == name && i.netns.as_deref() == Some(netns),
        None => i.name == name,
    };
    let ipoib = config.ipoib.iter().map(|i| &i.interface);
    let all: Vec<_> = ipoib
        .chain(config.vnics.iter().map(|v| &v.interface))
        .collect();
    let wanted = |port: &PortName| {
        interface.is_none_or(|name| all.iter().any(|i| is_called(i, name) && i.port == *port))
    };
    config
        .ports
        .iter()
        .filter(|(name, _)| wanted(name))
        .map(|(name, port)| Target {
            name: name.clone(),
            port: port.clone(),
            data_threads: {
                let of_ipoib = config.ipoib.iter().filter(|i| i.port == *name);
                let of_vnics = config.vnics.iter().filter(|v| v.port == *name);
                let queues = of_ipoib.map(|i| i.queue_count());
                name.data_threads(queues.chain(of_vnics.map(|v| v.queue_count())))
            },
            interfaces: Vec::new(),
            wanted: {
                let on_port = config.ipoib.iter().filter(|i| i.port == *name);
                on_port.map(|i| (i.name.clone(), i.pkey)).collect()
            },
        })
        .collect()
}

/// A port with default settings.
pub fn of_name(name: PortName) -> Target {
    Target {
        data_threads: name.default_queues(),
        name,
        port: PortConfig::default(),
        interfaces: Vec::new(),
        wanted: vec![("ib0".to_owned(), PKey::DEFAULT)],
    }
}

/// The most likely underlay: an Ethernet interface that is not a port and not stacked on other interfaces,
/// preferably with carrier.
pub fn guess(links: &[Link]) -> Option<&Link> {
    /// ARPHRD_ETHER (include/uapi/linux/if_arp.h).
    const ETHER: u16 = 1;
    let plain = |kind: Option<&str>| matches!(kind, None | Some("veth" | "macvlan" | "bond"));
    links
        .iter()
        .filter(|l| l.hardware_type == ETHER && l.master.is_none() && plain(l.kind.as_deref()))
        .min_by_key(|l| (!l.is_usable(), !l.up, l.index))
}

/// The configuration of a running daemon, from its command line (proc_pid_cmdline(5)). The file may have
/// changed since the start. Key files are not read.
pub fn of_process(pid: u32) -> Option<Config> {
    let args = args_of(pid)?;
    match &args.config {
        Some(file) => of_file(&NamedFile::of_process(&folder(pid), file)),
        None if args.check_config.is_some() => None,
        None => match args.action().ok()? {
            Action::Run(config, _) => Some(config),
            Action::Checked(..) => None,
        },
    }
}

/// The configuration file of a running daemon, from its command line.
pub fn file_of_process(pid: u32) -> Option<NamedFile> {
    let file = args_of(pid)?.config?;
    Some(NamedFile::of_process(&folder(pid), &file))
}

/// The folder of a process (proc(5)).
fn folder(pid: u32) -> PathBuf {
    format!("/proc/{pid}").into()
}

fn args_of(pid: u32) -> Option<Args> {
    let text = fs::read(folder(pid).join("cmdline")).ok()?;
    let words = text
        .split(|&b| b == 0)
        .filter(|word| !word.is_empty())
        .map(|word| String::from_utf8_lossy(word).into_owned());
    Args::try_parse_from(words).ok()
}

fn of_file(file: &NamedFile) -> Option<Config> {
    /// More than any configuration has: another user may have started the process with an endless file.
    const SIZE: u64 = 1 << 20;
    let text = io::read_to_string(file.open().ok()?.take(SIZE)).ok()?;
    let mut table = text.parse::<toml::Table>().ok()?;
    // In a container, the path of a key is not that of the same file here.
    let ports = table.get_mut("port").and_then(toml::Value::as_table_mut);
    for port in ports.into_iter().flat_map(toml::Table::iter_mut) {
        port.1.as_table_mut()?.remove("management_key");
    }
    let name = file.path().display().to_string();
    Config::parse(&toml::to_string(&table).ok()?, &name).ok()
}

/// The file of the packaged unit, if it exists.
pub fn of_unit() -> Option<PathBuf> {
    let path = Path::new("/etc/ibtap/ibtapd.toml");
    path.exists().then(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_of_a_process_needs_no_key_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("conf");
        let text = "[[ipoib]]\nname = \"ib0\"\nunderlay = \"eth0\"\n\
                    [port.eth0]\nlink_mtu = 1024\nmanagement_key = \"/nonexistent/key\"\n";
        fs::write(&path, text).unwrap();
        let config = of_file(&NamedFile::here(path)).unwrap();
        let port = &config.ports[&PortName::Underlay("eth0".into())];
        assert_eq!(port.link_mtu.to_string(), "1024");
    }
}
