//! RMPP, the transfer of answers longer than one datagram, sans-IO (IBA vol. 1, 13.6; kernel
//! drivers/infiniband/core/mad_rmpp.c where the standard leaves a choice), for subnet administration:
//! a segment has the headers of [`crate::mad::sa`] and 200 bytes of records.
//!
//! The kernel does this work for umad agents with RMPP version 1. [`Receiver`] serves carriers that deliver
//! single segments. [`Sender`] is the other side, for tests and a fuzz target.

#![cfg_attr(
    not(test),
    deny(clippy::cast_possible_truncation, clippy::cast_sign_loss)
)]

mod receiver;
mod sender;
#[cfg(test)]
mod tests;

use zerocopy::IntoBytes;

pub use receiver::{Receiver, Step};
pub use sender::Sender;

use crate::mad::sa::{DATA_LEN, HEADERS_LEN};
use crate::mad::{Header, MAD_LEN, SaHeader, method};

/// The only version.
pub const VERSION: u8 = 1;

/// Types of segments (IBA vol. 1, 13.6.2.1, table 124).
pub mod kind {
    /// Records.
    pub const DATA: u8 = 1;
    /// Acknowledgement: the last segment in order, and the last segment that may be sent.
    pub const ACK: u8 = 2;
    /// End of the transfer, for lack of resources.
    pub const STOP: u8 = 3;
    /// End of the transfer.
    pub const ABORT: u8 = 4;
}

/// Flags of segments.
pub mod flag {
    /// The RMPP header is in use.
    pub const ACTIVE: u8 = 1;
    /// The first segment.
    pub const FIRST: u8 = 2;
    /// The last segment.
    pub const LAST: u8 = 4;
}

/// RMPPStatus (IBA vol. 1, 13.6.2.2; kernel include/rdma/ib_mad.h).
pub mod status {
    /// No resources.
    pub const RESOURCES_EXHAUSTED: u8 = 1;
    /// The transfer takes too long.
    pub const TOTAL_TIME_TOO_LONG: u8 = 118;
    /// The payload length is impossible.
    pub const INCONSISTENT_LENGTH: u8 = 119;
    /// The segment number and the flag of the first segment contradict each other.
    pub const INCONSISTENT_FIRST: u8 = 120;
    /// Unknown type.
    pub const BAD_TYPE: u8 = 121;
    /// The new window ends before the acknowledged segment.
    pub const WINDOW_TOO_SMALL: u8 = 122;
    /// A segment is acknowledged that was not sent.
    pub const SEGMENT_TOO_BIG: u8 = 123;
    /// A status that the type must not have.
    pub const ILLEGAL_STATUS: u8 = 124;
    /// Unknown version.
    pub const UNSUPPORTED_VERSION: u8 = 125;
    /// No acknowledgement.
    pub const TOO_MANY_RETRIES: u8 = 126;
    /// Another reason.
    pub const UNSPECIFIED: u8 = 127;
}

/// Bytes of the header of subnet administration, which the payload length of a segment includes.
const SA_HEADER_LEN: u32 = 20;

/// The largest payload length of a segment.
const PAYLOAD_MAX: u32 = SA_HEADER_LEN + 200;
const _: () = assert!(DATA_LEN == 200);

/// A reply to a segment with these headers: same transaction, the method's response bit inverted.
fn reply(header: &Header, head: &SaHeader, kind: u8, status: u8, data: [u32; 2]) -> [u8; MAD_LEN] {
    let mut header = *header;
    header.method ^= method::RESPONSE;
    let mut head = *head;
    head.rmpp_version = VERSION;
    head.rmpp_type = kind;
    head.rmpp_flags = head.rmpp_flags & 0xf8 | flag::ACTIVE;
    head.rmpp_status = status;
    head.data1 = data[0].into();
    head.data2 = data[1].into();
    datagram(&header, &head, &[])
}

/// A datagram from its headers and at most 200 bytes of records; more are left out.
pub(crate) fn datagram(header: &Header, head: &SaHeader, records: &[u8]) -> [u8; MAD_LEN] {
    let parts = header.as_bytes().iter().chain(head.as_bytes());
    let mut bytes = [0; MAD_LEN];
    for (to, from) in bytes.iter_mut().zip(parts.chain(records)) {
        *to = *from;
    }
    bytes
}

const _: () = assert!(HEADERS_LEN == 36 + SA_HEADER_LEN as usize);
