//! The settings of one interface under `/proc/sys/net` (kernel
//! Documentation/networking/ip-sysctl.rst), which begin anew when it moves.

use std::fs;
use std::path::{Path, PathBuf};

/// Where the settings of an interface are, in a folder of its name.
const FOLDERS: [&str; 4] = [
    "/proc/sys/net/ipv4/conf",
    "/proc/sys/net/ipv6/conf",
    "/proc/sys/net/ipv4/neigh",
    "/proc/sys/net/ipv6/neigh",
];

/// The settings of an interface of the calling thread's network namespace, each file with its text.
/// Those that cannot be read (some are secret until they are set) are left out.
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

    /// Writes those that differ from what there is now. The interface has the name again that it had,
    /// and the thread is in its namespace.
    pub(super) fn restore(&self) {
        for (path, text) in &self.0 {
            if fs::read_to_string(path).is_ok_and(|now| now != *text)
                && let Err(e) = fs::write(path, text)
            {
                log::warn!("{} is no longer {}: {e}", path.display(), text.trim_end());
            }
        }
    }
}
