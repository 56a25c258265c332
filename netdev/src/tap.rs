//! TAP interfaces (kernel Documentation/networking/tuntap.rst, drivers/net/tun.c).
//!
//! A frame, in either direction, is a 12-byte little-endian virtio-net header (`virtio_net_hdr_v1`, virtio
//! 1.2, 5.1.6) and an Ethernet frame. With segmentation offload it may be far longer than the MTU. A
//! program *reads* the frames that the host sends.

mod adopt;
mod error;
mod flow;
mod holder;
mod queue;
mod sysctls;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rtnl::{Link, Requests, Tun};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Uid, geteuid};

pub use adopt::temporary_name;
pub use error::TapError;
pub use holder::Holder;
pub use queue::{TapQueue, is_down, is_gone};

use crate::ethtool::TurnedOff;
use crate::netns::Namespace;
use crate::sys;

/// Bytes of the virtio-net header before each frame.
pub const VNET_HEADER_LEN: usize = 12;

/// Maximum bytes of a read: the virtio-net header, an Ethernet header with a VLAN tag, and the largest
/// super-frame. The kernel silently truncates a frame to a shorter buffer.
pub const READ_MAX: usize = VNET_HEADER_LEN + 18 + 65536;

/// Maximum number of queues of a TAP (drivers/net/tun.c, MAX_TAP_QUEUES).
pub const QUEUES_MAX: usize = 256;

const DEVICE: &str = "/dev/net/tun";

/// Supported offloads in frames read, without USO.
const OFFLOADS: u32 = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;

/// UDP segmentation offload, since Linux 6.2; the kernel accepts both bits or none.
const OFFLOADS_USO: u32 = libc::TUN_F_USO4 | libc::TUN_F_USO6;

/// Options for opening a TAP.
#[derive(Clone, Debug)]
pub struct TapOptions {
    /// The interface name, 1 to 15 bytes.
    pub name: String,
    /// Number of queues, 1 to 256. An existing interface with a single queue keeps it.
    pub queues: usize,
    /// The interface remains after the program's end. False does not change an existing interface.
    pub persist: bool,
}

impl TapOptions {
    fn check(&self) -> Result<(), TapError> {
        if let Some(reason) = rtnl::name_fault(&self.name) {
            return Err(TapError::Name {
                name: self.name.clone(),
                reason,
            });
        }
        if !(1..=QUEUES_MAX).contains(&self.queues) {
            return Err(TapError::Queues(self.queues));
        }
        Ok(())
    }
}

/// The offloads accepted by the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offloads {
    /// UDP segmentation (VIRTIO_NET_HDR_GSO_UDP_L4) in both directions. Checksum and TCP
    /// segmentation offload (TSO4, TSO6, ECN) are always on.
    pub uso: bool,
}

/// The control side of an open TAP interface. The interface lives as long as this value or any of its
/// queues, longer if it is persistent.
#[derive(Debug)]
pub struct Tap {
    /// All queues, because a detached one cannot be used for ioctls on the interface.
    queues: Vec<Arc<OwnedFd>>,
    ifindex: u32,
    offloads: Offloads,
    existed: bool,
}

impl Tap {
    /// Makes a TAP in the network namespace of the calling thread, or reuses an existing one that no
    /// process holds. The interface has no carrier, and is down unless it was up before. Its owner is root, also if
    /// it had another one. The queues never block.
    ///
    /// # Errors
    /// See [`TapError`]. [`TapError::Held`] may disappear after a moment: `ip tuntap add` holds its TAP
    /// briefly.
    pub fn open(options: &TapOptions) -> Result<(Tap, Vec<TapQueue>), TapError> {
        let opened = match Tap::make_or_attach(options) {
            // Its holder released it, or somebody deleted it, after the daemon had looked for it.
            Err(TapError::Missing(_)) => Tap::make_or_attach(options),
            opened => opened,
        };
        opened.map_err(TapError::with_holder)
    }

    fn make_or_attach(options: &TapOptions) -> Result<(Tap, Vec<TapQueue>), TapError> {
        options.check()?;
        let mut requests = Requests::new()?;
        let before = existing(&mut requests, &options.name)?;
        Tap::attach(options, &mut requests, before.as_ref())
    }

