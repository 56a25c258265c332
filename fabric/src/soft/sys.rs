//! System calls that need unsafe code: batched datagram I/O with control messages, and socket
//! options for which rustix has no function.
//!
//! Control messages (cmsg(3)) are read and written as bytes, in safe code.

use std::ffi::c_int;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

/// Maximum number of datagrams, or merged runs of datagrams, in one receive call.
pub const SLOTS: usize = 32;

/// Bytes of one slot: the largest UDP payload is 65527 (IPv6).
pub const SLOT_LEN: usize = 1 << 16;

/// Room for the control messages of one datagram: packet information, segment size and drop count take
/// half of it.
const CONTROL_LEN: usize = 192;

/// Maximum number of datagrams in one [`send_each`] call.
const SENDS: usize = 64;

/// Sets a socket option that is an int.
///
/// # Errors
/// Errors of setsockopt(2).
pub fn set_option(fd: impl AsFd, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
    // SAFETY: setsockopt has no safe counterpart for these options. The pointer is to an int that
    // lives over the call, the length is its size, and the kernel only reads it.
    let result = unsafe {
        libc::setsockopt(
            fd.as_fd().as_raw_fd(),
            level,
            name,
            ptr::from_ref(&value).cast(),
            size_of::<c_int>() as libc::socklen_t,
        )
    };
    check(result as isize).map(drop)
}

/// Reads a socket option of `N` bytes.
///
/// # Errors
/// Errors of getsockopt(2); EINVAL if the option has another size.
pub fn option<const N: usize>(fd: impl AsFd, level: c_int, name: c_int) -> io::Result<[u8; N]> {
    let mut value = [0; N];
    let mut len = N as libc::socklen_t;
    // SAFETY: getsockopt has no safe counterpart for these options. The pointers are to a buffer and to its
    // length, which live over the call; the kernel writes at most so many bytes.
    let result = unsafe {
        libc::getsockopt(
            fd.as_fd().as_raw_fd(),
            level,
            name,
            value.as_mut_ptr().cast(),
            &mut len,
        )
    };
    check(result as isize)?;
    match len as usize == N {
        true => Ok(value),
        false => Err(io::ErrorKind::InvalidInput.into()),
    }
}

