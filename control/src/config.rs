//! The configuration of the daemon: fabric ports and interfaces, from a TOML file ([`Config::from_file`])
//! or from the command line ([`args::Args::action`]).

pub mod args;
pub mod fault;
mod file;
mod interface;
pub mod ipoib;
mod management_key;
mod metrics;
pub mod plan;
mod port;
pub mod settings;
pub mod values;
pub mod vnic;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

pub use self::interface::{InterfaceConfig, InterfaceKey};
pub use self::ipoib::{IpoibConfig, SCOPE};
pub use self::vnic::VnicConfig;
use crate::api::LogLevel;
pub use management_key::ManagementKeys;
pub use metrics::MetricsAddress;
pub use port::{ManagementSettings, PortConfig, PortName};
pub use proto::{GidChoice, LinkMtu};
pub use values::{BusyPoll, GroupAccess, QpnChoice};

/// The whole configuration, checked. Names, keys and lengths are in range. No two interfaces share a name
/// in a network namespace; no two children of an interface share a partition. Every interface's port has
/// an entry in `ports`. There is at least one interface, or a port on which managers may create VNICs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Path of the control socket.
    pub socket: PathBuf,
    /// Log level.
    pub log_level: LogLevel,
    /// Whether seccomp and Landlock restrict the daemon.
    pub sandbox: bool,
    /// Rights of the group of the control socket.
    pub group_access: GroupAccess,
    /// Address that serves metrics.
    pub metrics: Option<MetricsAddress>,
    /// Fabric ports: those of the interfaces, and those on which managers may create VNICs.
    pub ports: BTreeMap<PortName, PortConfig>,
    /// IPoIB interfaces, in the order of the file, each followed by its children.
    pub ipoib: Vec<IpoibConfig>,
    /// VNICs, in the order of the file.
    pub vnics: Vec<VnicConfig>,
}

impl Config {
    /// Reads and checks a TOML file.
    ///
    /// # Errors
    /// One sentence with the name of the file, and with line and column of an error in it.
    pub fn from_file(path: &Path) -> Result<Config, ConfigError> {
        let text = fault::read(path, fault::DENIED).map_err(|message| ConfigError { message })?;
        Config::parse(&text, &path.display().to_string())
    }

    /// The numbers of interfaces of each kind, in words.
    pub fn what_is_served(&self) -> String {
        interfaces(self.ipoib.len(), self.vnics.len())
    }

    /// Parses and checks the text of a TOML file; errors name the file by `name`.
    ///
    /// # Errors
    /// See [`Config::from_file`].
    pub fn parse(text: &str, name: &str) -> Result<Config, ConfigError> {
        file::parse(text).map_err(|fault| {
            let message = fault.sentence(text, name);
            ConfigError { message }
        })
    }
}

/// The source of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The file.
    pub file: PathBuf,
    /// `--socket`, which overrides the file.
    pub socket: Option<PathBuf>,
    /// `--log-level`, which overrides the file.
    pub log_level: Option<LogLevel>,
    /// `--no-sandbox`, which overrides the file.
    pub no_sandbox: bool,
}

impl Source {
    /// Reads and checks the file.
    ///
    /// # Errors
    /// See [`Config::from_file`].
    pub fn read(&self) -> Result<Config, ConfigError> {
        let mut config = Config::from_file(&self.file)?;
        if let Some(socket) = &self.socket {
            config.socket.clone_from(socket);
        }
        if let Some(level) = self.log_level {
            config.log_level = level;
        }
        config.sandbox &= !self.no_sandbox;
        Ok(config)
    }
}

/// Numbers of IPoIB interfaces and VNICs, in words.
pub fn interfaces(ipoib: usize, vnics: usize) -> String {
    match (ipoib, vnics) {
        (ipoib, 0) => format!("{ipoib} IPoIB interface(s)"),
        (0, vnics) => format!("{vnics} VNIC(s)"),
        (ipoib, vnics) => format!("{ipoib} IPoIB interface(s) and {vnics} VNIC(s)"),
    }
}

/// A wrong setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyFault {
    /// Its key in a file.
    pub key: &'static str,
    /// A sentence for the user.
    pub what: String,
}

impl KeyFault {
    fn new(key: &'static str, what: String) -> KeyFault {
        KeyFault { key, what }
    }
}

/// A configuration error: one sentence for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    message: String,
}

impl ConfigError {
    /// An error in the options of the command line.
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
