//! The sockets of one worker: one receives on the RoCEv2 port, one sends.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::net::sockopt::{
    self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, set_socket_recv_buffer_size,
    set_socket_recv_buffer_size_force, set_socket_reuseport, set_socket_send_buffer_size,
    set_socket_send_buffer_size_force,
};
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, getsockname, ipproto, socket_with,
};

use super::snapshot::{Outlet, Sockets};
use super::steering;
use super::sys::{option, set_option, steer_group};
use super::wire::ROCE_V2_PORT;
use crate::kernel::random;

/// Source ports that RoCEv2 senders use (kernel include/rdma/ib_verbs.h,
/// IB_ROCE_UDP_ENCAP_VALID_PORT_MIN).
const SOURCE_PORTS: std::ops::RangeInclusive<u16> = 0xc000..=0xffff;

/// Receive buffer of the receiving socket, in bytes.
const RECEIVE_BUFFER: usize = 8 << 20;

/// Send buffer of the sending socket, in bytes.
const SEND_BUFFER: usize = 4 << 20;

/// Identifies the network namespace of a socket (kernel include/uapi/asm-generic/socket.h). libc has no name for it.
const SO_NETNS_COOKIE: i32 = 71;

/// Hop limit of packets, as in rdma_cm.
const HOP_LIMIT: u8 = 64;

/// The interface and address of a port's sockets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Binding {
    /// The underlay's interface index.
    pub ifindex: u32,
    /// The GID as an address.
    pub address: IpAddr,
}

fn udp(family: AddressFamily) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(family, SocketType::DGRAM, flags, None)?)
}

fn to_interface(fd: &OwnedFd, ifindex: u32) -> io::Result<()> {
    set_option(
        fd,
        libc::SOL_SOCKET,
        libc::SO_BINDTOIFINDEX,
        ifindex.cast_signed(),
    )
}

/// Checks that the RoCEv2 port of the interface is free.
///
/// # Errors
/// EADDRINUSE if the port is in use.
pub fn probe(ifindex: u32) -> io::Result<()> {
    let fd = udp(AddressFamily::INET6)?;
    sockopt::set_ipv6_v6only(&fd, false)?;
    to_interface(&fd, ifindex)?;
    bind(&fd, &wildcard())?;
    // A child process that another thread just starts has a copy of this socket until it executes its
    // program. With SO_REUSEPORT the copy does not block our sockets.
    Ok(set_socket_reuseport(&fd, true)?)
}

const fn wildcard() -> SocketAddrV6 {
    SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, ROCE_V2_PORT, 0, 0)
}

/// Opens the receiving sockets of `workers` workers: one group, in which the kernel steers the packets
/// of connections to their worker. Takes those of a `former` process, in their order, as far as they are bound to
/// the interface; further ones join their group.
///
/// # Errors
/// EADDRINUSE if the port is in use; other errors of the operating system.
pub fn open_receive(
    ifindex: u32,
    workers: usize,
    former: Vec<Arc<OwnedFd>>,
) -> io::Result<Vec<Arc<OwnedFd>>> {
    let mut former = former.into_iter().take_while(|fd| is_bound(fd, ifindex));
    let sockets = (0..workers)
        .map(|worker| {
            let is_first = worker == 0;
            if let Some(fd) = former.next() {
                set_up_receive(&fd, is_first)?;
                return Ok(fd);
            }
            receive_socket(ifindex, is_first).map(Arc::new)
        })
        .collect::<io::Result<Vec<_>>>()?;
    if let Some(any) = sockets.first().filter(|_| workers > 1)
        && let Err(e) = steer_group(any, &steering::program(workers))
    {
        log::warn!(
            "the kernel does not steer packets to workers ({e}); workers forward packets of connections to each other"
        );
    }
    Ok(sockets)
}

/// Opens the sending sockets for each receiving one.
///
/// # Errors
/// Errors of the operating system.
pub fn with_transmit(
    receive: Vec<Arc<OwnedFd>>,
    binding: &Binding,
    loopback: bool,
) -> io::Result<Vec<Sockets>> {
    receive
        .into_iter()
        .map(|receive| {
            let transmit = outlet(binding)?;
            multicast_loopback(&transmit.fd, binding.address, loopback)?;
            Ok(Sockets {
                receive,
                transmit,
                management: outlet(binding)?,
            })
        })
        .collect()
}

/// Opens a receiving socket for IPv6 and IPv4 (mapped). The first is bound without SO_REUSEPORT: with it, the
/// socket would silently join the group of another process. So if two processes open a port at the same moment,
/// one of them fails.
fn receive_socket(ifindex: u32, is_first: bool) -> io::Result<OwnedFd> {
    let fd = udp(AddressFamily::INET6)?;
    sockopt::set_ipv6_v6only(&fd, false)?;
    set_socket_reuseport(&fd, !is_first)?;
    to_interface(&fd, ifindex)?;
    set_up_receive(&fd, is_first)?;
    bind(&fd, &wildcard())?;
    set_socket_reuseport(&fd, true)?;
    Ok(fd)
}

