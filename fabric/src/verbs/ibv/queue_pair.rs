//! Queue pairs.

use std::fmt;
use std::io;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use proto::{Gid, Lid, Qpn};

use super::call::{check, destroyed, invalid, pointer};
use super::completion_queue::CompletionQueue;
use super::context::ProtectionDomain;
use super::event::ElementId;
use super::memory::Place;
use super::pool::Pool;
use super::post::{ReceiveList, ReceiveQueue, Refused, SendList, Sends};
use super::shared_receive_queue::SharedReceiveQueue;
use super::state_change::{QueuePairState, StateChange};
use crate::verbs::lock;
use crate::verbs::sys::*;

/// Service type of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueuePairKind {
    /// Unreliable datagram.
    Ud,
    /// Reliable connection.
    Rc,
}

/// Parameters of a queue pair.
#[derive(Clone, Debug)]
pub struct QueuePairInit {
    /// Service type.
    pub kind: QueuePairKind,
    /// Completion queue of sends.
    pub send_cq: Arc<CompletionQueue>,
    /// Completion queue of receives.
    pub receive_cq: Arc<CompletionQueue>,
    /// Shared receive queue; `None`: the queue pair has its own.
    pub srq: Option<Arc<SharedReceiveQueue>>,
    /// Maximum number of outstanding sends.
    pub max_send_wr: u32,
    /// Maximum number of outstanding receives in its own queue; 0 with a shared one.
    pub max_recv_wr: u32,
    /// Maximum inline data of a send in bytes. Without support of the device it becomes 0.
    pub max_inline: u32,
}

/// Proof for [`Pool::reclaim`] that the posted work of a queue is forgotten and the device no longer
/// uses its memory.
#[derive(Debug)]
pub struct Emptied(u64);

impl Emptied {
    pub(super) fn new(queue: u64) -> Emptied {
        Emptied(queue)
    }

    pub(super) const fn queue(&self) -> u64 {
        self.0
    }
}

/// A number for a queue, and for each time between two resets.
pub(super) fn serial() -> u64 {
    static SERIALS: AtomicU64 = AtomicU64::new(1);
    SERIALS.fetch_add(1, Ordering::Relaxed)
}

/// A queue pair.
pub struct QueuePair {
    raw: NonNull<ibv_qp>,
    qpn: Qpn,
    // Messages of at most so many bytes are copied while posting.
    inline_max: usize,
    // Held while posting and resetting, so that posted work is stored under the right number.
    life: Mutex<u64>,
    // Queue pairs attached to a group cannot be destroyed (ibv_destroy_qp(3)).
    groups: Mutex<Vec<(Gid, Lid)>>,
    domain: Arc<ProtectionDomain>,
    send_cq: Arc<CompletionQueue>,
    receive_cq: Arc<CompletionQueue>,
    srq: Option<Arc<SharedReceiveQueue>>,
}

// SAFETY: as for `Context`.
unsafe impl Send for QueuePair {}
// SAFETY: as for `Context`.
unsafe impl Sync for QueuePair {}

impl fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QueuePair({})", self.qpn)
    }
}

