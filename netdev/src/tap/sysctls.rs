//! The settings of an interface under `/proc/sys/net` (kernel Documentation/networking/ip-sysctl.rst). A
//! move resets them.

use std::fs;
use std::path::{Path, PathBuf};

/// The directories of interface settings, with a subdirectory for each interface name.
const FOLDERS: [&str; 4] = [
    "/proc/sys/net/ipv4/conf",
    "/proc/sys/net/ipv6/conf",
    "/proc/sys/net/ipv4/neigh",
    "/proc/sys/net/ipv6/neigh",
];

/// The settings of an interface of the calling thread's network namespace, each file with its text.
/// Unreadable files (some are secret until set) are skipped.
#[derive(Debug, Default)]
pub(super) struct Sysctls(Vec<(PathBuf, String)>);

impl Sysctls {
    pub(super) fn read(interface: &str) -> Sysctls {
        let folders = FOLDERS
            .iter()
            .map(|folder| Path::new(folder).join(interface));
        let files = folders
            .filter_map(|folder| fs::read_dir(folder).ok())
            .flat_map(|entries| entries.flatten())
            .filter_map(|entry| {
                let path = entry.path();
                let text = fs::read_to_string(&path).ok()?;
                Some((path, text))
            });
        Sysctls(files.collect())
    }

    /// Writes the settings that differ. The interface must have its old name, and the thread must be in its
    /// namespace.
    pub(super) fn restore(&self) {
        for (path, text) in &self.0 {
            if fs::read_to_string(path).is_ok_and(|now| now != *text)
                && let Err(e) = fs::write(path, text)
            {
                log::warn!(
                    "cannot restore {} to {}: {e}",
                    path.display(),
                    text.trim_end()
                );
            }
        }
    }
}
