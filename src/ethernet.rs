//! VNICs: interfaces that are virtual ports of virtual Ethernet switches, and their management.

mod alias;
mod clients;
mod endpoint;
mod events;
mod groups;
mod host;

mod change_tracking;
mod lanes;
mod management;
mod mtu;
mod payload;
mod recent;
mod retained_counters;
mod switch;

pub use crate::datapath::now;
pub use alias::Alias;
pub use change_tracking::ChangeTracking;
pub use clients::Clients;
pub use groups::groups_of_one;
pub use management::Management;
pub use mtu::{carried_mtu, mtu_of, wanted_mtu};
pub use payload::{Ethernet, VnicContext};
pub use recent::RecentCounters;
pub use retained_counters::{Counted, RetainedCounters, parts};
pub use switch::{configured_switch, default_lid, lid_of_another};
