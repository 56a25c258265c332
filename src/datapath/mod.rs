//! The data threads: one for each TAP queue and core, run to completion in one epoll loop that
//! does both directions. A packet is handled by the thread that read it and crosses no channel and
//! no lock. What one thread's core learns reaches its siblings as [`Command::Update`], sent before
//! the host can act on it.

mod command;
mod ethernet;
mod handle;
mod lane;
mod lanes;
mod message;
mod priority;
mod receive;
mod sibling;
mod stats;
#[cfg(test)]
mod testing;
mod thread;
mod train;
mod transmit;
mod wait;

pub use command::{Command, DeviceId, Report, Sibling, Snapshot, Tables, VlanLane};
pub use ethernet::{
    Datagram, EthernetCommand, EthernetLane, EthernetSibling, EthernetSnapshot, TapStats,
};
pub use handle::{Mailbox, ThreadHandle, mailbox};
pub use lane::Lane;
pub use priority::Priorities;
pub use stats::{DeviceSnapshot, LaneStats, WorkerSnapshot};
pub use thread::{DataThread, Parts, now};
