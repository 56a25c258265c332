//! Requests to agents.

use proto::{Gid, Mac};
use vnic::Lid;
use vnic::attribute::{LidDirectory, VeswPortInfo};
use vnic::directory::NodeAddress;
use vnic::mac_table::MacEntry;
use vnic::mad::{
    self, ClassPortInfo, Header, LidDirectoryQuery, MacEntries, MacEntriesQuery, MacListQuery,
    attribute, method,
};

use super::tables::{PAGE_ENTRIES, Page};
use crate::seam::{Endpoint, Inquiry};

/// The trap LID that enables traps. A manager has no LID on a fabric without LIDs, and 0 disables traps.
pub(super) const TRAP_LID: u32 = 1;

/// Which list of addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum List {
    Unicast,
    Multicast,
}

/// Which counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CounterKind {
    Summary,
    Errors,
}

/// A request to an agent, or about one of its virtual ports, whose index comes first.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Request {
    /// First virtual port to list.
    NodeInfo(u8),
    GetClassPortInfo,
    SetTraps(ClassPortInfo, Endpoint),
    GetInfo(u8),
    SetInfo(u8, Box<VeswPortInfo>),
    Delete(u8),
    GetDirectory(u8),
    SetDirectory(u8, LidDirectory),
    /// First place of the table to read.
    GetTable(u8, u16),
    /// Places to set, and the digest of the table.
    SetTable(u8, Page, u32),
    /// First entry of the list to read.
    GetList(u8, List, u16),
    GetCounters(u8, CounterKind, Inquiry),
}

impl Request {
    pub(super) const fn attribute(&self) -> u16 {
        match self {
            Request::NodeInfo(_) => attribute::NODE_INFO,
            Request::GetClassPortInfo | Request::SetTraps(..) => attribute::CLASS_PORT_INFO,
            Request::GetInfo(_) | Request::SetInfo(..) => attribute::VESW_PORT_INFO,
            Request::Delete(_) => attribute::DELETE_VESW,
            Request::GetDirectory(_) | Request::SetDirectory(..) => attribute::LID_DIRECTORY,
            Request::GetTable(..) | Request::SetTable(..) => attribute::VESW_MAC_ENTRIES,
            Request::GetList(_, List::Unicast, _) => attribute::IFACE_UCAST_MACS,
            Request::GetList(_, List::Multicast, _) => attribute::IFACE_MCAST_MACS,
            Request::GetCounters(_, CounterKind::Summary, _) => attribute::SUMMARY_COUNTERS,
            Request::GetCounters(_, CounterKind::Errors, _) => attribute::ERROR_COUNTERS,
        }
    }

    /// The virtual port of the request.
    pub(super) const fn index(&self) -> Option<u8> {
        Some(match self {
            Request::NodeInfo(_) | Request::GetClassPortInfo | Request::SetTraps(..) => {
                return None;
            }
            Request::GetInfo(index)
            | Request::SetInfo(index, _)
            | Request::Delete(index)
            | Request::GetDirectory(index)
            | Request::SetDirectory(index, _)
            | Request::GetTable(index, _)
            | Request::SetTable(index, ..)
            | Request::GetList(index, ..)
            | Request::GetCounters(index, ..) => *index,
        })
    }

    pub(super) fn modifier(&self) -> u32 {
        match self {
            Request::NodeInfo(first) => (*first).into(),
            _ => self.index().unwrap_or_default().into(),
        }
    }

    /// Whether the request is a Set.
    pub(super) const fn is_set(&self) -> bool {
        matches!(
            self,
            Request::SetTraps(..)
                | Request::SetInfo(..)
                | Request::Delete(_)
                | Request::SetDirectory(..)
                | Request::SetTable(..)
        )
    }

    /// Encodes the whole MAD.
    pub(super) fn encode(&self, transaction: u64) -> Vec<u8> {
        let method = if self.is_set() {
            method::SET
        } else {
            method::GET
        };
        let header = Header::new(method, self.attribute(), self.modifier(), transaction);
        match self {
            Request::SetTraps(info, to) => {
                mad::write(&header, &info.with_trap(to.gid, to.qpn, TRAP_LID))
            }
            Request::SetInfo(_, info) => mad::write(&header, &**info),
            Request::GetDirectory(_) => mad::write(&header, &LidDirectoryQuery::default()),
            Request::SetDirectory(_, page) => mad::write(&header, page),
            Request::GetTable(_, offset) => {
                // The last page is shorter.
                let rest = vnic::mac_table::MAC_TABLE_ENTRIES.saturating_sub((*offset).into());
                let query = MacEntriesQuery {
                    offset: *offset,
                    count: PAGE_ENTRIES.min(rest) as u16,
                };
                mad::write(&header, &query)
            }
            Request::SetTable(_, page, digest) => mad::write(&header, &entries(page, *digest)),
            Request::GetList(_, _, start) => mad::write(
                &header,
                &MacListQuery {
                    start: *start,
                    count: 0,
                },
            ),
            Request::NodeInfo(_)
            | Request::GetClassPortInfo
            | Request::GetInfo(_)
            | Request::Delete(_)
            | Request::GetCounters(..) => mad::write_empty(&header),
        }
    }
}

/// Converts a page to its attribute.
fn entries(page: &Page, digest: u32) -> MacEntries {
    let entry = |entry: &Option<(Mac, u32)>| match entry {
        Some((mac, dlid_sd)) => MacEntry {
            mac: *mac,
            mask: [0xff; 6],
            dlid_sd: *dlid_sd,
        },
        None => MacEntry::default(),
    };
    MacEntries {
        offset: page.offset,
        digest,
        entries: page.entries.iter().map(entry).collect(),
    }
}

/// Converts an attribute to a page.
pub(super) fn page(entries: &MacEntries) -> Page {
    let entry = |entry: &MacEntry| (!entry.is_empty()).then_some((entry.mac, entry.dlid_sd));
    Page {
        offset: entries.offset,
        entries: entries.entries.iter().map(entry).collect(),
    }
}

/// A directory entry.
pub(super) const fn place(lid: Lid, gid: Gid, qpn: proto::Qpn) -> (Lid, NodeAddress) {
    (lid, NodeAddress { gid, qpn })
}
