//! Mounting and unmounting (mount(2), `Documentation/filesystems/fuse.rst` of the kernel).
//!
//! It is done here and not by a helper program: whoever may run a daemon that makes interfaces may
//! mount, too, and so an error can say what is missing.

mod table;

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

use table::Entry;

/// The type that mount(8) shows. The part behind the dot is ours to choose.
const FS_TYPE: &str = "fuse.ibtap";
/// What it shows as the device.
const SOURCE: &str = "ibtap-fs";
const DEVICE: &str = "/dev/fuse";
/// The root's file mode: a directory.
const ROOT_MODE: u32 = 0o040_755;
/// A file system that is served answers within milliseconds.
const PATIENCE: Duration = Duration::from_secs(3);

/// Why there is no mount; the texts are sentences.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The mount point is no good.
    #[error("cannot mount on {}: {why}", path.display())]
    Mountpoint {
        /// As the user named it.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// The kernel has no FUSE, or we may not use it.
    #[error("cannot open {DEVICE}: {source}; {}", advice(*source))]
    Device {
        /// Why.
        source: Errno,
    },
    /// The kernel refuses to mount.
    #[error("the kernel refuses to mount on {}: {source}{}", path.display(), need(*source))]
    Refused {
        /// The mount point.
        path: PathBuf,
        /// Why.
        source: Errno,
    },
    /// A stale mount cannot be removed.
    #[error(
        "{} is left over from an ibtap-fs that is gone, and cannot be unmounted: {source}{}",
        path.display(), need(*source)
    )]
    Stale {
        /// The mount point.
        path: PathBuf,
        /// Why.
        source: Errno,
    },
    /// What is mounted cannot be told.
    #[error("cannot read {}: {source}", table::FILE)]
    Table {
        /// Why.
        source: io::Error,
    },
}

fn advice(source: Errno) -> &'static str {
    match source {
        Errno::NOENT | Errno::NODEV | Errno::NXIO => {
            "modprobe fuse, or give the container --device /dev/fuse"
        }
        Errno::ACCESS | Errno::PERM => {
            "run it as root; a container needs --device /dev/fuse for it"
        }
        _ => "it is the kernel's FUSE",
    }
}

fn need(source: Errno) -> &'static str {
    match source {
        Errno::PERM | Errno::ACCESS => "; that takes root with CAP_SYS_ADMIN",
        _ => "",
    }
}

/// A directory that nothing of ours is mounted on.
#[derive(Clone, Debug)]
pub struct Mountpoint(PathBuf);

impl Mountpoint {
    /// Checks the directory, and unmounts what an `ibtap-fs` that was killed has left there.
    ///
    /// # Errors
    /// [`MountError`]
    pub fn prepare(path: &Path) -> Result<Mountpoint, MountError> {
        let unfit = |why: String| MountError::Mountpoint {
            path: path.to_owned(),
            why,
        };
        let real = real_path(path).map_err(|e| unfit(e.to_string()))?;
        // One may lie upon the other.
        while let Some(entry) = table::top(&real).map_err(|source| MountError::Table { source })? {
            if entry.fs_type != FS_TYPE {
                break;
            }
            match liveness(&real) {
                Liveness::Dead => detach(&real).map_err(|source| MountError::Stale {
                    path: real.clone(),
                    source,
                })?,
                Liveness::Alive => {
                    let advice = "another ibtap-fs serves it; end that, or umount it, first";
                    return Err(unfit(advice.into()));
                }
                Liveness::Silent => {
                    let advice = "another ibtap-fs has it and does not answer; end that first";
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

    /// Mounts; gives also the descriptor that the kernel's requests come from. Whoever is not root
    /// gets nothing to see unless `everybody` may look.
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

/// A mount; unmounted when this value goes.
#[derive(Debug)]
pub struct Mount {
    point: PathBuf,
    entry: Option<Entry>,
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Somebody may have unmounted it, and mounted something else.
        let is_ours = self.entry.is_some() && table::top(&self.point).ok().flatten() == self.entry;
        if is_ours && let Err(error) = detach(&self.point) {
            eprintln!("ibtap-fs: cannot unmount {}: {error}", self.point.display());
        }
    }
}

/// Also where it is in use: who has a file open, or stands in it, is let out with an error.
fn detach(path: &Path) -> Result<(), Errno> {
    rustix::mount::unmount(path, UnmountFlags::DETACH)
}

/// The path without symbolic links. A stale mount is in the way of what the library does.
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

/// Whether somebody serves a mount of ours.
enum Liveness {
    Alive,
    Dead,
    Silent,
}

/// Asks for something that the kernel does not answer itself, on a thread: who is asked may hang.
fn liveness(path: &Path) -> Liveness {
    let (tell, told) = mpsc::channel();
    let path = path.to_owned();
    // Where nobody waits any longer, the answer is lost with the channel.
    thread::spawn(move || {
        let _ = tell.send(rustix::fs::statfs(&path));
    });
    match told.recv_timeout(PATIENCE) {
        Ok(Err(Errno::NOTCONN | Errno::CONNABORTED)) => Liveness::Dead,
        Ok(_) => Liveness::Alive,
        Err(_) => Liveness::Silent,
    }
}
