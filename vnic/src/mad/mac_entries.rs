//! VeswPortMacEntries: a page of a virtual port's MAC table.

use super::bytes::Reader;
use super::{Attribute, DATA_MAX, Malformed, two_bytes};
use crate::mac_table::MacEntry;

/// Bytes before the entries.
const HEAD: usize = 8;
/// Bytes of an entry.
const ENTRY: usize = 16;
/// Maximum number of entries in a page.
pub const MAC_ENTRIES_PAGE: usize = (DATA_MAX - HEAD) / ENTRY;

const _: () = assert!(MAC_ENTRIES_PAGE == 125);

/// VeswPortMacEntries (0x0012) in Set and in every answer (kernel opa_vnic_encap.h, `struct
/// opa_veswport_mactable`). An all-zero address deletes an entry.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MacEntries {
    /// Index of the first entry in the table.
    pub offset: u16,
    /// Digest of the whole table with these entries, chosen by the manager.
    pub digest: u32,
    /// Entries, up to [`MAC_ENTRIES_PAGE`].
    pub entries: Vec<MacEntry>,
}

/// VeswPortMacEntries in Get.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MacEntriesQuery {
    /// Index of the first entry in the table.
    pub offset: u16,
    /// Number of entries.
    pub count: u16,
}

fn allowed_count(count: u16) -> Result<u16, Malformed> {
    if usize::from(count) > MAC_ENTRIES_PAGE {
        return Err(Malformed::Field {
            field: "num_entries",
            value: count.into(),
            why: "must be at most 125",
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
        out.extend(two_bytes(entries.len()));
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
