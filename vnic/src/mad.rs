//! Management datagrams of VNIC's own class: envelope and attributes, as agents and managers exchange
//! them (kernel drivers/infiniband/ulp/opa_vnic/opa_vnic_vema.c and opa_vnic_encap.h). Everything in
//! them is big-endian.
//!
//! On Omni-Path each has 2048 bytes. Here what an attribute does not use is left away at the end of it,
//! and both lengths are read.

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

/// Bytes of the header, the vendor's identifier included.
pub const HEADER_LEN: usize = size_of::<Header>();
/// The most bytes of a datagram.
pub const MAD_MAX: usize = 2048;
/// The most bytes of an attribute.
pub const DATA_MAX: usize = MAD_MAX - HEADER_LEN;
/// The base version of Omni-Path's management datagrams (kernel include/rdma/ib_mad.h).
pub const BASE_VERSION: u8 = 0x80;
/// The class, one of the second range of vendors' (OPA_MGMT_CLASS_INTEL_EMA).
pub const CLASS: u8 = 0x34;
/// Its version (OPA_EMA_CLASS_VERSION).
pub const CLASS_VERSION: u8 = 0x80;
/// The vendor's identifier.
pub const OUI: [u8; 3] = [0x00, 0x06, 0x6a];

/// Methods (IBA vol. 1, 13.4.5).
pub mod method {
    /// Get.
    pub const GET: u8 = 0x01;
    /// Set.
    pub const SET: u8 = 0x02;
    /// Send: an announcement to the group. Ours.
    pub const SEND: u8 = 0x03;
    /// Trap.
    pub const TRAP: u8 = 0x05;
    /// GetResp, which answers Set too.
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
    /// DeleteVesw, whose answer is a VeswPortInfo.
    pub const DELETE_VESW: u16 = 0x0015;
    /// VeswPortSummaryCounters: [`super::SummaryCounters`].
    pub const SUMMARY_COUNTERS: u16 = 0x0020;
    /// VeswPortErrorCounters: [`super::ErrorCounters`].
    pub const ERROR_COUNTERS: u16 = 0x0022;
    /// LidDirectory, ours: [`crate::attribute::LidDirectory`].
    pub const LID_DIRECTORY: u16 = 0x0030;
    /// NodeInfo, ours: [`crate::attribute::NodeInfo`].
    pub const NODE_INFO: u16 = 0x0031;
    /// ManagerInfo, ours: [`crate::attribute::ManagerInfo`].
    pub const MANAGER_INFO: u16 = 0x0032;
}

/// Statuses of an answer (kernel include/rdma/ib_mad.h).
pub mod status {
    /// Done.
    pub const OK: u16 = 0x0000;
    /// There is no such attribute, or not with this method.
    pub const UNSUPPORTED: u16 = 0x000c;
    /// A value of the attribute, or of its modifier, is not right; or the sender may not set it.
    pub const INVALID: u16 = 0x001c;
}

/// The first 40 bytes: the common header (IBA vol. 1, 13.4.3), RMPP, which is never active, and the
/// vendor's identifier (13.4.4.2).
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
    /// Nobody's; an answer repeats it.
    pub class_specific: U16,
    /// Chosen by who asks, repeated in the answer.
    pub transaction_id: U64,
    /// See [`attribute`].
    pub attribute_id: U16,
    /// Sent as 0; an answer repeats it.
    pub reserved: U16,
    /// The index of the virtual port in the lower 8 bits.
    pub modifier: U32,
    /// The header of RMPP: 0.
    pub rmpp: [u8; 12],
    /// Sent as 0; an answer repeats it.
    pub reserved2: u8,
    /// [`OUI`].
    pub oui: [u8; 3],
}

const _: () = assert!(HEADER_LEN == 40);

impl Header {
    /// A header of this class.
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

    /// The answer's header: all of the request's but method and status (kernel opa_vnic_vema.c,
    /// `vema_recv`).
    #[must_use]
    pub const fn response(&self, status: u16) -> Header {
        Header {
            method: method::GET_RESP,
            status: U16::new(status),
            ..*self
        }
    }

    /// The index of the virtual port that it is about (`vema_get_vport_num`).
    #[must_use]
    pub const fn vport(&self) -> u8 {
        self.modifier.get() as u8
    }

    /// Whether it asks an agent something.
    #[must_use]
    pub const fn is_request(&self) -> bool {
        matches!(self.method, method::GET | method::SET)
    }
}

/// Why a datagram, or an attribute in one, cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Malformed {
    /// Fewer bytes than the header, or more than [`MAD_MAX`].
    #[error("a management datagram has {HEADER_LEN} to {MAD_MAX} bytes, not {0}")]
    Length(usize),
    /// Another base version, class, class version or vendor.
    #[error("{field} is {value:#04x}, not that of VNIC management")]
    Foreign {
        /// Which of them.
        field: &'static str,
        /// What it is.
        value: u32,
    },
    /// The attribute ends too early.
    #[error("the attribute has {have} bytes, and needs {need}")]
    Short {
        /// Bytes that there are.
        have: usize,
        /// Bytes that it needs.
        need: usize,
    },
    /// A field has a value that it cannot have.
    #[error("{field} is {value:#x}, {why}")]
    Field {
        /// Its name.
        field: &'static str,
        /// Its value.
        value: u64,
        /// What is wrong with that.
        why: &'static str,
    },
    /// A text is no UTF-8, or has control characters.
    #[error("{0} is no text")]
    Text(&'static str),
}

/// A datagram of this class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mad<'a> {
    /// Its header.
    pub header: Header,
    /// The attribute, up to [`DATA_MAX`] bytes.
    pub data: &'a [u8],
}

impl<'a> Mad<'a> {
    /// Reads a datagram.
    ///
    /// # Errors
    /// [`Malformed::Length`] and [`Malformed::Foreign`].
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

    /// Its attribute.
    ///
    /// # Errors
    /// [`Malformed`], if it is none of these.
    pub fn attribute<A: Attribute>(&self) -> Result<A, Malformed> {
        A::decode(self.data)
    }
}

/// What a datagram carries. Several attributes may have one layout, so that none knows its number.
pub trait Attribute: Sized {
    /// Reads it from the beginning of `data`; what follows it means nothing.
    ///
    /// # Errors
    /// [`Malformed`].
    fn decode(data: &[u8]) -> Result<Self, Malformed>;

    /// Adds its bytes to `out`, at most [`DATA_MAX`] of them: a list that has more is cut.
    fn encode(&self, out: &mut Vec<u8>);
}

/// A datagram.
#[must_use]
pub fn write(header: &Header, attribute: &impl Attribute) -> Vec<u8> {
    let mut out = write_empty(header);
    attribute.encode(&mut out);
    debug_assert!(out.len() <= MAD_MAX);
    out
}

/// A datagram without an attribute: a Get of one that needs no question, or a refusal.
#[must_use]
pub fn write_empty(header: &Header) -> Vec<u8> {
    header.as_bytes().to_vec()
}
