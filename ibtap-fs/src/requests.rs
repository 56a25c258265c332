//! Reads and writes as requests to the daemon.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use control::api::{
    ChildAddRequest, ChildDelRequest, Interface, InterfaceInfo, InterfaceStats, Mode, ModeRequest,
    MtuRequest, Nothing, Selection, UmcastRequest, methods,
};
use control::debugfs_dumps;
use control::{ClientError, ControlClient};
use rustix::io::Errno;

use crate::contents;
use crate::interfaces::parts;
use crate::number;
use crate::ports::{self, PortFile};
use crate::recent::{Limit, Recent};
use crate::tree::{Attribute, Dump, Node, STATISTICS};

/// Timeout of a request. The daemon answers from memory within milliseconds; creation of a child takes
/// longer. A daemon that hangs must not hang the readers.
const TIMEOUT: Duration = Duration::from_secs(5);

/// After a timeout, requests fail at once for this time. Otherwise a daemon that hangs would delay each
/// reader of a directory by those before it, because the kernel lets them in one by one.
const REST: Duration = Duration::from_secs(1);

/// Client of the daemon. Every request has its own connection, so that the daemon may restart at any time.
#[derive(Debug)]
pub struct Requests {
    socket: PathBuf,
    silent_until: Mutex<Option<Instant>>,
    /// All interfaces, for readers beyond the limit.
    shown: Recent<InterfaceInfo>,
    /// The counters of all interfaces.
    counted: Recent<InterfaceStats>,
    /// The files of all ports.
    ports: Recent<PortFile>,
    limit: Limit,
}

impl Requests {
    /// Creates a client of the daemon with this control socket.
    pub fn to(socket: PathBuf) -> Requests {
        Requests {
            socket,
            silent_until: Mutex::default(),
            shown: Recent::default(),
            counted: Recent::default(),
            ports: Recent::default(),
            limit: Limit::default(),
        }
    }

    /// Sends a request on its own connection.
    ///
    /// # Errors
    /// As [`errno`].
    fn ask<T>(
        &self,
        request: impl FnOnce(ControlClient) -> Result<T, ClientError>,
    ) -> Result<T, Errno> {
        if self
            .silent_until()
            .is_some_and(|until| Instant::now() < until)
        {
            return Err(Errno::TIMEDOUT);
        }
        let answer = ControlClient::connect(&self.socket, TIMEOUT)
            .and_then(request)
            .map_err(|error| errno(&error));
        let is_silent = matches!(answer, Err(Errno::TIMEDOUT));
        *self.silent_until() = is_silent.then(|| Instant::now() + REST);
        answer
    }

    fn silent_until(&self) -> MutexGuard<'_, Option<Instant>> {
        self.silent_until
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// All interfaces. An empty list without a daemon.
    ///
    /// # Errors
    /// As [`errno`].
    pub fn interfaces(&self) -> Result<Vec<InterfaceInfo>, Errno> {
        let all = match self.limit.may_ask() {
            true => self.all(),
            false => self.shown.get(|| self.all()).map(|all| all.to_vec()),
        };
        match all {
            Err(Errno::NODEV) => Ok(Vec::new()),
            other => other,
        }
    }

    fn all(&self) -> Result<Vec<InterfaceInfo>, Errno> {
        self.ask(|mut daemon| daemon.call(methods::SHOW, &Selection::of(None)))
    }

    /// The interface that a selector names. If readers ask too often, the answer may be 100 ms old.
    ///
    /// # Errors
    /// NODEV without such an interface; INVAL if there are several; as [`errno`].
    pub fn interface(&self, selector: &str) -> Result<InterfaceInfo, Errno> {
        if self.limit.may_ask() {
            return self.interface_now(selector);
        }
        let all = self.shown.get(|| self.all())?;
        let (netns, name) = match selector.rsplit_once('/') {
            Some((netns, name)) => (Some(netns), name),
            None => (None, selector),
        };
        let is_it = |interface: &&InterfaceInfo| {
            interface.name == name && (netns.is_none() || interface.netns.as_deref() == netns)
        };
        let mut found = all.iter().filter(is_it);
        match (found.next(), found.next()) {
            (Some(interface), None) => Ok(interface.clone()),
            (None, _) => Err(Errno::NODEV),
            (Some(_), Some(_)) => Err(Errno::INVAL),
        }
    }

    /// The interface that a selector names, now.
    ///
    /// # Errors
    /// As [`Requests::interface`].
    pub fn interface_now(&self, selector: &str) -> Result<InterfaceInfo, Errno> {
        let shown =
            self.ask(|mut daemon| daemon.call(methods::SHOW, &Selection::of(Some(selector))))?;
        shown.into_iter().next().ok_or(Errno::NODEV)
    }

    /// The interface of the directory with this name.
    ///
    /// # Errors
    /// As [`Requests::interface`].
    pub fn directory(&self, directory: &str) -> Result<InterfaceInfo, Errno> {
        match parts(directory) {
            (Some(netns), name) => self.interface(&format!("{netns}/{name}")),
            (None, name) => match self.interface(name) {
                // Several match; the daemon's own namespace may have one of them.
                Err(Errno::INVAL) => self
                    .interfaces()?
                    .into_iter()
                    .find(|interface| interface.name == name && interface.netns.is_none())
                    .ok_or(Errno::NODEV),
                other => other,
            },
        }
    }

