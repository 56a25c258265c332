//! Shared receive queues.

use std::io;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::call::{destroyed, lie, pointer};
use super::context::ProtectionDomain;
use super::event::ElementId;
use super::memory::Place;
use super::pool::Pool;
use super::post::{ReceiveList, ReceiveQueue};
use super::queue_pair::{Emptied, serial};
use crate::verbs::sys::*;

/// A shared receive queue.
#[derive(Debug)]
pub struct SharedReceiveQueue {
    raw: NonNull<ibv_srq>,
    domain: Arc<ProtectionDomain>,
    capacity: usize,
    serial: u64,
}

// SAFETY: as for `Context`.
unsafe impl Send for SharedReceiveQueue {}
// SAFETY: as for `Context`.
unsafe impl Sync for SharedReceiveQueue {}

impl SharedReceiveQueue {
    /// Makes one for at least `capacity` places.
    ///
    /// # Errors
    /// Those of ibv_create_srq(3); InvalidData if it is smaller than asked for.
    pub fn new(
        domain: &Arc<ProtectionDomain>,
        capacity: u32,
    ) -> io::Result<Arc<SharedReceiveQueue>> {
        let mut init = ibv_srq_init_attr {
            srq_context: ptr::null_mut(),
            attr: ibv_srq_attr {
                max_wr: capacity,
                max_sge: 1,
                srq_limit: 0,
            },
        };
        // SAFETY: the protection domain is alive, the attributes live over the call.
        let raw = pointer(unsafe {
            domain
                .context()
                .library()
                .ibv_create_srq(domain.as_ptr(), &mut init)
        })?;
        let queue = SharedReceiveQueue {
            raw,
            domain: domain.clone(),
            capacity: init.attr.max_wr as usize,
            serial: serial(),
        };
        if init.attr.max_wr < capacity {
            return Err(lie(format!(
                "a shared receive queue for {} entries, where {capacity} were asked for",
                init.attr.max_wr
            )));
        }
        Ok(Arc::new(queue))
    }

    /// How many places it holds.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    pub(super) fn as_ptr(&self) -> *mut ibv_srq {
        self.raw.as_ptr()
    }

    pub(super) fn domain(&self) -> &Arc<ProtectionDomain> {
        &self.domain
    }

    /// What asynchronous events call it.
    pub fn id(&self) -> ElementId {
        ElementId(self.as_ptr() as usize)
    }

    /// Posts all places in one call; those that were not posted stay in `places`.
    ///
    /// # Errors
    /// Those of ibv_post_srq_recv(3): ENOMEM when the queue is full. InvalidInput for places of
    /// another pool.
    pub fn receive(
        &self,
        list: &mut ReceiveList,
        pool: &mut Pool,
        places: &mut Vec<Place>,
    ) -> io::Result<()> {
        let library = self.domain.context().library();
        let to = (ReceiveQueue::Shared(self.as_ptr()), self.serial);
        // SAFETY: the queue is alive. A pool of another protection domain has keys that are none here;
        // the device refuses them.
        unsafe { list.post(library, to, pool, places) }
    }

    /// Ends the queue, if nobody else holds it, so that its places can be had back. `None` if it is
    /// held, or could not be ended.
    pub fn close(self: Arc<Self>) -> Option<Emptied> {
        let queue = Arc::into_inner(self)?;
        let serial = queue.serial;
        queue.destroy().then(|| Emptied::new(serial))
    }

    fn destroy(self) -> bool {
        let queue = std::mem::ManuallyDrop::new(self);
        // SAFETY: its queue pairs hold it by `Arc` and are gone. It is destroyed once, since it is not
        // dropped; its domain is moved out once.
        unsafe {
            let domain = ptr::read(&queue.domain);
            let result = domain.context().library().ibv_destroy_srq(queue.as_ptr());
            destroyed("a shared receive queue", result)
        }
    }
}

impl Drop for SharedReceiveQueue {
    fn drop(&mut self) {
        // SAFETY: as in `destroy`.
        let result = unsafe {
            self.domain
                .context()
                .library()
                .ibv_destroy_srq(self.as_ptr())
        };
        destroyed("a shared receive queue", result);
    }
}
