//! The FUSE requests and their replies.

use std::ffi::OsStr;
use std::path::Path;
use std::time::SystemTime;

use fuser::{
    FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig,
    LockOwner, OpenAccMode, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use rustix::io::Errno;

use super::handles::Handle;
use super::{FOR_LONG, Tree};
use crate::tree::Place;

/// Size of a page. Longer writes arrive in pieces, each a separate write, as in sysfs.
const WRITE_MAX: u32 = 4096;

fn place(inode: INodeNo) -> Result<Place, Errno> {
    Place::of_inode(inode.0).ok_or(Errno::STALE)
}

fn number(error: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(error.raw_os_error())
}

/// Whether the permissions allow the access. They also bind root, as in sysfs
/// (`KERNFS_ROOT_EXTRA_OPEN_PERM_CHECK`).
fn is_allowed(place: Place, flags: OpenFlags) -> bool {
    let (read, write) = match flags.acc_mode() {
        OpenAccMode::O_RDONLY => (true, false),
        OpenAccMode::O_WRONLY => (false, true),
        OpenAccMode::O_RDWR => (true, true),
    };
    let permissions = place.permissions();
    (!read || permissions & 0o444 != 0) && (!write || permissions & 0o222 != 0)
}

impl Filesystem for Tree {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // Without this flag, `>` causes a separate request to change the size: correct, but slower.
        let _ = config.add_capabilities(InitFlags::FUSE_ATOMIC_O_TRUNC);
        let _ = config.add_capabilities(InitFlags::FUSE_PARALLEL_DIROPS);
        // Fails only for values out of range; this value is in range.
        let _ = config.set_max_write(WRITE_MAX);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match place(parent).and_then(|directory| self.find(directory, name)) {
            Ok((found, valid)) => {
                let attributes = self.attributes(found);
                reply.entry_with_ttls(&FOR_LONG, &valid, &attributes, Generation(0));
            }
            Err(error) => reply.error(number(error)),
        }
    }

    fn forget(&self, _: &Request, inode: INodeNo, lookups: u64) {
        match place(inode) {
            Ok(Place::Interface(number, _)) => self.interfaces().forgotten(number, lookups),
            Ok(Place::PortDirectory(number) | Place::PortFile(number)) => {
                self.paths().forgotten(number, lookups);
            }
            _ => {}
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match place(inode) {
            Ok(place) => reply.attr(&FOR_LONG, &self.attributes(place)),
            Err(error) => reply.error(number(error)),
        }
    }

    /// Changes of sizes and times succeed without effect, as in sysfs; changes of owners and modes fail.
    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        _size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        match place(inode) {
            Ok(_) if mode.is_some() || uid.is_some() || gid.is_some() => {
                reply.error(fuser::Errno::EPERM);
            }
            Ok(place) => reply.attr(&FOR_LONG, &self.attributes(place)),
            Err(error) => reply.error(number(error)),
        }
    }

    fn open(&self, _: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match place(inode) {
            Ok(file) if is_allowed(file, flags) => {
                let handle = self.handles().opened(Handle::default());
                // The size of stat(2) is not that of the contents. Several writes may run at once: the daemon
                // executes one request after the other.
                let how = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
                reply.opened(FileHandle(handle), how);
            }
            Ok(_) => reply.error(fuser::Errno::EACCES),
            Err(error) => reply.error(number(error)),
        }
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let handle = self.handles().get(handle.0);
        let read = place(inode).and_then(|file| handle.read(offset, size, || self.snapshot(file)));
        match read {
            Ok(data) => reply.data(&data),
            Err(error) => reply.error(number(error)),
        }
    }

    /// Every write is a separate request, at any position in the file, as in sysfs.
    fn write(
        &self,
        request: &Request,
        inode: INodeNo,
        _: FileHandle,
        _: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match place(inode).and_then(|file| self.change(file, data, request.pid())) {
            Ok(()) => reply.written(u32::try_from(data.len()).unwrap_or(u32::MAX)),
            Err(error) => reply.error(number(error)),
        }
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.handles().closed(handle.0);
        reply.ok();
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let handle = self.handles().opened(Handle::default());
        reply.opened(FileHandle(handle), FopenFlags::empty());
    }

    fn readdir(
        &self,
        _: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let handle = self.handles().get(handle.0);
        let listing =
            place(inode).and_then(|directory| handle.list(offset, || self.list(directory)));
        match listing {
            Ok(listing) => {
                let mut next = offset;
                for listed in listing {
                    next += 1;
                    let kind = match listed.is_directory {
                        true => FileType::Directory,
                        false => FileType::RegularFile,
                    };
                    if reply.add(INodeNo(listed.inode), next, kind, &listed.name) {
                        break;
                    }
                }
                reply.ok();
            }
            Err(error) => reply.error(number(error)),
        }
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.handles().closed(handle.0);
        reply.ok();
    }

    // sysfs refuses these operations with the same error numbers.

    fn create(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        reply.error(fuser::Errno::EACCES);
    }

    fn mknod(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(fuser::Errno::EPERM);
    }

    fn mkdir(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(fuser::Errno::EPERM);
    }

    fn symlink(&self, _: &Request, _: INodeNo, _: &OsStr, _: &Path, reply: ReplyEntry) {
        reply.error(fuser::Errno::EPERM);
    }

    fn unlink(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(fuser::Errno::EPERM);
    }

    fn rmdir(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(fuser::Errno::EPERM);
    }

    fn rename(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: INodeNo,
        _: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        reply.error(fuser::Errno::EPERM);
    }
}
