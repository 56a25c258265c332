//! Shared receive queues.

use std::io;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::call::{destroyed, invalid, pointer};
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
    /// Creates a queue for at least `capacity` places.
    ///
    /// # Errors
    /// Errors of ibv_create_srq(3); InvalidData if the queue is smaller than requested.
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
        // SAFETY: the protection domain is alive, the attributes outlive the call.
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
            return Err(invalid(format!(
                "shared receive queue with {} entries instead of {capacity}",
                init.attr.max_wr
            )));
        }
        Ok(Arc::new(queue))
    }

    /// Maximum number of places.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    pub(super) fn as_ptr(&self) -> *mut ibv_srq {
        self.raw.as_ptr()
    }

    pub(super) fn domain(&self) -> &Arc<ProtectionDomain> {
        &self.domain
    }

    /// Identifier in asynchronous events.
    pub fn id(&self) -> ElementId {
        ElementId(self.as_ptr() as usize)
    }

    /// Posts all places in one call; those not posted stay in `places`.
    ///
    /// # Errors
    /// Errors of ibv_post_srq_recv(3): ENOMEM when the queue is full. InvalidInput for places of
    /// another pool.
    pub fn receive(
        &self,
        list: &mut ReceiveList,
        pool: &mut Pool,
        places: &mut Vec<Place>,
    ) -> io::Result<()> {
        let library = self.domain.context().library();
        let to = (ReceiveQueue::Shared(self.as_ptr()), self.serial);
        // SAFETY: the queue is alive. The keys of another domain's pool are invalid here, and the
        // device refuses them.
        unsafe { list.post(library, to, pool, places) }
    }

    /// Destroys the queue if this is the last owner, so that its places can be reclaimed. `None` if it
    /// has another owner, or on failure.
    pub fn close(self: Arc<Self>) -> Option<Emptied> {
        let queue = Arc::into_inner(self)?;
        let serial = queue.serial;
        queue.destroy().then(|| Emptied::new(serial))
    }

    fn destroy(self) -> bool {
        let queue = std::mem::ManuallyDrop::new(self);
        // SAFETY: its queue pairs hold it by `Arc`, so they are destroyed. It is destroyed once,
        // because it is not dropped; its domain is moved out once.
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
