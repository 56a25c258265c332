//! VNICs: TAP interfaces that are virtual ports of virtual Ethernet switches, and their management.

mod alias;
mod clients;
mod groups;
mod interface;
mod lanes;
mod management;
mod mtu;
mod ration;
mod recent;
mod refused;
mod switch;
mod tally;
mod touched;

pub use alias::Alias;
pub use clients::Clients;
pub use interface::{Vnic, VnicSite, drawn};
pub use management::Management;
pub use mtu::{carried_mtu, mtu_of};
pub use ration::Ration;
pub use recent::RecentCounters;
pub use refused::{News as RefusedNews, Refused};
pub use switch::{default_lid, lid_of_another, static_switch};
pub use tally::{Counted, Tally};
pub use touched::Touched;

use fabric::Gid;

/// The time as the data threads have it.
pub fn now() -> vnic::Time {
    vnic::Time(crate::datapath::now().0)
}

/// Who may manage the VNICs of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ManagementSettings {
    /// Ports whose Ethernet Managers may; empty: any.
    pub managers: Vec<Gid>,
    /// A manager may make VNICs that nobody has named.
    pub vnic_create: bool,
}
