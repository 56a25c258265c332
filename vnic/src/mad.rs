//! Management datagrams (MADs) of the VNIC class: header and attributes (kernel
//! drivers/infiniband/ulp/opa_vnic/opa_vnic_vema.c and opa_vnic_encap.h). All fields are big-endian.
//!
//! On Omni-Path every datagram has 2048 bytes. ibtap omits the unused end of an attribute, and accepts both
//! lengths.

#![cfg_attr(
    not(test),
    deny(clippy::cast_possible_truncation, clippy::cast_sign_loss)
)]

mod bytes;
mod class_port_info;
mod counters;
mod lid_directory;
mod mac_entries;
mod mac_list;
mod manager_info;
mod names;
mod node_info;
mod notice;
#[cfg(test)]
mod tests;
mod vesw_port_info;

use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub use class_port_info::ClassPortInfo;
pub use counters::{ErrorCounters, SummaryCounters};
pub use lid_directory::{DIRECTORY_MAX, LID_DIRECTORY_PAGE, LidDirectoryQuery};
pub use mac_entries::{MAC_ENTRIES_PAGE, MacEntries, MacEntriesQuery};
pub use mac_list::{MAC_LIST_PAGE, MacList, MacListQuery};
pub use names::{attribute_name, method_name, status_name};
pub use node_info::{DESCRIPTION_MAX, NODE_PORTS_MAX, NODE_PORTS_PAGE};
pub use notice::{Notice, TrapKind};

/// Bytes of the header, including the vendor's OUI.
pub const HEADER_LEN: usize = size_of::<Header>();
/// Maximum number of bytes in a datagram.
pub const MAD_MAX: usize = 2048;
/// Maximum number of bytes in an attribute.
pub const DATA_MAX: usize = MAD_MAX - HEADER_LEN;
/// Base version of Omni-Path's management datagrams (kernel include/rdma/ib_mad.h).
pub const BASE_VERSION: u8 = 0x80;
/// Management class, in the second vendor range (OPA_MGMT_CLASS_INTEL_EMA).
pub const CLASS: u8 = 0x34;
/// Class version (OPA_EMA_CLASS_VERSION).
pub const CLASS_VERSION: u8 = 0x80;
/// OUI of the vendor.
pub const OUI: [u8; 3] = [0x00, 0x06, 0x6a];

/// Methods (IBA vol. 1, 13.4.5).
pub mod method {
    /// Get.
    pub const GET: u8 = 0x01;
    /// Set.
    pub const SET: u8 = 0x02;
    /// Send: an announcement to the group. Defined by ibtap.
    pub const SEND: u8 = 0x03;
    /// Trap.
    pub const TRAP: u8 = 0x05;
    /// GetResp: the answer to Get and Set.
    pub const GET_RESP: u8 = 0x81;
}

/// Attributes.
pub mod attribute {
    /// ClassPortInfo: [`super::ClassPortInfo`].
    pub const CLASS_PORT_INFO: u16 = 0x0001;
    /// Notice, in traps: [`super::Notice`].
    pub const NOTICE: u16 = 0x0002;
    /// VeswPortInfo: [`crate::attribute::VeswPortInfo`].
    pub const VESW_PORT_INFO: u16 = 0x0011;
    /// VeswPortMacEntries: [`super::MacEntries`].
    pub const VESW_MAC_ENTRIES: u16 = 0x0012;
    /// IfaceUcastMacs: [`super::MacList`].
    pub const IFACE_UCAST_MACS: u16 = 0x0013;
    /// IfaceMcastMacs: [`super::MacList`].
    pub const IFACE_MCAST_MACS: u16 = 0x0014;
    /// DeleteVesw; its answer is a VeswPortInfo.
    pub const DELETE_VESW: u16 = 0x0015;
    /// VeswPortSummaryCounters: [`super::SummaryCounters`].
    pub const SUMMARY_COUNTERS: u16 = 0x0020;
    /// VeswPortErrorCounters: [`super::ErrorCounters`].
    pub const ERROR_COUNTERS: u16 = 0x0022;
    /// LidDirectory, defined by ibtap: [`crate::attribute::LidDirectory`].
    pub const LID_DIRECTORY: u16 = 0x0030;
    /// NodeInfo, defined by ibtap: [`crate::attribute::NodeInfo`].
    pub const NODE_INFO: u16 = 0x0031;
    /// ManagerInfo, defined by ibtap: [`crate::attribute::ManagerInfo`].
    pub const MANAGER_INFO: u16 = 0x0032;
}

/// Status codes of an answer (kernel include/rdma/ib_mad.h).
pub mod status {
    /// Success.
    pub const OK: u16 = 0x0000;
    /// Unsupported attribute, or unsupported method for it.
    pub const UNSUPPORTED: u16 = 0x000c;
    /// Invalid value of the attribute or its modifier, or a sender without permission.
    pub const INVALID: u16 = 0x001c;
}

/// The first 40 bytes: common header (IBA vol. 1, 13.4.3), RMPP header (never active) and the vendor's OUI
/// (13.4.4.2).
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Header {
    /// [`BASE_VERSION`].
    pub base_version: u8,
    /// [`CLASS`].
    pub class: u8,
    /// [`CLASS_VERSION`].
    pub class_version: u8,
    /// See [`method`].
    pub method: u8,
    /// See [`status`]; 0 in requests.
    pub status: U16,
    /// Unused; an answer repeats it.
    pub class_specific: U16,
    /// Chosen by the requester; an answer repeats it.
    pub transaction_id: U64,
    /// See [`attribute`].
    pub attribute_id: U16,
    /// Sent as 0; an answer repeats it.
    pub reserved: U16,
    /// Index of the virtual port in the lower 8 bits.
    pub modifier: U32,
    /// RMPP header: 0.
    pub rmpp: [u8; 12],
    /// Sent as 0; an answer repeats it.
    pub reserved2: u8,
    /// [`OUI`].
    pub oui: [u8; 3],
}

