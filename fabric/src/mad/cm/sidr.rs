//! Messages that find the datagram queue pair of a service (IBA vol. 1, 12.11).

use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::qpn;

/// ServiceIDResReq (IBA vol. 1, 12.11.1.1).
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct SidrReq {
    /// The request id, chosen by the sender.
    pub request_id: U32,
    /// The partition.
    pub pkey: U16,
    /// Sent as 0.
    pub reserved: U16,
    /// Service id of the listener.
    pub service_id: U64,
    /// Private data for the listener.
    pub private_data: [u8; 216],
}

/// ServiceIDResReqResp (IBA vol. 1, 12.11.1.2).
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct SidrRep {
    /// The request id of the request.
    pub request_id: U32,
    /// Status: 0 the queue pair is valid, 1 service id not supported, 2 rejected, 3 no queue pair, 4
    /// redirected, 5 version not supported.
    pub status: u8,
    /// Valid bytes of [`SidrRep::info`].
    pub info_length: u8,
    /// For enhanced connection establishment; 0.
    pub vendor_id_high: U16,
    /// See [`SidrRep::local_qpn`].
    pub qpn: [u8; 3],
    /// For enhanced connection establishment; 0.
    pub vendor_id_low: u8,
    /// The service id of the request.
    pub service_id: U64,
    /// The queue pair's Q_Key.
    pub qkey: U32,
    /// Additional information, depending on the status.
    pub info: [u8; 72],
    /// Private data for the requester.
    pub private_data: [u8; 136],
}

impl SidrRep {
    /// [`SidrRep::status`]: the queue pair is valid.
    pub const VALID: u8 = 0;
    /// The service id is unknown.
    pub const UNSUPPORTED: u8 = 1;
    /// The service rejects the request.
    pub const REJECTED: u8 = 2;
    /// There is no queue pair.
    pub const NO_QP: u8 = 3;
    /// Another port has the service; [`SidrRep::info`] describes it.
    pub const REDIRECTED: u8 = 4;
    /// The class version is not supported.
    pub const UNSUPPORTED_VERSION: u8 = 5;

    qpn! {
        /// The queue pair of the service.
        local_qpn / set_local_qpn: qpn,
    }
}
