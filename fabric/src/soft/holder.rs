//! The user of an underlay's RoCEv2 port.
//!
//! Each `ibtapd` holds a lock: a listening socket in the abstract unix namespace. Like the port, it
//! belongs to the network namespace, and it disappears with its process. Any local user can create such a
//! socket, so only the locks of root and of our own user count. Without the lock, the UDP port is taken, as
//! one process alone can bind it.

use std::fmt;
use std::fs;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::geteuid;

use super::socket::probe;
use super::wire::ROCE_V2_PORT;

/// The lock of an underlay; dropping it releases the lock.
#[derive(Debug)]
pub struct Lock {
    /// `None`: a user who is not trusted has the lock.
    _listener: Option<UnixListener>,
}

/// A process and its user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Process {
    /// The process id.
    pub pid: u32,
    /// The name.
    pub name: String,
    /// The effective user id.
    pub uid: u32,
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Process { pid, name, uid } = self;
        write!(f, "process {pid} ({name}, user {uid})")
    }
}

/// Whether a user could stop us anyway.
fn is_trusted(uid: u32) -> bool {
    uid == 0 || uid == geteuid().as_raw()
}

/// Why the lock is not available.
#[derive(Debug)]
pub enum Locked {
    /// Another process holds the lock; its process id, if it belongs to our process namespace.
    By(Option<i32>),
    /// The operating system refused.
    Os(io::Error),
}

fn lock_name(underlay: &str) -> String {
    format!("ibtap/roce/{underlay}")
}

impl Lock {
    /// Takes the lock of an underlay.
    ///
    /// # Errors
    /// [`Locked`].
    pub fn take(underlay: &str) -> Result<Lock, Locked> {
        let name = lock_name(underlay);
        let address = SocketAddr::from_abstract_name(&name).map_err(Locked::Os)?;
        match UnixListener::bind_addr(&address) {
            Ok(listener) => Ok(Lock {
                _listener: Some(listener),
            }),
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => match holder(underlay) {
                Some((pid, uid)) if is_trusted(uid) => Err(Locked::By(pid)),
                found => {
                    let user =
                        found.map_or("an unknown user".to_owned(), |h| format!("user {}", h.1));
                    log::warn!(
                        "{user} holds the lock of {underlay}; ibtapd continues without the lock, and a second ibtapd on {underlay} reports only a taken UDP port; find the process: ss -xlp | grep {name}"
                    );
                    Ok(Lock { _listener: None })
                }
            },
            Err(e) => Err(Locked::Os(e)),
        }
    }
}

/// The process that holds the lock, if it belongs to our process namespace, and its user.
fn holder(underlay: &str) -> Option<(Option<i32>, u32)> {
    listener(&lock_name(underlay)).or_else(|| {
        let process = process_of(lock_inode(underlay)?)?;
        Some((i32::try_from(process.pid).ok(), process.uid))
    })
}

/// Asks the kernel for the process that listens. The socket does not wait: nobody accepts connections,
/// so each call takes a place in the listener's queue for good. A call to a full queue would wait for ever;
/// it fails.
fn listener(name: &str) -> Option<(Option<i32>, u32)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).ok()?;
    connect(&socket, &address).ok()?;
    let peer = getsockopt(&socket, PeerCredentials).ok()?;
    Some((Some(peer.pid()).filter(|pid| *pid != 0), peer.uid()))
}

/// The user of an underlay's RoCEv2 port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PortUser {
    /// The port is free.
    Free,
    /// An `ibtapd`; its process id, if visible.
    Daemon(Option<u32>),
    /// A process.
    Process(Process),
    /// No visible process: the kernel's `rdma_rxe`, a process of another container, or a process that
    /// this user may not inspect.
    Unseen,
}

/// Finds the user of an underlay's port in the calling thread's network namespace, without side
/// effects: a lock is looked up but not contacted, and the port is bound for a test only if no process with
/// a lock has it.
///
/// # Errors
/// Errors of the socket of this test.
pub fn port_user(underlay: &str, ifindex: u32) -> io::Result<PortUser> {
    let lock = lock_inode(underlay);
    let owner = lock.and_then(process_of);
    // A process that has the lock and not the port is another user's, or a daemon that starts or is refused
    // the port.
    let (daemon, has_port) = match &owner {
        Some(process) => (
            is_trusted(process.uid),
            has_one_of(process.pid, &socket_inodes()),
        ),
        None => (lock.is_some(), lock.is_some()),
    };
    let daemon = daemon.then(|| PortUser::Daemon(owner.as_ref().map(|process| process.pid)));
    if has_port && let Some(daemon) = daemon {
        return Ok(daemon);
    }
    match probe(ifindex) {
        Ok(()) => Ok(daemon.unwrap_or(PortUser::Free)),
        Err(e) if e.kind() == io::ErrorKind::AddrInUse => {
            // Other processes may have the sockets, too: systemd keeps those of a daemon.
            let process = owner.filter(|_| has_port).or_else(port_process);
            Ok(process.map_or(PortUser::Unseen, PortUser::Process))
        }
        Err(e) => Err(e),
    }
}

