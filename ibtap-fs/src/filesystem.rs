//! The file tree as FUSE asks for it.
//!
//! Nothing is cached that could become wrong: the kernel asks again for every interface's directory
//! each time a path leads through it, and a read from a file's beginning is a new snapshot, as it is
//! in sysfs (seq_file).

mod handles;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use fuser::{
    FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenAccMode, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, TimeOrNow,
    WriteFlags,
};
use ibtap::api::InterfaceInfo;
use rustix::io::Errno;

use crate::caller::may_administer;
use crate::interfaces::{Identity, Interfaces, directories};
use crate::requests::Requests;
use crate::tree::{DEBUG_DIRECTORY, Dump, Node, Place};
use handles::{Handle, Handles, Listed};

/// How long the kernel may believe what never changes.
const FOR_LONG: Duration = Duration::from_secs(3600);
/// Interfaces come, go and are renamed: the kernel is to ask each time.
const NOT_AT_ALL: Duration = Duration::ZERO;
/// The number in a listing of what has none yet (libfuse's `FUSE_UNKNOWN_INO`).
const UNKNOWN_INODE: u64 = 0xffff_ffff;
/// A write of more comes in pieces, each a write of its own, as in sysfs (a page).
const WRITE_MAX: u32 = 4096;

/// See the module.
#[derive(Debug)]
pub struct Tree {
    requests: Requests,
    interfaces: Mutex<Interfaces>,
    handles: Mutex<Handles>,
    since: SystemTime,
}

impl Tree {
    /// A tree of what a daemon serves.
    pub fn of(requests: Requests) -> Tree {
        Tree {
            requests,
            interfaces: Mutex::default(),
            handles: Mutex::default(),
            since: SystemTime::now(),
        }
    }

    fn interfaces(&self) -> MutexGuard<'_, Interfaces> {
        self.interfaces
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn handles(&self) -> MutexGuard<'_, Handles> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The node of that name in a directory, and how long that holds.
    fn find(&self, directory: Place, name: &OsStr) -> Result<(Place, Duration), Errno> {
        let name = name.to_str().ok_or(Errno::NOENT)?;
        match directory {
            Place::Root if name == DEBUG_DIRECTORY => Ok((Place::Debug, FOR_LONG)),
            Place::Root => self.find_interface(name, Node::Directory),
            Place::Debug => {
                let (interface, dump) = Dump::named(name).ok_or(Errno::NOENT)?;
                self.find_interface(interface, Node::Dump(dump))
            }
            Place::Interface(number, within) => {
                let mut interfaces = self.interfaces();
                let is_child = interfaces.get(number).ok_or(Errno::NOENT)?.is_child;
                let node = match within {
                    Node::Directory => Node::in_directory(name, is_child),
                    Node::Statistics => Node::in_statistics(name),
                    _ => return Err(Errno::NOTDIR),
                };
                let node = node.ok_or(Errno::NOENT)?;
                interfaces.looked_up_within(number);
                Ok((Place::Interface(number, node), FOR_LONG))
            }
        }
    }

    fn find_interface(&self, name: &str, node: Node) -> Result<(Place, Duration), Errno> {
        let interface = self.requests.directory(name).map_err(gone_is_absent)?;
        let number = self.interfaces().looked_up(&interface);
        Ok((Place::Interface(number, node), NOT_AT_ALL))
    }

    /// An interface as it is now, whatever it is called by now.
    fn interface(&self, number: u64) -> Result<InterfaceInfo, Errno> {
        let known = self.interfaces().get(number).ok_or(Errno::NODEV)?.clone();
        match self.requests.interface(&known.selector) {
            Ok(interface) if Identity::of(&interface) == known.identity => return Ok(interface),
            Ok(_) | Err(Errno::NODEV | Errno::INVAL | Errno::BUSY) => {}
            Err(other) => return Err(other),
        }
        let all = self.requests.interfaces()?;
        let found = all
            .into_iter()
            .find(|interface| Identity::of(interface) == known.identity)
            .ok_or(Errno::NODEV)?;
        self.interfaces().seen(number, &found);
        Ok(found)
    }

