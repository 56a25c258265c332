//! TAP interfaces (kernel Documentation/networking/tuntap.rst, drivers/net/tun.c).
//!
//! A frame in either direction is a 12-byte little-endian virtio-net header
//! (`virtio_net_hdr_v1`, virtio 1.2, 5.1.6) and an Ethernet frame, which with segmentation offload
//! may be far longer than the MTU. What a program *reads* is what the host sends.

mod adopt;
mod error;
mod holder;
mod queue;
mod sysctls;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rtnl::{Link, Requests};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

pub use adopt::temporary_name;
pub use error::TapError;
pub use holder::Holder;
pub use queue::{TapQueue, is_down, is_gone};

use crate::netns::Namespace;
use crate::sys;

/// Bytes of the virtio-net header before each frame.
pub const VNET_HEADER_LEN: usize = 12;

/// A buffer of this size holds whatever one read may give: the header, an Ethernet header with a
/// VLAN tag, and the largest super-frame. A shorter one truncates without a word.
pub const READ_MAX: usize = VNET_HEADER_LEN + 18 + 65536;

/// Queues that one TAP may have (drivers/net/tun.c, MAX_TAP_QUEUES).
pub const QUEUES_MAX: usize = 256;

const DEVICE: &str = "/dev/net/tun";

/// What this side handles in frames that it reads, before USO.
const OFFLOADS: u32 = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;

/// UDP segmentation offload, since Linux 6.2; the kernel takes both bits or none.
const OFFLOADS_USO: u32 = libc::TUN_F_USO4 | libc::TUN_F_USO6;

/// How to open a TAP.
#[derive(Clone, Debug)]
pub struct TapOptions {
    /// The interface's name, 1 to 15 bytes.
    pub name: String,
    /// Queues, 1 to 256. An interface that exists with a single queue keeps that one.
    pub queues: usize,
    /// The interface outlives the program. False leaves an existing one as it is.
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

/// What the kernel agreed to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offloads {
    /// UDP segmentation (VIRTIO_NET_HDR_GSO_UDP_L4) in both directions. Checksum and TCP
    /// segmentation offload (TSO4, TSO6, ECN) are always on.
    pub uso: bool,
}

/// The control side of an open TAP interface. The interface lives while this or one of its queues
/// does, and longer if it is persistent.
#[derive(Debug)]
pub struct Tap {
    /// Every queue, since a detached one cannot speak for the interface.
    queues: Vec<Arc<OwnedFd>>,
    ifindex: u32,
    offloads: Offloads,
    existed: bool,
}

impl Tap {
    /// Makes a TAP in the network namespace of the calling thread, or adopts a left-over one that
    /// no process holds. The interface is down, with the carrier on, unless it was up before. The
    /// queues never block.
    ///
    /// # Errors
    /// Each [`TapError`] is a sentence for the administrator. [`TapError::Held`] may pass by itself:
    /// `ip tuntap add` holds its TAP for a moment.
    pub fn open(options: &TapOptions) -> Result<(Tap, Vec<TapQueue>), TapError> {
        Tap::make_or_attach(options).map_err(TapError::with_holder)
    }

    fn make_or_attach(options: &TapOptions) -> Result<(Tap, Vec<TapQueue>), TapError> {
        options.check()?;
        let mut requests = Requests::new()?;
        let before = existing(&mut requests, &options.name)?;
        Tap::attach(options, &mut requests, before.as_ref())
    }

    /// Opens the queues of the interface `before`, or of a new one.
    fn attach(
        options: &TapOptions,
        requests: &mut Requests,
        before: Option<&Link>,
    ) -> Result<(Tap, Vec<TapQueue>), TapError> {
        let name = options.name.as_str();
        let plan = Plan::new(options, before);
        let queues = open_queues(name, &plan)?;
        let link = requests.link_by_name(name)?;
        // It was deleted a moment ago; the one made instead is gone as soon as its queues are.
        if before.is_some_and(|before| before.index != link.index) {
            return Err(TapError::Missing(name.to_owned()));
        }
        refuse_other_holder(&link, queues.len())?;
        Tap::set_up(queues, &link, before.is_some(), options.persist)
    }

