//! The service manager's store of descriptors (sd_notify(3), FDSTORE): the TAPs' queues stay open
//! while the daemon is away, so that the interfaces stay as they are, with addresses, routes, bridge
//! and carrier, whether they are persistent or not and however the daemon ended.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;

use netdev::netns::{Namespace, NamespaceId};
use netdev::tap::{Tap, interface_of, namespace_of};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use control::config::InterfaceConfig;

/// How the names begin that descriptors are stored under; the device's name follows.
const PREFIX: &str = "ibtap-";

/// The queues of one interface, as they came from the store.
#[derive(Debug)]
pub struct Stored {
    /// The name they were stored under.
    pub label: String,
    /// The interface's name now.
    pub interface: String,
    /// Where the interface is, if not in the network namespace of this process.
    pub namespace: Option<Namespace>,
    /// All its queues.
    pub fds: Vec<OwnedFd>,
}

/// What the service manager has kept, until the devices have taken theirs.
#[derive(Debug, Default)]
pub struct Inherited {
    interfaces: Vec<Stored>,
}

impl Inherited {
    /// Takes what the service manager passes to this process. Only the first call gets it.
    pub fn take() -> Inherited {
        match netdev::inherited::descriptors() {
            Ok(fds) => Inherited::new(fds),
            Err(e) => {
                log::warn!("the service manager's descriptors are not used: {e}");
                Inherited::default()
            }
        }
    }

    fn new(fds: Vec<(String, OwnedFd)>) -> Inherited {
        let home = Namespace::current().and_then(|home| home.id()).ok();
        let mut interfaces: BTreeMap<_, (Option<Namespace>, Vec<OwnedFd>)> = BTreeMap::new();
        for (label, fd) in fds {
            match interface_of(&fd) {
                Ok(interface) => {
                    // Kernels that cannot say where it is have it here, or nowhere.
                    let there = namespace_of(&fd).ok();
                    let there = there.filter(|there| there.id().ok() != home);
                    let key = (label, interface, there.as_ref().and_then(|t| t.id().ok()));
                    let of_it = interfaces.entry(key).or_insert((there, Vec::new()));
                    of_it.1.push(fd);
                }
                // Deleted while the daemon was away, or no TAP at all.
                Err(e) => {
                    log::info!("{label}: a stored descriptor is of no use any more: {e}");
                    remove(&label);
                }
            }
        }
        let interfaces = interfaces.into_iter();
        Inherited {
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

    /// The other network namespaces that have interfaces of these.
    pub fn namespaces(&self) -> Vec<Namespace> {
        let elsewhere = self.interfaces.iter().filter_map(|s| s.namespace.as_ref());
        elsewhere
            .filter_map(|there| there.try_clone().ok())
            .collect()
    }

    /// The queues of a device: those of the interface that has its name where it is to be, in the
    /// network namespace `place` or in our own, or those that it stored under its `label` before the
    /// interface was renamed or moved.
    pub fn of(&mut self, label: &str, device: &str, place: Option<NamespaceId>) -> Option<Stored> {
        let place_of = |s: &Stored| s.namespace.as_ref().and_then(|there| there.id().ok());
        let by_name = |s: &Stored| s.interface == device && place_of(s) == place;
        let by_label = |s: &Stored| s.label == label;
        let at = self
            .interfaces
            .iter()
            .position(by_name)
            .or_else(|| self.interfaces.iter().position(by_label))?;
        Some(self.interfaces.swap_remove(at))
    }

    /// Whether there are queues of the interface that is called so now.
    pub fn has(&self, interface: &str) -> bool {
        self.interfaces.iter().any(|s| s.interface == interface)
    }

    /// Closes what no device has taken: an interface that is not persistent goes with it.
    pub fn discard_rest(&mut self) {
        for stored in self.interfaces.drain(..) {
            log::info!(
                "{}: no device has this name any more; {} stored descriptor(s) are closed",
                stored.interface,
                stored.fds.len()
            );
            remove(&stored.label);
        }
    }
}

/// Has the service manager keep a device's queues, if it is one that does.
pub fn keep(spec: &InterfaceConfig, tap: &Tap) {
    let fds: Vec<BorrowedFd<'_>> = tap.descriptors().collect();
    let message = format!("FDSTORE=1\nFDNAME={}\n", label(spec));
    if let Err(e) = notify_with(&message, &fds) {
        let name = &spec.name;
        log::warn!("{name}: the service manager does not keep its queues: {e}");
    }
}

/// Has the service manager forget a device's queues: the interface is gone, or is to go.
pub fn forget(spec: &InterfaceConfig) {
    remove(&label(spec));
}

/// Has the service manager close what it keeps under `label`.
pub fn remove(label: &str) {
    let message = format!("FDSTOREREMOVE=1\nFDNAME={label}\n");
    if let Err(e) = notify_with(&message, &[]) {
        log::debug!("{label}: the service manager does not forget its queues: {e}");
    }
}

/// The name to store a device's queues under. An interface name is a valid one but for `:`, which
/// no device of ours has ([`control::config::values::parse_interface`]); devices in other network
/// namespaces may have equal names.
pub fn label(spec: &InterfaceConfig) -> String {
    let name = &spec.name;
    match &spec.netns {
        Some(netns) => format!("{PREFIX}{}/{name}", netns.replace([':', '\n'], "_")),
        None => format!("{PREFIX}{name}"),
    }
}

/// Sends a notification with descriptors; nothing without a service manager.
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

/// Descriptors in one message; the kernel takes 253 (net/core/scm.c, SCM_MAX_FD).
const FDS_MAX: usize = 64;

#[cfg(test)]
mod tests;
