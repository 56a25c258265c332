//! The messages that end a connection.

use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::qpn;

/// DisconnectRequest (IBA vol. 1, 12.6.10).
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Dreq {
    /// The sender's communication id.
    pub local_comm_id: U32,
    /// The receiver's communication id.
    pub remote_comm_id: U32,
    /// See [`Dreq::remote_qpn`].
    pub qpn: [u8; 3],
    /// Sent as 0.
    pub reserved: u8,
    /// Private data for the receiver.
    pub private_data: [u8; 220],
}

impl Dreq {
    qpn! {
        /// The receiver's queue pair.
        remote_qpn / set_remote_qpn: qpn,
    }
}

/// DisconnectReply (IBA vol. 1, 12.6.11).
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Drep {
    /// The sender's communication id.
    pub local_comm_id: U32,
    /// The receiver's communication id.
    pub remote_comm_id: U32,
    /// Private data for the receiver.
    pub private_data: [u8; 224],
}
