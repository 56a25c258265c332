//! Where the members of a switch are, as it comes page by page.

use std::collections::BTreeMap;
use std::sync::Arc;

use proto::Gid;

use super::Invalid;
use crate::Lid;
use crate::attribute::LidDirectory;
use crate::directory::{Directory, NodeAddress};
use crate::mad::{DIRECTORY_MAX, LID_DIRECTORY_PAGE, LidDirectoryQuery};

/// The directory in force, and the one that is coming.
#[derive(Default)]
pub struct Pages {
    complete: Arc<Directory>,
    digest: u32,
    coming: Option<Coming>,
}

struct Coming {
    digest: u32,
    total: u16,
    /// By their places in the list.
    entries: BTreeMap<u16, (Lid, NodeAddress)>,
}

impl Pages {
    /// Takes a page; gives the directory if that is the last one that was missing. A page of another
    /// list than the last one began begins it anew, and one of the list in force changes nothing.
    pub fn take(&mut self, page: &LidDirectory) -> Result<Option<Arc<Directory>>, Invalid> {
        check(page)?;
        if page.digest == self.digest {
            self.coming = None;
            return Ok(None);
        }
        let same = |c: &Coming| (c.digest, c.total) == (page.digest, page.total);
        let mut coming = match self.coming.take().filter(same) {
            Some(coming) => coming,
            None => Coming {
                digest: page.digest,
                total: page.total,
                entries: BTreeMap::new(),
            },
        };
        coming
            .entries
            .extend((page.start..).zip(page.entries.iter().copied()));
        if coming.entries.len() < usize::from(coming.total) {
            self.coming = Some(coming);
            return Ok(None);
        }
        let directory = Directory {
            nodes: coming.entries.into_values().collect(),
            closed: true,
        };
        if directory.nodes.len() < usize::from(coming.total) {
            return Err(Invalid::new("LID", "twice", "not one member's"));
        }
        self.complete = Arc::new(directory);
        self.digest = coming.digest;
        Ok(Some(Arc::clone(&self.complete)))
    }

    /// How much of the list of this page there is, from its beginning on.
    pub fn progress(&self, page: &LidDirectory) -> LidDirectory {
        let have = match &self.coming {
            Some(coming) if coming.digest == page.digest => {
                let in_order = coming.entries.keys().zip(0..);
                in_order.take_while(|(at, n)| *at == n).count() as u16
            }
            _ if page.digest == self.digest => page.total,
            _ => 0,
        };
        LidDirectory {
            start: have,
            total: page.total,
            digest: page.digest,
            entries: Vec::new(),
        }
    }

    /// A page of the directory in force, in the order of LIDs.
    pub fn page(&self, query: LidDirectoryQuery) -> LidDirectory {
        let nodes = &self.complete.nodes;
        let count = usize::from(query.count).min(LID_DIRECTORY_PAGE);
        let page = nodes.iter().skip(query.start.into()).take(count);
        LidDirectory {
            start: query.start,
            total: nodes.len() as u16,
            digest: self.digest,
            entries: page.map(|(lid, address)| (*lid, *address)).collect(),
        }
    }
}

fn check(page: &LidDirectory) -> Result<(), Invalid> {
    if page.digest == 0 {
        return Err(Invalid::new("digest", 0, "which stands for no directory"));
    }
    if usize::from(page.total) > DIRECTORY_MAX {
        let why = format!("more than {DIRECTORY_MAX}");
        return Err(Invalid::new("total", page.total, why));
    }
    let end = usize::from(page.start) + page.entries.len();
    if end > page.total.into() {
        return Err(Invalid::new(
            "count",
            page.entries.len(),
            "beyond the total",
        ));
    }
    for (lid, address) in &page.entries {
        if !lid.is_unicast() {
            return Err(Invalid::new("LID", lid, "no unicast LID"));
        }
        if address.gid == Gid::UNSPECIFIED || address.gid.is_multicast() {
            return Err(Invalid::new("GID", address.gid, "no port's"));
        }
    }
    Ok(())
}
