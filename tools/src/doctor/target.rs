//! The ports to check, with their settings and interfaces.

use std::fs;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::Parser;
use control::api::{InterfaceInfo, VnicInfo};
use control::config::args::{Action, Args};
use control::config::{Config, GidChoice, PortConfig, PortName};
use fabric::{Gid, PKey};
use rtnl::Link;

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
    let wanted = |port: &PortName| {
        interface.is_none_or(|name| {
            let mut ipoib = config.ipoib.iter();
            let mut vnics = config.vnics.iter();
            ipoib.any(|i| i.name == name && i.port == *port)
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
/// changed since the start.
pub fn of_process(pid: u32) -> Option<Config> {
    match args_of(pid)?.action().ok()? {
        Action::Run(config, _) => Some(config),
        Action::Checked(..) => None,
    }
}

/// The configuration file of a running daemon, from its command line.
pub fn file_of_process(pid: u32) -> Option<PathBuf> {
    args_of(pid)?.config
}

fn args_of(pid: u32) -> Option<Args> {
    let text = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words = text
        .split(|&b| b == 0)
        .filter(|word| !word.is_empty())
        .map(|word| String::from_utf8_lossy(word).into_owned());
    let mut args = Args::try_parse_from(words).ok()?;
    let process = PathBuf::from(format!("/proc/{pid}"));
    args.config = args.config.map(|file| path_of_process(&process, file));
    Some(args)
}

/// Where this program finds a file that a process names. `process` is the folder of the process (proc(5)). In a
/// container, the file may differ from the one with the same path here.
fn path_of_process(process: &Path, file: PathBuf) -> PathBuf {
    let Ok(below_root) = file.strip_prefix("/") else {
        return process.join("cwd").join(file);
    };
    let there = process.join("root").join(below_root);
    let identity = |path: &Path| fs::metadata(path).map(|found| (found.dev(), found.ino()));
    match (identity(&there), identity(&file)) {
        // The short path is the better one in messages.
        (Ok(there), Ok(here)) if there == here => file,
        // Only root may look. Mostly the daemon has the files of the host.
        (Err(error), _) if error.kind() == ErrorKind::PermissionDenied => file,
        _ => there,
    }
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
    fn the_files_of_a_container_are_not_those_of_the_host() {
        let folder = tempfile::tempdir().unwrap();
        let (here, process) = (folder.path().join("conf"), folder.path().join("process"));
        let there = process.join("root").join(here.strip_prefix("/").unwrap());
        let path_of = |file: &Path| path_of_process(&process, file.to_owned());
        fs::write(&here, "host").unwrap();
        // The process has no such file.
        assert_eq!(path_of(&here), there);
        fs::create_dir_all(there.parent().unwrap()).unwrap();
        fs::write(&there, "container").unwrap();
        assert_eq!(path_of(&here), there);
        // Without a container, both paths are of one file.
        fs::remove_file(&there).unwrap();
        fs::hard_link(&here, &there).unwrap();
        assert_eq!(path_of(&here), here);
        assert_eq!(path_of(Path::new("conf")), process.join("cwd/conf"));
    }
}
