//! Management datagrams (IBA vol. 1, chapter 13; include/rdma/ib_mad.h): common header, header of
//! subnet administration, names of classes, methods and attributes.
//!
//! A management datagram is the 256-byte payload of a UD SEND Only packet from QP1 to QP1.

#![cfg_attr(
    not(test),
    deny(clippy::cast_possible_truncation, clippy::cast_sign_loss)
)]

pub mod cm;
mod names;
pub mod sa;
pub mod smp;
#[cfg(test)]
mod tests;

use std::fmt;

use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub use names::{attribute_name, class_name, method_name, status_name};

/// Bytes of every management datagram (IBA vol. 1, 13.4.2).
pub const MAD_LEN: usize = 256;

/// The only base version (IBA vol. 1, 13.4.3).
pub const BASE_VERSION: u8 = 1;

/// Management classes (IBA vol. 1, 13.4.4, table 110).
pub mod class {
    /// Subnet management, LID routed. Belongs to QP0.
    pub const SUBN_LID_ROUTED: u8 = 0x01;
    /// Subnet administration.
    pub const SUBN_ADM: u8 = 0x03;
    /// Performance management.
    pub const PERF: u8 = 0x04;
    /// Baseboard management.
    pub const BM: u8 = 0x05;
    /// Device management.
    pub const DEV_MGMT: u8 = 0x06;
    /// Communication management.
    pub const COM_MGT: u8 = 0x07;
    /// SNMP tunnelling.
    pub const SNMP: u8 = 0x08;
    /// Subnet management, directed route. Belongs to QP0.
    pub const SUBN_DIRECTED_ROUTE: u8 = 0x81;
}

/// Methods (IBA vol. 1, 13.4.5, table 112, and 15.2.2 for subnet administration).
pub mod method {
    /// Get.
    pub const GET: u8 = 0x01;
    /// Set.
    pub const SET: u8 = 0x02;
    /// Send.
    pub const SEND: u8 = 0x03;
    /// Trap.
    pub const TRAP: u8 = 0x05;
    /// Report.
    pub const REPORT: u8 = 0x06;
    /// TrapRepress.
    pub const TRAP_REPRESS: u8 = 0x07;
    /// GetTable.
    pub const GET_TABLE: u8 = 0x12;
    /// GetTraceTable.
    pub const GET_TRACE_TABLE: u8 = 0x13;
    /// GetMulti.
    pub const GET_MULTI: u8 = 0x14;
    /// Delete.
    pub const DELETE: u8 = 0x15;
    /// Bit that marks the response to a request.
    pub const RESPONSE: u8 = 0x80;
    /// GetResp, which also answers Set.
    pub const GET_RESP: u8 = GET | RESPONSE;
    /// ReportResp.
    pub const REPORT_RESP: u8 = REPORT | RESPONSE;
    /// GetTableResp.
    pub const GET_TABLE_RESP: u8 = GET_TABLE | RESPONSE;
    /// GetMultiResp.
    pub const GET_MULTI_RESP: u8 = GET_MULTI | RESPONSE;
    /// DeleteResp.
    pub const DELETE_RESP: u8 = DELETE | RESPONSE;
}

/// The common header, 24 bytes (IBA vol. 1, 13.4.3).
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Header {
    /// [`BASE_VERSION`].
    pub base_version: u8,
    /// See [`class`].
    pub mgmt_class: u8,
    /// 2 for subnet administration and communication management, 1 for most others.
    pub class_version: u8,
    /// See [`method`].
    pub method: u8,
    /// 0 in requests; the high byte is specific to the class.
    pub status: U16,
    /// Specific to the class.
    pub class_specific: U16,
    /// Chosen by the requester, repeated in the response.
    pub transaction_id: U64,
    /// The attribute; see [`attribute_name`].
    pub attribute_id: U16,
    /// Sent as 0.
    pub reserved: U16,
    /// Qualifies the attribute.
    pub attribute_modifier: U32,
}