/// The inode of the listening socket that is the underlay's lock.
fn lock_inode(underlay: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/thread-self/net/unix").ok()?;
    unix_inode(&text, &lock_name(underlay))
}

/// Finds the listener of an abstract name in the text of /proc/net/unix (proc_net(5)). The listener has
/// the flag __SO_ACCEPTCON; connections to it have the same name.
fn unix_inode(text: &str, name: &str) -> Option<u64> {
    const ACCEPTS: u32 = 1 << 16;
    text.lines().skip(1).find_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let flags = u32::from_str_radix(fields.nth(3)?, 16).ok()?;
        let inode = fields.nth(2)?.parse().ok()?;
        let found = fields.next()?.strip_prefix('@')?;
        (flags & ACCEPTS != 0 && found == name).then_some(inode)
    })
}

/// A sentence about the user of the port and the remedy.
pub fn sentence(underlay: &str) -> String {
    let port = format!("UDP port {ROCE_V2_PORT} of {underlay} is taken");
    match port_process() {
        Some(process) => format!("{port} by {process}; stop it or choose another underlay"),
        None => format!(
            "{port}, but not by a visible process; remove the kernel's rdma_rxe (rdma link show; rdma link delete NAME; modprobe -r rdma_rxe), stop the program in another container, or use another network namespace"
        ),
    }
}

/// A sentence about another daemon that serves the underlay.
pub fn locked_sentence(underlay: &str, pid: Option<i32>) -> String {
    let daemon = pid.map_or_else(
        || "another ibtapd".to_owned(),
        |pid| format!("another ibtapd (process {pid})"),
    );
    format!("{daemon} already serves {underlay}; stop it or choose another underlay")
}

/// The process that has a socket bound to the port.
fn port_process() -> Option<Process> {
    socket_inodes().into_iter().find_map(process_of)
}

/// The inodes of the sockets bound to the port, on any interface. A socket of the kernel has an inode, or 0.
fn socket_inodes() -> Vec<u64> {
    let table =
        |name| fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap_or_default();
    let tables = ["udp6", "udp"].map(table);
    let inodes = tables.iter().flat_map(|text| inodes_in(text, ROCE_V2_PORT));
    inodes.collect()
}

/// Finds a port in the text of /proc/net/udp or udp6 (proc_net(5)).
fn inodes_in(text: &str, port: u16) -> impl Iterator<Item = u64> {
    text.lines().skip(1).filter_map(move |line| {
        let mut fields = line.split_ascii_whitespace();
        let (_, local) = fields.nth(1)?.rsplit_once(':')?;
        let inode: u64 = fields.nth(7)?.parse().ok()?;
        (u16::from_str_radix(local, 16).ok()? == port && inode != 0).then_some(inode)
    })
}

/// Whether a process has one of these sockets open.
fn has_one_of(pid: u32, inodes: &[u64]) -> bool {
    let targets: Vec<_> = inodes.iter().map(|i| format!("socket:[{i}]")).collect();
    let files = fs::read_dir(format!("/proc/{pid}/fd"));
    let mut links = files
        .into_iter()
        .flatten()
        .flatten()
        .map(|f| fs::read_link(f.path()));
    links.any(|link| link.is_ok_and(|to| targets.iter().any(|t| to.as_os_str() == t.as_str())))
}

/// The process that has a socket open.
fn process_of(inode: u64) -> Option<Process> {
    fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        if !has_one_of(pid, &[inode]) {
            return None;
        }
        let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        Some(Process {
            pid,
            name: name.trim_end().to_owned(),
            uid: user_of(pid)?,
        })
    })
}

