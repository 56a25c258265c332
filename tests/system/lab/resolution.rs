//! Addresses that a station has resolved on its link.

use super::{SOON, Station, eventually};

/// Waits for the end of duplicate address detection; returns whether it found a duplicate.
pub fn is_duplicate(station: &Station, interface: &str, address: &str) -> bool {
    station.ok(&format!("ip addr add {address}/64 dev {interface}"));
    eventually(SOON, "the end of duplicate address detection", || {
        let shown = station.json(&format!("ip -6 -j addr show dev {interface} to {address}"));
        let info = shown[0]["addr_info"]
            .as_array()?
            .iter()
            .find(|info| info["local"] == address)?
            .clone();
        match (info["dadfailed"] == true, info["tentative"] == true) {
            (true, _) => Some(true),
            (false, false) => Some(false),
            (false, true) => None,
        }
    })
}

/// The Ethernet address for an IP address in the kernel's neighbour table.
pub fn neighbour(station: &Station, interface: &str, address: &str) -> String {
    let entries = station.json(&format!("ip -j neigh show to {address} dev {interface}"));
    entries[0]["lladdr"]
        .as_str()
        .unwrap_or_else(|| panic!("no neighbour {address}: {entries}"))
        .to_lowercase()
}
