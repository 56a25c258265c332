//! The file tree for FUSE.
//!
//! The kernel caches nothing that may change: it looks up an interface's directory for each path, and a read
//! from the beginning of a file takes a new snapshot, as in sysfs (seq_file).

mod fuse;
mod handles;

use std::ffi::{OsStr, OsString};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use control::api::InterfaceInfo;
use fuser::{FileAttr, FileType, INodeNo};
use rustix::io::Errno;

use crate::caller::may_administer;
use crate::interfaces::{Identity, Interfaces, directories};
use crate::paths::Paths;
use crate::ports;
use crate::requests::Requests;
use crate::tree::{DEBUG_DIRECTORY, Dump, Node, PORTS_DIRECTORY, Place};
use handles::{Handles, Listed};

/// How long the kernel may cache constant data.
const FOR_LONG: Duration = Duration::from_secs(3600);
/// No caching: interfaces are created, removed and renamed.
const NOT_AT_ALL: Duration = Duration::ZERO;
/// Inode number of an entry without a number yet (libfuse's `FUSE_UNKNOWN_INO`).
const UNKNOWN_INODE: u64 = 0xffff_ffff;

/// The file tree, see the module.
#[derive(Debug)]
pub struct Tree {
    requests: Requests,
    interfaces: Mutex<Interfaces>,
    paths: Mutex<Paths>,
    handles: Mutex<Handles>,
    since: SystemTime,
}

impl Tree {
    /// Creates the tree of a daemon's interfaces.
    pub fn of(requests: Requests) -> Tree {
        Tree {
            requests,
            interfaces: Mutex::default(),
            paths: Mutex::default(),
            handles: Mutex::default(),
            since: SystemTime::now(),
        }
    }

    fn interfaces(&self) -> MutexGuard<'_, Interfaces> {
        self.interfaces
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn paths(&self) -> MutexGuard<'_, Paths> {
        self.paths.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handles(&self) -> MutexGuard<'_, Handles> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The node with this name in a directory, and how long the kernel may cache it.
    fn find(&self, directory: Place, name: &OsStr) -> Result<(Place, Duration), Errno> {
        let name = name.to_str().ok_or(Errno::NOENT)?;
        match directory {
            Place::Root if name == DEBUG_DIRECTORY => Ok((Place::Debug, FOR_LONG)),
            Place::Root if name == PORTS_DIRECTORY => Ok((Place::PORTS, FOR_LONG)),
            Place::Root => self.find_interface(name, Node::Directory),
            Place::PortDirectory(number) => self.find_below_ports(number, name),
            Place::PortFile(_) => Err(Errno::NOTDIR),
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

    /// The entry of a directory below `infiniband`.
    fn find_below_ports(&self, directory: u64, name: &str) -> Result<(Place, Duration), Errno> {
        let directory = self.port_path(directory)?;
        let path = match directory.as_str() {
            "" => name.to_owned(),
            _ => format!("{directory}/{name}"),
        };
        let files = self.requests.ports()?;
        let is_directory = ports::is_directory(&files, &path).ok_or(Errno::NOENT)?;
        let number = self.paths().looked_up(&path);
        let place = match is_directory {
            true => Place::PortDirectory(number),
            false => Place::PortFile(number),
        };
        Ok((place, NOT_AT_ALL))
    }

    fn port_path(&self, number: u64) -> Result<String, Errno> {
        let paths = self.paths();
        paths.get(number).map(str::to_owned).ok_or(Errno::STALE)
    }

    fn find_interface(&self, name: &str, node: Node) -> Result<(Place, Duration), Errno> {
        let interface = self.requests.directory(name).map_err(gone_is_absent)?;
        let number = self.interfaces().looked_up(&interface);
        Ok((Place::Interface(number, node), NOT_AT_ALL))
    }

    /// The state of an interface, also after a rename, as `ask` answers it.
    fn interface(
        &self,
        number: u64,
        ask: impl Fn(&Requests, &str) -> Result<InterfaceInfo, Errno>,
    ) -> Result<InterfaceInfo, Errno> {
        let known = self.interfaces().get(number).ok_or(Errno::NODEV)?.clone();
        match ask(&self.requests, &known.selector) {
            Ok(interface) if Identity::of(&interface) == known.identity => return Ok(interface),
            Ok(_) | Err(Errno::NODEV | Errno::INVAL) => {}
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

    /// The entries of a directory.
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
                    .interface(number, Requests::interface)
                    .map_err(gone_is_absent)?
                    .parent
                    .is_some();
                of_nodes(number, &mut Node::directory(is_child))
            }
            Place::Interface(number, Node::Statistics) => of_nodes(number, &mut Node::statistics()),
            Place::PortDirectory(number) => self.list_below_ports(number)?,
            Place::Interface(..) | Place::PortFile(_) => return Err(Errno::NOTDIR),
        });
        Ok(listing)
    }

    fn list_root(&self) -> Result<Vec<Listed>, Errno> {
        let interfaces = directories(&self.requests.interfaces()?);
        let listed = |name: String| Listed::directory(UNKNOWN_INODE, name);
        let own = [
            Listed::node(Place::Debug, DEBUG_DIRECTORY),
            Listed::node(Place::PORTS, PORTS_DIRECTORY),
        ];
        Ok(own
            .into_iter()
            .chain(interfaces.into_iter().map(listed))
            .collect())
    }

    fn list_below_ports(&self, directory: u64) -> Result<Vec<Listed>, Errno> {
        let directory = self.port_path(directory)?;
        let files = self.requests.ports()?;
        let listed = |(name, is_directory)| match is_directory {
            true => Listed::directory(UNKNOWN_INODE, name),
            false => Listed::file(UNKNOWN_INODE, name),
        };
        let entries = ports::entries(&files, &directory);
        Ok(entries.into_iter().map(listed).collect())
    }

    fn list_dumps(&self) -> Result<Vec<Listed>, Errno> {
        let interfaces = directories(&self.requests.interfaces()?);
        let of = |name: String| {
            Dump::ALL.map(|dump| Listed::file(UNKNOWN_INODE, format!("{name}{}", dump.suffix())))
        };
        Ok(interfaces.into_iter().flat_map(of).collect())
    }

    /// The current contents of a file.
    fn snapshot(&self, file: Place) -> Result<Vec<u8>, Errno> {
        let (number, node) = match file {
            Place::Interface(number, node) => (number, node),
            Place::PortFile(number) => {
                let path = self.port_path(number)?;
                let files = self.requests.ports()?;
                let found = files.iter().find(|(file, _)| *file == path);
                return found
                    .map(|(_, contents)| contents.clone().into_bytes())
                    .ok_or(Errno::NODEV);
            }
            _ => return Err(Errno::ISDIR),
        };
        let interface = self.interface(number, Requests::interface)?;
        self.requests.read(node, &interface).map(String::into_bytes)
    }

    /// Executes a write.
    fn change(&self, file: Place, data: &[u8], writer: u32) -> Result<(), Errno> {
        let Place::Interface(number, Node::Attribute(attribute)) = file else {
            return Err(Errno::ACCESS);
        };
        if !may_administer(writer) {
            return Err(Errno::PERM);
        }
        // A write must not reach another interface that has got the name meanwhile.
        let interface = self.interface(number, Requests::interface_now)?;
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

/// For a path, a missing interface is a missing file.
fn gone_is_absent(error: Errno) -> Errno {
    match error {
        // INVAL: not a valid name of an interface.
        Errno::NODEV | Errno::INVAL => Errno::NOENT,
        other => other,
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