/// The effective user of a process. The owner of its files in /proc is root if the process is not dumpable
/// (proc(5)).
#[must_use]
pub fn user_of(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;
    use std::mem::MaybeUninit;
    use std::net::UdpSocket;
    use std::os::fd::{AsFd, OwnedFd};

    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg, socketpair};
    use rustix::process::Uid;

    use super::super::socket::open_receive;
    use super::*;
    use crate::namespace::Namespace;

    /// An underlay name that no other test uses.
    fn name(test: &str) -> String {
        format!("{test}-{}", std::process::id())
    }

    #[test]
    fn asking_for_the_holder_again_and_again_never_waits() {
        let name = name("again");
        let _lock = Lock::take(&name).unwrap();
        // More than the queue of a listener holds (std: 128).
        for _ in 0..200 {
            assert!(matches!(Lock::take(&name), Err(Locked::By(_))));
        }
    }

    #[test]
    fn the_locks_holder_is_found_without_asking_it() {
        let name = name("found");
        assert_eq!(lock_inode(&name), None);
        let _lock = Lock::take(&name).unwrap();
        let process = lock_inode(&name).and_then(process_of);
        let process = process.expect("this process");
        assert_eq!(process.pid, std::process::id());
        assert_eq!(process.uid, geteuid().as_raw());
    }

    #[test]
    fn the_table_of_unix_sockets_is_searched_for_the_listener() {
        let text = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000000000000: 00000003 00000000 00000000 0001 03  4711 @ibtap/roce/eth0\n\
            0000000000000000: 00000002 00000000 00010000 0001 01  4712 @ibtap/roce/eth0\n\
            0000000000000000: 00000002 00000000 00010000 0001 01  4713 @ibtap/roce/eth1\n\
            0000000000000000: 00000002 00000000 00000000 0002 01  4714\n";
        assert_eq!(unix_inode(text, "ibtap/roce/eth0"), Some(4712));
        assert_eq!(unix_inode(text, "ibtap/roce/eth"), None);
        assert_eq!(unix_inode("", "ibtap/roce/eth0"), None);
    }

    #[test]
    fn the_socket_table_is_searched_by_port() {
        let text = "  sl  local_address  remote_address  st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n \
            10: 00000000000000000000000000000000:12B7 00000000000000000000000000000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 77123 2 0000000000000000 0\n \
            11: 00000000000000000000000000000000:12B8 00000000000000000000000000000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 0 2 0000000000000000 0\n";
        let found = |text, port| inodes_in(text, port).collect::<Vec<_>>();
        assert_eq!(found(text, 4791), [77123]);
        assert_eq!(found(text, 4792), [0; 0], "inode 0 is no name of a socket");
        assert_eq!(found(text, 53), [0; 0]);
        assert_eq!(found("", 53), [0; 0]);
    }

    /// A daemon in a container without the process that has the lock: the kernel gives the process id 0.
    #[test]
    fn a_holder_outside_our_process_namespace_has_no_process_id() {
        const NAME: &str = "IBTAP_TEST_LOCK";
        const TEST: &str =
            "soft::holder::tests::a_holder_outside_our_process_namespace_has_no_process_id";
        if let Ok(name) = std::env::var(NAME) {
            assert_eq!(listener(&name), Some((None, geteuid().as_raw())));
            return;
        }
        if !kit::is_root() {
            return;
        }
        let name = lock_name(&name("outside"));
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let _listener = UnixListener::bind_addr(&address).unwrap();
        let inside = std::process::Command::new("unshare")
            .args(["--pid", "--fork"])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", TEST])
            .env(NAME, &name)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&inside.stdout);
        assert!(
            inside.status.success() && text.contains("1 passed"),
            "{text}"
        );
    }

    /// Two daemons start while a stranger has the lock, so that both continue without it.
    #[test]
    fn of_two_daemons_one_gets_the_port() {
        let run = || {
            let _ns = Namespace::loopback("race");
            let opened: Vec<_> = (0..2).map(|_| open_receive(1, 3, Vec::new())).collect();
            assert!(opened[0].is_ok());
            let refused = opened[1].as_ref().err().map(io::Error::kind);
            assert_eq!(refused, Some(io::ErrorKind::AddrInUse));
        };
        std::thread::spawn(run).join().unwrap();
    }

    /// A thread with another user id: the kernel notes the user when a socket begins to listen.
    fn as_nobody<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
        let nobody = Uid::from_raw(65534);
        let run = move || {
            rustix::thread::set_thread_res_uid(None, nobody, None).unwrap();
            f()
        };
        std::thread::spawn(run).join().unwrap()
    }

    /// The name of the lock has no permissions: any local user could stop the daemon from starting.
    #[test]
    fn a_strangers_lock_is_ignored() {
        if !kit::is_root() {
            return;
        }
        let name = name("stranger");
        let of_stranger = name.clone();
        let _lock = as_nobody(move || Lock::take(&of_stranger).unwrap());
        let lock = Lock::take(&name).unwrap();
        assert!(lock._listener.is_none());
    }

    /// Puts a socket into a queue, so that it is open and in no process, like those of the kernel.
    fn unseen(socket: UdpSocket) -> [OwnedFd; 2] {
        let flags = SocketFlags::CLOEXEC;
        let (from, to) = socketpair(AddressFamily::UNIX, SocketType::DGRAM, flags, None).unwrap();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let sockets = [socket.as_fd()];
        assert!(control.push(SendAncillaryMessage::ScmRights(&sockets)));
        let bytes = [IoSlice::new(b"socket")];
        sendmsg(&from, &bytes, &mut control, SendFlags::empty()).unwrap();
        [from, to]
    }

    /// A lock without the port, as that of a daemon that waits while `rdma_rxe` has the port.
    #[test]
    fn the_process_with_the_lock_is_not_blamed_for_a_port_of_another() {
        let run = || {
            let _ns = Namespace::loopback("blame");
            let _lock = Lock::take("lo").unwrap();
            let daemon = PortUser::Daemon(Some(std::process::id()));
            assert_eq!(port_user("lo", 1).unwrap(), daemon);
            let _queue = unseen(UdpSocket::bind("[::]:4791").unwrap());
            assert_eq!(port_user("lo", 1).unwrap(), PortUser::Unseen);
        };
        std::thread::spawn(run).join().unwrap();
    }
}