/// Whether [`receive_socket`] of a former process has bound this socket, in the present network namespace.
fn is_bound(fd: &OwnedFd, ifindex: u32) -> bool {
    let namespace = |fd: &OwnedFd| option::<8>(fd, libc::SOL_SOCKET, SO_NETNS_COOKIE).ok();
    let interface = option(fd, libc::SOL_SOCKET, libc::SO_BINDTOIFINDEX).map(u32::from_ne_bytes);
    udp(AddressFamily::INET6).is_ok_and(|here| namespace(&here) == namespace(fd))
        && sockopt::socket_protocol(fd) == Ok(Some(ipproto::UDP))
        && interface.is_ok_and(|bound| bound == ifindex)
        && getsockname(fd).is_ok_and(|name| name == wildcard().into())
}

/// Sets the options of a receiving socket. A multicast packet reaches every socket of the UDP port that does not
/// refuse it, so only the first hears groups.
fn set_up_receive(fd: &OwnedFd, is_first: bool) -> io::Result<()> {
    let all = i32::from(is_first);
    set_option(fd, libc::SOL_IPV6, libc::IPV6_MULTICAST_ALL, all)?;
    set_option(fd, libc::SOL_IP, libc::IP_MULTICAST_ALL, all)?;
    set_option(fd, libc::SOL_IPV6, libc::IPV6_RECVPKTINFO, 1)?;
    // rdma_rxe sends IPv6 without UDP checksums, which the kernel drops by default (RFC 6935).
    set_option(fd, libc::SOL_UDP, libc::UDP_NO_CHECK6_RX, 1)?;
    set_option(fd, libc::SOL_UDP, libc::UDP_GRO, 1)?;
    set_option(fd, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1)?;
    set_socket_recv_buffer_size_force(fd, RECEIVE_BUFFER)
        .or_else(|_| set_socket_recv_buffer_size(fd, RECEIVE_BUFFER))?;
    Ok(())
}

/// Opens a sending socket, bound to the GID and a free source port. It is never connected: only then
/// the identification of its IPv4 packets is known, which the ICRC covers (include/net/ip.h,
/// `ip_select_ident_segs`).
fn outlet(binding: &Binding) -> io::Result<Outlet> {
    let fd = match binding.address {
        IpAddr::V6(_) => {
            let fd = udp(AddressFamily::INET6)?;
            sockopt::set_ipv6_v6only(&fd, true)?;
            sockopt::set_ipv6_mtu_discover(&fd, Ipv6PathMtuDiscovery::PROBE)?;
            sockopt::set_ipv6_multicast_hops(&fd, HOP_LIMIT.into())?;
            sockopt::set_ipv6_unicast_hops(&fd, Some(HOP_LIMIT))?;
            sockopt::set_ipv6_multicast_if(&fd, binding.ifindex)?;
            fd
        }
        IpAddr::V4(address) => {
            let fd = udp(AddressFamily::INET)?;
            sockopt::set_ip_mtu_discover(&fd, Ipv4PathMtuDiscovery::PROBE)?;
            sockopt::set_ip_multicast_ttl(&fd, HOP_LIMIT.into())?;
            sockopt::set_ip_ttl(&fd, HOP_LIMIT.into())?;
            let any = Ipv4Addr::UNSPECIFIED;
            sockopt::set_ip_multicast_if_with_ifindex(&fd, &any, &address, binding.ifindex)?;
            fd
        }
    };
    to_interface(&fd, binding.ifindex)?;
    set_socket_send_buffer_size_force(&fd, SEND_BUFFER)
        .or_else(|_| set_socket_send_buffer_size(&fd, SEND_BUFFER))?;
    // The socket is never read.
    set_socket_recv_buffer_size(&fd, 0)?;
    let source = bind_to_free_port(&fd, binding)?;
    Ok(Outlet { fd, source })
}

fn bind_to_free_port(fd: &OwnedFd, binding: &Binding) -> io::Result<SocketAddr> {
    let size = SOURCE_PORTS.len() as u64;
    let first = random() % size;
    for k in 0..size {
        let port = SOURCE_PORTS.start() + ((first + k) % size) as u16;
        let source = match binding.address {
            IpAddr::V6(a) => {
                SocketAddr::V6(SocketAddrV6::new(a, port, 0, scope(a, binding.ifindex)))
            }
            IpAddr::V4(a) => SocketAddr::V4(SocketAddrV4::new(a, port)),
        };
        match bind(fd, &source) {
            Ok(()) => return Ok(source),
            Err(rustix::io::Errno::ADDRINUSE) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Err(io::ErrorKind::AddrInUse.into())
}

/// The scope id of an address; 0 unless it is link-local.
pub fn scope(address: Ipv6Addr, ifindex: u32) -> u32 {
    let link_local_group = address.is_multicast() && matches!(address.octets()[1] & 0xf, 1 | 2);
    if address.is_unicast_link_local() || link_local_group {
        ifindex
    } else {
        0
    }
}

/// Sets whether the host receives the packets that it sends to groups.
///
/// # Errors
/// Errors of setsockopt(2).
pub fn multicast_loopback(fd: &OwnedFd, address: IpAddr, on: bool) -> io::Result<()> {
    match address {
        IpAddr::V6(_) => sockopt::set_ipv6_multicast_loop(fd, on)?,
        IpAddr::V4(_) => sockopt::set_ip_multicast_loop(fd, on)?,
    }
    Ok(())
}