    /// A directory's contents.
    fn list(&self, directory: Place) -> Result<Vec<Listed>, Errno> {
        let mut listing = vec![
            Listed::directory(directory.inode(), "."),
            Listed::directory(UNKNOWN_INODE, ".."),
        ];
        let of_nodes = |number, nodes: &mut dyn Iterator<Item = (Node, &'static str)>| {
            nodes
                .map(|(node, name)| Listed::node(Place::Interface(number, node), name))
                .collect::<Vec<_>>()
        };
        listing.extend(match directory {
            Place::Root => self.list_root()?,
            Place::Debug => self.list_dumps()?,
            Place::Interface(number, Node::Directory) => {
                let is_child = self
                    .interface(number)
                    .map_err(gone_is_absent)?
                    .parent
                    .is_some();
                of_nodes(number, &mut Node::directory(is_child))
            }
            Place::Interface(number, Node::Statistics) => of_nodes(number, &mut Node::statistics()),
            Place::Interface(..) => return Err(Errno::NOTDIR),
        });
        Ok(listing)
    }

    fn list_root(&self) -> Result<Vec<Listed>, Errno> {
        let interfaces = directories(&self.requests.interfaces()?);
        let listed = |name: String| Listed::directory(UNKNOWN_INODE, name);
        Ok([Listed::node(Place::Debug, DEBUG_DIRECTORY)]
            .into_iter()
            .chain(interfaces.into_iter().map(listed))
            .collect())
    }

    fn list_dumps(&self) -> Result<Vec<Listed>, Errno> {
        let interfaces = directories(&self.requests.interfaces()?);
        let of = |name: String| {
            Dump::ALL.map(|dump| Listed::file(UNKNOWN_INODE, format!("{name}{}", dump.suffix())))
        };
        Ok(interfaces.into_iter().flat_map(of).collect())
    }

    /// A file's contents now.
    fn snapshot(&self, file: Place) -> Result<Vec<u8>, Errno> {
        let Place::Interface(number, node) = file else {
            return Err(Errno::ISDIR);
        };
        let interface = self.interface(number)?;
        self.requests.read(node, &interface).map(String::into_bytes)
    }

    /// Does what a write asks for.
    fn change(&self, file: Place, data: &[u8], writer: u32) -> Result<(), Errno> {
        let Place::Interface(number, Node::Attribute(attribute)) = file else {
            return Err(Errno::ACCESS);
        };
        if !may_administer(writer) {
            return Err(Errno::PERM);
        }
        let interface = self.interface(number)?;
        self.requests.write(attribute, &interface, data)
    }

    fn attributes(&self, place: Place) -> FileAttr {
        let (kind, nlink) = match place.is_directory() {
            true => (FileType::Directory, 2),
            false => (FileType::RegularFile, 1),
        };
        FileAttr {
            ino: INodeNo(place.inode()),
            size: place.size(),
            blocks: 0,
            atime: self.since,
            mtime: self.since,
            ctime: self.since,
            crtime: self.since,
            kind,
            perm: place.permissions(),
            nlink,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

/// A path does not lead to what is gone.
fn gone_is_absent(error: Errno) -> Errno {
    match error {
        // INVAL: the name is no name that an interface could have.
        Errno::NODEV | Errno::INVAL => Errno::NOENT,
        other => other,
    }
}

fn place(inode: INodeNo) -> Result<Place, Errno> {
    Place::of_inode(inode.0).ok_or(Errno::STALE)
}

fn number(error: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(error.raw_os_error())
}

/// Whether the permissions allow it even to root, as in sysfs (`KERNFS_ROOT_EXTRA_OPEN_PERM_CHECK`).
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
        // Without it, `>` is a change of size in a request of its own: as good, but slower.
        let _ = config.add_capabilities(InitFlags::FUSE_ATOMIC_O_TRUNC);
        let _ = config.add_capabilities(InitFlags::FUSE_PARALLEL_DIROPS);
        // Only refuses what is out of a range that this is in.
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
        if let Ok(Place::Interface(number, _)) = place(inode) {
            self.interfaces().forgotten(number, lookups);
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match place(inode) {
            Ok(place) => reply.attr(&FOR_LONG, &self.attributes(place)),
            Err(error) => reply.error(number(error)),
        }
    }

    /// Sizes and times may be set without effect, as in sysfs; owners and modes stay.
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
                // The size that stat(2) shows is not that of the contents. Several may write at
                // once: the daemon takes one request after the other.
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

    /// Every write is a request of its own, wherever in the file it is, as in sysfs.
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

    // What sysfs refuses with the same numbers.

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

impl Listed {
    fn directory(inode: u64, name: impl Into<OsString>) -> Listed {
        Listed {
            inode,
            is_directory: true,
            name: name.into(),
        }
    }

    fn file(inode: u64, name: impl Into<OsString>) -> Listed {
        Listed {
            inode,
            is_directory: false,
            name: name.into(),
        }
    }

    fn node(place: Place, name: &str) -> Listed {
        Listed {
            inode: place.inode(),
            is_directory: place.is_directory(),
            name: name.into(),
        }
    }
}
