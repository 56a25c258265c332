//! One queue of a TAP: frames in and out.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;

use crate::sys;
use crate::vlan::{self, Tag};

/// One queue, read by one thread. It never blocks.
///
/// Its descriptor polls readable while frames wait, and in error (EPOLLERR) when the interface is
/// gone. Writing needs no polling: the kernel takes a frame through its network stack before the
/// call returns, so nothing is queued here.
#[derive(Debug)]
pub struct TapQueue {
    tun: Arc<OwnedFd>,
    /// What frames that are written here are tagged with.
    tag: Option<Tag>,
}

impl TapQueue {
    pub(super) fn new(tun: Arc<OwnedFd>) -> TapQueue {
        TapQueue { tun, tag: None }
    }

    /// A queue over a descriptor that keeps frames apart as a TAP does: for tests, one end of a pair
    /// of sockets of type `SOCK_SEQPACKET`.
    pub fn over(frames: OwnedFd) -> TapQueue {
        TapQueue::new(Arc::new(frames))
    }

    /// The same queue again, for another thread to write to: the kernel takes frames from any
    /// number of writers at once. The queue is open as long as one of them is.
    #[must_use]
    pub fn share(&self) -> TapQueue {
        TapQueue {
            tun: self.tun.clone(),
            tag: self.tag,
        }
    }

    /// As [`TapQueue::share`], for frames without a tag that are to get this one.
    #[must_use]
    pub fn share_tagged(&self, tag: Tag) -> TapQueue {
        TapQueue {
            tag: Some(tag),
            ..self.share()
        }
    }

    /// Reads one frame, virtio-net header first: its length in bytes, or `None` if none waits.
    /// `buffer` should have [`super::READ_MAX`] bytes: what does not fit is lost.
    ///
    /// # Errors
    /// [`is_gone`] if the interface was deleted or the queue detached.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        frame_length(rustix::io::read(&self.tun, buffer))
    }

    /// As [`TapQueue::read`], scattered over `buffers` in order.
    ///
    /// # Errors
    /// As [`TapQueue::read`].
    pub fn read_vectored(&self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<Option<usize>> {
        frame_length(rustix::io::readv(&self.tun, buffers))
    }

    /// Writes one frame, gathered from `parts`: virtio-net header, Ethernet header, payload. The
    /// kernel believes the lengths in the header; the caller has checked them. At most 1024 parts; with
    /// a tag ([`TapQueue::share_tagged`]) two less.
    ///
    /// # Errors
    /// [`is_down`] if the interface is down (the frame is lost), [`is_gone`] if it was deleted or
    /// the queue detached; EINVAL for a header that the kernel cannot use.
    pub fn write_vectored(&self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        if let Some(tag) = self.tag {
            return self.write_tagged(tag, parts);
        }
        // The driver takes a frame whole or not at all.
        rustix::io::writev(&self.tun, parts)?;
        Ok(())
    }

    fn write_tagged(&self, tag: Tag, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let mut head = vlan::Head::default();
        let tagged = vlan::insert(tag.bytes(), parts, &mut head).ok_or(Errno::INVAL)?;
        rustix::io::writev(&self.tun, &tagged)?;
        Ok(())
    }

    /// Stops the host from using this queue: frames that wait in it are dropped, its flows move to
    /// the others (TUNSETQUEUE; multi-queue TAPs only).
    ///
    /// # Errors
    /// EINVAL if it is detached already or the TAP has a single queue.
    pub fn detach(&self) -> io::Result<()> {
        Ok(sys::set_queue(&self.tun, false)?)
    }

    /// Undoes [`TapQueue::detach`].
    ///
    /// # Errors
    /// EINVAL if it is attached already; [`is_gone`] if the interface was deleted.
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
        // EINTR cannot come from a call that does not wait; if it does, the poll comes again.
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Whether a queue's error says that its interface was deleted (or the queue detached): EBADFD.
pub fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EBADFD)
}

/// Whether a queue's error says that its interface is down: EIO.
pub fn is_down(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EIO)
}
