//! VNICs in a data thread: Ethernet frames of a TAP in 16B packets, beside the lanes of IPoIB. They share
//! the thread's train, its coalescer, its pauses and its waiting; which LID a frame goes to, and what is
//! learned, is the core's affair ([`vnic::port::VeswPort`]).
//!
//! Lanes of VNICs use the trains, coalescer, pauses and waiting of IPoIB's lanes. Endpoints without
//! an IPoIB link belong to them. Out: the core gives the destination LID and the 16B header; the
//! segmenter cuts a large send behind the frame's Ethernet header with its tag; each frame starts
//! 20 bytes into its place, with header, padding and tail around it. An uncut frame leaves
//! unchanged to its last byte. In: the core removes and checks the header and learns; IP packets
//! are coalesced like IPoIB's, tagged frames only with the same tag. Unicast to a VNIC of the same
//! daemon and switch goes from TAP to TAP. Service classes other than 0 have separate address
//! handles, whose traffic class comes from the class's lower three bits; those of class 0 are in
//! the core's tables. Data threads receive management datagrams (`management.rs`), pass up to 512
//! waiting ones to the control thread, and send its answers.

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
