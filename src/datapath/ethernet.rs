//! VNICs in a data thread: Ethernet frames of a TAP in 16B packets, beside the lanes of IPoIB. They share
//! the thread's train, its coalescer, its pauses and its waiting; which LID a frame goes to, and what is
//! learned, is the core's affair ([`vnic::port::VeswPort`]).

mod handover;
mod lane;
mod management;
mod packets;
mod receive;
mod serve;
#[cfg(test)]
pub mod testing;
#[cfg(test)]
mod tests;
mod transmit;

use super::lanes::Lanes;
pub use lane::{EthernetInit, EthernetLane, EthernetSettings};
pub use management::{Datagram, Management, Place};
pub use receive::datagrams;
#[cfg(test)]
pub use transmit::frame;

/// What a data thread has of VNICs.
#[derive(Default)]
pub struct Ethernet {
    pub(super) lanes: Lanes<EthernetLane>,
    /// Endpoints of management.
    pub(super) management: Management,
}
