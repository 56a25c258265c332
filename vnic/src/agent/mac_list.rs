//! Unicast and multicast address lists of an interface, with change detection.

use proto::Mac;

use crate::mad::{MacList, MacListQuery};

/// Maximum number of addresses in a list. The length on the wire has 16 bits.
const LIST_MAX: usize = 4096;

/// Digest of an address list (kernel opa_vnic_netdev.c, `opa_vnic_mac_send_event`): the complement of a
/// CRC-32 with initial value 0 over the addresses, then the number of their bytes, little-endian.
#[must_use]
pub fn list_digest(macs: &[Mac]) -> u32 {
    // The hasher complements its initial value and its result.
    let mut crc = crc32fast::Hasher::new_with_initial(u32::MAX);
    let bytes = macs.as_flattened();
    crc.update(bytes);
    crc.update(&(bytes.len() as u32).to_le_bytes());
    crc.finalize()
}

/// An address list.
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
    /// Replaces the list; the order of `macs` has no meaning. Returns whether the list changed.
    ///
    /// The kernel's driver increments the change counts of both lists even if nothing changed.
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

    /// Returns a page of the list.
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
