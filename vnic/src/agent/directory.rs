//! LID directory of a switch, received page by page.

use std::collections::BTreeMap;
use std::sync::Arc;

use proto::Gid;

use super::Invalid;
use super::validate::require;
use crate::Lid;
use crate::attribute::LidDirectory;
use crate::directory::{Directory, NodeAddress};
use crate::mad::{DIRECTORY_MAX, LID_DIRECTORY_PAGE, LidDirectoryQuery};

/// The directory in force and the one being received.
#[derive(Default)]
pub struct Pages {
    complete: Arc<Directory>,
    digest: u32,
    coming: Option<Coming>,
}

struct Coming {
    digest: u32,
    total: u16,
    /// By index in the list.
    entries: BTreeMap<u16, (Lid, NodeAddress)>,
}

impl Pages {
    /// Whether no directory is in force, and none is being received.
    pub const fn is_empty(&self) -> bool {
        self.digest == 0 && self.coming.is_none()
    }

    /// Takes a page. Returns the directory if this page completes it. A page of another list, or of the
    /// directory in force, discards the incomplete list.
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
        let unique = directory.nodes.len() == usize::from(coming.total);
        require(unique, "LID", "duplicate", "must be unique")?;
        self.complete = Arc::new(directory);
        self.digest = coming.digest;
        Ok(Some(Arc::clone(&self.complete)))
    }

    /// Answer to a Set: the number of entries received without a gap, from the first one on.
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

    /// A page of the directory in force, ordered by LID.
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
    let (total, count) = (usize::from(page.total), page.entries.len());
    require(page.digest != 0, "digest", 0, "must not be 0")?;
    let why = format!("must be at most {DIRECTORY_MAX}");
    require(total <= DIRECTORY_MAX, "total", total, why)?;
    let fits = usize::from(page.start) + count <= total;
    require(fits, "count", count, "page exceeds the total")?;
    for (lid, NodeAddress { gid, .. }) in &page.entries {
        require(lid.is_unicast(), "LID", lid, "not a unicast LID")?;
        let is_port = *gid != Gid::UNSPECIFIED && !gid.is_multicast();
        require(is_port, "GID", gid, "not the GID of a port")?;
    }
    Ok(())
}
