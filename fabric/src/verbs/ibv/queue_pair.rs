//! Queue pairs.

use std::fmt;
use std::io;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use proto::{Gid, Lid, Qpn};

use super::call::{check, destroyed, lie, pointer};
use super::completion_queue::CompletionQueue;
use super::context::ProtectionDomain;
use super::event::ElementId;
use super::memory::Place;
use super::pool::Pool;
use super::post::{ReceiveList, ReceiveQueue, Refused, SendList, Sends};
use super::shared_receive_queue::SharedReceiveQueue;
use super::state_change::{QueuePairState, StateChange};
use crate::verbs::sys::*;

/// Which service a queue pair gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueuePairKind {
    /// Unreliable datagram.
    Ud,
    /// Reliable connection.
    Rc,
}

/// How to make a queue pair.
#[derive(Clone, Debug)]
pub struct QueuePairInit {
    /// Its service.
    pub kind: QueuePairKind,
    /// Where completions of sends go.
    pub send_cq: Arc<CompletionQueue>,
    /// Where completions of receives go.
    pub receive_cq: Arc<CompletionQueue>,
    /// Where receives come from, if not from a queue of its own.
    pub srq: Option<Arc<SharedReceiveQueue>>,
    /// Sends outstanding.
    pub max_send_wr: u32,
    /// Receives outstanding on its own queue; 0 with a shared one.
    pub max_recv_wr: u32,
    /// Bytes that a send may copy while posting. A device that cannot gives a queue pair that copies
    /// nothing.
    pub max_inline: u32,
}

/// What was posted to a queue is forgotten, and the device uses it no longer: proof for
/// [`Pool::reclaim`].
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

/// A number for a queue, and for each of its lives between two resets.
pub(super) fn serial() -> u64 {
    static SERIALS: AtomicU64 = AtomicU64::new(1);
    SERIALS.fetch_add(1, Ordering::Relaxed)
}

