//! Who has the RoCEv2 port of an underlay.
//!
//! Our own kind keeps a lock: a listening socket in the abstract unix namespace, which belongs to
//! the network namespace as the port does, and goes away with its process.

use std::fs;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use rustix::net::sockopt::socket_peercred;

use super::wire::ROCE_V2_PORT;

/// The lock, held as long as it lives.
#[derive(Debug)]
pub struct Lock {
    _listener: UnixListener,
}

/// Why the lock cannot be had.
#[derive(Debug)]
pub enum Locked {
    /// Another process holds it; its process id, if it is of our process namespace.
    By(Option<i32>),
    /// The operating system refused.
    Os(io::Error),
}

fn lock_name(underlay: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("ibtap/roce/{underlay}"))
}

impl Lock {
    /// Takes the lock of an underlay.
    ///
    /// # Errors
    /// Who has it.
    pub fn take(underlay: &str) -> Result<Lock, Locked> {
        let name = lock_name(underlay).map_err(Locked::Os)?;
        match UnixListener::bind_addr(&name) {
            Ok(listener) => Ok(Lock {
                _listener: listener,
            }),
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => Err(Locked::By(holder(&name))),
            Err(e) => Err(Locked::Os(e)),
        }
    }
}

fn holder(name: &SocketAddr) -> Option<i32> {
    let stream = UnixStream::connect_addr(name).ok()?;
    let pid = socket_peercred(&stream).ok()?.pid;
    Some(pid.as_raw_nonzero().get())
}

/// One sentence on who has the port, and what to do.
pub fn sentence(underlay: &str) -> String {
    let port = format!("UDP port {ROCE_V2_PORT} of {underlay} is taken");
    match socket_inode().and_then(process_of) {
        Some((pid, name)) => {
            format!("{port} by process {pid} ({name}); stop it or choose another underlay")
        }
        None => format!(
            "{port}, and by no process that can be seen from here: probably by the kernel's rdma_rxe, or else in another container; remove the rdma_rxe device (rdma link show; rdma link delete NAME), stop the other program, or use another network namespace"
        ),
    }
}

/// One sentence on another daemon that serves the underlay.
pub fn locked_sentence(underlay: &str, pid: Option<i32>) -> String {
    let who = pid.map_or_else(
        || "another ibtapd".to_owned(),
        |pid| format!("another ibtapd, process {pid},"),
    );
    format!("{who} serves {underlay} already; stop it or choose another underlay")
}

/// The inode of a socket that is bound to the port. A socket of the kernel has one as well, or 0.
fn socket_inode() -> Option<u64> {
    ["udp6", "udp"].iter().find_map(|table| {
        let text = fs::read_to_string(format!("/proc/thread-self/net/{table}")).ok()?;
        inode_in(&text, ROCE_V2_PORT)
    })
}

/// Looks through the text of /proc/net/udp or udp6 (proc_net(5)).
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
