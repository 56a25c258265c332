//! VNICs: TAP interfaces that are virtual ports of virtual Ethernet switches, and their management.

mod alias;
mod clients;
mod groups;

mod lanes;
mod management;
mod mtu;
mod payload;
mod ration;
mod recent;
mod switch;
mod tally;
mod touched;

pub use alias::Alias;
pub use clients::Clients;
pub use groups::groups_of_one;
pub use management::Management;
pub use mtu::{carried_mtu, mtu_of};
pub use payload::{Ethernet, VnicSite};
pub use ration::Ration;
pub use recent::RecentCounters;
pub use switch::{default_lid, lid_of_another, static_switch};
pub use tally::{Counted, Tally};
pub use touched::Touched;

/// The time as the data threads have it.
pub fn now() -> vnic::Time {
    vnic::Time(crate::datapath::now().0)
}
