//! Receives a netlink datagram with the namespace of its origin. No safe wrapper does this: the only unsafe
//! code of the crate.

#![allow(unsafe_code)]

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

/// A received datagram.
pub(crate) struct Received {
    /// The kernel sent the datagram; others must be ignored.
    pub(crate) from_kernel: bool,
    /// The datagram was not truncated.
    pub(crate) whole: bool,
    /// The nsid of the datagram's namespace, if the socket receives from all namespaces and it has one.
    pub(crate) nsid: Option<i32>,
}

/// Room for control messages, aligned for their headers. One message with an int arrives.
const CONTROL_WORDS: usize = 16;

/// Reads one datagram into `buffer`, up to its capacity; earlier contents are lost (recvmsg(2), netlink(7)
/// NETLINK_LISTEN_ALL_NSID).
pub(crate) fn receive(socket: impl AsFd, buffer: &mut Vec<u8>) -> io::Result<Received> {
    buffer.clear();
    let mut control = [0u64; CONTROL_WORDS];
    // SAFETY: only zeroing can make these values; both are plain integers and pointers, for which zero is
    // valid.
    let (mut from, mut message) =
        unsafe { (zeroed::<libc::sockaddr_nl>(), zeroed::<libc::msghdr>()) };
    let room = buffer.spare_capacity_mut();
    let mut part = libc::iovec {
        iov_base: room.as_mut_ptr().cast(),
        iov_len: room.len(),
    };
    message.msg_name = (&raw mut from).cast();
    message.msg_namelen = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    // SAFETY: rustix decodes no netlink control message, so recvmsg is called directly. Each pointer in
    // `message` points to a live object of this function, with its length, and nothing else refers to it
    // during the call. The kernel writes within these lengths.
    let length = unsafe {
        libc::recvmsg(
            socket.as_fd().as_raw_fd(),
            &raw mut message,
            libc::MSG_CMSG_CLOEXEC,
        )
    };
    let Ok(length) = usize::try_from(length) else {
        return Err(io::Error::last_os_error());
    };
    // SAFETY: recvmsg has written `length` bytes to the spare capacity, which begins at byte 0 of the
    // cleared vector. Without MSG_TRUNC among the input flags, `length` is at most the capacity.
    unsafe { buffer.set_len(length) };
    Ok(Received {
        from_kernel: from.nl_pid == 0,
        whole: message.msg_flags & libc::MSG_TRUNC == 0,
        // SAFETY: recvmsg has filled `message`, and its control buffer `control` is still alive.
        nsid: unsafe { nsid_of(&message) },
    })
}

/// The nsid in the control message NETLINK_LISTEN_ALL_NSID, if present.
///
/// # Safety
/// recvmsg must have filled `message`, and its control buffer must be alive.
unsafe fn nsid_of(message: &libc::msghdr) -> Option<i32> {
    // SAFETY: cmsg(3) is the only way to walk control messages; the caller guarantees a filled header.
    // CMSG_FIRSTHDR and CMSG_NXTHDR return null or a header inside the control buffer, which is aligned as
    // u64. The nsid is read only if the header's length includes it, and without need of alignment.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while let Some(found) = header.as_ref() {
            if found.cmsg_level == libc::SOL_NETLINK
                && found.cmsg_type == libc::NETLINK_LISTEN_ALL_NSID
                && found.cmsg_len >= libc::CMSG_LEN(size_of::<i32>() as u32) as _
            {
                return Some(ptr::read_unaligned(libc::CMSG_DATA(found).cast::<i32>()));
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_without_control_messages_has_no_number() {
        let mut buffer = Vec::with_capacity(8);
        let (ours, theirs) = std::os::unix::net::UnixDatagram::pair().unwrap();
        theirs.send(b"twelve bytes").unwrap();
        let received = receive(&ours, &mut buffer).unwrap();
        assert_eq!(buffer, b"twelve b");
        assert!(!received.whole, "it was cut");
        assert_eq!(received.nsid, None);
        theirs.send(b"four").unwrap();
        assert!(receive(&ours, &mut buffer).unwrap().whole);
        assert_eq!(buffer, b"four");
    }
}
