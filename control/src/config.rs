//! What the daemon is to do: fabric ports and devices. Made from a TOML file ([`Config::from_file`])
//! or from the command line ([`args::Args::action`]).

pub mod args;
pub mod conversions;
mod file;
mod port;
pub mod values;
pub mod vnic;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use fabric::{PKey, QKey};

pub use self::vnic::VnicConfig;
use crate::api::{DhcpMode, LogLevel, Mode};
pub use port::{ManagementSettings, PortConfig, PortFault, PortName};
pub use values::{BusyPoll, GidChoice, LinkMtu, QpnChoice};

/// The whole configuration, checked: names, keys and lengths are in range, no two interfaces share a
/// name in a network namespace, no two children of one device a partition, every interface's port has
/// an entry in `ports`, and there is something to serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Path of the control socket.
    pub socket: PathBuf,
    /// What to log.
    pub log_level: LogLevel,
    /// Fabric ports; one for each that a device or a VNIC names.
    pub ports: BTreeMap<PortName, PortConfig>,
    /// Devices, in the order of the file, each with its children behind it.
    pub devices: Vec<DeviceConfig>,
    /// VNICs, in the order of the file.
    pub vnics: Vec<VnicConfig>,
}

impl Config {
    /// Reads and checks a TOML file.
    ///
    /// # Errors
    /// One sentence with the file's name, and with line and column where something in it is wrong.
    pub fn from_file(path: &Path) -> Result<Config, ConfigError> {
        let name = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => Config::parse(&text, &name),
            Err(error) => Err(ConfigError {
                message: format!(
                    "cannot read the configuration {name}: {error}; name a TOML file that can be read"
                ),
            }),
        }
    }

    /// How many interfaces of which kind it describes, for people.
    pub fn what_is_served(&self) -> String {
        interfaces(self.devices.len(), self.vnics.len())
    }

    /// Checks the text of a TOML file; `name` is how errors call it.
    ///
    /// # Errors
    /// As [`Config::from_file`].
    pub fn parse(text: &str, name: &str) -> Result<Config, ConfigError> {
        file::parse(text).map_err(|fault| {
            let message = match fault.at.map(|at| position(text, at)) {
                Some((line, column)) => format!("{name}:{line}:{column}: {}", fault.what),
                None => format!("{name}: {}", fault.what),
            };
            ConfigError { message }
        })
    }
}

/// Where a configuration comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The file.
    pub file: PathBuf,
    /// `--socket`, which goes before what the file says.
    pub socket: Option<PathBuf>,
    /// `--log-level`, likewise.
    pub log_level: Option<LogLevel>,
}

impl Source {
    /// Reads and checks the file.
    ///
    /// # Errors
    /// As [`Config::from_file`].
    pub fn read(&self) -> Result<Config, ConfigError> {
        let mut config = Config::from_file(&self.file)?;
        if let Some(socket) = &self.socket {
            config.socket.clone_from(socket);
        }
        if let Some(level) = self.log_level {
            config.log_level = level;
        }
        Ok(config)
    }
}

/// So many devices and VNICs, in words.
pub fn interfaces(devices: usize, vnics: usize) -> String {
    match (devices, vnics) {
        (devices, 0) => format!("{devices} device(s)"),
        (0, vnics) => format!("{vnics} VNIC(s)"),
        (devices, vnics) => format!("{devices} device(s) and {vnics} VNIC(s)"),
    }
}

/// Line and column (in characters), both from 1, of byte `at`.
fn position(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = before.matches('\n').count() + 1;
    (line, before[line_start..].chars().count() + 1)
}

/// One IPoIB device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceConfig {
    /// Name of the TAP interface.
    pub name: String,
    /// The device that it is a child of, which is before it in the list.
    pub parent: Option<String>,
    /// The network namespace of `ip netns` that it goes to; `None`: the daemon's, or its parent's.
    pub netns: Option<String>,
    /// 802.1Q tags on its frames select partitions: VLAN n is P_Key 0x8000 | n.
    pub vlan_pkey: bool,
    /// The fabric port that it is on.
    pub port: PortName,
    /// Transport mode.
    pub mode: Mode,
    /// How many connections it may have, asked for by it or by peers; 0: none.
    pub connections: usize,
    /// The partition, as the user wrote it; without bit 15 it is a limited member's.
    pub pkey: PKey,
    /// The Q_Key of the broadcast group.
    pub qkey: QKey,
    /// The queue pair number.
    pub qpn: QpnChoice,
    /// IP MTU in bytes; `None`: the largest of the mode.
    pub mtu: Option<u32>,
    /// TAP queues; `None`: [`PortName::default_queues`].
    pub queues: Option<usize>,
    /// Whether the TAP stays when the daemon ends.
    pub persist: bool,
    /// Whether the daemon sets the interface up. False leaves it as it is: a new one is down.
    pub up: bool,
    /// What is done to DHCPv4.
    pub dhcp: DhcpMode,
    /// Whether frames for guests and groups go back to the TAP, too (reflective relay).
    pub reflect: bool,
}

