//! 16B packets: an Ethernet frame between a header of 20 bytes and a trailer of padding, ICRC and tail
//! (`Documentation/infiniband/opa_vnic.rst` of Linux 6.1).
//!
//! A packet is a sequence of quad words of 64 bits, each little-endian; the frame, which has no frame
//! check sequence, begins in the middle of the third.
//!
//! To send: a [`Prefix`] for each flow, the frame at [`HEADER_LEN`] of a buffer of [`packet_len`] bytes,
//! and [`Prefix::wrap`]. On receipt: [`decode()`], which needs to know nothing of the receiver, then
//! [`admit()`].

mod admit;
mod decode;
mod encode;
mod header;
mod icrc;
mod length;
mod refusal;
#[cfg(test)]
mod tests;
mod trailer;

pub use admit::{Arrival, Receiver, admit};
pub use decode::{Decoded, Strictness, decode};
pub use encode::{EncodeError, Prefix, encode};
pub use header::{ETHERNET_L4, HEADER_LEN, Header16B, L2_16B};
pub use icrc::icrc;
pub use length::{FRAME_MAX, FRAME_MIN, PACKET_MAX, eth_mtu, frame_max, packet_len, pad};
pub use refusal::Refusal;
pub use trailer::{ICRC_LEN, TAIL_LEN, Tail, stored_icrc};

/// What the ICRC and the tail of a packet hold. Only Omni-Path's hardware knows the ICRC of 16B packets:
/// nothing public says which polynomial it has, or what it covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Profile {
    /// No ICRC, and a tail without LT: what the kernel's driver hands to its hardware.
    Mem,
    /// An ICRC of zero, since the carrier has one of its own over all of the packet: InfiniBand, RoCE.
    #[default]
    Wire0,
    /// An ICRC of ours, [`icrc()`]: for files and for carriers without one.
    WireSw32,
}
