//! rtnetlink for a daemon that makes and follows network interfaces.
//!
//! [`Requests`] asks and changes (rtnetlink(7)): one blocking socket, one request at a time, each
//! answered or timed out. [`Monitor`] listens: a non-blocking socket for an epoll loop, which turns
//! the kernel's notifications into [`Event`]s.
//!
//! Both act on the network namespace that the calling thread was in when they were made, whatever
//! it enters afterwards. Indexes are interface indexes of that namespace, addresses are in network
//! order, sizes in bytes. [`Monitor::across_namespaces`] hears of other namespaces too, by the numbers
//! (nsid) that the one it was made in gives them; [`EthtoolMonitor`] tells what ethtool changed.
//!
//! Requests are put together with `netlink-packet-route`; messages from the kernel are taken apart
//! here, attribute by attribute, because one attribute of a surprising shape must cost that
//! attribute and never the event that carries it.

#![deny(unsafe_code)]

mod address;
mod arguments;
mod attributes;
mod error;
mod ethtool;
mod link;
mod listener;
mod monitor;
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
pub use stacking::Stacking;
