//! Completion queues, and the channels that wake a sleeper for them.

use std::ffi::c_int;
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::call::{check, destroyed, lie, pointer, unless_empty};
use super::completion::WorkCompletion;
use super::context::{Context, borrow_fd, set_nonblocking};
use super::event::ElementId;
use crate::verbs::sys::*;

/// A completion queue of a channel, and events taken from that and not acknowledged.
struct Member {
    raw: NonNull<ibv_cq>,
    taken: u32,
}

/// A completion channel.
pub struct CompletionChannel {
    context: Arc<Context>,
    raw: NonNull<ibv_comp_channel>,
    // Whoever takes an event or ends a queue holds this: ending one waits until its events are
    // acknowledged, and an event that was taken must find its queue.
    members: Mutex<Vec<Member>>,
}

// SAFETY: as for `Context`.
unsafe impl Send for CompletionChannel {}
// SAFETY: as for `Context`.
unsafe impl Sync for CompletionChannel {}

impl CompletionChannel {
    /// Makes one. Its events do not block.
    ///
    /// # Errors
    /// Those of ibv_create_comp_channel(3).
    pub fn new(context: &Arc<Context>) -> io::Result<Arc<CompletionChannel>> {
        // SAFETY: the context is open.
        let raw = pointer(unsafe { context.library().ibv_create_comp_channel(context.as_ptr()) })?;
        let channel = CompletionChannel {
            context: context.clone(),
            raw,
            members: Mutex::default(),
        };
        set_nonblocking(channel.fd()?)?;
        Ok(Arc::new(channel))
    }

    /// Readable after a completion came to a queue that is armed ([`CompletionQueue::arm`]).
    ///
    /// # Errors
    /// InvalidData if the library gave none.
    pub fn fd(&self) -> io::Result<BorrowedFd<'_>> {
        // SAFETY: the channel is alive; the field never changes.
        let fd = unsafe { ptr::addr_of!((*self.raw.as_ptr()).fd).read() };
        // SAFETY: the descriptor is open as long as the channel, which the result borrows.
        unsafe { borrow_fd(fd) }
    }

    fn members(&self) -> MutexGuard<'_, Vec<Member>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the events that are there, up to `most`; gives how many there were. The descriptor is
    /// readable as long as there are more. Acknowledging takes a lock in the library, so it is done once
    /// for all of a queue.
    ///
    /// # Errors
    /// Those of ibv_get_cq_event(3); InvalidData for an event of a queue that there is not.
    pub fn drain(&self, most: u32) -> io::Result<u32> {
        let mut members = self.members();
        let mut count = 0;
        let answer = loop {
            if count == most {
                break Ok(count);
            }
            match self.take_event(&mut members) {
                Ok(true) => count += 1,
                Ok(false) => break Ok(count),
                Err(e) => break Err(e),
            }
        };
        let library = self.context.library();
        for member in members.iter_mut().filter(|m| m.taken > 0) {
            // SAFETY: the queue is alive, since ending it takes the lock that is held here; as many
            // events were taken.
            unsafe { library.ibv_ack_cq_events(member.raw.as_ptr(), member.taken) };
            member.taken = 0;
        }
        answer
    }

    fn take_event(&self, members: &mut [Member]) -> io::Result<bool> {
        let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the channel is alive; the pointers are to pointers that live over the call.
        let result = check(unsafe {
            self.context
                .library()
                .ibv_get_cq_event(self.raw.as_ptr(), &mut cq, &mut context)
        });
        if unless_empty(result)?.is_none() {
            return Ok(false);
        }
        // Compared, not followed.
        match members.iter_mut().find(|m| ptr::eq(m.raw.as_ptr(), cq)) {
            Some(member) => {
                member.taken += 1;
                Ok(true)
            }
            None => Err(lie("an event of a completion queue that there is not")),
        }
    }
}

impl fmt::Debug for CompletionChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CompletionChannel")
    }
}

impl Drop for CompletionChannel {
    fn drop(&mut self) {
        // SAFETY: its queues hold it by `Arc` and are gone. It is destroyed once.
        let result = unsafe {
            self.context
                .library()
                .ibv_destroy_comp_channel(self.raw.as_ptr())
        };
        destroyed("a completion channel", result);
    }
}

/// Memory that completions are polled into.
pub struct Completions {
    raw: Vec<ibv_wc>,
    found: usize,
}

impl Completions {
    /// For up to `count` at once.
    pub fn new(count: usize) -> Completions {
        // SAFETY: all zero is a value of the structure, which is of integers.
        let empty: ibv_wc = unsafe { std::mem::zeroed() };
        Completions {
            raw: vec![empty; count.clamp(1, c_int::MAX as usize)],
            found: 0,
        }
    }

