//! Event channels.

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use proto::Qpn;

use super::event::{CmEvent, CmEventKind, CmKey};
use super::id::CmId;
use crate::verbs::ibv::call::{check, destroyed, lie, pointer, unless_empty};
use crate::verbs::ibv::context::{borrow_fd, set_nonblocking};
use crate::verbs::sys::*;

/// Where the events of identifiers come from.
pub struct EventChannel {
    library: Arc<dyn Library>,
    raw: NonNull<rdma_event_channel>,
    /// The identifiers that have an owner: what an event names is one of them, or new.
    ids: Mutex<HashSet<usize>>,
}

// SAFETY: librdmacm may be called from any thread; calls for one identifier are made by its owner
// alone.
unsafe impl Send for EventChannel {}
// SAFETY: as above.
unsafe impl Sync for EventChannel {}

impl fmt::Debug for EventChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EventChannel")
    }
}

impl EventChannel {
    /// Makes one. Its events do not block.
    ///
    /// # Errors
    /// Those of rdma_create_event_channel(3): ENOENT or ENODEV without /dev/infiniband/rdma_cm.
    pub fn new(library: &Arc<dyn Library>) -> io::Result<Arc<EventChannel>> {
        // SAFETY: it takes nothing.
        let raw = pointer(unsafe { library.rdma_create_event_channel() })?;
        let channel = EventChannel {
            library: library.clone(),
            raw,
            ids: Mutex::default(),
        };
        set_nonblocking(channel.fd()?)?;
        Ok(Arc::new(channel))
    }

    /// Readable when [`EventChannel::next_event`] has something.
    ///
    /// # Errors
    /// InvalidData if the library gave none.
    pub fn fd(&self) -> io::Result<BorrowedFd<'_>> {
        // SAFETY: the channel is alive; the field never changes.
        let fd = unsafe { ptr::addr_of!((*self.raw.as_ptr()).fd).read() };
        // SAFETY: the descriptor is open as long as the channel, which the result borrows.
        unsafe { borrow_fd(fd) }
    }

    pub(super) fn library(&self) -> &dyn Library {
        &*self.library
    }

    pub(super) fn as_ptr(&self) -> *mut rdma_event_channel {
        self.raw.as_ptr()
    }

    pub(super) fn ids(&self) -> MutexGuard<'_, HashSet<usize>> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next event, if there is one.
    ///
    /// # Errors
    /// Those of rdma_get_cm_event(3); InvalidData for an event that cannot be.
    pub fn next_event(self: &Arc<Self>) -> io::Result<Option<CmEvent>> {
        let mut event = ptr::null_mut();
        // SAFETY: the channel is alive; the pointer is to a pointer that lives over the call.
        let result = check(unsafe { self.library.rdma_get_cm_event(self.as_ptr(), &mut event) });
        if unless_empty(result)?.is_none() {
            return Ok(None);
        }
        let event = pointer(event)?;
        // SAFETY: the library made the event, and keeps it until it is acknowledged.
        let answer = unsafe { self.take(event.as_ptr()) };
        // SAFETY: it is acknowledged once, and nothing of it is kept: what was wanted was copied.
        let acknowledged = check(unsafe { self.library.rdma_ack_cm_event(event.as_ptr()) });
        let taken = answer?;
        acknowledged?;
        Ok(Some(taken))
    }

    /// Copies an event.
    ///
    /// # Safety
    /// The event is the library's and not yet acknowledged.
    unsafe fn take(self: &Arc<Self>, event: *const rdma_cm_event) -> io::Result<CmEvent> {
        // SAFETY: the event is alive. Of its union the variant for connections is read, which is the
        // one for the port space that all identifiers here are of; the other one has its members at
        // other places, but they are numbers, and a pointer that is followed for the events that have
        // it only.
        let (id, listen_id, code, status, param) = unsafe {
            let e = &*event;
            (e.id, e.listen_id, e.event, e.status, e.param.conn)
        };
        let kind = CmEventKind::new(code);
        let id = NonNull::new(id).ok_or_else(|| lie("an event of no identifier"))?;
        let key = CmKey(id.as_ptr() as usize);
        let known = self.ids().contains(&key.0);
        let request = match (kind, known) {
            (CmEventKind::ConnectRequest, true) => {
                return Err(lie("a connection was requested twice"));
            }
            (CmEventKind::ConnectRequest, false) => Some(CmId::adopt(self, id)),
            (_, true) => None,
            (_, false) => return Err(lie("an event of an identifier that there is not")),
        };
        let mut private_data = Vec::new();
        let mut qpn = Qpn::new(0);
        if kind.has_parameters() {
            qpn = Qpn::new(param.qp_num);
            if !param.private_data.is_null() {
                // SAFETY: the event is alive, and says how many bytes there are; they are copied.
                private_data.extend_from_slice(unsafe {
                    std::slice::from_raw_parts(
                        param.private_data.cast::<u8>(),
                        param.private_data_len.into(),
                    )
                });
            }
        }
        Ok(CmEvent {
            id: key,
            kind,
            status,
            listener: NonNull::new(listen_id)
                .filter(|_| kind == CmEventKind::ConnectRequest)
                .map(|l| CmKey(l.as_ptr() as usize)),
            request,
            private_data,
            qpn,
        })
    }
}

impl Drop for EventChannel {
    fn drop(&mut self) {
        // SAFETY: its identifiers hold it by `Arc` and are gone. It is destroyed once.
        unsafe { self.library.rdma_destroy_event_channel(self.as_ptr()) };
        let left = self.ids().len();
        if left > 0 {
            destroyed("identifiers of connections", libc::EBUSY);
        }
    }
}