/// Attaches a classic BPF program that selects the socket of a SO_REUSEPORT group for each datagram
/// (kernel net/core/sock_reuseport.c). The program reads the UDP payload and returns the socket's
/// number in the order of their bind. For any other number the kernel's hash selects the socket.
///
/// # Errors
/// Errors of setsockopt(2).
pub fn steer_group(fd: impl AsFd, program: &[libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: setsockopt has no safe counterpart for this option. The pointer is to a structure that
    // lives over the call, the length is its size; its own pointer and length are those of a slice
    // that is borrowed over the call, and the kernel copies the program and writes nothing.
    let result = unsafe {
        libc::setsockopt(
            fd.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            ptr::from_ref(&program).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    check(result as isize).map(drop)
}

fn check(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Memory of control messages, aligned as `struct cmsghdr` must be.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; CONTROL_LEN]);

/// Bytes of `struct cmsghdr`.
const CMSG_HEADER: usize = size_of::<libc::cmsghdr>();

const fn cmsg_align(len: usize) -> usize {
    len.next_multiple_of(align_of::<usize>())
}

/// The attributes of one received datagram, or of a merged run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Arrival {
    /// Bytes in the slot.
    pub len: usize,
    /// Bytes of every datagram of the run except the last, which may be shorter; `len` for a single
    /// one.
    pub segment: usize,
    /// The sender's address, IPv4 mapped.
    pub src: [u8; 16],
    /// The sender's UDP port.
    pub src_port: u16,
    /// The destination address; IPv4 is mapped. None if the kernel did not report it.
    pub dst: Option<[u8; 16]>,
    /// Datagrams dropped by the socket since its creation because its buffer was full.
    pub socket_drops: Option<u32>,
}

/// Receive memory: [`SLOTS`] contiguous slots, and a spare one for packets from other sources than the
/// socket.
pub struct Slab {
    memory: Vec<u8>,
    controls: Box<[Control; SLOTS]>,
    arrivals: [Arrival; SLOTS],
}

impl Slab {
    /// Allocates the memory.
    pub fn new() -> Slab {
        Slab {
            memory: vec![0; (SLOTS + 1) * SLOT_LEN],
            controls: Box::new([Control([0; CONTROL_LEN]); SLOTS]),
            arrivals: [Arrival::default(); SLOTS],
        }
    }

    /// The whole memory; slot `i` is at `i * SLOT_LEN`.
    pub fn memory(&self) -> &[u8] {
        &self.memory
    }

    /// The offset of the spare slot, and its bytes.
    pub fn spare(&mut self) -> (usize, &mut [u8]) {
        let at = SLOTS * SLOT_LEN;
        (at, &mut self.memory[at..])
    }

    /// Arrival `i`: its attributes and its bytes.
    pub fn slot(&self, i: usize) -> (&Arrival, &[u8]) {
        let arrival = &self.arrivals[i];
        let at = i * SLOT_LEN;
        (arrival, &self.memory[at..at + arrival.len])
    }

    /// Whether each of the first `count` slots has one datagram only.
    pub fn is_single(&self, count: usize) -> bool {
        let filled = &self.arrivals[..count];
        filled.iter().all(|arrival| arrival.len == arrival.segment)
    }

    /// Receives the pending datagrams of an AF_INET6 socket without waiting. Returns the number of
    /// filled slots, which may be 0. A datagram that was truncated has length 0.
    ///
    /// # Errors
    /// Errors of recvmmsg(2), except EAGAIN and EINTR.
    pub fn receive(&mut self, fd: impl AsFd, depth: usize) -> io::Result<usize> {
        let depth = depth.clamp(1, SLOTS);
        // SAFETY: all these are plain C structs (integers and raw pointers) for which all bytes
        // zero is a valid value.
        let (mut headers, mut names, mut vectors): (
            [libc::mmsghdr; SLOTS],
            [libc::sockaddr_in6; SLOTS],
            [libc::iovec; SLOTS],
        ) = unsafe { (mem::zeroed(), mem::zeroed(), mem::zeroed()) };
        let slots = self.memory.chunks_exact_mut(SLOT_LEN);
        for (i, (slot, control)) in slots.zip(self.controls.iter_mut()).take(depth).enumerate() {
            vectors[i].iov_base = slot.as_mut_ptr().cast();
            vectors[i].iov_len = slot.len();
            let header = &mut headers[i].msg_hdr;
            header.msg_name = ptr::from_mut(&mut names[i]).cast();
            header.msg_namelen = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
            header.msg_iov = ptr::from_mut(&mut vectors[i]);
            header.msg_iovlen = 1;
            header.msg_control = control.0.as_mut_ptr().cast();
            header.msg_controllen = CONTROL_LEN as _;
        }
        // SAFETY: recvmmsg has no safe counterpart. Every header points to a name, a vector, a
        // slot and a control buffer of its own, each with its true length; all of them outlive the
        // call, nothing else refers to them during it (the slab is borrowed mutably, the rest is
        // local), and the kernel writes within the lengths. There is no time limit to point to.
        let result = unsafe {
            libc::recvmmsg(
                fd.as_fd().as_raw_fd(),
                headers.as_mut_ptr(),
                depth as u32,
                libc::MSG_DONTWAIT as _,
                ptr::null_mut(),
            )
        };
        let count = match check(result as isize) {
            Ok(count) => count.min(depth),
            Err(e) if is_transient(&e) => return Ok(0),
            Err(e) => return Err(e),
        };
        for i in 0..count {
            let header = &headers[i].msg_hdr;
            let cut = header.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0;
            let len = if cut {
                0
            } else {
                (headers[i].msg_len as usize).min(SLOT_LEN)
            };
            let control = &self.controls[i].0[..control_len(header)];
            self.arrivals[i] = arrival(len, &names[i], control);
        }
        Ok(count)
    }
}

/// Bytes of control messages; the type of the field differs between C libraries.
#[allow(clippy::unnecessary_cast)]
fn control_len(header: &libc::msghdr) -> usize {
    (header.msg_controllen as usize).min(CONTROL_LEN)
}

fn is_transient(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

fn arrival(len: usize, name: &libc::sockaddr_in6, control: &[u8]) -> Arrival {
    let mut a = Arrival {
        len,
        segment: len,
        src: name.sin6_addr.s6_addr,
        src_port: u16::from_be(name.sin6_port),
        dst: None,
        socket_drops: None,
    };
    for (level, kind, data) in control_messages(control) {
        match (level, kind) {
            // struct in6_pktinfo: the address comes first.
            (libc::SOL_IPV6, libc::IPV6_PKTINFO) => {
                a.dst = data.first_chunk::<16>().copied();
            }
            (libc::SOL_UDP, libc::UDP_GRO) => {
                let segment = int(data).and_then(|n| usize::try_from(n).ok());
                a.segment = segment.filter(|&n| n > 0).unwrap_or(len);
            }
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                a.socket_drops = int(data).map(i32::cast_unsigned);
            }
            _ => {}
        }
    }
    a
}

fn int(data: &[u8]) -> Option<c_int> {
    data.first_chunk().copied().map(c_int::from_ne_bytes)
}

/// The control messages in `bytes`: level, type, data.
fn control_messages(mut bytes: &[u8]) -> impl Iterator<Item = (c_int, c_int, &[u8])> {
    std::iter::from_fn(move || {
        let (header, _) = bytes.split_at_checked(CMSG_HEADER)?;
        // cmsg_len is a size_t here; level and type are the last 8 bytes of the header.
        let len = usize::from_ne_bytes(*header.first_chunk()?);
        let level = int(&header[CMSG_HEADER - 8..])?;
        let kind = int(&header[CMSG_HEADER - 4..])?;
        let data = bytes.get(CMSG_HEADER..len)?;
        bytes = bytes.get(cmsg_align(len)..).unwrap_or_default();
        Some((level, kind, data))
    })
}

/// A destination in the kernel's format.
#[derive(Clone, Copy)]
pub enum Destination {
    /// IPv4.
    V4(libc::sockaddr_in),
    /// IPv6.
    V6(libc::sockaddr_in6),
}

impl Destination {
    /// Creates a destination. `scope` is the interface index and applies to link-local addresses only.
    pub fn new(address: std::net::IpAddr, port: u16, scope: u32) -> Destination {
        match address {
            std::net::IpAddr::V4(a) => Destination::V4(libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: port.to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from_ne_bytes(a.octets()),
                },
                sin_zero: [0; 8],
            }),
            std::net::IpAddr::V6(a) => Destination::V6(libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: port.to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr {
                    s6_addr: a.octets(),
                },
                sin6_scope_id: scope,
            }),
        }
    }

    fn as_raw(&self) -> (*const libc::c_void, libc::socklen_t) {
        match self {
            Destination::V4(a) => (ptr::from_ref(a).cast(), size_of_val(a) as libc::socklen_t),
            Destination::V6(a) => (ptr::from_ref(a).cast(), size_of_val(a) as libc::socklen_t),
        }
    }
}

