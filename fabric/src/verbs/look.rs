//! Looking at a device without serving it, as `ibtap doctor` does: the same functions, and so the same
//! sentences, as when a port is opened.

use std::sync::Arc;

use super::ibv::{DeviceAttributes, GidEntry, PortInfo, device_names};
use super::open;
pub use super::open::{no_gid, no_lids, port_down};
use super::sys::Library;

/// What a port is like.
#[derive(Clone, Debug)]
pub struct Look {
    /// What its device can do.
    pub device: DeviceAttributes,
    /// What it is like now.
    pub port: PortInfo,
    /// The used places of its GID table.
    pub gids: Vec<GidEntry>,
}

/// Looks at a port of a device, counted from 1.
///
/// # Errors
/// A sentence that says what is missing and how to get on.
pub fn look(device: &str, port: u8) -> Result<Look, String> {
    let library = open::library().map_err(|e| e.to_string())?;
    let context = open::device(&library, device).map_err(|e| e.to_string())?;
    let failed = |what: &str| {
        let what = format!("{device}/{port}: {what}");
        move |e: std::io::Error| format!("{what}: {e}")
    };
    let attributes = context
        .query_device()
        .map_err(failed("the device cannot be asked what it can do"))?;
    if port == 0 || port > attributes.ports {
        return Err(open::no_such_port(device, port, attributes.ports).to_string());
    }
    let info = context
        .query_port(port)
        .map_err(failed("the port cannot be asked what it is like"))?;
    let mut gids = Vec::new();
    for index in 0..info.gids {
        let entry = context
            .query_gid(port, index)
            .map_err(failed("its GID table cannot be read"))?;
        gids.extend(entry);
    }
    Ok(Look {
        device: attributes,
        port: info,
        gids,
    })
}

/// Whether the libraries are there.
///
/// # Errors
/// A sentence that says what to install.
pub fn libraries() -> Result<(), String> {
    open::library().map(drop).map_err(|e| e.to_string())
}

/// The devices that programs may open, by name; none without the libraries.
pub fn devices() -> Vec<String> {
    let list = |library: Arc<dyn Library>| device_names(&*library).ok();
    open::library().ok().and_then(list).unwrap_or_default()
}
