//! Receiving a netlink datagram together with the namespace that it comes from, which no safe
//! wrapper gives: the only unsafe code of this crate.

#![allow(unsafe_code)]

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

/// One datagram that was received.
pub(crate) struct Received {
    /// The kernel sent it; else it must not be believed.
    pub(crate) from_kernel: bool,
    /// All of it is there.
    pub(crate) whole: bool,
    /// What the socket's namespace calls the one that it is about, if the socket listens to all and
    /// that one has a number.
    pub(crate) nsid: Option<i32>,
}

/// Room for control messages, aligned for their headers: one of an int is used.
const CONTROL_WORDS: usize = 16;

/// Reads one datagram into `buffer`, which it replaces, up to its capacity (recvmsg(2), netlink(7)
/// NETLINK_LISTEN_ALL_NSID).
pub(crate) fn receive(socket: impl AsFd, buffer: &mut Vec<u8>) -> io::Result<Received> {
    buffer.clear();
    let mut control = [0u64; CONTROL_WORDS];
    // SAFETY: there is no other way to make these than from zeros; both are plain integers and
    // pointers, for all of which zero is valid.
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
    // SAFETY: rustix decodes no netlink control message, so recvmsg is called as it is. Each pointer
    // in `message` is to a live object of this function with the length beside it, and nothing else
    // refers to them during the call; the kernel writes within these lengths.
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
    // cleared vector; without MSG_TRUNC among the flags that we gave, `length` is at most its size.
    unsafe { buffer.set_len(length) };
    Ok(Received {
        from_kernel: from.nl_pid == 0,
        whole: message.msg_flags & libc::MSG_TRUNC == 0,
        // SAFETY: recvmsg has filled `message`, and `control` to which it points still lives.
        nsid: unsafe { nsid_of(&message) },
    })
}

/// The number in the control message NETLINK_LISTEN_ALL_NSID, if there is one.
///
/// # Safety
/// `message` has been filled by recvmsg and its control buffer lives.
unsafe fn nsid_of(message: &libc::msghdr) -> Option<i32> {
    // SAFETY: cmsg(3) is the only way to walk control messages; the caller grants a filled header.
    // CMSG_FIRSTHDR and CMSG_NXTHDR give null or a header that lies within the control buffer, whose
    // alignment is that of u64. The number is read only where the header says that it is whole,
    // without asking for its alignment.
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