const _: () = assert!(HEADER_LEN == 40);

impl Header {
    /// Creates a header of this class.
    #[must_use]
    pub const fn new(method: u8, attribute_id: u16, modifier: u32, transaction_id: u64) -> Header {
        Header {
            base_version: BASE_VERSION,
            class: CLASS,
            class_version: CLASS_VERSION,
            method,
            status: U16::ZERO,
            class_specific: U16::ZERO,
            transaction_id: U64::new(transaction_id),
            attribute_id: U16::new(attribute_id),
            reserved: U16::ZERO,
            modifier: U32::new(modifier),
            rmpp: [0; 12],
            reserved2: 0,
            oui: OUI,
        }
    }

    /// Returns the header of the answer: the request's header with another method and status (kernel
    /// opa_vnic_vema.c, `vema_recv`).
    #[must_use]
    pub const fn response(&self, status: u16) -> Header {
        Header {
            method: method::GET_RESP,
            status: U16::new(status),
            ..*self
        }
    }

    /// Index of the virtual port (`vema_get_vport_num`).
    #[must_use]
    pub const fn vport(&self) -> u8 {
        (self.modifier.get() & 0xff) as u8
    }

    /// Whether the datagram is a request to an agent.
    #[must_use]
    pub const fn is_request(&self) -> bool {
        matches!(self.method, method::GET | method::SET)
    }
}

/// Reason why a datagram or its attribute cannot be parsed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Malformed {
    /// Fewer bytes than the header, or more than [`MAD_MAX`].
    #[error("management datagram has {0} bytes, must have {HEADER_LEN} to {MAD_MAX}")]
    Length(usize),
    /// Another base version, class, class version or vendor.
    #[error("{field} is {value:#04x}, not the value of VNIC management")]
    Foreign {
        /// Name of the field.
        field: &'static str,
        /// Value of the field.
        value: u32,
    },
    /// The attribute is too short.
    #[error("attribute has {have} bytes, must have at least {need}")]
    Short {
        /// Bytes present.
        have: usize,
        /// Bytes required.
        need: usize,
    },
    /// Invalid value of a field.
    #[error("{field} is {value:#x}, {why}")]
    Field {
        /// Name of the field.
        field: &'static str,
        /// Value of the field.
        value: u64,
        /// Reason.
        why: &'static str,
    },
    /// A text is not UTF-8, or has control characters.
    #[error("{0} is not valid text")]
    Text(&'static str),
}

/// A datagram of this class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mad<'a> {
    /// Header.
    pub header: Header,
    /// The attribute, up to [`DATA_MAX`] bytes.
    pub data: &'a [u8],
}

impl<'a> Mad<'a> {
    /// Parses a datagram.
    pub fn parse(bytes: &'a [u8]) -> Result<Mad<'a>, Malformed> {
        let wrong = Malformed::Length(bytes.len());
        if bytes.len() > MAD_MAX {
            return Err(wrong);
        }
        let (header, data) = Header::read_from_prefix(bytes).map_err(|_| wrong)?;
        let ours = [
            ("base version", header.base_version, BASE_VERSION),
            ("management class", header.class, CLASS),
            ("class version", header.class_version, CLASS_VERSION),
        ];
        for (field, is, should) in ours {
            if is != should {
                let value = u32::from(is);
                return Err(Malformed::Foreign { field, value });
            }
        }
        if header.oui != OUI {
            let [a, b, c] = header.oui;
            return Err(Malformed::Foreign {
                field: "vendor",
                value: u32::from_be_bytes([0, a, b, c]),
            });
        }
        Ok(Mad { header, data })
    }

    /// Decodes the attribute.
    ///
    /// # Errors
    /// [`Malformed`], if the data is not a valid `A`.
    pub fn attribute<A: Attribute>(&self) -> Result<A, Malformed> {
        A::decode(self.data)
    }
}

/// Contents of a datagram. Several attribute ids may have the same layout, so the type has no id.
pub trait Attribute: Sized {
    /// Decodes the attribute from the beginning of `data`; ignores further bytes.
    fn decode(data: &[u8]) -> Result<Self, Malformed>;

    /// Appends the encoded attribute to `out`, at most [`DATA_MAX`] bytes. Longer lists are cut.
    fn encode(&self, out: &mut Vec<u8>);
}

/// A length, offset or number of entries of up to 65535 in two bytes.
pub(crate) fn two_bytes(number: usize) -> [u8; 2] {
    u16::try_from(number).unwrap_or(u16::MAX).to_be_bytes()
}

/// Encodes a datagram.
#[must_use]
pub fn write(header: &Header, attribute: &impl Attribute) -> Vec<u8> {
    let mut out = write_empty(header);
    attribute.encode(&mut out);
    debug_assert!(out.len() <= MAD_MAX);
    out
}

/// Encodes a datagram without an attribute: a Get without a query, or a refusal.
#[must_use]
pub fn write_empty(header: &Header) -> Vec<u8> {
    header.as_bytes().to_vec()
}
