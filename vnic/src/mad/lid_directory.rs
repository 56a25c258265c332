//! LidDirectory (0x0030, defined by ibtap): addresses of a switch's members, in pages.
//!
//! ```text
//!  0  start     u16   index of the page's first entry in the list; in the answer to Set, the number of
//!                     entries received without a gap, from the first one on
//!  2  total     u16   entries of the list
//!  4  count     u16   entries of the page; in Get, the number of requested entries
//!  6  reserved  u16
//!  8  digest    u32   digest of the list, chosen by the manager; not 0
//! 12  reserved  u32
//! 16  entries, 24 bytes each:
//!       0  LID        u32   24 bits are used
//!       4  reserved   u8
//!       5  QPN        u24   0: unknown
//!       8  GID        16
//! ```

use proto::Qpn;

use super::bytes::Reader;
use super::{Attribute, DATA_MAX, Malformed, two_bytes};
use crate::attribute::LidDirectory;
use crate::directory::NodeAddress;

/// Bytes before the entries.
const HEAD: usize = 16;
/// Bytes of an entry.
const ENTRY: usize = 24;
/// Maximum number of entries in a page.
pub const LID_DIRECTORY_PAGE: usize = (DATA_MAX - HEAD) / ENTRY;
/// Maximum number of members that an agent keeps for a switch.
pub const DIRECTORY_MAX: usize = 8192;

const _: () = assert!(LID_DIRECTORY_PAGE == 83);

/// LidDirectory in Get.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LidDirectoryQuery {
    /// Index of the first entry.
    pub start: u16,
    /// Number of entries; 0: only digest and length of the list.
    pub count: u16,
}

impl Attribute for LidDirectory {
    fn decode(data: &[u8]) -> Result<LidDirectory, Malformed> {
        let mut r = Reader::new(data, HEAD)?;
        let start = r.u16()?;
        let total = r.u16()?;
        let count = r.u16()?;
        r.skip::<2>()?;
        let digest = r.u32()?;
        let mut r = Reader::new(&data[HEAD..], usize::from(count) * ENTRY)?;
        let mut entries = Vec::with_capacity(count.into());
        for _ in 0..count {
            let lid = r.lid("LID")?;
            r.skip::<1>()?;
            let qpn = Qpn::from_bytes(r.array()?);
            let gid = r.gid()?;
            entries.push((lid, NodeAddress { gid, qpn }));
        }
        Ok(LidDirectory {
            start,
            total,
            digest,
            entries,
        })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let entries = &self.entries[..self.entries.len().min(LID_DIRECTORY_PAGE)];
        out.extend(self.start.to_be_bytes());
        out.extend(self.total.to_be_bytes());
        out.extend(two_bytes(entries.len()));
        out.extend([0; 2]);
        out.extend(self.digest.to_be_bytes());
        out.extend([0; 4]);
        for (lid, address) in entries {
            out.extend(lid.get().to_be_bytes());
            out.push(0);
            out.extend(address.qpn.to_bytes());
            out.extend(address.gid.0);
        }
    }
}

impl Attribute for LidDirectoryQuery {
    fn decode(data: &[u8]) -> Result<LidDirectoryQuery, Malformed> {
        let mut r = Reader::new(data, 6)?;
        let start = r.u16()?;
        r.skip::<2>()?;
        let count = r.u16()?;
        Ok(LidDirectoryQuery { start, count })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.start.to_be_bytes());
        out.extend([0; 2]);
        out.extend(self.count.to_be_bytes());
        out.extend([0; HEAD - 6]);
    }
}