    /// Contents of a file.
    ///
    /// # Errors
    /// ACCESS for a write-only file; as [`errno`].
    pub fn read(&self, node: Node, interface: &InterfaceInfo) -> Result<String, Errno> {
        let name = interface.qualified_name();
        match node {
            Node::Attribute(attribute) => contents::of(attribute, interface).ok_or(Errno::ACCESS),
            Node::Counter(at) => self.counter(STATISTICS[at], interface),
            Node::Dump(Dump::Groups) => self
                .ask(|mut daemon| daemon.call(methods::GROUPS, &Interface::of(&name)))
                .map(|groups| debugfs_dumps::groups(&groups)),
            Node::Dump(Dump::Paths) => self
                .ask(|mut daemon| daemon.call(methods::PATHS, &Interface::of(&name)))
                .map(|paths| debugfs_dumps::paths(&paths)),
            Node::Directory | Node::Statistics => Err(Errno::ISDIR),
        }
    }

    /// A counter, up to 100 ms old: programs read many counters, one after the other.
    fn counter(&self, counter: &str, interface: &InterfaceInfo) -> Result<String, Errno> {
        let all = self
            .counted
            .get(|| self.ask(|mut daemon| daemon.call(methods::STATS, &Selection::of(None))))?;
        let place = (&interface.netns, &interface.name);
        let mut all = all.iter();
        let stats = all.find(|stats| (&stats.netns, &stats.name) == place);
        let stats = stats.ok_or(Errno::NODEV)?;
        let found = stats
            .kernel()
            .into_iter()
            .find(|(name, _)| *name == counter);
        let (_, value) = found.ok_or(Errno::NODEV)?;
        Ok(format!("{value}\n"))
    }

    /// The files of all ports, up to 100 ms old. An empty list without a daemon.
    ///
    /// # Errors
    /// As [`errno`].
    pub fn ports(&self) -> Result<Arc<[PortFile]>, Errno> {
        let files = self.ports.get(|| {
            let ports = self.ask(|mut daemon| daemon.call(methods::PORTS, &Nothing {}))?;
            Ok(ports.iter().flat_map(ports::files).collect())
        });
        match files {
            Err(Errno::NODEV) => Ok(Arc::default()),
            other => other,
        }
    }

    /// Executes the request that writing `data` to a file means.
    ///
    /// # Errors
    /// INVAL for a wrong value; ACCESS for a read-only file; as [`errno`].
    pub fn write(
        &self,
        attribute: Attribute,
        interface: &InterfaceInfo,
        data: &[u8],
    ) -> Result<(), Errno> {
        let change = Change::read(attribute, data)?;
        let done = self.ask(|daemon| change.send(daemon, interface.qualified_name()));
        self.shown.forget();
        self.counted.forget();
        done
    }
}

/// The request of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    CreateChild(i64),
    DeleteChild(i64),
    Mode(Mode),
    Mtu(u32),
    Umcast(bool),
}

impl Change {
    /// Parses like the kernel (`ipoib_main.c create_child_store, delete_child_store, umcast_store,
    /// ipoib_set_mode`, `net/core/net-sysfs.c mtu_store`).
    fn read(attribute: Attribute, data: &[u8]) -> Result<Change, Errno> {
        let text = number::as_string(data);
        match attribute {
            Attribute::CreateChild => number::scanned(text).map(Change::CreateChild),
            Attribute::DeleteChild => number::scanned(text).map(Change::DeleteChild),
            // The word and a line feed, as `echo` writes it, and nothing else.
            Attribute::Mode => match text {
                b"connected\n" => Some(Change::Mode(Mode::Connected)),
                b"datagram\n" => Some(Change::Mode(Mode::Datagram)),
                _ => None,
            },
            Attribute::Mtu => number::strict(text)
                .and_then(|mtu| u32::try_from(mtu).ok())
                .map(Change::Mtu),
            Attribute::Umcast => Some(Change::Umcast(number::lenient(text) > 0)),
            _ => return Err(Errno::ACCESS),
        }
        .ok_or(Errno::INVAL)
    }

    fn send(self, mut daemon: ControlClient, interface: String) -> Result<(), ClientError> {
        match self {
            Change::CreateChild(pkey) => {
                let request = ChildAddRequest {
                    parent: interface,
                    pkey,
                    name: None,
                    mode: None,
                    mtu: None,
                    queues: None,
                    netns: None,
                };
                daemon.call(methods::CHILD_ADD, &request).map(drop)
            }
            Change::DeleteChild(pkey) => {
                let pkey = Some(pkey);
                let request = ChildDelRequest { interface, pkey };
                daemon.call(methods::CHILD_DEL, &request).map(drop)
            }
            Change::Mode(mode) => {
                let mode = Some(mode);
                let request = ModeRequest { interface, mode };
                daemon.call(methods::MODE, &request).map(drop)
            }
            Change::Mtu(mtu) => {
                let mtu = Some(mtu);
                let request = MtuRequest { interface, mtu };
                daemon.call(methods::MTU, &request).map(drop)
            }
            Change::Umcast(umcast) => {
                let umcast = Some(umcast);
                let request = UmcastRequest { interface, umcast };
                daemon.call(methods::UMCAST, &request).map(drop)
            }
        }
    }
}