/// Control messages of a send, built on the stack.
#[derive(Clone, Copy)]
pub struct SendOptions {
    control: Control,
    len: usize,
}

impl SendOptions {
    /// Creates an empty list.
    pub const fn new() -> SendOptions {
        SendOptions {
            control: Control([0; CONTROL_LEN]),
            len: 0,
        }
    }

    /// Cuts the send into datagrams of `bytes` bytes (UDP_SEGMENT, kernel net/ipv4/udp_offload.c).
    pub fn segment(&mut self, bytes: u16) {
        self.push(libc::SOL_UDP, libc::UDP_SEGMENT, &bytes.to_ne_bytes());
    }

    /// An option that is an int, such as IPV6_TCLASS or IPV6_HOPLIMIT.
    pub fn int(&mut self, level: c_int, kind: c_int, value: c_int) {
        self.push(level, kind, &value.to_ne_bytes());
    }

    fn push(&mut self, level: c_int, kind: c_int, data: &[u8]) {
        let len = CMSG_HEADER + data.len();
        let room = self.control.0.get_mut(self.len..self.len + cmsg_align(len));
        // At most three are pushed, of 24 bytes each.
        let Some(room) = room else { return };
        room[..size_of::<usize>()].copy_from_slice(&len.to_ne_bytes());
        room[CMSG_HEADER - 8..CMSG_HEADER - 4].copy_from_slice(&level.to_ne_bytes());
        room[CMSG_HEADER - 4..CMSG_HEADER].copy_from_slice(&kind.to_ne_bytes());
        room[CMSG_HEADER..len].copy_from_slice(data);
        self.len += cmsg_align(len);
    }

