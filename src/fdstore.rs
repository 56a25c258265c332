//! The service manager's descriptor store (sd_notify(3), FDSTORE). The TAPs' queues stay open while no
//! daemon runs, so the interfaces keep addresses, routes, bridge and carrier. This works for TAPs that are
//! not persistent, too, and however the daemon ended. The sockets that receive for the software fabric stay open, too:
//! packets in both directions wait for the next daemon.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::sync::Arc;

use fabric::Port;
use netdev::netns::{Namespace, NamespaceId};
use netdev::tap::{Tap, interface_of, namespace_of};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use control::config::{InterfaceConfig, PortName};

/// The prefix of labels; the interface's configured name follows.
const PREFIX: &str = "ibtap-";

/// The prefix of the labels of receiving sockets; the underlay and the socket's number follow, with a hyphen between
/// them.
const SOCKET_PREFIX: &str = "roce-";

/// Longest time from one interface or port of a start to the next, in microseconds. The kernel may need half a second for
/// a TAP, and a port waits for its GID.
const STEP: u32 = 30_000_000;

/// The queues of one interface from the store.
#[derive(Debug)]
pub struct Stored {
    /// The label.
    pub label: String,
    /// The interface's current name.
    pub interface: String,
    /// The network namespace, if it is not the daemon's.
    pub namespace: Option<Namespace>,
    /// All its queues.
    pub fds: Vec<OwnedFd>,
}

/// The descriptors that the service manager has kept, and no interface or port has taken yet.
#[derive(Debug, Default)]
pub struct Inherited {
    interfaces: Vec<Stored>,
    /// Receiving sockets, by underlay (as in their labels) and number.
    sockets: BTreeMap<String, BTreeMap<usize, OwnedFd>>,
}

impl Inherited {
    /// Takes the descriptors that the service manager passes to this process. Only the first call gets
    /// them.
    pub fn take() -> Inherited {
        match netdev::inherited::descriptors() {
            Ok(fds) => Inherited::new(fds),
            Err(e) => {
                log::warn!("cannot take the descriptors that systemd has kept: {e}");
                Inherited::default()
            }
        }
    }

    fn new(fds: Vec<(String, OwnedFd)>) -> Inherited {
        let home = Namespace::current().and_then(|home| home.id()).ok();
        let mut interfaces: BTreeMap<_, (Option<Namespace>, Vec<OwnedFd>)> = BTreeMap::new();
        let mut sockets: BTreeMap<String, BTreeMap<usize, OwnedFd>> = BTreeMap::new();
        for (label, fd) in fds {
            if let Some((underlay, number)) = of_socket(&label) {
                let of_it = sockets.entry(underlay.to_owned()).or_default();
                of_it.insert(number, fd);
                continue;
            }
            match interface_of(&fd) {
                Ok(interface) => {
                    // Kernels without TUNGETDEVNETNS: the TAP is in this namespace, or lost.
                    let there = namespace_of(&fd).ok();
                    let there = there.filter(|there| there.id().ok() != home);
                    let key = (label, interface, there.as_ref().and_then(|t| t.id().ok()));
                    let of_it = interfaces.entry(key).or_insert((there, Vec::new()));
                    of_it.1.push(fd);
                }
                // The interface was deleted meanwhile, or this is not a TAP.
                Err(e) => {
                    log::info!("{label}: closing a stored descriptor: {e}");
                    remove(&label);
                }
            }
        }
        let interfaces = interfaces.into_iter();
        Inherited {
            sockets,
            interfaces: interfaces
                .map(|((label, interface, _), (namespace, fds))| Stored {
                    label,
                    interface,
                    namespace,
                    fds,
                })
                .collect(),
        }
    }

    /// The other network namespaces that have these interfaces.
    pub fn namespaces(&self) -> Vec<Namespace> {
        let elsewhere = self.interfaces.iter().filter_map(|s| s.namespace.as_ref());
        elsewhere
            .filter_map(|there| there.try_clone().ok())
            .collect()
    }

    /// Takes the queues of the interface with this name in the namespace `place` (`None`: the daemon's).
    pub fn named(&mut self, name: &str, place: Option<NamespaceId>) -> Option<Stored> {
        let place_of = |s: &Stored| s.namespace.as_ref().and_then(|there| there.id().ok());
        let is_it = |s: &Stored| s.interface == name && place_of(s) == place;
        let at = self.interfaces.iter().position(is_it)?;
        Some(self.interfaces.swap_remove(at))
    }

    /// Takes the queues of a configured interface that was renamed or moved: those with its label. Children in
    /// several containers may have one label, which then identifies none of them.
    pub fn labelled(&mut self, label: &str) -> Option<Stored> {
        let all = self.interfaces.iter().enumerate();
        let mut alike = all.filter(|(_, stored)| stored.label == label);
        let (at, _) = alike.next().filter(|_| alike.next().is_none())?;
        Some(self.interfaces.swap_remove(at))
    }

