//! Event channels.

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, MutexGuard};

use proto::Qpn;

use super::event::{CmEvent, CmEventKind, CmKey};
use super::id::{CmId, PortSpace};
use crate::verbs::ibv::call::{check, destroyed, invalid, pointer, unless_empty};
use crate::verbs::ibv::context::{borrow_fd, set_nonblocking};
use crate::verbs::lock;
use crate::verbs::sys::*;

/// Source of the events of identifiers.
pub struct EventChannel {
    library: Arc<dyn Library>,
    raw: NonNull<rdma_event_channel>,
    /// The port space of its identifiers.
    space: PortSpace,
    /// The identifiers with an owner; an event belongs to one of them or to a new one.
    ids: Mutex<HashSet<usize>>,
}

// SAFETY: librdmacm allows calls from any thread; only the owner of an identifier makes calls for it.
unsafe impl Send for EventChannel {}
// SAFETY: as above.
unsafe impl Sync for EventChannel {}

impl fmt::Debug for EventChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EventChannel")
    }
}

impl EventChannel {
    /// Creates a channel with nonblocking events, for identifiers in one port space.
    ///
    /// # Errors
    /// Errors of rdma_create_event_channel(3): ENOENT or ENODEV without /dev/infiniband/rdma_cm.
    pub fn new(library: &Arc<dyn Library>, space: PortSpace) -> io::Result<Arc<EventChannel>> {
        // SAFETY: the function has no arguments.
        let raw = pointer(unsafe { library.rdma_create_event_channel() })?;
        let channel = EventChannel {
            library: library.clone(),
            raw,
            space,
            ids: Mutex::default(),
        };
        set_nonblocking(channel.fd()?)?;
        Ok(Arc::new(channel))
    }

    /// Readable when [`EventChannel::next_event`] has something.
    ///
    /// # Errors
    /// InvalidData if the library gave no descriptor.
    pub fn fd(&self) -> io::Result<BorrowedFd<'_>> {
        // SAFETY: the channel is alive; the field never changes.
        let fd = unsafe { ptr::addr_of!((*self.raw.as_ptr()).fd).read() };
        // SAFETY: the descriptor is open as long as the channel, which the result borrows.
        unsafe { borrow_fd(fd) }
    }

    /// The port space of its identifiers.
    pub const fn space(&self) -> PortSpace {
        self.space
    }

    pub(super) fn library(&self) -> &dyn Library {
        &*self.library
    }

    pub(super) fn as_ptr(&self) -> *mut rdma_event_channel {
        self.raw.as_ptr()
    }

    pub(super) fn ids(&self) -> MutexGuard<'_, HashSet<usize>> {
        lock(&self.ids)
    }

    /// The next event, if any.
    ///
    /// # Errors
    /// Errors of rdma_get_cm_event(3); InvalidData for an invalid event.
    pub fn next_event(self: &Arc<Self>) -> io::Result<Option<CmEvent>> {
        let mut event = ptr::null_mut();
        // SAFETY: the channel is alive; the pointer points to a pointer that outlives the call.
        let result = check(unsafe { self.library.rdma_get_cm_event(self.as_ptr(), &mut event) });
        if unless_empty(result)?.is_none() {
            return Ok(None);
        }
        let event = pointer(event)?;
        // SAFETY: the library made the event, and keeps it until it is acknowledged.
        let answer = unsafe { self.take(event.as_ptr()) };
        // SAFETY: it is acknowledged once; everything needed was copied.
        let acknowledged = check(unsafe { self.library.rdma_ack_cm_event(event.as_ptr()) });
        let taken = answer?;
        acknowledged?;
        Ok(Some(taken))
    }

    /// Copies an event.
    ///
    /// # Safety
    /// The library made the event, and it is not acknowledged yet.
    unsafe fn take(self: &Arc<Self>, event: *const rdma_cm_event) -> io::Result<CmEvent> {
        // SAFETY: the event is alive. The union is read as the variant for connections, which matches
        // the port space of all identifiers with private data. In the other variant the members are at
        // other offsets, but they are numbers, and a pointer at the same offset, which is dereferenced
        // only for events with private data.
        let (id, listen_id, code, status, param) = unsafe {
            let e = &*event;
            (e.id, e.listen_id, e.event, e.status, e.param.conn)
        };
        let kind = CmEventKind::new(code);
        let id = NonNull::new(id).ok_or_else(|| invalid("event without an identifier"))?;
        let key = CmKey(id.as_ptr() as usize);
        let known = self.ids().contains(&key.0);
        let request = match (kind, known) {
            (CmEventKind::ConnectRequest, true) => {
                return Err(invalid("two requests with the same identifier"));
            }
            (CmEventKind::ConnectRequest, false) => Some(CmId::adopt(self, id, self.space)),
            (_, true) => None,
            (_, false) => return Err(invalid("event of an unknown identifier")),
        };
        let mut private_data = Vec::new();
        let mut qpn = Qpn::new(0);
        if kind.has_parameters() {
            qpn = Qpn::new(param.qp_num);
            if !param.private_data.is_null() {
                // SAFETY: the event is alive and has the length; the bytes are copied.
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
            context: param.private_data as usize,
        })
    }
}

impl Drop for EventChannel {
    fn drop(&mut self) {
        // SAFETY: its identifiers hold it by `Arc`, so they are destroyed. It is destroyed once.
        unsafe { self.library.rdma_destroy_event_channel(self.as_ptr()) };
        let left = self.ids().len();
        if left > 0 {
            destroyed("rdma_cm identifiers", libc::EBUSY);
        }
    }
}