    /// Takes over a TAP whose queues were open before this program started, such as those that a
    /// service manager kept over a restart: `fds` are all queues of one interface. Its addresses,
    /// routes, MAC, state and carrier are as they were. The queues never block. Those above `most`
    /// are detached and closed, since what a queue without a reader gets is lost.
    ///
    /// # Errors
    /// [`TapError::Elsewhere`] if the interface is not in the network namespace of the calling
    /// thread; else as [`Tap::open`].
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
            .map_err(|errno| TapError::setup("that was kept", "read the name", errno))?;
        let link = match Requests::new()?.link_by_name(&name) {
            Ok(link) if link.tun.is_some_and(|tun| tun.tap) => link,
            Err(e) if !e.is_not_found() => return Err(e.into()),
            _ => return Err(TapError::Elsewhere { name }),
        };
        refuse_other_holder(&link, total).map_err(TapError::with_holder)?;
        for spare in fds.split_off(most.min(total)) {
            sys::set_queue(&spare, false)
                .map_err(|errno| TapError::setup(&name, "detach a queue", errno))?;
        }
        let queues = fds.into_iter().map(Arc::new).collect();
        Tap::set_up(queues, &link, true, persist)
    }

    /// Tells the driver how its frames are to look.
    fn set_up(
        queues: Vec<Arc<OwnedFd>>,
        link: &Link,
        existed: bool,
        persist: bool,
    ) -> Result<(Tap, Vec<TapQueue>), TapError> {
        let name = link.name.as_str();
        let first = &queues[0];
        let failed = |what| move |errno: Errno| TapError::setup(name, what, errno);
        sys::set_header_size(first, VNET_HEADER_LEN as i32)
            .map_err(failed("set the virtio-net header's size"))?;
        sys::set_header_little_endian(first)
            .map_err(failed("set the virtio-net header's byte order"))?;
        // The kernel's own value, which a former holder of the interface may have lowered: with less
        // a write would fail while the host keeps earlier frames in its sockets.
        sys::set_send_buffer(first, i32::MAX).map_err(failed("set the send buffer"))?;
        let offloads = set_offloads(first).map_err(failed("turn segmentation offload on"))?;
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

    /// The queues' descriptors, for a service manager that keeps them over a restart.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.queues.iter().map(|queue| queue.as_fd())
    }

    /// The interface index, in the namespace where it was when it was opened.
    pub fn ifindex(&self) -> u32 {
        self.ifindex
    }

    /// What the kernel agreed to.
    pub fn offloads(&self) -> Offloads {
        self.offloads
    }

    /// Whether the interface was there before it was opened.
    pub fn existed(&self) -> bool {
        self.existed
    }

    /// The interface's name as it is now, in whichever namespace it is (TUNGETIFF).
    ///
    /// # Errors
    /// [`is_gone`] if the interface was deleted.
    pub fn name(&self) -> std::io::Result<String> {
        self.control(|tun| sys::interface_name(tun))
    }

    /// The network namespace where the interface is now (TUNGETDEVNETNS, since Linux 5.2). The
    /// interface may be moved again at any time; whoever keeps the answer keeps the namespace alive.
    ///
    /// # Errors
    /// [`is_gone`] if the interface was deleted; EINVAL while its namespace is, and from older
    /// kernels.
    pub fn namespace(&self) -> std::io::Result<Namespace> {
        self.control(|tun| sys::namespace(tun))
            .map(Namespace::from_fd)
    }

    /// Turns the carrier on or off, as `ip link` shows it (NO-CARRIER) and protocols heed it
    /// (TUNSETCARRIER, since Linux 4.20).
    ///
    /// # Errors
    /// [`is_gone`] if the interface was deleted.
    pub fn set_carrier(&self, carrier: bool) -> std::io::Result<()> {
        self.control(|tun| sys::set_carrier(tun, carrier))
    }

    /// Whether the interface outlives the program (TUNSETPERSIST).
    ///
    /// # Errors
    /// [`is_gone`] if the interface was deleted.
    pub fn set_persist(&self, persist: bool) -> std::io::Result<()> {
        self.control(|tun| sys::set_persist(tun, persist))
    }

    /// Whether the interface outlives the program, whoever said so.
    ///
    /// # Errors
    /// [`is_gone`] if the interface was deleted.
    pub fn is_persistent(&self) -> std::io::Result<bool> {
        self.control(|tun| sys::is_persistent(tun))
    }

    /// Asks through the first queue that is attached.
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

/// The name of the interface that an open queue belongs to (TUNGETIFF), in whichever namespace it
/// is.
///
/// # Errors
/// [`is_gone`] if the interface was deleted; others if the descriptor is no TAP's.
pub fn interface_of(queue: impl AsFd) -> std::io::Result<String> {
    Ok(sys::interface_name(queue)?)
}

/// The network namespace of the interface that an open queue belongs to (TUNGETDEVNETNS, since Linux
/// 5.2). Whoever keeps it keeps the namespace alive.
///
/// # Errors
/// [`is_gone`] if the interface was deleted; ENOTTY or EINVAL from older kernels.
pub fn namespace_of(queue: impl AsFd) -> std::io::Result<Namespace> {
    Ok(Namespace::from_fd(sys::namespace(queue)?))
}

/// How to ask for the queues.
struct Plan {
    queues: usize,
    flags: i32,
    /// Refuse an interface that someone else has made in the meantime.
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
            flags: libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR | mode,
            exclusive: before.is_none(),
        }
    }
}

/// The interface of that name, if it is a TAP that nobody holds.
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
    refuse_other_holder(&link, 0)?;
    Ok(Some(link))
}

/// A multi-queue TAP lets any number of processes in; only its count of queues tells.
fn refuse_other_holder(link: &Link, ours: usize) -> Result<(), TapError> {
    let queues = link.tun.map_or(0, |tun| tun.queues + tun.disabled_queues);
    if queues as usize > ours {
        return Err(TapError::held(&link.name));
    }
    Ok(())
}

fn open_queues(name: &str, plan: &Plan) -> Result<Vec<Arc<OwnedFd>>, TapError> {
    let mut queues = Vec::with_capacity(plan.queues);
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
        queues.push(Arc::new(queue));
    }
    Ok(queues)
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