impl QueuePair {
    /// Creates a queue pair in RESET.
    ///
    /// # Errors
    /// Errors of ibv_create_qp(3); InvalidInput if the shared receive queue belongs to another
    /// protection domain; InvalidData for an invalid queue pair number, or less room than requested.
    pub fn new(domain: &Arc<ProtectionDomain>, init: QueuePairInit) -> io::Result<QueuePair> {
        if init
            .srq
            .as_ref()
            .is_some_and(|s| !Arc::ptr_eq(s.domain(), domain))
        {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut raw_init = raw_init(&init);
        let library = domain.context().library();
        // SAFETY: all objects are alive, and stay so because the queue pair holds them; the attributes
        // outlive the call.
        let mut raw = pointer(unsafe { library.ibv_create_qp(domain.as_ptr(), &mut raw_init) });
        if raw.is_err() && init.max_inline > 0 {
            // The library does not report the maximum of inline data: try without.
            raw_init = self::raw_init(&QueuePairInit {
                max_inline: 0,
                ..init.clone()
            });
            // SAFETY: as above.
            raw = pointer(unsafe { library.ibv_create_qp(domain.as_ptr(), &mut raw_init) });
        }
        let raw = raw?;
        // SAFETY: the library created the queue pair just now; its number never changes.
        let number = unsafe { ptr::addr_of!((*raw.as_ptr()).qp_num).read() };
        let cap = raw_init.cap;
        let queue_pair = QueuePair {
            raw,
            qpn: Qpn::new(number),
            inline_max: cap.max_inline_data as usize,
            life: Mutex::new(serial()),
            groups: Mutex::default(),
            domain: domain.clone(),
            send_cq: init.send_cq,
            receive_cq: init.receive_cq,
            srq: init.srq,
        };
        if number != queue_pair.qpn.get() || queue_pair.qpn.is_reserved() {
            return Err(invalid(format!(
                "queue pair with the invalid number {number:#x}"
            )));
        }
        let short = cap.max_send_wr < init.max_send_wr
            || (queue_pair.srq.is_none() && cap.max_recv_wr < init.max_recv_wr);
        if short {
            return Err(invalid(format!(
                "queue pair for {} sends and {} receives instead of {} and {}",
                cap.max_send_wr, cap.max_recv_wr, init.max_send_wr, init.max_recv_wr
            )));
        }
        Ok(queue_pair)
    }

    fn library(&self) -> &dyn Library {
        self.domain.context().library()
    }

    fn as_ptr(&self) -> *mut ibv_qp {
        self.raw.as_ptr()
    }

    /// Queue pair number.
    pub const fn qpn(&self) -> Qpn {
        self.qpn
    }

    /// Identifier in asynchronous events.
    pub fn id(&self) -> ElementId {
        ElementId(self.as_ptr() as usize)
    }

    /// Changes its state or attributes.
    ///
    /// # Errors
    /// Errors of ibv_modify_qp(3); InvalidInput for RESET, see [`QueuePair::reset`].
    pub fn modify(&self, change: &StateChange) -> io::Result<()> {
        if change.is_reset() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.modify_raw(change)
    }

    fn modify_raw(&self, change: &StateChange) -> io::Result<()> {
        let mut attr = change.attr;
        // SAFETY: the queue pair is alive, the attributes outlive the call.
        check(unsafe {
            self.library()
                .ibv_modify_qp(self.as_ptr(), &mut attr, change.mask.cast_signed())
        })
    }

    /// Changes to RESET; posted work is forgotten.
    ///
    /// # Errors
    /// Errors of ibv_modify_qp(3).
    pub fn reset(&self) -> io::Result<Emptied> {
        let mut life = lock(&self.life);
        self.modify_raw(&StateChange::to(QueuePairState::Reset))?;
        Ok(Emptied(std::mem::replace(&mut *life, serial())))
    }

    /// Current state.
    ///
    /// # Errors
    /// Errors of ibv_query_qp(3); InvalidData for an unknown state.
    pub fn state(&self) -> io::Result<QueuePairState> {
        let mut attr = MaybeUninit::<ibv_qp_attr>::zeroed();
        let mut init = MaybeUninit::<ibv_qp_init_attr>::zeroed();
        // SAFETY: the queue pair is alive; both structures outlive the call, and every bit pattern is
        // valid for the first one.
        let attr = unsafe {
            check(self.library().ibv_query_qp(
                self.as_ptr(),
                attr.as_mut_ptr(),
                IBV_QP_STATE.cast_signed(),
                init.as_mut_ptr(),
            ))?;
            attr.assume_init()
        };
        QueuePairState::from_raw(attr.qp_state)
            .ok_or_else(|| invalid(format!("queue pair in the unknown state {}", attr.qp_state)))
    }

    /// Posts messages in one call; the last one is signalled, and its completion returns the place.
    ///
    /// # Errors
    /// [`Refused`], with the place if it is not posted.
    #[allow(clippy::result_large_err, reason = "the place comes back")]
    pub fn send(
        &self,
        list: &mut SendList,
        pool: &mut Pool,
        place: Place,
        sends: &Sends<'_>,
    ) -> Result<(), Refused> {
        let foreign = |to: &super::UdTarget<'_>| !Arc::ptr_eq(to.ah.domain(), &self.domain);
        if sends.to.as_ref().is_some_and(foreign) {
            return Err(Refused {
                place: Some(place),
                source: io::ErrorKind::InvalidInput.into(),
            });
        }
        let life = lock(&self.life);
        let to = (self.as_ptr(), *life);
        // SAFETY: the queue pair is alive; the address handle belongs to its protection domain. The
        // keys of another domain's pool are invalid here, and the device refuses them.
        unsafe { list.post(self.library(), to, self.inline_max, pool, place, sends) }
    }

    /// Posts all places to its own receive queue in one call; those not posted stay in `places`.
    ///
    /// # Errors
    /// Errors of ibv_post_recv(3): ENOMEM when the queue is full. InvalidInput with a shared receive
    /// queue, and for places of another pool.
    pub fn receive(
        &self,
        list: &mut ReceiveList,
        pool: &mut Pool,
        places: &mut Vec<Place>,
    ) -> io::Result<()> {
        if self.srq.is_some() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let life = lock(&self.life);
        let to = (ReceiveQueue::Own(self.as_ptr()), *life);
        // SAFETY: as in `send`.
        unsafe { list.post(self.library(), to, pool, places) }
    }

    /// Attaches it to a multicast group; `mlid` is 0 on Ethernet. Destroying it detaches it.
    ///
    /// # Errors
    /// Errors of ibv_attach_mcast(3).
    pub fn attach(&self, mgid: Gid, mlid: Lid) -> io::Result<()> {
        let mut groups = lock(&self.groups);
        let gid = ibv_gid { raw: mgid.0 };
        // SAFETY: the queue pair is alive, the GID outlives the call.
        check(unsafe { self.library().ibv_attach_mcast(self.as_ptr(), &gid, mlid.0) })?;
        if !groups.contains(&(mgid, mlid)) {
            groups.push((mgid, mlid));
        }
        Ok(())
    }

    /// Detaches it from a multicast group.
    ///
    /// # Errors
    /// Errors of ibv_detach_mcast(3).
    pub fn detach(&self, mgid: Gid, mlid: Lid) -> io::Result<()> {
        let mut groups = lock(&self.groups);
        self.detach_raw(mgid, mlid)?;
        groups.retain(|group| *group != (mgid, mlid));
        Ok(())
    }

    fn detach_raw(&self, mgid: Gid, mlid: Lid) -> io::Result<()> {
        let gid = ibv_gid { raw: mgid.0 };
        // SAFETY: as in `attach`.
        check(unsafe { self.library().ibv_detach_mcast(self.as_ptr(), &gid, mlid.0) })
    }

    /// Destroys the queue pair, so that its posted places can be reclaimed. `None` on failure.
    pub fn close(self) -> Option<Emptied> {
        let life = *lock(&self.life);
        self.destroy().then_some(Emptied(life))
    }

    fn destroy(self) -> bool {
        let mut parts = ManuallyDrop::new(self);
        // SAFETY: it is destroyed once, because it is not dropped; the calls that use it borrow it.
        let done = unsafe { destroy(&parts) };
        // SAFETY: each is dropped once, after the queue pair, because `parts` is not dropped.
        unsafe {
            ptr::drop_in_place(&mut parts.groups);
            ptr::drop_in_place(&mut parts.domain);
            ptr::drop_in_place(&mut parts.send_cq);
            ptr::drop_in_place(&mut parts.receive_cq);
            ptr::drop_in_place(&mut parts.srq);
        }
        done
    }
}

/// # Safety
/// Called once; nothing uses the queue pair afterwards.
unsafe fn destroy(queue_pair: &QueuePair) -> bool {
    for (mgid, mlid) in lock(&queue_pair.groups).drain(..) {
        if let Err(error) = queue_pair.detach_raw(mgid, mlid) {
            log::warn!(
                "verbs: queue pair {} cannot leave {mgid}: {error}",
                queue_pair.qpn
            );
        }
    }
    // SAFETY: the caller guarantees it.
    let result = unsafe { queue_pair.library().ibv_destroy_qp(queue_pair.as_ptr()) };
    destroyed(&format!("queue pair {}", queue_pair.qpn), result)
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: nothing uses it after the drop; `close` does not drop it.
        unsafe { destroy(self) };
    }
}

fn raw_init(init: &QueuePairInit) -> ibv_qp_init_attr {
    ibv_qp_init_attr {
        qp_context: ptr::null_mut(),
        send_cq: init.send_cq.as_ptr(),
        recv_cq: init.receive_cq.as_ptr(),
        srq: init.srq.as_ref().map_or(ptr::null_mut(), |s| s.as_ptr()),
        cap: ibv_qp_cap {
            max_send_wr: init.max_send_wr,
            max_recv_wr: if init.srq.is_some() {
                0
            } else {
                init.max_recv_wr
            },
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: init.max_inline,
        },
        qp_type: match init.kind {
            QueuePairKind::Ud => IBV_QPT_UD,
            QueuePairKind::Rc => IBV_QPT_RC,
        },
        sq_sig_all: 0,
    }
}