    /// Opens the queues of the interface `before`, or of a new interface.
    fn attach(
        options: &TapOptions,
        requests: &mut Requests,
        before: Option<&Link>,
    ) -> Result<(Tap, Vec<TapQueue>), TapError> {
        let name = options.name.as_str();
        let plan = Plan::new(options, before);
        let (queues, owner) = open_queues(name, &plan)?;
        let link = requests.link_by_name(name)?;
        // The interface was deleted meanwhile. The new one disappears when its queues are closed.
        if before.is_some_and(|before| before.index != link.index) {
            return Err(TapError::Missing(name.to_owned()));
        }
        refuse_other_holder(&link, queues.len(), owner)?;
        let opened = Tap::set_up(queues, &link, before.is_some(), options.persist)?;
        // Kernels before 6.1 do not know IFF_NO_CARRIER. Those before 4.20 cannot change the carrier.
        let _ = opened.0.set_carrier(false);
        Ok(opened)
    }

    /// Takes over a TAP whose queues are already open, such as those that a service manager kept over a
    /// restart. `fds` are all queues of an interface. It keeps addresses, routes, MAC, state and carrier; its owner
    /// is root. The queues never block. Queues above `most` are detached and closed, because frames of a queue
    /// without reader are lost.
    ///
    /// # Errors
    /// [`TapError::Elsewhere`] if the interface is not in the network namespace of the calling thread; else
    /// as [`Tap::open`].
    pub fn from_fds(
        mut fds: Vec<OwnedFd>,
        most: usize,
        persist: bool,
    ) -> Result<(Tap, Vec<TapQueue>), TapError> {
        if fds.is_empty() || most == 0 {
            return Err(TapError::Queues(0));
        }
        let total = fds.len();
        let name = sys::interface_name(&fds[0])
            .map_err(|errno| TapError::setup("(inherited)", "read its name", errno))?;
        let owner = protect(&fds[0], &name)?;
        let link = match Requests::new()?.link_by_name(&name) {
            Ok(link) if link.tun.is_some_and(|tun| tun.tap) => link,
            Err(e) if !e.is_not_found() => return Err(e.into()),
            _ => return Err(TapError::Elsewhere { name }),
        };
        refuse_other_holder(&link, total, owner).map_err(TapError::with_holder)?;
        for spare in fds.split_off(most.min(total)) {
            sys::set_queue(&spare, false)
                .map_err(|errno| TapError::setup(&name, "detach a queue", errno))?;
        }
        let queues = fds.into_iter().map(Arc::new).collect();
        Tap::set_up(queues, &link, true, persist)
    }

    /// Sets the frame format in the driver.
    fn set_up(
        queues: Vec<Arc<OwnedFd>>,
        link: &Link,
        existed: bool,
        persist: bool,
    ) -> Result<(Tap, Vec<TapQueue>), TapError> {
        let name = link.name.as_str();
        let first = &queues[0];
        let failed = |what| move |errno: Errno| TapError::setup(name, what, errno);
        let turned_off = match existed {
            true => TurnedOff::read(name),
            false => Ok(TurnedOff::default()),
        };
        sys::set_header_size(first, VNET_HEADER_LEN as i32)
            .map_err(failed("set the virtio-net header's size"))?;
        sys::set_header_little_endian(first)
            .map_err(failed("set the virtio-net header's byte order"))?;
        // The kernel's default. A former holder may have lowered it; a write would then fail while the host
        // keeps earlier frames in its sockets.
        sys::set_send_buffer(first, i32::MAX).map_err(failed("set the send buffer"))?;
        let offloads = set_offloads(first).map_err(failed("turn segmentation offload on"))?;
        // TUNSETOFFLOAD turns all of them on, as `ethtool -K ... on` does.
        if let Err(e) = turned_off.and_then(|turned_off| turned_off.restore(name)) {
            log::warn!("{name}: offloads that ethtool had switched off may be on again: {e}");
        }
        if persist {
            sys::set_persist(first, true).map_err(failed("make the interface persistent"))?;
        }
        let ends = queues.iter().cloned().map(TapQueue::new).collect();
        let tap = Tap {
            queues,
            ifindex: link.index,
            offloads,
            existed,
        };
        Ok((tap, ends))
    }