/// The error number of a failed request:
///
/// * the daemon's, if it names one of the kernel;
/// * NODEV, as for a removed device, if the interface or the daemon is gone;
/// * TIMEDOUT if the daemon does not answer in time;
/// * INVAL if the daemon refuses the request;
/// * BUSY if the daemon is busy, and trying again may help;
/// * ACCESS without permission for the socket, and IO otherwise.
fn errno(error: &ClientError) -> Errno {
    match error {
        // Range of error numbers in Linux.
        ClientError::Errno { errno, .. } if (1..4096).contains(errno) => {
            Errno::from_raw_os_error(*errno)
        }
        ClientError::NoSuchInterface { .. } | ClientError::Ended { .. } => Errno::NODEV,
        ClientError::BadArgument(_) | ClientError::Refused(_) => Errno::INVAL,
        ClientError::Busy => Errno::BUSY,
        ClientError::Unreachable { source, .. } | ClientError::Silent { source, .. } => {
            match source.kind() {
                io::ErrorKind::TimedOut => Errno::TIMEDOUT,
                io::ErrorKind::PermissionDenied => Errno::ACCESS,
                _ => Errno::NODEV,
            }
        }
        ClientError::Errno { .. } | ClientError::Protocol(_) => Errno::IO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_compared_with_their_line_feed() {
        let read = |text: &str| Change::read(Attribute::Mode, text.as_bytes());
        assert_eq!(read("connected\n"), Ok(Change::Mode(Mode::Connected)));
        assert_eq!(read("datagram\n"), Ok(Change::Mode(Mode::Datagram)));
        assert_eq!(read("datagram\n\0rest"), Ok(Change::Mode(Mode::Datagram)));
        for wrong in [
            "connected",
            "datagram",
            "Connected\n",
            "connected\n\n",
            "1\n",
            "",
        ] {
            assert_eq!(read(wrong), Err(Errno::INVAL), "{wrong:?}");
        }
    }

    #[test]
    fn numbers_are_read_as_each_file_of_the_kernel_reads_them() {
        let read = |attribute, text: &str| Change::read(attribute, text.as_bytes());
        let create = |text| read(Attribute::CreateChild, text);
        assert_eq!(create(" 0x8001 \n"), Ok(Change::CreateChild(0x8001)));
        assert_eq!(create("-1\n"), Ok(Change::CreateChild(-1)));
        assert_eq!(create("pkey\n"), Err(Errno::INVAL));
        let delete = |text| read(Attribute::DeleteChild, text);
        assert_eq!(delete("32769"), Ok(Change::DeleteChild(0x8001)));
        assert_eq!(delete("\n"), Err(Errno::INVAL));
        let mtu = |text| read(Attribute::Mtu, text);
        assert_eq!(mtu("2044\n"), Ok(Change::Mtu(2044)));
        assert_eq!(mtu("2044 bytes\n"), Err(Errno::INVAL));
        assert_eq!(mtu("4294967296\n"), Err(Errno::INVAL));
        let umcast = |text| read(Attribute::Umcast, text);
        assert_eq!(umcast("1\n"), Ok(Change::Umcast(true)));
        assert_eq!(umcast("yes\n"), Ok(Change::Umcast(false)));
    }

    #[test]
    fn what_is_only_read_cannot_be_written() {
        assert_eq!(Change::read(Attribute::Pkey, b"1"), Err(Errno::ACCESS));
    }

    #[test]
    fn errors_have_the_numbers_that_the_kernel_gives() {
        let path = PathBuf::from("/run/x.sock");
        let silent = |kind: io::ErrorKind| ClientError::Silent {
            path: path.clone(),
            source: kind.into(),
        };
        assert_eq!(errno(&silent(io::ErrorKind::TimedOut)), Errno::TIMEDOUT);
        assert_eq!(errno(&silent(io::ErrorKind::UnexpectedEof)), Errno::NODEV);
        let refused = ClientError::Unreachable {
            path,
            source: io::ErrorKind::ConnectionRefused.into(),
        };
        assert_eq!(errno(&refused), Errno::NODEV);
        let reported = ClientError::Errno {
            errno: libc::ENOTUNIQ,
            message: String::new(),
        };
        assert_eq!(errno(&reported), Errno::NOTUNIQ);
        assert_eq!(errno(&ClientError::Busy), Errno::BUSY);
        let refused = ClientError::Refused(String::new());
        assert_eq!(errno(&refused), Errno::INVAL);
        for nonsense in [0, -1, 4096, i32::MAX] {
            let reported = ClientError::Errno {
                errno: nonsense,
                message: String::new(),
            };
            assert_eq!(errno(&reported), Errno::IO);
        }
    }
}
