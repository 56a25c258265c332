//! VeswPortMacEntries: a page of a virtual port's MAC table.

use super::bytes::Reader;
use super::{Attribute, DATA_MAX, Malformed};
use crate::mac_table::MacEntry;

/// Bytes before the entries.
const HEAD: usize = 8;
/// Bytes of an entry.
const ENTRY: usize = 16;
/// The most entries of one page.
pub const MAC_ENTRIES_PAGE: usize = (DATA_MAX - HEAD) / ENTRY;

const _: () = assert!(MAC_ENTRIES_PAGE == 125);

/// VeswPortMacEntries (0x0012), as Set asks and as every answer has it (kernel opa_vnic_encap.h, `struct
/// opa_veswport_mactable`). An address of zeros deletes a place.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MacEntries {
    /// The place of the first one in the table.
    pub offset: u16,
    /// What the manager calls the whole table, once it has these.
    pub digest: u32,
    /// The entries, up to [`MAC_ENTRIES_PAGE`] of them.
    pub entries: Vec<MacEntry>,
}

/// VeswPortMacEntries as Get asks: how many entries from where.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MacEntriesQuery {
    /// The place of the first one in the table.
    pub offset: u16,
    /// How many.
    pub count: u16,
}

fn allowed_count(count: u16) -> Result<u16, Malformed> {
    if usize::from(count) > MAC_ENTRIES_PAGE {
        return Err(Malformed::Field {
            field: "num_entries",
            value: count.into(),
            why: "more than 125, which are all that fit",
        });
    }
    Ok(count)
}

impl Attribute for MacEntries {
    fn decode(data: &[u8]) -> Result<MacEntries, Malformed> {
        let mut r = Reader::new(data, HEAD)?;
        let offset = r.u16()?;
        let count = allowed_count(r.u16()?)?;
        let digest = r.u32()?;
        let mut r = Reader::new(&data[HEAD..], usize::from(count) * ENTRY)?;
        let mut entries = Vec::with_capacity(count.into());
        for _ in 0..count {
            entries.push(MacEntry {
                mac: r.mac()?,
                mask: r.mac()?,
                dlid_sd: r.u32()?,
            });
        }
        Ok(MacEntries {
            offset,
            digest,
            entries,
        })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let entries = &self.entries[..self.entries.len().min(MAC_ENTRIES_PAGE)];
        out.extend(self.offset.to_be_bytes());
        out.extend((entries.len() as u16).to_be_bytes());
        out.extend(self.digest.to_be_bytes());
        for entry in entries {
            out.extend(entry.mac);
            out.extend(entry.mask);
            out.extend(entry.dlid_sd.to_be_bytes());
        }
    }
}

impl Attribute for MacEntriesQuery {
    fn decode(data: &[u8]) -> Result<MacEntriesQuery, Malformed> {
        let mut r = Reader::new(data, 4)?;
        Ok(MacEntriesQuery {
            offset: r.u16()?,
            count: allowed_count(r.u16()?)?,
        })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.offset.to_be_bytes());
        out.extend(self.count.to_be_bytes());
        out.extend([0; 4]);
    }
}