    /// The queues' descriptors, for the service manager's descriptor store.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.queues.iter().map(|queue| queue.as_fd())
    }

    /// The interface index in the namespace in which it was opened.
    pub fn ifindex(&self) -> u32 {
        self.ifindex
    }

    /// The offloads accepted by the kernel.
    pub fn offloads(&self) -> Offloads {
        self.offloads
    }

    /// Whether the interface existed before it was opened.
    pub fn existed(&self) -> bool {
        self.existed
    }

    /// The present name of the interface, in any namespace (TUNGETIFF).
    ///
    /// # Errors
    /// [`is_gone`] if the interface was deleted.
    pub fn name(&self) -> std::io::Result<String> {
        self.control(|tun| sys::interface_name(tun))
    }

    /// The present network namespace of the interface (TUNGETDEVNETNS, since Linux 5.2). The interface may
    /// move at any time. The result keeps the namespace alive.
    ///
    /// # Errors
    /// [`is_gone`] if the interface was deleted; EINVAL while its namespace is being deleted, and from
    /// older kernels.
    pub fn namespace(&self) -> std::io::Result<Namespace> {
        self.control(|tun| sys::namespace(tun))
            .map(Namespace::from_fd)
    }

    /// Sets the carrier (TUNSETCARRIER, since Linux 4.20). `ip link` shows a missing carrier as NO-CARRIER.
    ///
    /// # Errors
    /// [`is_gone`] if the interface was deleted.
    pub fn set_carrier(&self, carrier: bool) -> std::io::Result<()> {
        self.control(|tun| sys::set_carrier(tun, carrier))
    }

    /// Sets whether the interface remains after the program's end (TUNSETPERSIST).
    ///
    /// # Errors
    /// [`is_gone`] if the interface was deleted.
    pub fn set_persist(&self, persist: bool) -> std::io::Result<()> {
        self.control(|tun| sys::set_persist(tun, persist))
    }

    /// Whether the interface remains after the program's end, regardless of which program set it.
    ///
    /// # Errors
    /// [`is_gone`] if the interface was deleted.
    pub fn is_persistent(&self) -> std::io::Result<bool> {
        self.control(|tun| sys::is_persistent(tun))
    }

    /// Calls `ask` with the first attached queue.
    fn control<T>(&self, ask: impl Fn(&OwnedFd) -> rustix::io::Result<T>) -> std::io::Result<T> {
        let mut answer = Err(Errno::BADFD);
        for queue in &self.queues {
            answer = ask(queue);
            if answer.as_ref().err() != Some(&Errno::BADFD) {
                break;
            }
        }
        Ok(answer?)
    }
}

/// The name of the interface of an open queue, in any namespace (TUNGETIFF).
///
/// # Errors
/// [`is_gone`] if the interface was deleted; other errors if the descriptor is not a TAP's.
pub fn interface_of(queue: impl AsFd) -> std::io::Result<String> {
    Ok(sys::interface_name(queue)?)
}

/// The network namespace of the interface of an open queue (TUNGETDEVNETNS, since Linux 5.2). The result
/// keeps the namespace alive.
///
/// # Errors
/// [`is_gone`] if the interface was deleted; ENOTTY or EINVAL from older kernels.
pub fn namespace_of(queue: impl AsFd) -> std::io::Result<Namespace> {
    Ok(Namespace::from_fd(sys::namespace(queue)?))
}

/// The way to open the queues.
struct Plan {
    queues: usize,
    flags: i32,
    /// Fail if another program has made the interface meanwhile.
    exclusive: bool,
}

impl Plan {
    fn new(options: &TapOptions, before: Option<&Link>) -> Plan {
        let tun = before.and_then(|link| link.tun);
        let multi_queue = tun.map_or(options.queues > 1, |tun| tun.multi_queue);
        let mode = if multi_queue {
            libc::IFF_MULTI_QUEUE
        } else {
            0
        };
        Plan {
            queues: if multi_queue { options.queues } else { 1 },
            flags: libc::IFF_TAP
                | libc::IFF_NO_PI
                | libc::IFF_VNET_HDR
                | libc::IFF_NO_CARRIER
                | mode,
            exclusive: before.is_none(),
        }
    }
}

