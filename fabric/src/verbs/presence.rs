//! Detects the removal of a device.
//!
//! Some drivers, such as rdma_rxe's, cannot remove a device while programs have it open: the removal
//! waits until they close it, and no event reports this. Only the device's node disappears (kernel
//! drivers/infiniband/core/uverbs_main.c, `ib_uverbs_remove_one`).

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::sysfs;

/// A device's directory in sysfs and its inode, because another device may get the name while the
/// removal waits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Presence(Option<(PathBuf, u64)>);

impl Presence {
    /// Of an opened device. Without sysfs it never counts as removed.
    pub fn of(device: &str) -> Presence {
        Presence(sysfs::uverbs(device).and_then(|name| {
            let path = Path::new(sysfs::UVERBS_CLASS).join(name);
            let there = inode(&path)?;
            Some((path, there))
        }))
    }

    /// Whether the device was removed.
    pub fn is_over(&self) -> bool {
        self.0
            .as_ref()
            .is_some_and(|(path, there)| inode(path) != Some(*there))
    }
}

/// The inode of the directory that a class's symbolic link points to.
fn inode(path: &Path) -> Option<u64> {
    fs::metadata(path).ok().map(|found| found.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_gone_or_another_is_over() {
        let dir = std::env::temp_dir().join(format!("ibtap-presence-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        let presence = Presence(Some((dir.clone(), inode(&dir).unwrap())));
        assert!(!presence.is_over());
        // Created before the first is removed, so that it has another inode.
        let other = dir.with_extension("other");
        fs::create_dir(&other).unwrap();
        fs::remove_dir(&dir).unwrap();
        assert!(presence.is_over());
        fs::rename(&other, &dir).unwrap();
        assert!(presence.is_over());
        fs::remove_dir(&dir).unwrap();
        assert!(!Presence(None).is_over());
    }
}
