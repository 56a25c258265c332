//! /dev/infiniband, the directory of the devices' nodes.
//!
//! The kernel removes the directory with its last node, and makes another one for the next (drivers/base/devtmpfs.c).
//! Landlock permits the directory of the start, and a systemd unit has that one mounted: a process that is
//! restricted so does not see the nodes of the other one.

use std::fs::{self, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The directory of the nodes.
const DIRECTORY: &str = "/dev/infiniband";

/// The directory at the start of a process that may open no nodes of another one.
static AT_START: OnceLock<Option<Identity>> = OnceLock::new();

/// Device and inode of a directory.
type Identity = (u64, u64);

/// Notes the directory of the nodes. From now on the process can open only nodes in this directory.
pub fn only_these_nodes() {
    let found = fs::metadata(DIRECTORY).ok();
    let _ = AT_START.set(found.as_ref().map(identity));
}

fn identity(found: &Metadata) -> Identity {
    (found.dev(), found.ino())
}

/// The path of a node.
pub(super) fn path(node: &str) -> PathBuf {
    Path::new(DIRECTORY).join(node)
}

/// Whether the directory was made after the start, so that this process cannot open its nodes.
pub(super) fn are_others() -> bool {
    let found = fs::metadata(DIRECTORY);
    found.is_ok_and(|found| is_other(AT_START.get().copied(), &found))
}

/// `at_start`: `None` if the process may open the nodes of every directory.
fn is_other(at_start: Option<Option<Identity>>, found: &Metadata) -> bool {
    // A mount keeps a directory that was removed, without links.
    let removed = found.nlink() == 0;
    removed || at_start.is_some_and(|there| there != Some(identity(found)))
}

/// Why a library could not open a node. `error` is the library's, which tries other ways after the first, and returns
/// the error of the last.
pub(super) fn why_closed(node: &Path, error: io::Error) -> io::Error {
    let opened = OpenOptions::new().read(true).write(true).open(node);
    opened.err().unwrap_or(error)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn a_directory_that_was_made_again_is_another() {
        let place = |of: &str| format!("ibtap-nodes-{of}-{}", std::process::id());
        let [path, second] = ["first", "second"].map(|of| std::env::temp_dir().join(place(of)));
        fs::create_dir(&path).unwrap();
        let mounted = File::open(&path).unwrap();
        let first = mounted.metadata().unwrap();
        let at_start = Some(Some(identity(&first)));
        assert!(!is_other(at_start, &first) && !is_other(None, &first));
        // The directory did not exist at the start.
        assert!(is_other(Some(None), &first));
        // Created before the first is removed, so that it has another inode.
        fs::create_dir(&second).unwrap();
        fs::remove_dir(&path).unwrap();
        fs::rename(&second, &path).unwrap();
        let again = fs::metadata(&path).unwrap();
        assert!(is_other(at_start, &again));
        // Without Landlock, every directory can be used, but nothing is made in one that was removed.
        assert!(!is_other(None, &again));
        let removed = mounted.metadata().unwrap();
        assert!(is_other(at_start, &removed) && is_other(None, &removed));
        fs::remove_dir(&path).unwrap();
    }

    #[test]
    fn the_first_error_counts_not_that_of_another_way() {
        let of_library = || io::Error::from_raw_os_error(libc::EPERM);
        let cause = |path: &str| why_closed(Path::new(path), of_library()).raw_os_error();
        assert_eq!(cause("/dev/ibtap-no-such-node"), Some(libc::ENOENT));
        assert_eq!(cause("/dev/null"), Some(libc::EPERM));
    }
}