/// The interface with this name, if it is a TAP that no process holds.
fn existing(requests: &mut Requests, name: &str) -> Result<Option<Link>, TapError> {
    let link = match requests.link_by_name(name) {
        Ok(link) => link,
        Err(e) if e.is_not_found() => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    match link.tun {
        Some(tun) if tun.tap => {}
        _ => {
            return Err(TapError::NameTaken {
                name: name.to_owned(),
                kind: match (&link.tun, &link.kind) {
                    (Some(_), _) => "tun (layer 3)".to_owned(),
                    (None, Some(kind)) => kind.clone(),
                    (None, None) => "hardware".to_owned(),
                },
            });
        }
    }
    if link.tun.is_some_and(|tun| tun.open_queues() > 0) {
        return Err(TapError::held(&link.name));
    }
    Ok(Some(link))
}

/// Fails if other processes have queues open, or had queues open after [`protect`] set the owner: a process with a
/// queue may change the owner.
fn refuse_other_holder(link: &Link, ours: usize, owner: Uid) -> Result<(), TapError> {
    let is_ours =
        |tun: Tun| tun.open_queues() as usize <= ours && tun.owner == Some(owner.as_raw());
    if link.tun.is_some_and(is_ours) {
        Ok(())
    } else {
        Err(TapError::held(&link.name))
    }
}

/// Whether a process holds the TAP, as far as rtnetlink shows it. For a TAP without `multi_queue` the
/// kernel reports no queues, but removes the carrier when it is closed (drivers/net/tun.c, `__tun_detach`).
/// A TAP that is not persistent exists only while a process holds it.
pub fn is_held(link: &Link) -> bool {
    link.tun
        .is_some_and(|tun| link.carrier || !tun.persist || tun.open_queues() > 0)
}

/// Returns the queues and the interface's owner.
fn open_queues(name: &str, plan: &Plan) -> Result<(Vec<Arc<OwnedFd>>, Uid), TapError> {
    let mut queues = Vec::with_capacity(plan.queues);
    let mut owner = Uid::ROOT;
    for number in 0..plan.queues {
        let queue = rustix::fs::open(
            DEVICE,
            OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map_err(TapError::device)?;
        let exclusive = if plan.exclusive && number == 0 {
            libc::IFF_TUN_EXCL
        } else {
            0
        };
        sys::set_interface(&queue, name, plan.flags | exclusive)
            .map_err(|errno| TapError::attach(name, errno))?;
        if number == 0 {
            owner = protect(&queue, name)?;
        }
        queues.push(Arc::new(queue));
    }
    Ok((queues, owner))
}

/// Keeps other users from opening queues: every user may open a TAP without an owner (drivers/net/tun.c,
/// `tun_not_capable`). Comes before the link is read, so that [`refuse_other_holder`] finds a user who has opened
/// a queue before. Another owner is replaced: whoever opened the TAP before may have set that owner. The owner is
/// root, also if the daemon runs as another user: NetworkManager compares the owner with its profile. The daemon
/// needs no ownership, because it has CAP_NET_ADMIN. Returns the owner.
fn protect(queue: &OwnedFd, name: &str) -> Result<Uid, TapError> {
    let set = |owner| sys::set_owner(queue, owner).map(|()| owner);
    // A user namespace may not have root.
    let done = set(Uid::ROOT).or_else(|_| set(geteuid()));
    done.map_err(|errno| TapError::setup(name, "set the owner", errno))
}

fn set_offloads(tun: &OwnedFd) -> rustix::io::Result<Offloads> {
    match sys::set_offload(tun, OFFLOADS | OFFLOADS_USO) {
        Ok(()) => Ok(Offloads { uso: true }),
        Err(Errno::INVAL) => {
            sys::set_offload(tun, OFFLOADS)?;
            Ok(Offloads { uso: false })
        }
        Err(errno) => Err(errno),
    }
}
