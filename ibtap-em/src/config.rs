//! The administrator's configuration: settings of the manager and the switches, from a TOML file.

mod file;
mod pattern;
mod values;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use control::api::LogLevel;
use control::config::fault;
use proto::{Gid, Mac, PKey};
use vnic::Lid;
use vnic::attribute::ServiceClasses;

pub use pattern::{Pattern, PortKey};
pub use values::parse_mac;

/// The whole configuration, checked: numbers are in range; names, ids and multicast LIDs of switches and
/// groups are unique.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// The manager's own settings.
    pub em: ManagerConfig,
    /// The switches, in the order of the file. If several match a port, the first gets it.
    pub switches: Vec<SwitchConfig>,
}

/// Settings of the manager. Times are milliseconds.
#[derive(Clone, PartialEq, Debug)]
pub struct ManagerConfig {
    /// Priority, 0 to 15. The manager with the highest priority is active.
    pub priority: u8,
    /// Priority while active; keeps a former manager that returns on standby.
    pub elevated_priority: u8,
    /// Interval between polls of an agent.
    pub poll_interval: u64,
    /// How long agents accept no other manager after the last request.
    pub lease: u64,
    /// How long other nodes keep the addresses of a node that does not answer.
    pub grace: u64,
    /// Directory of the state.
    pub state_dir: PathBuf,
    /// The manager's own control socket.
    pub socket: PathBuf,
    /// Control socket of the node's `ibtapd`.
    pub ibtapd_socket: PathBuf,
    /// Fabric port, by `ibtapd`'s name for it; `None`: its only port.
    pub port: Option<String>,
    /// GIDs of the nodes whose managers are accepted; empty: all.
    pub managers: Vec<Gid>,
    /// Log level.
    pub log_level: LogLevel,
}

impl Default for ManagerConfig {
    fn default() -> ManagerConfig {
        ManagerConfig {
            priority: 5,
            elevated_priority: 8,
            poll_interval: 15_000,
            lease: 15_000,
            grace: 300_000,
            state_dir: "/var/lib/ibtap-em".into(),
            socket: crate::args::DEFAULT_EM_SOCKET.into(),
            ibtapd_socket: control::DEFAULT_SOCKET.into(),
            port: None,
            managers: Vec::new(),
            log_level: LogLevel::default(),
        }
    }
}

/// A virtual Ethernet switch.
#[derive(Clone, PartialEq, Debug)]
pub struct SwitchConfig {
    /// Name.
    pub name: String,
    /// Id, 1 to 4095.
    pub id: u16,
    /// Fabric id, 10 bits.
    pub fabric_id: u16,
    /// Partition.
    pub pkey: PKey,
    /// MTU of Ethernet, in bytes; `None`: the largest that all members can carry.
    pub eth_mtu: Option<u16>,
    /// Destination of multicast and broadcast.
    pub u_mcast_dlid: Lid,
    /// Default ports, by slot, 0 to 15. They receive unicast to unknown, globally administered addresses.
    pub default_ports: BTreeMap<u8, Pattern>,
    /// Routing control, seven nibbles (kernel opa_vnic_encap.h, `OPA_VNIC_RC_*`).
    pub rc: u32,
    /// Service classes.
    pub classes: ServiceClasses,
    /// Members.
    pub members: Vec<Pattern>,
    /// Source of interface addresses.
    pub macs: MacSource,
    /// Fixed addresses of interfaces.
    pub pinned_macs: Vec<PinnedMac>,
    /// Addresses behind a port that no agent reports.
    pub static_macs: Vec<PinnedMac>,
    /// Groups with a multicast LID other than `u_mcast_dlid`.
    pub groups: Vec<GroupLid>,
}

/// Source of interface addresses.
#[derive(Clone, PartialEq, Debug)]
pub enum MacSource {
    /// Derived from fabric id, switch and LID; the address then contains the LID.
    Generate,
    /// The first free address of these ranges, ends included.
    List(Vec<(Mac, Mac)>),
}

/// An address and its port.
#[derive(Clone, PartialEq, Debug)]
pub struct PinnedMac {
    /// The address.
    pub mac: Mac,
    /// The port, a pattern without wildcards.
    pub port: Pattern,
}

/// A group with a separate multicast LID. Only members that listen to the group receive its packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupLid {
    /// Address of the group.
    pub mac: Mac,
    /// Destination of its frames.
    pub lid: Lid,
}

/// An error of the configuration: one sentence with file, line and column.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub String);

impl Config {
    /// Reads and checks a TOML file.
    ///
    /// # Errors
    /// One sentence with the file's name, line and column.
    pub fn from_file(path: &Path) -> Result<Config, ConfigError> {
        let text = fault::read(path, "the user of ibtap-em must be able to read it (chown)")
            .map_err(ConfigError)?;
        Config::parse(&text, &path.display().to_string())
    }

    /// Parses and checks the text of a TOML file. `name` is the file name in errors.
    ///
    /// # Errors
    /// As [`Config::from_file`].
    pub fn parse(text: &str, name: &str) -> Result<Config, ConfigError> {
        file::parse(text).map_err(|fault| ConfigError(fault.sentence(text, name)))
    }

    /// The switch with this id.
    #[must_use]
    pub fn switch(&self, id: u16) -> Option<&SwitchConfig> {
        self.switches.iter().find(|switch| switch.id == id)
    }
}

#[cfg(test)]
mod tests;
