//! The command line of `ibtap-fs`. It is in this crate so that the generator of man pages and completions
//! does not depend on FUSE.

use std::path::PathBuf;

use clap::Parser;

use crate::DEFAULT_SOCKET;

const AFTER: &str = "\
Exit status: 0 after SIGTERM, SIGINT or umount; 1 wrong usage, or the mount
point is missing, not a directory, or in use; 2 error of the kernel.";

/// Shows the interfaces of a running ibtapd as files, as sysfs and debugfs do for the kernel's IPoIB.
/// Ports of the software fabric have the files of /sys/class/infiniband.
///
/// Reads and writes of these files are requests to the daemon's control socket. Runs in the
/// foreground until SIGTERM, SIGINT or `umount`. The daemon may stop and start meanwhile. All users
/// may read, except `debug`, which only root may read; writing needs root with CAP_NET_ADMIN.
#[derive(Clone, Debug, Parser)]
#[command(name = "ibtap-fs", version = crate::version::version(), max_term_width = 80, after_help = AFTER)]
pub struct FsArgs {
    /// Directory on which to mount the files
    #[arg(
        value_name = "MOUNTPOINT",
        required_unless_present_any = ["take", "probe"],
        conflicts_with = "take"
    )]
    pub mountpoint: Option<PathBuf>,

    /// Control socket of the daemon
    #[arg(long, short = 'S', value_name = "PATH", default_value = DEFAULT_SOCKET)]
    pub socket: PathBuf,

    /// Allow only root to read [default: all users may read, except `debug`]
    #[arg(long, conflicts_with = "take")]
    pub private: bool,

    /// Do not mount: wait for `ibtap-fs --give` on this unix socket. Needs no right to mount
    #[arg(long, value_name = "PATH")]
    pub take: Option<PathBuf>,

    /// Mount, hand the mount to the `ibtap-fs --take` that listens on this unix socket, and end
    #[arg(long, value_name = "PATH", conflicts_with = "take")]
    pub give: Option<PathBuf>,

    /// Send one request to the file system at this path, and end: status 0 if its server answers, 3 if the
    /// server has ended. `ibtap-fs` starts this as a process of its own, which may wait without end.
    #[arg(long, value_name = "PATH", hide = true, exclusive = true)]
    pub probe: Option<PathBuf>,
}