/// The RMPP header and the header of subnet administration, 32 bytes behind the common header (IBA
/// vol. 1, 13.6.2 and 15.2.1.1).
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct SaHeader {
    /// 1 when RMPP is active.
    pub rmpp_version: u8,
    /// 1 DATA, 2 ACK, 3 STOP, 4 ABORT.
    pub rmpp_type: u8,
    /// RRespTime in the high five bits; Active 1, First 2, Last 4.
    pub rmpp_flags: u8,
    /// RMPPStatus.
    pub rmpp_status: u8,
    /// Segment number.
    pub data1: U32,
    /// Payload length, or the last segment of the new window.
    pub data2: U32,
    /// The subnet manager's key.
    pub sm_key: U64,
    /// Bytes of a record divided by 8.
    pub attribute_offset: U16,
    /// Sent as 0.
    pub reserved: U16,
    /// Bit n set: component n of the record is valid.
    pub component_mask: U64,
}

const _: () = {
    assert!(size_of::<Header>() == 24);
    assert!(size_of::<SaHeader>() == 32);
};

/// Why a payload is not a management datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Malformed {
    /// Not [`MAD_LEN`] bytes.
    #[error("a management datagram has {MAD_LEN} bytes, not {0}")]
    Length(usize),
    /// Not [`BASE_VERSION`].
    #[error("unknown base version {0} of a management datagram")]
    BaseVersion(u8),
}

/// A management datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mad<'a> {
    /// The common header.
    pub header: Header,
    /// The [`MAD_LEN`] - 24 bytes behind it.
    pub data: &'a [u8; MAD_LEN - size_of::<Header>()],
}

impl<'a> Mad<'a> {
    /// Reads the payload of a packet to QP1.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn parse(payload: &'a [u8]) -> Result<Mad<'a>, Malformed> {
        let wrong = || Malformed::Length(payload.len());
        let (header, rest) = Header::read_from_prefix(payload).map_err(|_| wrong())?;
        let data = rest.try_into().map_err(|_| wrong())?;
        if header.base_version != BASE_VERSION {
            return Err(Malformed::BaseVersion(header.base_version));
        }
        Ok(Mad { header, data })
    }

    /// The datagram as on the wire.
    pub fn to_bytes(&self) -> [u8; MAD_LEN] {
        let mut bytes = [0; MAD_LEN];
        let (head, data) = bytes.split_at_mut(size_of::<Header>());
        head.copy_from_slice(self.header.as_bytes());
        data.copy_from_slice(self.data);
        bytes
    }

    /// The message of communication management; `None` for other classes and methods (all are Sends).
    pub fn communication_management(&self) -> Option<cm::Message<'a>> {
        let h = &self.header;
        if (h.mgmt_class, h.method) != (class::COM_MGT, method::SEND) {
            return None;
        }
        cm::Message::parse(h.attribute_id.get(), self.data)
    }

    /// The header of subnet administration and the record data behind it; `None` for other classes.
    pub fn subnet_administration(&self) -> Option<(SaHeader, &'a [u8])> {
        if self.header.mgmt_class != class::SUBN_ADM {
            return None;
        }
        SaHeader::read_from_prefix(self.data.as_slice()).ok()
    }
}

/// Formats like `CM ConnectRequest` or `SA Get PathRecord`, hexadecimal where there is no name,
/// followed by a status other than 0.
impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (class, attribute) = (self.mgmt_class, self.attribute_id.get());
        match class_name(class) {
            Some(name) => f.write_str(name)?,
            None => write!(f, "class {class:#04x}")?,
        }
        // All messages of communication management are Sends.
        if !(class == class::COM_MGT && self.method == method::SEND) {
            match method_name(self.method) {
                Some(name) => write!(f, " {name}")?,
                None => write!(f, " method {:#04x}", self.method)?,
            }
        }
        match attribute_name(class, attribute) {
            Some(name) => write!(f, " {name}")?,
            None => write!(f, " attribute {attribute:#06x}")?,
        }
        match self.status.get() {
            0 => Ok(()),
            status => match status_name(class, status) {
                Some(name) => write!(f, " status {status:#06x} ({name})"),
                None => write!(f, " status {status:#06x}"),
            },
        }
    }
}
