//! VNICs in a data thread: Ethernet frames of a TAP in 16B packets, beside the lanes of IPoIB. They share
//! the thread's train, its coalescer, its pauses and its waiting; which LID a frame goes to, and what is
//! learned, is the core's affair ([`vnic::port::VeswPort`]).

mod command;
mod handover;
mod lane;
mod management;
mod packets;
mod receive;
mod stats;
#[cfg(test)]
pub mod testing;
#[cfg(test)]
mod tests;
mod transmit;

pub use command::{EthernetCommand, EthernetSibling};
pub use handover::Handover;
pub use lane::EthernetLane;
pub use management::{Datagram, Management, Place};
pub use receive::datagrams;
pub use stats::{EthernetSnapshot, TapStats};
pub use transmit::{Fate, frame};
