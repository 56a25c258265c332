//! The user of an underlay's RoCEv2 port.
//!
//! Each `ibtapd` holds a lock: a listening socket in the abstract unix namespace. Like the port, it
//! belongs to the network namespace, and it disappears with its process.

use std::fs;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use super::socket::probe;
use super::wire::ROCE_V2_PORT;

/// The lock of an underlay; dropping it releases the lock.
#[derive(Debug)]
pub struct Lock {
    _listener: UnixListener,
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
                _listener: listener,
            }),
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => Err(Locked::By(holder(&name))),
            Err(e) => Err(Locked::Os(e)),
        }
    }
}

/// Asks the kernel for the process that listens. The socket does not wait: nobody accepts connections,
/// so each call takes a place in the listener's queue for good, and a call to a full queue would wait
/// for ever.
fn holder(name: &str) -> Option<i32> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).ok()?;
    connect(&socket, &address).ok()?;
    let pid = socket_peercred(&socket).ok()?.pid;
    Some(pid.as_raw_nonzero().get())
}

/// The user of an underlay's RoCEv2 port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PortUser {
    /// The port is free.
    Free,
    /// An `ibtapd`; its process id, if visible.
    Daemon(Option<u32>),
    /// A process, with its name.
    Process(u32, String),
    /// No visible process: the kernel's `rdma_rxe`, a process of another container, or a process that
    /// this user may not inspect.
    Unseen,
}

/// Finds the user of an underlay's port in the calling thread's network namespace, without side
/// effects: a lock is looked up but not contacted, and the port is bound for a test only if it has no
/// lock.
///
/// # Errors
/// Errors of the socket of this test.
pub fn port_user(underlay: &str, ifindex: u32) -> io::Result<PortUser> {
    if let Some(inode) = lock_inode(underlay) {
        return Ok(PortUser::Daemon(process_of(inode).map(|(pid, _)| pid)));
    }
    match probe(ifindex) {
        Ok(()) => Ok(PortUser::Free),
        Err(e) if e.kind() == io::ErrorKind::AddrInUse => Ok(socket_inode()
            .and_then(process_of)
            .map_or(PortUser::Unseen, |(pid, name)| PortUser::Process(pid, name))),
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
    match socket_inode().and_then(process_of) {
        Some((pid, name)) => {
            format!("{port} by process {pid} ({name}); stop it or choose another underlay")
        }
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

/// The inode of a socket bound to the port. A socket of the kernel has an inode, or 0.
fn socket_inode() -> Option<u64> {
    ["udp6", "udp"].iter().find_map(|table| {
        let text = fs::read_to_string(format!("/proc/thread-self/net/{table}")).ok()?;
        inode_in(&text, ROCE_V2_PORT)
    })
}

/// Finds a port in the text of /proc/net/udp or udp6 (proc_net(5)).
fn inode_in(text: &str, port: u16) -> Option<u64> {
    text.lines().skip(1).find_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let (_, local) = fields.nth(1)?.rsplit_once(':')?;
        let inode: u64 = fields.nth(7)?.parse().ok()?;
        (u16::from_str_radix(local, 16).ok()? == port && inode != 0).then_some(inode)
    })
}

/// The process that has a socket open, and its name.
fn process_of(inode: u64) -> Option<(u32, String)> {
    let target = format!("socket:[{inode}]");
    fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let mut files = fs::read_dir(entry.path().join("fd")).ok()?.flatten();
        files.find(|f| fs::read_link(f.path()).is_ok_and(|t| t.as_os_str() == target.as_str()))?;
        let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        Some((pid, name.trim_end().to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(process.map(|(pid, _)| pid), Some(std::process::id()));
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
        assert_eq!(inode_in(text, 4791), Some(77123));
        assert_eq!(inode_in(text, 4792), None, "inode 0 is no name of a socket");
        assert_eq!(inode_in(text, 53), None);
        assert_eq!(inode_in("", 53), None);
    }
}
