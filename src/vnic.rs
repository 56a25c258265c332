//! VNICs: TAP interfaces that are virtual ports of virtual Ethernet switches, and their management.

mod clients;

pub use clients::Clients;

use fabric::Gid;

/// Who may manage the VNICs of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ManagementSettings {
    /// Ports whose Ethernet Managers may; empty: any.
    pub managers: Vec<Gid>,
    /// A manager may make VNICs that nobody has named.
    pub vnic_create: bool,
}
