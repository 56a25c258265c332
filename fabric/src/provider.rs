//! Which provider serves a port. Nobody outside this crate needs to know once it is open.

use std::time::Duration;

use crate::port::{FabricError, Port};
use crate::soft::{SoftConfig, SoftPort};
use crate::verbs::{VerbsConfig, VerbsPort};

/// How to open a port.
#[derive(Clone, Debug)]
pub enum ProviderConfig {
    /// Of the software RoCEv2 fabric.
    Soft(SoftConfig),
    /// Of an RDMA device of the kernel.
    Verbs(VerbsConfig),
}

impl ProviderConfig {
    /// How long opening may wait for a usable GID.
    pub fn set_gid_wait(&mut self, wait: Duration) {
        match self {
            ProviderConfig::Soft(config) => config.gid_wait = wait,
            ProviderConfig::Verbs(config) => config.gid_wait = wait,
        }
    }

    /// What the port is called in the configuration: the underlay's name, or `mlx5_0/1`.
    pub fn name(&self) -> String {
        match self {
            ProviderConfig::Soft(config) => config.underlay.clone(),
            ProviderConfig::Verbs(config) => config.name(),
        }
    }
}

/// Opens a port. May wait for it to have a usable GID, as its configuration says.
///
/// # Errors
/// [`FabricError::Unusable`] with a sentence that says what is missing and how to get on;
/// [`FabricError::Os`].
pub fn open(config: ProviderConfig) -> Result<Box<dyn Port>, FabricError> {
    Ok(match config {
        ProviderConfig::Soft(config) => Box::new(SoftPort::open(config)?),
        ProviderConfig::Verbs(config) => Box::new(VerbsPort::open(config)?),
    })
}
