//! Socket options and system calls that are missing in the standard library and in rustix.

#![allow(unsafe_code)]

use std::ffi::c_int;
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

use rustix::net::sockopt;

/// Splits larger sends of `udp` into datagrams of `bytes` (UDP_SEGMENT, udp(7)).
pub fn set_segment(udp: &UdpSocket, bytes: u16) -> io::Result<()> {
    set_udp_option(udp, libc::UDP_SEGMENT, c_int::from(bytes))
}

/// Receives a train of equal datagrams as one (UDP_GRO, udp(7)).
pub fn set_gro(udp: &UdpSocket) -> io::Result<()> {
    set_udp_option(udp, libc::UDP_GRO, 1)
}

/// Sets both socket buffers to `bytes`, beyond the system's limits if the caller has the right.
pub fn set_buffers(udp: &UdpSocket, bytes: usize) -> io::Result<()> {
    sockopt::set_socket_recv_buffer_size_force(udp, bytes)
        .or_else(|_| sockopt::set_socket_recv_buffer_size(udp, bytes))?;
    sockopt::set_socket_send_buffer_size_force(udp, bytes)
        .or_else(|_| sockopt::set_socket_send_buffer_size(udp, bytes))?;
    Ok(())
}

fn set_udp_option(udp: &UdpSocket, option: c_int, value: c_int) -> io::Result<()> {
    // SAFETY: needed because no safe wrapper has these two options. Sound: pointer and length describe
    // `value`, a live c_int; the kernel reads it and does not keep the pointer.
    let rc = unsafe {
        libc::setsockopt(
            udp.as_raw_fd(),
            libc::SOL_UDP,
            option,
            std::ptr::from_ref(&value).cast(),
            size_of::<c_int>() as libc::socklen_t,
        )
    };
    if rc == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Receives up to `buffers.len()` datagrams with one `recvmmsg(2)`; waits only for the first.
///
/// Writes the length of each datagram in bytes to `lengths`, and returns the number of datagrams.
pub fn receive_many<const SIZE: usize>(
    udp: &UdpSocket,
    buffers: &mut [[u8; SIZE]],
    lengths: &mut [usize],
) -> io::Result<usize> {
    const BATCH: usize = 64;
    let batch = buffers.len().min(lengths.len()).min(BATCH);
    let mut vectors = [libc::iovec {
        iov_base: std::ptr::null_mut(),
        iov_len: 0,
    }; BATCH];
    // SAFETY: `mmsghdr` is plain integers and pointers, for which all zero is a valid value, and
    // it has private padding on some targets, so it cannot be built field by field.
    let mut messages: [libc::mmsghdr; BATCH] = unsafe { std::mem::zeroed() };
    for ((buffer, vector), message) in buffers.iter_mut().zip(&mut vectors).zip(&mut messages) {
        vector.iov_base = buffer.as_mut_ptr().cast();
        vector.iov_len = SIZE;
        message.msg_hdr.msg_iov = vector;
        message.msg_hdr.msg_iovlen = 1;
    }
    // SAFETY: needed because no safe wrapper exists. Sound: the first `batch` headers point at
    // `vectors`, those at distinct `buffers` of SIZE bytes; all outlive the call, and the kernel
    // keeps none of them.
    let received = unsafe {
        libc::recvmmsg(
            udp.as_raw_fd(),
            messages.as_mut_ptr(),
            batch as libc::c_uint,
            libc::MSG_WAITFORONE,
            std::ptr::null_mut(),
        )
    };
    let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
    for (length, message) in lengths.iter_mut().zip(&messages[..received]) {
        *length = message.msg_len as usize;
    }
    Ok(received)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loopback() -> (UdpSocket, UdpSocket) {
        let a = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let b = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        a.connect(b.local_addr().expect("its address"))
            .expect("connected");
        (a, b)
    }

    #[test]
    fn a_train_leaves_in_one_send_and_arrives_in_one_receive() {
        let (a, b) = loopback();
        set_segment(&a, 1000).expect("UDP_SEGMENT");
        set_gro(&b).expect("UDP_GRO");
        let train: Vec<u8> = (0..10_500u32).map(|i| (i / 7) as u8).collect();
        a.send(&train).expect("sent");
        let mut got = vec![0; 1 << 16];
        let n = b.recv(&mut got).expect("received");
        assert_eq!(&got[..n], &train[..]);
    }

    #[test]
    fn a_batch_keeps_lengths_and_contents_apart() {
        let (a, b) = loopback();
        for n in 1..=5u8 {
            a.send(&vec![n; usize::from(n)]).expect("sent");
        }
        let mut buffers = [[0u8; 32]; 8];
        let mut lengths = [0; 8];
        let mut seen = Vec::new();
        while seen.len() < 5 {
            let n = receive_many(&b, &mut buffers, &mut lengths).expect("received");
            for (buffer, &length) in buffers[..n].iter().zip(&lengths) {
                seen.push(buffer[..length].to_vec());
            }
        }
        let expected: Vec<_> = (1..=5u8).map(|n| vec![n; usize::from(n)]).collect();
        assert_eq!(seen, expected);
    }
}
