//! The data threads: one for each TAP queue and core. Each thread serves both directions in one epoll
//! loop. The thread that reads a packet also completes it: no packet crosses a channel or a lock. A core
//! that learns something sends [`Command::Update`] to its replicas in the other threads, before the host
//! can act on the news.

mod allowed;
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

pub use allowed::AllowList;
pub use command::{Command, EthernetSibling, Report, Sibling, Snapshot, Tables, VlanLane};
pub use ethernet::{Datagram, EthernetInit, EthernetLane, EthernetSettings};
pub use handle::{Mailbox, ThreadHandle, mailbox};
pub use ip::{IpInit, IpLane, IpParts, IpSettings};
pub use lane::{LaneInit, LinkId};
pub use stats::{EthernetSnapshot, IpSnapshot, IpStats, TapStats, ThreadStats, WorkerSnapshot};
pub use thread::{DataThread, Parts, now};

/// Bytes of an Ethernet header without tags.
const ETHERNET_LEN: usize = 14;
