//! What the administrator wants: the manager's own settings and the switches, from a TOML file.

mod file;
mod pattern;
mod values;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use control::api::LogLevel;
use proto::{Gid, Mac, PKey};
use vnic::Lid;
use vnic::attribute::ServiceClasses;

pub use pattern::{Pattern, PortKey};
pub use values::{format_mac, parse_mac};

/// The whole configuration, checked: numbers are in range, and no two switches share a name or an id, nor
/// do they and their groups share a multicast LID.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// The manager's own settings.
    pub em: ManagerConfig,
    /// The switches, in the order of the file: of two that want a port the first gets it.
    pub switches: Vec<SwitchConfig>,
}

/// Settings of the manager itself. Times are milliseconds.
#[derive(Clone, PartialEq, Debug)]
pub struct ManagerConfig {
    /// 0 to 15; of several managers the highest manages.
    pub priority: u8,
    /// What it takes for its priority while it manages, so that it stays the one.
    pub elevated_priority: u8,
    /// How often each agent is asked how it is.
    pub poll_interval: u64,
    /// How long agents hold to a manager after its last word.
    pub lease: u64,
    /// How long the others keep the addresses of a node that does not answer.
    pub grace: u64,
    /// Where state is kept.
    pub state_dir: PathBuf,
    /// The manager's own control socket.
    pub socket: PathBuf,
    /// That of the node's `ibtapd`.
    pub ibtapd_socket: PathBuf,
    /// The fabric port, by `ibtapd`'s name for it; `None`: its only one.
    pub port: Option<String>,
    /// Nodes whose managers are believed to be some; empty: all.
    pub managers: Vec<Gid>,
    /// What to log.
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

/// One virtual Ethernet switch.
#[derive(Clone, PartialEq, Debug)]
pub struct SwitchConfig {
    /// Its name for people.
    pub name: String,
    /// 1 to 4095.
    pub id: u16,
    /// 10 bits.
    pub fabric_id: u16,
    /// Its partition.
    pub pkey: PKey,
    /// The largest payload of an Ethernet frame in bytes; `None`: what all members carry.
    pub eth_mtu: Option<u16>,
    /// Where multicast and broadcast go.
    pub u_mcast_dlid: Lid,
    /// Ports that unicast to unknown globally administered addresses goes to, by slot, 0 to 15.
    pub default_ports: BTreeMap<u8, Pattern>,
    /// Routing control, seven nibbles (kernel opa_vnic_encap.h, `OPA_VNIC_RC_*`).
    pub rc: u32,
    /// Service classes.
    pub classes: ServiceClasses,
    /// Who is on it.
    pub members: Vec<Pattern>,
    /// Where interface addresses come from.
    pub macs: MacSource,
    /// Addresses that were given to one port by name.
    pub pinned_macs: Vec<PinnedMac>,
    /// Addresses behind a port that no agent reports.
    pub static_macs: Vec<PinnedMac>,
    /// Groups that do not go to `u_mcast_dlid`.
    pub groups: Vec<GroupLid>,
}

/// Where the addresses of interfaces come from.
#[derive(Clone, PartialEq, Debug)]
pub enum MacSource {
    /// Made of fabric id, switch and LID, so that all know the LID from the address.
    Generate,
    /// These, from the first free one on; ranges with both ends.
    List(Vec<(Mac, Mac)>),
}

/// An address and the port that has it.
#[derive(Clone, PartialEq, Debug)]
pub struct PinnedMac {
    /// The address.
    pub mac: Mac,
    /// The port, a pattern without wildcards.
    pub port: Pattern,
}

/// A group with a multicast LID of its own: who does not listen to it has none of its packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupLid {
    /// The group's address.
    pub mac: Mac,
    /// Where its frames go.
    pub lid: Lid,
}

/// What is wrong with a configuration, one sentence with the place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub String);

impl Config {
    /// Reads and checks a TOML file.
    ///
    /// # Errors
    /// One sentence with the file's name, line and column.
    pub fn from_file(path: &Path) -> Result<Config, ConfigError> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| {
            ConfigError(format!(
                "cannot read the configuration {name}: {error}; name a TOML file that can be read"
            ))
        })?;
        Config::parse(&text, &name)
    }

    /// Checks the text of a TOML file; `name` is how errors call it.
    ///
    /// # Errors
    /// As [`Config::from_file`].
    pub fn parse(text: &str, name: &str) -> Result<Config, ConfigError> {
        file::parse(text).map_err(|fault| {
            ConfigError(match fault.at.map(|at| position(text, at)) {
                Some((line, column)) => format!("{name}:{line}:{column}: {}", fault.what),
                None => format!("{name}: {}", fault.what),
            })
        })
    }

    /// The switch of this id.
    #[must_use]
    pub fn switch(&self, id: u16) -> Option<&SwitchConfig> {
        self.switches.iter().find(|switch| switch.id == id)
    }
}

/// Line and column (in characters), both from 1, of byte `at`.
fn position(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = before.matches('\n').count() + 1;
    (line, before[line_start..].chars().count() + 1)
}

#[cfg(test)]
mod tests;