    /// What the last poll found, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = WorkCompletion> {
        self.raw[..self.found].iter().map(|raw| {
            // SAFETY: both members are the same four bytes, big-endian as they came.
            let immediate = unsafe { raw.__bindgen_anon_1.imm_data };
            WorkCompletion::from_raw(raw, immediate.to_ne_bytes())
        })
    }

    /// How many fit.
    pub fn capacity(&self) -> usize {
        self.raw.len()
    }
}

impl fmt::Debug for Completions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// A completion queue.
#[derive(Debug)]
pub struct CompletionQueue {
    raw: NonNull<ibv_cq>,
    channel: Arc<CompletionChannel>,
    capacity: usize,
    number: u32,
}

// SAFETY: as for `Context`.
unsafe impl Send for CompletionQueue {}
// SAFETY: as for `Context`.
unsafe impl Sync for CompletionQueue {}

impl CompletionQueue {
    /// Makes one for at least `capacity` completions, with events on `channel`.
    ///
    /// # Errors
    /// Those of ibv_create_cq(3); InvalidData if it is smaller than asked for.
    pub fn new(
        channel: &Arc<CompletionChannel>,
        capacity: usize,
    ) -> io::Result<Arc<CompletionQueue>> {
        let context = &channel.context;
        let wanted = c_int::try_from(capacity).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut members = channel.members();
        // SAFETY: the context is open, the channel is one of it.
        let raw = pointer(unsafe {
            context.library().ibv_create_cq(
                context.as_ptr(),
                wanted,
                ptr::null_mut(),
                channel.raw.as_ptr(),
                0,
            )
        })?;
        members.push(Member { raw, taken: 0 });
        drop(members);
        // SAFETY: the library made the queue just now; these fields never change.
        let (there, number) = unsafe {
            let cq = raw.as_ptr();
            (
                ptr::addr_of!((*cq).cqe).read(),
                ptr::addr_of!((*cq).handle).read(),
            )
        };
        let queue = CompletionQueue {
            raw,
            channel: channel.clone(),
            capacity: usize::try_from(there).unwrap_or(0),
            number,
        };
        if queue.capacity < capacity {
            return Err(lie(format!(
                "a completion queue for {there} entries, where {capacity} were asked for"
            )));
        }
        Ok(Arc::new(queue))
    }

    fn library(&self) -> &dyn Library {
        self.channel.context.library()
    }

    pub(super) fn as_ptr(&self) -> *mut ibv_cq {
        self.raw.as_ptr()
    }

    /// How many completions it holds.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// The kernel's number for it.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// What asynchronous events call it.
    pub fn id(&self) -> ElementId {
        ElementId(self.as_ptr() as usize)
    }

    /// Takes as many completions as there are and fit; gives how many.
    ///
    /// # Errors
    /// When the queue cannot be polled; InvalidData when there are more than were asked for.
    pub fn poll(&self, into: &mut Completions) -> io::Result<usize> {
        into.found = 0;
        // SAFETY: the queue is alive; the array has as many entries as are asked for.
        let count = unsafe {
            self.library().ibv_poll_cq(
                self.as_ptr(),
                into.raw.len() as c_int,
                into.raw.as_mut_ptr(),
            )
        };
        let count = usize::try_from(count)
            .map_err(|_| io::Error::other("the completion queue cannot be polled"))?;
        if count > into.raw.len() {
            return Err(lie(format!(
                "{count} completions, where at most {} were asked for",
                into.raw.len()
            )));
        }
        into.found = count;
        Ok(count)
    }

    /// The next completion makes the channel readable. One that is there already does not: poll again
    /// (IBA vol. 1, 11.4.2.2).
    ///
    /// # Errors
    /// Those of ibv_req_notify_cq(3).
    pub fn arm(&self) -> io::Result<()> {
        // SAFETY: the queue is alive.
        check(unsafe { self.library().ibv_req_notify_cq(self.as_ptr(), 0) })
    }

    /// Has the device gather completions: an event after `count` of them, or `usecs` microseconds
    /// after the first.
    ///
    /// # Errors
    /// Those of ibv_modify_cq(3): EOPNOTSUPP if the device cannot.
    pub fn moderate(&self, count: u16, usecs: u16) -> io::Result<()> {
        let mut attr = ibv_modify_cq_attr {
            attr_mask: IBV_CQ_ATTR_MODERATE,
            moderate: ibv_moderate_cq {
                cq_count: count,
                cq_period: usecs,
            },
        };
        // SAFETY: the queue is alive, the attributes live over the call.
        check(unsafe { self.library().ibv_modify_cq(self.as_ptr(), &mut attr) })
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        let mut members = self.channel.members();
        // SAFETY: its queue pairs hold it by `Arc` and are gone. It is destroyed once, with all events
        // acknowledged.
        let result = unsafe { self.library().ibv_destroy_cq(self.as_ptr()) };
        if destroyed("a completion queue", result) {
            members.retain(|m| m.raw != self.raw);
        }
    }
}
