//! Mounting and unmounting (mount(2), `Documentation/filesystems/fuse.rst` of the kernel).
//!
//! Without a helper program: a user who may run ibtapd may also mount, and errors can name what is missing.

mod table;

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use control::exit::EXIT_UNREACHABLE;
use control::output::complain;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

use table::Entry;

/// File system type for mount(8). The part after the dot is free to choose.
const FS_TYPE: &str = "fuse.ibtap";
/// Device name for mount(8).
const SOURCE: &str = "ibtap-fs";
const DEVICE: &str = "/dev/fuse";
/// File mode of the root: a directory.
const ROOT_MODE: u32 = 0o040_755;
/// Time to wait for an answer of a served file system, which takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(3);

/// A failed mount; the texts are sentences.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The mount point is unusable.
    #[error("cannot mount on {}: {why}", path.display())]
    Mountpoint {
        /// Path from the user.
        path: PathBuf,
        /// Reason.
        why: String,
    },
    /// The kernel has no FUSE, or access is denied.
    #[error("cannot open {DEVICE}: {source}; {}", advice(*source))]
    Device {
        /// Error of the kernel.
        source: Errno,
    },
    /// The kernel refused the mount.
    #[error("the kernel refuses to mount on {}: {source}{}", path.display(), need(*source))]
    Refused {
        /// The mount point.
        path: PathBuf,
        /// Error of the kernel.
        source: Errno,
    },
    /// A stale mount cannot be removed.
    #[error(
        "cannot unmount {}, the mount of an ibtap-fs that has ended: {source}{}",
        path.display(), need(*source)
    )]
    Stale {
        /// The mount point.
        path: PathBuf,
        /// Error of the kernel.
        source: Errno,
    },
    /// The table of mounts is unreadable.
    #[error("cannot read {}: {source}", table::FILE)]
    Table {
        /// Error of the kernel.
        source: io::Error,
    },
}

fn advice(source: Errno) -> &'static str {
    match source {
        Errno::NOENT | Errno::NODEV | Errno::NXIO => {
            "modprobe fuse, or give the container --device /dev/fuse"
        }
        Errno::ACCESS | Errno::PERM => "run ibtap-fs as root; a container needs --device /dev/fuse",
        _ => "check FUSE in the kernel",
    }
}

fn need(source: Errno) -> &'static str {
    match source {
        Errno::PERM | Errno::ACCESS => "; run as root with CAP_SYS_ADMIN",
        _ => "",
    }
}

/// A directory without a mount of `ibtap-fs`.
#[derive(Clone, Debug)]
pub struct Mountpoint(PathBuf);

impl Mountpoint {
    /// Checks the directory, and unmounts the mount of a killed `ibtap-fs`.
    ///
    /// # Errors
    /// [`MountError`]
    pub fn prepare(path: &Path) -> Result<Mountpoint, MountError> {
        let unfit = |why: String| MountError::Mountpoint {
            path: path.to_owned(),
            why,
        };
        let real = real_path(path).map_err(|e| unfit(e.to_string()))?;
        // There may be several mounts.
        while let Some(entry) = table::top(&real).map_err(|source| MountError::Table { source })? {
            if entry.fs_type != FS_TYPE {
                break;
            }
            match liveness(&real).map_err(|e| unfit(e.to_string()))? {
                Liveness::Dead => detach(&real).map_err(|source| MountError::Stale {
                    path: real.clone(),
                    source,
                })?,
                Liveness::Alive => {
                    let advice =
                        "another ibtap-fs serves it; stop that ibtap-fs or umount it first";
                    return Err(unfit(advice.into()));
                }
                Liveness::Silent => {
                    let advice =
                        "the ibtap-fs that is mounted there does not answer; stop it first";
                    return Err(unfit(advice.into()));
                }
            }
        }
        let is_directory = real.metadata().map_err(|e| unfit(e.to_string()))?.is_dir();
        match is_directory {
            true => Ok(Mountpoint(real)),
            false => Err(unfit("it is not a directory".into())),
        }
    }

