//! The data threads: one for each TAP queue and core, run to completion in one epoll loop that
//! does both directions. A packet is handled by the thread that read it and crosses no channel and
//! no lock. What one thread's core learns reaches the replicas in the other threads as
//! [`Command::Update`], sent before the host can act on it.

mod command;
mod ethernet;
mod handle;
mod ip;
mod lane;
mod lanes;
mod priority;
mod stats;
#[cfg(test)]
mod testing;
mod thread;
mod train;
mod wait;

pub use command::{Command, EthernetSibling, Report, Sibling, Snapshot, Tables, VlanLane};
pub use ethernet::{Datagram, EthernetInit, EthernetLane, EthernetSettings};
pub use handle::{Mailbox, ThreadHandle, mailbox};
pub use ip::{IpInit, IpLane, IpParts, IpSettings};
/// What the control thread calls a [`LinkId`] that is an interface's.
pub use lane::{LaneInit, LinkId};
pub use stats::{EthernetSnapshot, IpSnapshot, TapStats, WorkerSnapshot};
pub use thread::{DataThread, Parts, now};

/// Bytes of an Ethernet header without tags.
const ETHERNET_LEN: usize = 14;