impl DeviceConfig {
    /// A device with the defaults.
    pub fn new(name: &str, port: PortName) -> DeviceConfig {
        DeviceConfig {
            name: name.into(),
            parent: None,
            netns: None,
            vlan_pkey: false,
            port,
            mode: Mode::Datagram,
            connections: values::CONNECTIONS,
            pkey: PKey::DEFAULT,
            qkey: QKey::IPOIB_DEFAULT,
            qpn: QpnChoice::default(),
            mtu: None,
            queues: None,
            persist: false,
            up: true,
            dhcp: DhcpMode::default(),
            reflect: false,
        }
    }

    /// A child of this device with the defaults: what it does not have of its own, it has of its
    /// parent. It is a full member wherever the port is one.
    pub fn child(&self, pkey: PKey) -> DeviceConfig {
        DeviceConfig {
            name: values::child_name(&self.name, pkey),
            parent: Some(self.name.clone()),
            vlan_pkey: false,
            pkey: pkey.full(),
            // One number cannot be two queue pairs'.
            qpn: match self.qpn {
                QpnChoice::Number(_) => QpnChoice::Stable,
                choice => choice,
            },
            mtu: None,
            queues: Some(1),
            ..self.clone()
        }
    }

    /// How many TAP queues it has.
    pub fn queue_count(&self) -> usize {
        self.queues.unwrap_or_else(|| self.port.default_queues())
    }

    /// A device cannot carry its own packets.
    pub(crate) fn check_port(&self) -> Result<(), String> {
        match &self.port {
            PortName::Underlay(underlay) if *underlay == self.name => Err(format!(
                "the device {:?} cannot be its own underlay",
                self.name
            )),
            _ => Ok(()),
        }
    }

    /// An adapter draws queue pair numbers itself.
    pub(crate) fn check_qpn(&self) -> Result<(), String> {
        match (&self.port, self.qpn) {
            (PortName::Rdma { .. }, QpnChoice::Number(qpn)) => Err(format!(
                "an RDMA device draws queue pair numbers itself, and cannot be asked for {qpn}; \
                 leave qpn out"
            )),
            _ => Ok(()),
        }
    }

    /// A queue pair of an adapter has one receive queue.
    pub(crate) fn check_queues(&self) -> Result<(), String> {
        match (&self.port, self.queues) {
            (PortName::Rdma { .. }, Some(queues)) if queues > 1 => Err(format!(
                "{queues} queues: an interface on an RDMA device has one queue pair, and so one \
                 queue; leave queues out"
            )),
            _ => Ok(()),
        }
    }

    /// What tells it from the other devices.
    pub fn key(&self) -> DeviceKey {
        DeviceKey {
            netns: self.netns.clone(),
            name: self.name.clone(),
        }
    }

    /// No two devices of a network namespace have one name.
    pub(crate) fn check_name(&self, others: &[DeviceConfig]) -> Result<(), String> {
        if others.iter().all(|other| other.key() != self.key()) {
            return Ok(());
        }
        Err(match &self.netns {
            Some(netns) => format!(
                "another device in the namespace {netns:?} is named {:?} already",
                self.name
            ),
            None => format!("another device is named {:?} already", self.name),
        })
    }

    /// A child has a partition of its own (kernel ipoib_vlan.c, `is_child_unique`); `others` has the
    /// parent's other children.
    pub(crate) fn check_child(
        &self,
        parent: &DeviceConfig,
        others: &[DeviceConfig],
    ) -> Result<(), String> {
        if parent.pkey.full() == self.pkey {
            return Err(format!(
                "{:?} has the P_Key {} itself; a child needs another one",
                parent.name, self.pkey
            ));
        }
        let sibling = |o: &&DeviceConfig| o.parent == self.parent && o.pkey == self.pkey;
        match others.iter().find(sibling) {
            Some(other) => Err(format!(
                "{:?} is a child of {:?} with the P_Key {} already",
                other.name, parent.name, self.pkey
            )),
            None => Ok(()),
        }
    }
}

/// A device's name in the configuration, and the network namespace that it is configured for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceKey {
    /// As [`DeviceConfig::netns`].
    pub netns: Option<String>,
    /// As [`DeviceConfig::name`].
    pub name: String,
}

impl fmt::Display for DeviceKey {
    /// `ib0`, or `blue/ib0` in the network namespace `blue`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.netns {
            Some(netns) => write!(f, "{netns}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// A configuration that cannot be used; one sentence for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    message: String,
}

impl ConfigError {
    /// About the command line's options.
    pub(crate) fn options(message: impl Into<String>) -> ConfigError {
        ConfigError {
            message: message.into(),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ConfigError {}

#[cfg(test)]
mod tests;
