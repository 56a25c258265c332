//! What the daemon is to do: fabric ports and interfaces. Made from a TOML file ([`Config::from_file`])
//! or from the command line ([`args::Args::action`]).

pub mod args;
mod file;
mod interface;
pub mod ipoib;
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
pub use port::{ManagementSettings, PortConfig, PortName};
pub use proto::{GidChoice, LinkMtu};
pub use values::{BusyPoll, QpnChoice};

/// The whole configuration, checked: names, keys and lengths are in range, no two interfaces share a
/// name in a network namespace, no two children of one interface a partition, every interface's port has
/// an entry in `ports`, and there is something to serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Path of the control socket.
    pub socket: PathBuf,
    /// What to log.
    pub log_level: LogLevel,
    /// Fabric ports; one for each that an interface names.
    pub ports: BTreeMap<PortName, PortConfig>,
    /// IPoIB interfaces, in the order of the file, each with its children behind it.
    pub ipoib: Vec<IpoibConfig>,
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
        interfaces(self.ipoib.len(), self.vnics.len())
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

/// So many IPoIB interfaces and VNICs, in words.
pub fn interfaces(ipoib: usize, vnics: usize) -> String {
    match (ipoib, vnics) {
        (ipoib, 0) => format!("{ipoib} IPoIB interface(s)"),
        (0, vnics) => format!("{vnics} VNIC(s)"),
        (ipoib, vnics) => format!("{ipoib} IPoIB interface(s) and {vnics} VNIC(s)"),
    }
}

/// Line and column (in characters), both from 1, of byte `at`.
fn position(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = before.matches('\n').count() + 1;
    (line, before[line_start..].chars().count() + 1)
}

/// A setting that cannot be what it is, by its key in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyFault {
    /// The key.
    pub key: &'static str,
    /// A sentence about it.
    pub what: String,
}

impl KeyFault {
    fn new(key: &'static str, what: String) -> KeyFault {
        KeyFault { key, what }
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
