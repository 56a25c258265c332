//! Selects the provider of a port. Callers of an open port do not know the provider.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use proto::Gid;
use proto::counters::Description;

use crate::administered::AdministeredPort;
use crate::port::{FabricError, Port};
use crate::soft::{self, SoftConfig, SoftPort};
use crate::verbs::{self, VerbsConfig, VerbsPort};

/// Configuration of a port.
#[derive(Clone, Debug)]
pub enum ProviderConfig {
    /// A port of the software RoCEv2 fabric.
    Soft(SoftConfig),
    /// A port of the software RoCEv2 fabric on a subnet, whose subnet administrator is at the port with this
    /// GID, or reached by umad of an RDMA device.
    Administered(SoftConfig, Option<Gid>),
    /// A port of an RDMA device of the kernel.
    Verbs(VerbsConfig),
}

impl ProviderConfig {
    /// Gives the port the receiving sockets of a former process. Ports of RDMA devices have none.
    pub fn set_former(&mut self, sockets: Vec<Arc<OwnedFd>>) {
        match self {
            ProviderConfig::Soft(config) | ProviderConfig::Administered(config, _) => {
                config.former = sockets;
            }
            ProviderConfig::Verbs(_) => {}
        }
    }

    /// The port's name in the configuration: the underlay's name, or `mlx5_0/1`.
    pub fn name(&self) -> String {
        match self {
            ProviderConfig::Soft(config) | ProviderConfig::Administered(config, _) => {
                config.underlay.clone()
            }
            ProviderConfig::Verbs(config) => config.name(),
        }
    }
}

/// Names and descriptions of the counters of the workers of all providers. Providers with the same counter use the
/// same name.
pub fn counter_descriptions() -> impl Iterator<Item = &'static Description> {
    soft::counter_descriptions().chain(verbs::counter_descriptions())
}

/// Opens a port. Waits for a usable GID as configured.
///
/// # Errors
/// [`FabricError::Unusable`] with a sentence that says what is missing and what to do;
/// [`FabricError::Os`].
pub fn open(config: ProviderConfig) -> Result<Box<dyn Port>, FabricError> {
    Ok(match config {
        ProviderConfig::Soft(config) => Box::new(SoftPort::open(config)?),
        ProviderConfig::Administered(config, Some(gid)) => {
            Box::new(AdministeredPort::by_qp1(config, gid)?)
        }
        ProviderConfig::Administered(config, None) => Box::new(AdministeredPort::by_umad(config)?),
        ProviderConfig::Verbs(config) => Box::new(VerbsPort::open(config)?),
    })
}
