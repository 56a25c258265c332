//! Completion queues, and the channels that report their events.

use std::ffi::c_int;
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex};

use super::call::{check, destroyed, invalid, pointer, unless_empty};
use super::completion::WorkCompletion;
use super::context::{Context, borrow_fd, set_nonblocking};
use super::event::ElementId;
use crate::verbs::lock;
use crate::verbs::sys::*;

/// A completion queue of a channel, and the number of its events taken but not acknowledged.
struct Member {
    raw: NonNull<ibv_cq>,
    taken: u32,
}

/// A completion channel.
pub struct CompletionChannel {
    context: Arc<Context>,
    raw: NonNull<ibv_comp_channel>,
    // Held while taking an event or destroying a queue: destroying a queue waits until its events are
    // acknowledged, and a taken event needs its queue.
    members: Mutex<Vec<Member>>,
}

// SAFETY: as for `Context`.
unsafe impl Send for CompletionChannel {}
// SAFETY: as for `Context`.
unsafe impl Sync for CompletionChannel {}

impl CompletionChannel {
    /// Creates a channel with nonblocking events.
    ///
    /// # Errors
    /// Errors of ibv_create_comp_channel(3).
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

    /// Readable after a completion in an armed queue ([`CompletionQueue::arm`]).
    ///
    /// # Errors
    /// InvalidData if the library gave no descriptor.
    pub fn fd(&self) -> io::Result<BorrowedFd<'_>> {
        // SAFETY: the channel is alive; the field never changes.
        let fd = unsafe { ptr::addr_of!((*self.raw.as_ptr()).fd).read() };
        // SAFETY: the descriptor is open as long as the channel, which the result borrows.
        unsafe { borrow_fd(fd) }
    }

    /// Takes up to `most` events; returns their number. The descriptor stays readable while there are
    /// more. Acknowledging takes a lock in the library, so it is done once for all events of a queue.
    ///
    /// # Errors
    /// Errors of ibv_get_cq_event(3); InvalidData for an event of an unknown queue.
    pub fn drain(&self, most: u32) -> io::Result<u32> {
        let mut members = lock(&self.members);
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
            // SAFETY: the queue is alive, because destroying it takes the lock held here; so many
            // events were taken.
            unsafe { library.ibv_ack_cq_events(member.raw.as_ptr(), member.taken) };
            member.taken = 0;
        }
        answer
    }

    fn take_event(&self, members: &mut [Member]) -> io::Result<bool> {
        let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the channel is alive; the pointers point to pointers that outlive the call.
        let result = check(unsafe {
            self.context
                .library()
                .ibv_get_cq_event(self.raw.as_ptr(), &mut cq, &mut context)
        });
        if unless_empty(result)?.is_none() {
            return Ok(false);
        }
        // Compared only, never dereferenced.
        match members.iter_mut().find(|m| ptr::eq(m.raw.as_ptr(), cq)) {
            Some(member) => {
                member.taken += 1;
                Ok(true)
            }
            None => Err(invalid("event of an unknown completion queue")),
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
        // SAFETY: its queues hold it by `Arc`, so they are destroyed. It is destroyed once.
        let result = unsafe {
            self.context
                .library()
                .ibv_destroy_comp_channel(self.raw.as_ptr())
        };
        destroyed("a completion channel", result);
    }
}

/// Memory for polled completions.
pub struct Completions {
    raw: Vec<ibv_wc>,
    found: usize,
}

impl Completions {
    /// For up to `count` completions at once.
    pub fn new(count: usize) -> Completions {
        // SAFETY: all zero is a valid value of the structure, which consists of integers.
        let empty: ibv_wc = unsafe { std::mem::zeroed() };
        Completions {
            raw: vec![empty; count.clamp(1, c_int::MAX as usize)],
            found: 0,
        }
    }

    /// The completions of the last poll, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = WorkCompletion> {
        self.raw[..self.found].iter().map(|raw| {
            // SAFETY: both members are the same four bytes, big-endian as received.
            let immediate = unsafe { raw.__bindgen_anon_1.imm_data };
            WorkCompletion::from_raw(raw, immediate.to_ne_bytes())
        })
    }

    /// Maximum number of completions.
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
    /// Creates a queue for at least `capacity` completions, with events on `channel`.
    ///
    /// # Errors
    /// Errors of ibv_create_cq(3); InvalidData if the queue is smaller than requested.
    pub fn new(
        channel: &Arc<CompletionChannel>,
        capacity: usize,
    ) -> io::Result<Arc<CompletionQueue>> {
        let context = &channel.context;
        let wanted = c_int::try_from(capacity).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut members = lock(&channel.members);
        // SAFETY: the context is open, and the channel belongs to it.
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
        // SAFETY: the library created the queue just now; these fields never change.
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
            return Err(invalid(format!(
                "completion queue with {there} entries instead of {capacity}"
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

    /// Maximum number of completions.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// The kernel's number of the queue.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Identifier in asynchronous events.
    pub fn id(&self) -> ElementId {
        ElementId(self.as_ptr() as usize)
    }

    /// Takes as many completions as exist and fit; returns their number.
    ///
    /// # Errors
    /// If the queue cannot be polled; InvalidData for more completions than requested.
    pub fn poll(&self, into: &mut Completions) -> io::Result<usize> {
        into.found = 0;
        // SAFETY: the queue is alive; the array has as many entries as requested.
        let count = unsafe {
            self.library().ibv_poll_cq(
                self.as_ptr(),
                into.raw.len() as c_int,
                into.raw.as_mut_ptr(),
            )
        };
        let count = usize::try_from(count)
            .map_err(|_| io::Error::other("cannot poll the completion queue"))?;
        if count > into.raw.len() {
            return Err(invalid(format!(
                "{count} completions instead of at most {}",
                into.raw.len()
            )));
        }
        into.found = count;
        Ok(count)
    }

    /// Makes the next completion signal the channel. Earlier completions do not: poll again (IBA vol.
    /// 1, 11.4.2.2).
    ///
    /// # Errors
    /// Errors of ibv_req_notify_cq(3).
    pub fn arm(&self) -> io::Result<()> {
        // SAFETY: the queue is alive.
        check(unsafe { self.library().ibv_req_notify_cq(self.as_ptr(), 0) })
    }

    /// Sets completion moderation: an event after `count` completions, or `usecs` microseconds after
    /// the first.
    ///
    /// # Errors
    /// Errors of ibv_modify_cq(3): EOPNOTSUPP if the device does not support it.
    pub fn moderate(&self, count: u16, usecs: u16) -> io::Result<()> {
        let mut attr = ibv_modify_cq_attr {
            attr_mask: IBV_CQ_ATTR_MODERATE,
            moderate: ibv_moderate_cq {
                cq_count: count,
                cq_period: usecs,
            },
        };
        // SAFETY: the queue is alive, the attributes outlive the call.
        check(unsafe { self.library().ibv_modify_cq(self.as_ptr(), &mut attr) })
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        let mut members = lock(&self.channel.members);
        // SAFETY: its queue pairs hold it by `Arc`, so they are destroyed. It is destroyed once, with
        // all events acknowledged.
        let result = unsafe { self.library().ibv_destroy_cq(self.as_ptr()) };
        if destroyed("a completion queue", result) {
            members.retain(|m| m.raw != self.raw);
        }
    }
}
