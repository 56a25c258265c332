//! Inspects a device without serving it, for `ibtap doctor`: with the functions, and so the messages,
//! of opening a port.

use proto::Gid;
use rtnl::Requests;

use super::config::VerbsConfig;
pub use super::gid::Address;
use super::ibv::DeviceAttributes;
use super::port_state;
pub use super::port_state::{Seen, Usable, evaluate};
pub use super::unusable::Unusable;
use super::{device, kernel_groups, open, sysfs};

/// State of a port.
#[derive(Clone, Debug)]
pub struct Look {
    /// Attributes of its device.
    pub device: DeviceAttributes,
    /// State of the port now.
    pub seen: Seen,
}

/// Maximum locked memory of a data thread's buffers on a port in bytes, without the rings of its queues.
pub const BUFFERS: u64 = device::BUFFERS as u64;

/// Inspects a port.
///
/// # Errors
/// A sentence that says what is missing and what to do.
pub fn look(config: &VerbsConfig, requests: &mut Requests) -> Result<Look, String> {
    let library = open::library().map_err(|e| e.to_string())?;
    let context = open::device(&library, &config.device).map_err(|e| e.to_string())?;
    let name = config.name();
    let attributes = context
        .query_device()
        .map_err(|e| format!("{name}: cannot query the device: {e}"))?;
    open::check_port(config, attributes.ports).map_err(|e| e.to_string())?;
    let seen = port_state::see(&context, config.port, requests)
        .map_err(|e| format!("{name}: cannot query the port: {e}"))?;
    Ok(Look {
        device: attributes,
        seen,
    })
}

/// Whether the kernel's `ib_cm` is loaded and does not serve a port, because another program manages the
/// connections of the port.
pub fn is_kernel_cm_shut_out(config: &VerbsConfig) -> bool {
    sysfs::is_kernel_cm_shut_out(&config.device, config.port)
}

/// Checks that the libraries are installed.
///
/// # Errors
/// A sentence that says what to install.
pub fn libraries() -> Result<(), String> {
    open::library().map(drop).map_err(|e| e.to_string())
}

/// The interfaces of the kernel's IPoIB on a port with this GID, in the current network namespace.
pub fn kernel_interfaces(gid: Gid) -> Vec<String> {
    let interfaces = kernel_groups::interfaces(gid).into_iter();
    interfaces.map(|interface| interface.name).collect()
}
