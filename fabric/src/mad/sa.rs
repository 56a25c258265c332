//! Subnet administration (IBA vol. 1, chapter 15): attributes, and the records that requests and answers
//! carry behind [`SaHeader`].
//!
//! A record type has host types and a checked shape: `parse` reads the bytes of the wire (big-endian,
//! packed) and returns `None` if there are too few; `write` returns exactly [`Record::LEN`] bytes,
//! reserved fields zero. Constants of a record's module are bits of the component mask: bit *n* says
//! that the field with number *n* is valid.

pub mod class_port_info;
mod codes;
mod fields;
pub mod inform_info;
pub mod mc_member;
pub mod node;
mod notice;
pub mod path;
pub mod port_info;
pub mod service;
#[cfg(test)]
mod tests;

pub use class_port_info::ClassPortInfo;
pub use codes::{Rate, Selected, Selector, packet_lifetime};
pub use inform_info::{InformInfo, InformInfoRecord};
pub use mc_member::{JoinState, McMemberRecord};
pub use node::{NodeRecord, NodeType};
pub use notice::{Notice, trap};
pub use path::PathRecord;
pub use port_info::{PortInfo, PortInfoRecord};
pub use service::ServiceRecord;

use super::{Header, MAD_LEN, SaHeader};

/// The class version of subnet administration (IBA vol. 1, 15.2.1.1).
pub const CLASS_VERSION: u8 = 2;

/// Bytes of a datagram before the records: common header, RMPP header, header of subnet administration.
pub const HEADERS_LEN: usize = size_of::<Header>() + size_of::<SaHeader>();

/// Bytes of records in one datagram.
pub const DATA_LEN: usize = MAD_LEN - HEADERS_LEN;

/// ClassPortInfo.
pub const CLASS_PORT_INFO: u16 = 0x01;
/// Notice.
pub const NOTICE: u16 = 0x02;
/// InformInfo.
pub const INFORM_INFO: u16 = 0x03;
/// NodeRecord.
pub const NODE_RECORD: u16 = 0x11;
/// PortInfoRecord.
pub const PORT_INFO_RECORD: u16 = 0x12;
/// ServiceRecord.
pub const SERVICE_RECORD: u16 = 0x31;
/// PathRecord.
pub const PATH_RECORD: u16 = 0x35;
/// MCMemberRecord.
pub const MC_MEMBER_RECORD: u16 = 0x38;
/// InformInfoRecord.
pub const INFORM_INFO_RECORD: u16 = 0xf3;

/// Statuses of subnet administration (IBA vol. 1, 13.4.7 and 15.2.4); [`super::status_name`] has all
/// names.
pub mod status {
    /// The SA is busy: the request may be repeated. Common part.
    pub const BUSY: u16 = 0x0001;
    /// No resources.
    pub const NO_RESOURCES: u16 = 0x0100;
    /// The request is invalid.
    pub const REQ_INVALID: u16 = 0x0200;
    /// No records.
    pub const NO_RECORDS: u16 = 0x0300;
    /// More than one record for a Get.
    pub const TOO_MANY_RECORDS: u16 = 0x0400;
    /// The GID is not of this subnet.
    pub const INVALID_GID: u16 = 0x0500;
    /// The component mask lacks a bit.
    pub const INSUF_COMPS: u16 = 0x0600;
    /// The request is denied.
    pub const DENIED: u16 = 0x0700;
}

/// A record of one attribute.
pub trait Record: Sized {
    /// The attribute.
    const ATTRIBUTE: u16;
    /// Bytes of the record, without the padding of tables.
    const LEN: usize;

    /// Reads the first [`Self::LEN`] bytes; `None` if there are fewer. Reserved fields are ignored.
    fn parse(bytes: &[u8]) -> Option<Self>;

    /// Appends the record, [`Self::LEN`] bytes.
    fn append(&self, to: &mut Vec<u8>);
}

/// Implements [`Record`] by `parse` and `write`.
macro_rules! record {
    ($record:ident, $attribute:expr) => {
        impl $crate::mad::sa::Record for $record {
            const ATTRIBUTE: u16 = $attribute;
            const LEN: usize = $record::LEN;

            fn parse(bytes: &[u8]) -> Option<$record> {
                $record::parse(bytes)
            }

            fn append(&self, to: &mut Vec<u8>) {
                to.extend_from_slice(&self.write());
            }
        }
    };
}
use record;
