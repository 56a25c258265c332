//! The lists of addresses that an interface listens to, and how a change of them is seen.

use proto::Mac;

use crate::mad::{MacList, MacListQuery};

/// The most addresses of a list: its length has 16 bits on the wire.
const LIST_MAX: usize = 4096;

/// What a list is told by from another one (kernel opa_vnic_netdev.c, `opa_vnic_mac_send_event`): the
/// complement of a CRC-32 that begins with 0, over the addresses and then the number of their bytes,
/// little-endian.
#[must_use]
pub fn list_digest(macs: &[Mac]) -> u32 {
    // The hasher complements what it begins with and what it ends with.
    let mut crc = crc32fast::Hasher::new_with_initial(u32::MAX);
    let bytes = macs.as_flattened();
    crc.update(bytes);
    crc.update(&(bytes.len() as u32).to_le_bytes());
    crc.finalize()
}

/// One list.
pub struct Macs {
    macs: Vec<Mac>,
    digest: u32,
    gen_count: u16,
}

impl Default for Macs {
    fn default() -> Macs {
        Macs {
            macs: Vec::new(),
            digest: list_digest(&[]),
            gen_count: 0,
        }
    }
}

impl Macs {
    /// The list is this now. Gives whether it was another one. The order in which the host gives it means
    /// nothing.
    ///
    /// The kernel's driver advances its count, and that of the other list, also where nothing has changed.
    pub fn replace(&mut self, mut macs: Vec<Mac>) -> bool {
        macs.sort_unstable();
        macs.dedup();
        macs.truncate(LIST_MAX);
        let digest = list_digest(&macs);
        if digest == self.digest && macs == self.macs {
            return false;
        }
        self.macs = macs;
        self.digest = digest;
        self.gen_count = self.gen_count.wrapping_add(1);
        true
    }

    pub const fn gen_count(&self) -> u16 {
        self.gen_count
    }

    /// A page of it.
    pub fn page(&self, query: MacListQuery) -> MacList {
        let rest = self.macs.get(usize::from(query.start)..);
        let rest = rest.unwrap_or_default();
        MacList {
            start: query.start,
            total: self.macs.len() as u16,
            gen_count: self.gen_count,
            macs: rest[..rest.len().min(query.wanted())].to_vec(),
        }
    }
}