/// A queue pair.
pub struct QueuePair {
    raw: NonNull<ibv_qp>,
    qpn: Qpn,
    inline_max: usize,
    max_send_wr: usize,
    // Held while posting and resetting, so that what is posted is noted under the right life.
    life: Mutex<u64>,
    // A queue pair that is attached to a group cannot be ended (ibv_destroy_qp(3)).
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
    /// Makes one, in RESET.
    ///
    /// # Errors
    /// Those of ibv_create_qp(3); InvalidInput if the shared receive queue is of another protection
    /// domain; InvalidData for a number that no queue pair may have, or less room than asked for.
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
        // SAFETY: all objects named are alive, and stay so as long as the queue pair, which holds
        // them; the attributes live over the call.
        let mut raw = pointer(unsafe { library.ibv_create_qp(domain.as_ptr(), &mut raw_init) });
        if raw.is_err() && init.max_inline > 0 {
            // There is no way to ask how much a device copies.
            raw_init = self::raw_init(&QueuePairInit {
                max_inline: 0,
                ..init.clone()
            });
            // SAFETY: as above.
            raw = pointer(unsafe { library.ibv_create_qp(domain.as_ptr(), &mut raw_init) });
        }
        let raw = raw?;
        // SAFETY: the library made the queue pair just now; its number never changes.
        let number = unsafe { ptr::addr_of!((*raw.as_ptr()).qp_num).read() };
        let cap = raw_init.cap;
        let queue_pair = QueuePair {
            raw,
            qpn: Qpn::new(number),
            inline_max: cap.max_inline_data as usize,
            max_send_wr: cap.max_send_wr as usize,
            life: Mutex::new(serial()),
            groups: Mutex::default(),
            domain: domain.clone(),
            send_cq: init.send_cq,
            receive_cq: init.receive_cq,
            srq: init.srq,
        };
        if number != queue_pair.qpn.get() || queue_pair.qpn.is_reserved() {
            return Err(lie(format!("a queue pair with the number {number:#x}")));
        }
        let short = cap.max_send_wr < init.max_send_wr
            || (queue_pair.srq.is_none() && cap.max_recv_wr < init.max_recv_wr);
        if short {
            return Err(lie(format!(
                "a queue pair for {} sends and {} receives, where {} and {} were asked for",
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

    fn groups(&self) -> MutexGuard<'_, Vec<(Gid, Lid)>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn life(&self) -> MutexGuard<'_, u64> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its number.
    pub const fn qpn(&self) -> Qpn {
        self.qpn
    }

    /// Sends that may be outstanding.
    pub const fn max_send_wr(&self) -> usize {
        self.max_send_wr
    }

    /// Messages of at most so many bytes are copied while posting.
    pub const fn inline_max(&self) -> usize {
        self.inline_max
    }

    /// What asynchronous events call it.
    pub fn id(&self) -> ElementId {
        ElementId(self.as_ptr() as usize)
    }

    /// Where completions of sends go.
    pub fn send_cq(&self) -> &Arc<CompletionQueue> {
        &self.send_cq
    }

    /// Where completions of receives go.
    pub fn receive_cq(&self) -> &Arc<CompletionQueue> {
        &self.receive_cq
    }

    /// Changes its state or attributes.
    ///
    /// # Errors
    /// Those of ibv_modify_qp(3); InvalidInput for RESET, which is [`QueuePair::reset`].
    pub fn modify(&self, change: &StateChange) -> io::Result<()> {
        if change.is_reset() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.modify_raw(change)
    }

    fn modify_raw(&self, change: &StateChange) -> io::Result<()> {
        let mut attr = change.attr;
        // SAFETY: the queue pair is alive, the attributes live over the call.
        check(unsafe {
            self.library()
                .ibv_modify_qp(self.as_ptr(), &mut attr, change.mask.cast_signed())
        })
    }

    /// To RESET: what was posted to it is forgotten.
    ///
    /// # Errors
    /// Those of ibv_modify_qp(3).
    pub fn reset(&self) -> io::Result<Emptied> {
        let mut life = self.life();
        self.modify_raw(&StateChange::to(QueuePairState::Reset))?;
        Ok(Emptied(std::mem::replace(&mut *life, serial())))
    }

    /// The state it is in.
    ///
    /// # Errors
    /// Those of ibv_query_qp(3); InvalidData for a state that there is not.
    pub fn state(&self) -> io::Result<QueuePairState> {
        let mut attr = MaybeUninit::<ibv_qp_attr>::zeroed();
        let mut init = MaybeUninit::<ibv_qp_init_attr>::zeroed();
        // SAFETY: the queue pair is alive; both structures live over the call, and every bit pattern is
        // one of the first one's values.
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
            .ok_or_else(|| lie(format!("a queue pair in state {}", attr.qp_state)))
    }

    /// Posts messages in one call, of which the last one is signalled: its completion gives the place
    /// back.
    ///
    /// # Errors
    /// [`Refused`], with the place where it can be had back.
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
        let life = self.life();
        let to = (self.as_ptr(), *life);
        // SAFETY: the queue pair is alive; the address handle is of its protection domain. A pool of
        // another one has keys that are none here; the device refuses them.
        unsafe { list.post(self.library(), to, self.inline_max, pool, place, sends) }
    }

    /// Posts all places to its own receive queue in one call; those that were not posted stay in
    /// `places`.
    ///
    /// # Errors
    /// Those of ibv_post_recv(3): ENOMEM when the queue is full. InvalidInput with a shared receive
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
        let life = self.life();
        let to = (ReceiveQueue::Own(self.as_ptr()), *life);
        // SAFETY: as in `send`.
        unsafe { list.post(self.library(), to, pool, places) }
    }

    /// Attaches it to a multicast group; `mlid` is 0 on Ethernet. It leaves its groups when it ends.
    ///
    /// # Errors
    /// Those of ibv_attach_mcast(3).
    pub fn attach(&self, mgid: Gid, mlid: Lid) -> io::Result<()> {
        let mut groups = self.groups();
        let gid = ibv_gid { raw: mgid.0 };
        // SAFETY: the queue pair is alive, the GID lives over the call.
        check(unsafe { self.library().ibv_attach_mcast(self.as_ptr(), &gid, mlid.0) })?;
        if !groups.contains(&(mgid, mlid)) {
            groups.push((mgid, mlid));
        }
        Ok(())
    }

    /// Detaches it from a multicast group.
    ///
    /// # Errors
    /// Those of ibv_detach_mcast(3).
    pub fn detach(&self, mgid: Gid, mlid: Lid) -> io::Result<()> {
        let mut groups = self.groups();
        self.detach_raw(mgid, mlid)?;
        groups.retain(|group| *group != (mgid, mlid));
        Ok(())
    }

    fn detach_raw(&self, mgid: Gid, mlid: Lid) -> io::Result<()> {
        let gid = ibv_gid { raw: mgid.0 };
        // SAFETY: as in `attach`.
        check(unsafe { self.library().ibv_detach_mcast(self.as_ptr(), &gid, mlid.0) })
    }

    /// Ends the queue pair, so that what was posted to it can be had back. `None` if it could not be
    /// ended.
    pub fn close(self) -> Option<Emptied> {
        let life = *self.life();
        self.destroy().then_some(Emptied(life))
    }

    fn destroy(self) -> bool {
        let mut parts = ManuallyDrop::new(self);
        // SAFETY: it is destroyed once, since it is not dropped; the calls that use it borrow it.
        let done = unsafe { destroy(&parts) };
        // SAFETY: each is dropped once, after the queue pair, since `parts` is not.
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
/// To be called once, and nothing uses the queue pair afterwards.
unsafe fn destroy(queue_pair: &QueuePair) -> bool {
    for (mgid, mlid) in queue_pair.groups().drain(..) {
        if let Err(error) = queue_pair.detach_raw(mgid, mlid) {
            log::warn!("verbs: {} could not leave {mgid}: {error}", queue_pair.qpn);
        }
    }
    // SAFETY: the caller promises it.
    let result = unsafe { queue_pair.library().ibv_destroy_qp(queue_pair.as_ptr()) };
    destroyed(&format!("queue pair {}", queue_pair.qpn), result)
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: nothing uses it after it was dropped; `close` does not drop it.
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
