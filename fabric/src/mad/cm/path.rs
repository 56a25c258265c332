//! A path in a message, and the messages that load another one.

use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{bits, qpn};

/// The path that a ConnectRequest asks for, 44 bytes (IBA vol. 1, 12.6.5, from "Primary Local Port
/// LID" on).
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Path {
    /// The sender's LID; 0xffff where there is none.
    pub local_lid: U16,
    /// The receiver's LID; 0xffff where there is none.
    pub remote_lid: U16,
    /// The sender's GID.
    pub local_gid: [u8; 16],
    /// The receiver's GID.
    pub remote_gid: [u8; 16],
    /// Flow label in the high 20 bits, packet rate in the low six; the six between are reserved,
    /// which Linux does not send as 0.
    pub flow_and_rate: U32,
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Service level 0xf0, subnet local 0x08.
    pub sl: u8,
    /// Local ACK timeout 0xf8.
    pub timeout: u8,
}

impl Path {
    bits! {
        /// The service level.
        service_level / set_service_level: sl & 0xf0,
        /// 1 if no router is on the path: on Linux, if the hop limit is at most 1.
        subnet_local / set_subnet_local: sl & 0x08,
        /// How long the receiver's queue pair waits for an acknowledgement, a time code.
        ack_timeout / set_ack_timeout: timeout & 0xf8,
    }

    /// 20 bits.
    pub const fn flow_label(&self) -> u32 {
        self.flow_and_rate.get() >> 12
    }

    /// As in PathRecords; 0 is the port's own.
    pub const fn packet_rate(&self) -> u8 {
        self.flow_and_rate.to_bytes()[3] & 0x3f
    }
}

/// LoadAlternatePath (IBA vol. 1, 12.8.1).
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Lap {
    /// The sender's name of the connection.
    pub local_comm_id: U32,
    /// The receiver's name of it.
    pub remote_comm_id: U32,
    /// Sent as 0.
    pub reserved: U32,
    /// See [`Lap::remote_qpn`].
    pub qpn: [u8; 3],
    /// Remote CM response timeout 0xf8.
    pub response: u8,
    /// Sent as 0.
    pub reserved2: U32,
    /// The sender's LID on the alternate path.
    pub local_lid: U16,
    /// The receiver's LID on it.
    pub remote_lid: U16,
    /// The sender's GID on it.
    pub local_gid: [u8; 16],
    /// The receiver's GID on it.
    pub remote_gid: [u8; 16],
    /// Flow label in the high 20 bits.
    pub flow: [u8; 3],
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Packet rate 0x3f.
    pub rate: u8,
    /// Service level 0xf0, subnet local 0x08.
    pub sl: u8,
    /// Local ACK timeout 0xf8.
    pub timeout: u8,
    /// For the receiver.
    pub private_data: [u8; 168],
}

impl Lap {
    qpn! {
        /// The receiver's queue pair.
        remote_qpn / set_remote_qpn: qpn,
    }
    bits! {
        /// How long the receiver may take to answer, a time code.
        remote_response_timeout / set_remote_response_timeout: response & 0xf8,
        /// As in PathRecords.
        packet_rate / set_packet_rate: rate & 0x3f,
        /// The service level.
        service_level / set_service_level: sl & 0xf0,
        /// 1 if no router is on the path.
        subnet_local / set_subnet_local: sl & 0x08,
        /// How long the receiver's queue pair waits for an acknowledgement, a time code.
        ack_timeout / set_ack_timeout: timeout & 0xf8,
    }
}

/// AlternatePathResponse (IBA vol. 1, 12.8.2).
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Apr {
    /// The sender's name of the connection.
    pub local_comm_id: U32,
    /// The receiver's name of it.
    pub remote_comm_id: U32,
    /// Bytes of [`Apr::info`] that count.
    pub info_length: u8,
    /// 0 if the path is loaded.
    pub status: u8,
    /// Sent as 0.
    pub reserved: U16,
    /// Depends on the status.
    pub info: [u8; 72],
    /// For the receiver.
    pub private_data: [u8; 148],
}