    /// Mounts. Also returns the descriptor of the kernel's requests. With `everybody`, users other than root
    /// have access.
    ///
    /// # Errors
    /// [`MountError`]
    pub fn mount(self, everybody: bool) -> Result<(Mount, OwnedFd), MountError> {
        let device = rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
            .map_err(|source| MountError::Device { source })?;
        let refused = |source| MountError::Refused {
            path: self.0.clone(),
            source,
        };
        let options = options(&device, everybody).map_err(refused)?;
        let flags = MountFlags::NODEV | MountFlags::NOSUID | MountFlags::NOEXEC;
        rustix::mount::mount(SOURCE, &self.0, FS_TYPE, flags, options.as_c_str())
            .map_err(refused)?;
        let entry = table::top(&self.0).ok().flatten();
        let mount = Mount {
            point: self.0,
            entry,
        };
        Ok((mount, device))
    }
}

/// `default_permissions`: the kernel checks owners and modes.
fn options(device: &OwnedFd, everybody: bool) -> Result<CString, Errno> {
    let mut options = format!(
        "fd={},rootmode={ROOT_MODE:o},user_id={},group_id={},default_permissions",
        device.as_raw_fd(),
        rustix::process::geteuid(),
        rustix::process::getegid(),
    );
    if everybody {
        options += ",allow_other";
    }
    CString::new(options).map_err(|_| Errno::INVAL)
}

/// A mount; dropping it unmounts.
#[derive(Debug)]
pub struct Mount {
    point: PathBuf,
    entry: Option<Entry>,
}

impl Mount {
    /// Leaves it mounted: another process serves it.
    pub fn leave(mut self) {
        self.entry = None;
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Another user may have unmounted it and mounted another file system.
        let is_ours = self.entry.is_some() && table::top(&self.point).ok().flatten() == self.entry;
        if is_ours && let Err(error) = detach(&self.point) {
            let point = self.point.display();
            complain("ibtap-fs", format_args!("cannot unmount {point}: {error}"));
        }
    }
}

/// Also while the mount is in use: its users get errors.
fn detach(path: &Path) -> Result<(), Errno> {
    rustix::mount::unmount(path, UnmountFlags::DETACH)
}

/// The path without symbolic links. `canonicalize` fails on a stale mount.
fn real_path(path: &Path) -> io::Result<PathBuf> {
    match path.canonicalize() {
        Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => {
            let absolute = std::path::absolute(path)?;
            match (absolute.parent(), absolute.file_name()) {
                (Some(parent), Some(name)) => Ok(parent.canonicalize()?.join(name)),
                _ => Err(error),
            }
        }
        other => other,
    }
}

/// Whether an `ibtap-fs` serves the mount.
enum Liveness {
    Alive,
    Dead,
    Silent,
}

/// Asks in a process of its own ([`probe`]): if the server has read the request and is stopped, not even SIGKILL
/// ends the one who waits for the answer (`request_wait_answer` in `fs/fuse/dev.c`).
fn liveness(path: &Path) -> io::Result<Liveness> {
    let mut child = Command::new("/proc/self/exe")
        .arg("--probe")
        .arg(path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let end = Instant::now() + PATIENCE;
    loop {
        match child.try_wait()?.map(|status| status.code()) {
            Some(Some(code)) if code == i32::from(EXIT_UNREACHABLE) => return Ok(Liveness::Dead),
            Some(_) => return Ok(Liveness::Alive),
            None if Instant::now() < end => thread::sleep(Duration::from_millis(5)),
            None => {
                child.kill()?;
                return Ok(Liveness::Silent);
            }
        }
    }
}

/// Sends a request that the kernel does not answer itself. Returns whether its server lives.
pub fn probe(path: &Path) -> bool {
    !matches!(
        rustix::fs::statfs(path),
        Err(Errno::NOTCONN | Errno::CONNABORTED)
    )
}