    /// A message header that borrows, by raw pointers, from all its arguments.
    fn header(&self, to: &Destination, vector: &mut libc::iovec) -> libc::msghdr {
        let (name, namelen) = to.as_raw();
        // SAFETY: a plain C struct for which all bytes zero is a valid value; its padding fields
        // differ between C libraries, so it cannot be written out.
        let mut header: libc::msghdr = unsafe { mem::zeroed() };
        header.msg_name = name.cast_mut();
        header.msg_namelen = namelen;
        header.msg_iov = ptr::from_mut(vector);
        header.msg_iovlen = 1;
        if self.len > 0 {
            header.msg_control = self.control.0.as_ptr().cast_mut().cast();
            header.msg_controllen = self.len as _;
        }
        header
    }
}

fn vector(bytes: &[u8]) -> libc::iovec {
    libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    }
}

/// Sends `bytes` in one call, without waiting.
///
/// # Errors
/// Errors of sendmsg(2).
pub fn send(
    fd: impl AsFd,
    to: &Destination,
    bytes: &[u8],
    options: &SendOptions,
) -> io::Result<()> {
    let mut vector = vector(bytes);
    let header = options.header(to, &mut vector);
    // SAFETY: rustix has no sendmsg with these control messages. Name, vector, bytes and control
    // buffer are borrowed over the whole call, with their true lengths; the kernel only reads them,
    // so pointers made from shared references will do.
    let result = unsafe {
        libc::sendmsg(
            fd.as_fd().as_raw_fd(),
            &raw const header,
            libc::MSG_DONTWAIT,
        )
    };
    check(result).map(drop)
}

/// Sends `bytes` as datagrams of `stride` bytes each without UDP_SEGMENT; the last one may be shorter.
/// Returns the number of datagrams sent, which may be fewer than all.
///
/// # Errors
/// Errors of sendmmsg(2) for the first datagram.
pub fn send_each(
    fd: impl AsFd,
    to: &Destination,
    bytes: &[u8],
    stride: usize,
    options: &SendOptions,
) -> io::Result<usize> {
    // SAFETY: plain C structs for which all bytes zero is a valid value.
    let (mut headers, mut vectors): ([libc::mmsghdr; SENDS], [libc::iovec; SENDS]) =
        unsafe { (mem::zeroed(), mem::zeroed()) };
    let mut count = 0;
    let packets = bytes.chunks(stride);
    for ((packet, header), slot) in packets.zip(&mut headers).zip(&mut vectors) {
        *slot = vector(packet);
        header.msg_hdr = options.header(to, slot);
        count += 1;
    }
    // SAFETY: as for `send`; the first `count` headers are filled in, each with a vector of its
    // own, and the vectors outlive the call.
    let result = unsafe {
        libc::sendmmsg(
            fd.as_fd().as_raw_fd(),
            headers.as_mut_ptr(),
            count,
            libc::MSG_DONTWAIT as _,
        )
    };
    check(result as isize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_messages_round_trip() {
        let mut o = SendOptions::new();
        o.segment(1040);
        o.int(libc::SOL_IPV6, libc::IPV6_TCLASS, 0xb8);
        let all: Vec<_> = control_messages(&o.control.0[..o.len]).collect();
        assert_eq!(
            all,
            [
                (libc::SOL_UDP, libc::UDP_SEGMENT, &1040u16.to_ne_bytes()[..]),
                (
                    libc::SOL_IPV6,
                    libc::IPV6_TCLASS,
                    &0xb8i32.to_ne_bytes()[..]
                ),
            ]
        );
    }

    #[test]
    fn broken_control_messages_end_the_list() {
        let mut o = SendOptions::new();
        o.segment(1040);
        assert_eq!(control_messages(&o.control.0[..CMSG_HEADER]).count(), 0);
        o.control.0[..8].copy_from_slice(&usize::MAX.to_ne_bytes());
        assert_eq!(control_messages(&o.control.0[..o.len]).count(), 0);
        o.control.0[..8].copy_from_slice(&3usize.to_ne_bytes());
        assert_eq!(control_messages(&o.control.0[..o.len]).count(), 0);
    }
}
