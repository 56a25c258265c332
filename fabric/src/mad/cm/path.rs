//! The path in a message, and the messages that load an alternate path.

use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{bits, qpn};

/// The requested path in a ConnectRequest, 44 bytes (IBA vol. 1, 12.6.5, from "Primary Local Port LID"
/// on).
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Path {
    /// The sender's LID; 0xffff without one.
    pub local_lid: U16,
    /// The receiver's LID; 0xffff without one.
    pub remote_lid: U16,
    /// The sender's GID.
    pub local_gid: [u8; 16],
    /// The receiver's GID.
    pub remote_gid: [u8; 16],
    /// Flow label in the high 20 bits, packet rate in the low six. The six bits between are reserved;
    /// Linux does not send them as 0.
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
        /// 1 without a router on the path; Linux sets it if the hop limit is at most 1.
        subnet_local / set_subnet_local: sl & 0x08,
        /// Acknowledgement timeout of the receiver's queue pair, as a time code.
        ack_timeout / set_ack_timeout: timeout & 0xf8,
    }

    /// Flow label, 20 bits.
    pub const fn flow_label(&self) -> u32 {
        self.flow_and_rate.get() >> 12
    }

    /// Packet rate as in PathRecords; 0: the port's own rate.
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
    /// The sender's communication id.
    pub local_comm_id: U32,
    /// The receiver's communication id.
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
    /// The receiver's LID on the alternate path.
    pub remote_lid: U16,
    /// The sender's GID on the alternate path.
    pub local_gid: [u8; 16],
    /// The receiver's GID on the alternate path.
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
    /// Private data for the receiver.
    pub private_data: [u8; 168],
}

impl Lap {
    qpn! {
        /// The receiver's queue pair.
        remote_qpn / set_remote_qpn: qpn,
    }
    bits! {
        /// Maximum time for the receiver's answer, as a time code.
        remote_response_timeout / set_remote_response_timeout: response & 0xf8,
        /// Packet rate as in PathRecords.
        packet_rate / set_packet_rate: rate & 0x3f,
        /// The service level.
        service_level / set_service_level: sl & 0xf0,
        /// 1 without a router on the path.
        subnet_local / set_subnet_local: sl & 0x08,
        /// Acknowledgement timeout of the receiver's queue pair, as a time code.
        ack_timeout / set_ack_timeout: timeout & 0xf8,
    }
}

/// AlternatePathResponse (IBA vol. 1, 12.8.2).
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Apr {
    /// The sender's communication id.
    pub local_comm_id: U32,
    /// The receiver's communication id.
    pub remote_comm_id: U32,
    /// Valid bytes of [`Apr::info`].
    pub info_length: u8,
    /// 0 if the alternate path was loaded.
    pub status: u8,
    /// Sent as 0.
    pub reserved: U16,
    /// Additional information, depending on the status.
    pub info: [u8; 72],
    /// Private data for the receiver.
    pub private_data: [u8; 148],
}
