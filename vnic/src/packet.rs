//! 16B packets: a header of 20 bytes, an Ethernet frame, and a trailer of padding, ICRC and tail
//! (`Documentation/infiniband/opa_vnic.rst` of Linux 6.1).
//!
//! A packet is a sequence of quad words of 64 bits, each little-endian. The frame has no frame check
//! sequence and begins in the middle of the third quad word.
//!
//! To send, create a [`Prefix`] for each flow, put the frame at offset [`HEADER_LEN`] of a buffer of
//! [`packet_len`] bytes, and call [`Prefix::wrap`]. To receive, call [`decode()`], which is independent of
//! the receiver, then [`admit()`].

#![cfg_attr(
    not(test),
    deny(clippy::cast_possible_truncation, clippy::cast_sign_loss)
)]

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

/// Contents of ICRC and tail. Only Omni-Path's hardware knows the ICRC of 16B packets: its polynomial and
/// the bytes that it covers are not public.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Profile {
    /// No ICRC, and a tail without LT: the format that the kernel's driver hands to its hardware.
    Mem,
    /// An ICRC of zero, for carriers whose own ICRC covers the packet: InfiniBand, RoCE.
    #[default]
    Wire0,
    /// The ICRC of ibtap, [`icrc()`]: for files and for carriers without an ICRC.
    WireSw32,
}
