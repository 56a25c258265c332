//! rtnetlink requests and notifications for a daemon that makes network interfaces.
//!
//! [`Requests`] reads and changes interfaces (rtnetlink(7)) through a blocking socket, one request at a
//! time, with a time limit. [`Monitor`] turns the kernel's notifications into [`Event`]s; its socket never
//! blocks and fits an epoll loop.
//!
//! Both use the network namespace of the calling thread at their creation, even if the thread enters
//! another one later. Interface indexes are those of that namespace, addresses are in network order, sizes
//! in bytes. [`Monitor::across_namespaces`] also receives events of other namespaces, which it identifies
//! by their nsid in its own namespace. [`EthtoolMonitor`] reports changes by ethtool.
//!
//! `netlink-packet-route` encodes requests. This crate decodes the kernel's messages itself, attribute by
//! attribute: an unexpected attribute must not cost the whole event.

#![deny(unsafe_code)]

mod address;
mod arguments;
mod attributes;
mod error;
mod ethtool;
mod link;
mod listener;
mod monitor;
mod neighbours;
mod nsid;
mod requests;
mod saved;
mod stacking;
mod sys;
#[cfg(test)]
mod tests;
mod transport;

pub use address::{Address, Scope};
pub use arguments::{NAME_MAX, name_fault};
pub use error::Error;
pub use ethtool::{EthtoolEvent, EthtoolMonitor};
pub use link::{Bridge, Link, MacvlanMode, OperState, Tun, Vlan};
pub use monitor::{Event, Group, Monitor, Notice};
pub use requests::Requests;
pub use saved::Saved;
pub use stacking::{Stacking, with_stacked};
