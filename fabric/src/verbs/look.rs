//! Looking at a device without serving it, as `ibtap doctor` does: by the same functions, and so with
//! the same sentences, as when a port is opened.

use rtnl::Requests;

use super::config::VerbsConfig;
pub use super::gid::Address;
use super::ibv::DeviceAttributes;
pub use super::open::no_lids;
use super::watch;
pub use super::watch::{Seen, Unusable, Usable, evaluate};
use super::{device, open};

/// What a port is like.
#[derive(Clone, Debug)]
pub struct Look {
    /// What its device can do.
    pub device: DeviceAttributes,
    /// What the port is like now.
    pub seen: Seen,
}

/// Memory that a port locks for its buffers, in bytes, at most; the rings of its queues come on top.
pub const BUFFERS: u64 = device::BUFFERS as u64;

/// Looks at a port.
///
/// # Errors
/// A sentence that says what is missing and how to get on.
pub fn look(config: &VerbsConfig, requests: &mut Requests) -> Result<Look, String> {
    let library = open::library().map_err(|e| e.to_string())?;
    let context = open::device(&library, &config.device).map_err(|e| e.to_string())?;
    let name = config.name();
    let attributes = context
        .query_device()
        .map_err(|e| format!("{name}: the device cannot be asked what it can do: {e}"))?;
    if config.port == 0 || config.port > attributes.ports {
        let none = open::no_such_port(&config.device, config.port, attributes.ports);
        return Err(none.to_string());
    }
    let seen = watch::see(&context, config.port, requests)
        .map_err(|e| format!("{name}: the port cannot be asked what it is like: {e}"))?;
    Ok(Look {
        device: attributes,
        seen,
    })
}

/// Whether the libraries are there.
///
/// # Errors
/// A sentence that says what to install.
pub fn libraries() -> Result<(), String> {
    open::library().map(drop).map_err(|e| e.to_string())
}
