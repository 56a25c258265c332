//! Entries of the kernel's neighbour tables (kernel include/uapi/linux/neighbour.h).

use std::collections::BTreeSet;

use libc::{RTM_DELNEIGH, RTM_GETNEIGH, RTM_NEWNEIGH};

use crate::attributes::u32_of;
use crate::saved::{INDEX_AT, NEIGHBOUR_HEADER, NEIGHBOUR_STATE_AT};
use crate::transport::{Message, Raw};
use crate::{Error, Requests};

// `struct ndmsg`.
const FLAGS_AT: usize = 10;
const NTF_EXT_LEARNED: u8 = 0x10;

/// NUD_REACHABLE, NUD_STALE, NUD_DELAY and NUD_PROBE: the states of a resolved entry. An entry that is being resolved
/// holds packets.
const RESOLVED: u8 = 0x02 | 0x04 | 0x08 | 0x10;

impl Requests {
    /// Removes the neighbours of interfaces that the kernel has resolved. The kernel resolves them again for the next
    /// packets. Entries of administrators and of other programs stay.
    ///
    /// # Errors
    /// Errors of the socket; the first refusal, after all entries were tried.
    pub fn forget_neighbours(&mut self, of: &BTreeSet<u32>) -> Result<(), Error> {
        let query = Raw {
            kind: RTM_GETNEIGH,
            // Of all families and interfaces.
            payload: vec![0; NEIGHBOUR_HEADER],
        };
        let found = self.transport.dump("list neighbours", query, |message| {
            resolved(message, of).map(|payload| Raw {
                kind: RTM_DELNEIGH,
                payload: payload.to_vec(),
            })
        })?;
        let mut result = Ok(());
        for removal in found {
            let removed = self.transport.change("remove a neighbour", removal, 0);
            // The kernel may have removed it meanwhile.
            if !matches!(removed, Err(Error::NotFound { .. })) {
                result = result.and(removed);
            }
        }
        result
    }
}

/// The entry of a message, if an interface of `of` has resolved it.
fn resolved<'m>(message: &Message<'m>, of: &BTreeSet<u32>) -> Option<&'m [u8]> {
    let entry = message.payload;
    let is_resolved = message.kind == RTM_NEWNEIGH
        && entry.len() >= NEIGHBOUR_HEADER
        && u32_of(&entry[INDEX_AT..]).is_some_and(|ifindex| of.contains(&ifindex))
        && entry[NEIGHBOUR_STATE_AT] & RESOLVED != 0
        && entry[FLAGS_AT] & NTF_EXT_LEARNED == 0;
    is_resolved.then_some(entry)
}