    /// Takes the receiving sockets of a port, in their order.
    pub fn sockets_of(&mut self, port: &PortName) -> Vec<Arc<OwnedFd>> {
        let underlay = printable(&port.to_string());
        let kept = self.sockets.remove(&underlay).unwrap_or_default();
        kept.into_values().map(Arc::new).collect()
    }

    /// Whether the store has queues of the interface with this current name.
    pub fn has(&self, interface: &str) -> bool {
        self.interfaces.iter().any(|s| s.interface == interface)
    }

    /// Closes the descriptors that no interface or port has taken. The kernel removes TAPs that are not persistent
    /// with their queues.
    pub fn discard_rest(&mut self) {
        for (underlay, sockets) in std::mem::take(&mut self.sockets) {
            log::info!(
                "{underlay}: not in use; closing {} stored socket(s)",
                sockets.len()
            );
            sockets
                .keys()
                .for_each(|n| remove(&socket_label(&underlay, *n)));
        }
        for stored in self.interfaces.drain(..) {
            log::info!(
                "{}: not in use; closing {} stored descriptor(s)",
                stored.interface,
                stored.fds.len()
            );
            remove(&stored.label);
        }
    }
}

/// Stores an interface's queues with the service manager, if it supports that.
pub fn keep(spec: &InterfaceConfig, tap: &Tap) {
    let fds: Vec<BorrowedFd<'_>> = tap.descriptors().collect();
    store(&label(spec), &fds);
}

/// Stores the receiving sockets of a port.
pub fn keep_sockets(name: &PortName, port: &dyn Port) {
    for (number, socket) in port.receiving_sockets().iter().enumerate() {
        store(&socket_label(&name.to_string(), number), &[*socket]);
    }
}

/// Removes the first `count` receiving sockets of a port from the store.
pub fn forget_sockets(name: &PortName, count: usize) {
    (0..count).for_each(|n| remove(&socket_label(&name.to_string(), n)));
}

fn socket_label(underlay: &str, number: usize) -> String {
    format!("{SOCKET_PREFIX}{}-{number}", printable(underlay))
}

/// Underlay and number of the label of a receiving socket.
fn of_socket(label: &str) -> Option<(&str, usize)> {
    let (underlay, number) = label.strip_prefix(SOCKET_PREFIX)?.rsplit_once('-')?;
    Some((underlay, number.parse().ok()?))
}

/// Stores descriptors under a label. Every interface and every port is stored when it is ready, so the message also says
/// that the start goes on: with many interfaces, it may take longer than `TimeoutStartSec` (systemd.service(5)).
fn store(label: &str, fds: &[BorrowedFd<'_>]) {
    let message = format!("FDSTORE=1\nFDNAME={label}\nEXTEND_TIMEOUT_USEC={STEP}\n");
    if let Err(e) = notify_with(&message, fds) {
        log::warn!("{label}: cannot put the descriptors into systemd's store: {e}");
    }
}

/// Removes the descriptors of a label from the store.
pub fn remove(label: &str) {
    let message = format!("FDSTOREREMOVE=1\nFDNAME={label}\n");
    if let Err(e) = notify_with(&message, &[]) {
        log::debug!("{label}: cannot remove the descriptors from systemd's store: {e}");
    }
}

/// A name for a label: systemd takes labels of printable ASCII without `:`.
fn printable(name: &str) -> String {
    let escaped = name.bytes().map(|byte| match byte {
        b' '..=b'~' if byte != b':' => char::from(byte).to_string(),
        _ => format!("\\x{byte:02x}"),
    });
    escaped.collect()
}

/// The label of an interface. Interfaces in different network namespaces may have equal names.
pub fn label(spec: &InterfaceConfig) -> String {
    let name = printable(&spec.name);
    match &spec.netns {
        Some(netns) => {
            let is_valid = |c: char| matches!(c, ' '..='~') && c != ':';
            let netns = netns.replace(|c| !is_valid(c), "_");
            format!("{PREFIX}{netns}/{name}")
        }
        None => format!("{PREFIX}{name}"),
    }
}

/// Sends a notification with descriptors; does nothing without a service manager.
fn notify_with(message: &str, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    match std::env::var_os("NOTIFY_SOCKET") {
        Some(path) => send(Path::new(&path), message, fds),
        None => Ok(()),
    }
}

/// A path that begins with `@` is a name in the abstract namespace.
fn send(path: &Path, message: &str, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let socket = UnixDatagram::unbound()?;
    match path.as_os_str().as_bytes() {
        [b'@', name @ ..] => socket.connect_addr(&SocketAddr::from_abstract_name(name)?)?,
        _ => socket.connect(path)?,
    }
    for fds in fds.chunks(FDS_MAX).chain(fds.is_empty().then_some(fds)) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(fds));
        }
        let text = [IoSlice::new(message.as_bytes())];
        sendmsg(&socket, &text, &mut control, SendFlags::NOSIGNAL)?;
    }
    Ok(())
}

/// Maximum number of descriptors in one message; the kernel takes 253 (net/core/scm.c, SCM_MAX_FD).
const FDS_MAX: usize = 64;

#[cfg(test)]
mod tests;
