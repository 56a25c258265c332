//! VNICs in a data thread: Ethernet frames of a TAP in 16B packets.
//!
//! Lanes of VNICs share the thread's train, coalescer, pauses and waiting with the lanes of IPoIB. The core
//! ([`vnic::port::VeswPort`]) selects the destination LID and learns addresses.
//!
//! * Out: the core returns the destination LID and the 16B header. The segmenter cuts a large send behind
//!   the frame's Ethernet header and tag. Each frame starts 20 bytes into its place, with header, padding
//!   and tail around it. An uncut frame leaves unchanged to its last byte.
//! * In: the core checks and removes the header, and learns. The coalescer joins IP packets as for IPoIB,
//!   and tagged frames only with frames of the same tag.
//! * Unicast to a VNIC of the same daemon and switch goes from TAP to TAP.
//! * Service classes other than 0 have separate address handles. The lower three bits of the class give the
//!   traffic class. Address handles of class 0 are in the core's tables.
//! * Data threads receive management datagrams (`management.rs`), queue up to 512 of them for the control
//!   thread, and send its answers.

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

/// The VNICs of a data thread.
#[derive(Default)]
pub struct Ethernet {
    pub(super) lanes: Lanes<EthernetLane>,
    /// Management endpoints.
    pub(super) management: Management,
}
