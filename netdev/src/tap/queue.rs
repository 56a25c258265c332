//! A queue of a TAP: reads and writes frames.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;

use super::flow;
use crate::sys;
use crate::vlan::{self, Tag};

/// A queue for one reading thread. It never blocks.
///
/// The descriptor is readable while frames wait, and in error (EPOLLERR) when the interface is deleted.
/// Writing needs no polling: the kernel passes a frame through its network stack during the call, so
/// nothing is queued.
#[derive(Debug)]
pub struct TapQueue {
    tun: Arc<OwnedFd>,
    /// The tag of all written frames.
    tag: Option<Tag>,
    /// The queues to which frames are written by flow; empty: only this one.
    by_flow: Arc<[Arc<OwnedFd>]>,
}

impl TapQueue {
    pub(super) fn new(tun: Arc<OwnedFd>) -> TapQueue {
        TapQueue {
            tun,
            tag: None,
            by_flow: Arc::default(),
        }
    }

    /// Creates a queue over a descriptor that preserves frame boundaries as a TAP does. For tests: one end
    /// of a pair of sockets of type `SOCK_SEQPACKET`.
    pub fn over(frames: OwnedFd) -> TapQueue {
        TapQueue::new(Arc::new(frames))
    }

    /// The same queue for another writing thread: the kernel accepts frames from any number of writers at
    /// once. The queue closes with the last of its values.
    #[must_use]
    pub fn share(&self) -> TapQueue {
        TapQueue {
            tun: self.tun.clone(),
            tag: self.tag,
            by_flow: self.by_flow.clone(),
        }
    }

    /// As [`TapQueue::share`]; written frames, which have no tag, get this tag.
    #[must_use]
    pub fn share_tagged(&self, tag: Tag) -> TapQueue {
        TapQueue {
            tag: Some(tag),
            ..self.share()
        }
    }

    /// As [`TapQueue::share`], for a thread that writes the frames of all queues: the flow of a written frame
    /// selects one of `queues`. The kernel sends the answers of the host to the queue on which it last received
    /// the flow (drivers/net/tun.c, `tun_flow_update`), so the host's flows stay spread over the queues.
    #[must_use]
    pub fn share_by_flow(&self, queues: &[TapQueue]) -> TapQueue {
        TapQueue {
            by_flow: queues.iter().map(|queue| queue.tun.clone()).collect(),
            ..self.share()
        }
    }

    /// The queue to which a frame is written.
    #[inline]
    fn written(&self, parts: &[IoSlice<'_>]) -> &OwnedFd {
        match self.by_flow.len() {
            0 | 1 => &self.tun,
            count => &self.by_flow[flow::of(parts) as usize % count],
        }
    }

    /// Reads a frame, virtio-net header first. Returns its length in bytes, `None` if none waits. `buffer`
    /// should have [`super::READ_MAX`] bytes; the rest of a longer frame is lost.
    ///
    /// # Errors
    /// [`is_gone`] if the interface was deleted or the queue detached.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        frame_length(rustix::io::read(&self.tun, buffer))
    }

    /// Writes a frame from `parts`: virtio-net header, Ethernet header, payload. The kernel trusts the
    /// lengths in the header; the caller must have checked them. At most 1024 parts; two less with a tag
    /// ([`TapQueue::share_tagged`]).
    ///
    /// # Errors
    /// [`is_down`] if the interface is down (the frame is lost); [`is_gone`] if it was deleted or the queue
    /// detached; EINVAL for an invalid header.
    pub fn write_vectored(&self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        if let Some(tag) = self.tag {
            return self.write_tagged(tag, parts);
        }
        // The driver accepts a whole frame or nothing.
        rustix::io::writev(self.written(parts), parts)?;
        Ok(())
    }

    fn write_tagged(&self, tag: Tag, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let mut head = vlan::Head::default();
        let tagged = vlan::insert(tag.bytes(), parts, &mut head).ok_or(Errno::INVAL)?;
        rustix::io::writev(self.written(parts), &tagged)?;
        Ok(())
    }

    /// Detaches the queue from the interface: its waiting frames are dropped, its flows move to other
    /// queues (TUNSETQUEUE; multi-queue TAPs only).
    ///
    /// # Errors
    /// EINVAL if the queue is detached already or the TAP has a single queue.
    pub fn detach(&self) -> io::Result<()> {
        Ok(sys::set_queue(&self.tun, false)?)
    }

    /// Attaches the queue again.
    ///
    /// # Errors
    /// EINVAL if the queue is attached already; [`is_gone`] if the interface was deleted.
    pub fn attach(&self) -> io::Result<()> {
        Ok(sys::set_queue(&self.tun, true)?)
    }
}

impl AsFd for TapQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tun.as_fd()
    }
}

fn frame_length(read: rustix::io::Result<usize>) -> io::Result<Option<usize>> {
    match read {
        Ok(length) => Ok(Some(length)),
        // A call that does not wait should not return EINTR; if it does, polling retries.
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Whether a queue's error means that the interface was deleted or the queue detached: EBADFD.
pub fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EBADFD)
}

/// Whether a queue's error means that the interface is down: EIO.
pub fn is_down(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EIO)
}
