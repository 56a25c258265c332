//! Requests to all hosts. A ping to all hosts (ff02::1) takes the whole way of a multicast packet: the host's
//! stack, the TAP, the group's MGID, the underlay; every host that receives it answers.

use std::collections::BTreeSet;
use std::io;
use std::mem::MaybeUninit;
use std::net::{Ipv6Addr, SocketAddrV6};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use control::api::{PingReply, PingRequest, methods};
use control::{ControlClient, Next};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{
    set_ipv6_multicast_hops, set_ipv6_multicast_if, set_ipv6_multicast_loop,
};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto, recvfrom, sendto,
    socket_with,
};

/// All nodes (RFC 4291, 2.7.1).
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

// ICMPv6 types (RFC 4443, 4.1 and 4.2).
const ECHO_REQUEST: u8 = 128;
const ECHO_REPLY: u8 = 129;

/// Maximum time to wait for the first answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Time to wait for other answers after the first.
const OTHERS: Duration = Duration::from_millis(300);

/// Number of requests. The first may wait for address resolution.
const REQUESTS: u16 = 2;

/// The result of a request to all hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The request, in words.
    pub question: &'static str,
    /// Number of hosts that answered.
    pub answers: usize,
}

/// Pings all hosts through an interface and waits for answers, at most two seconds.
///
/// # Errors
/// Errors of a raw socket: EPERM without CAP_NET_RAW, EADDRNOTAVAIL without an address on the interface.
pub fn probe(ifindex: u32) -> io::Result<Probe> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(
        AddressFamily::INET6,
        SocketType::RAW,
        flags,
        Some(ipproto::ICMPV6),
    )?;
    set_ipv6_multicast_if(&socket, ifindex)?;
    set_ipv6_multicast_loop(&socket, false)?;
    set_ipv6_multicast_hops(&socket, 1)?;
    let identifier = (std::process::id() as u16).to_be_bytes();
    let mut heard = BTreeSet::new();
    for sequence in 0..REQUESTS {
        send(&socket, ifindex, identifier, sequence)?;
        collect(&socket, ifindex, identifier, &mut heard)?;
        if !heard.is_empty() {
            break;
        }
    }
    Ok(Probe {
        question: "a ping to all (ff02::1)",
        answers: heard.len(),
    })
}

/// Requests echoes from all peers through the daemon. It replaces the ping on a port of a bridge or bond,
/// which has no address, and whose guests would answer a ping through the bridge. `None` if the daemon
/// does not answer.
pub fn echo(socket: &Path, interface: &str) -> Option<Probe> {
    let client = ControlClient::connect(socket, PATIENCE).ok()?;
    let request = PingRequest {
        interface: interface.to_owned(),
        target: "all".to_owned(),
        count: Some(REQUESTS.into()),
        size: None,
        interval_ms: Some(100),
        timeout_ms: Some(1000),
    };
    let mut replies = client.stream(methods::PING, &request).ok()?;
    // This socket never becomes readable.
    let (never, _kept) = UnixStream::pair().ok()?;
    let mut heard = BTreeSet::new();
    while let Next::Reply(reply) = replies.next(never.as_fd(), Some(PATIENCE)).ok()? {
        if let PingReply::Answer(answer) = reply {
            heard.insert(answer.gid);
        }
    }
    Some(Probe {
        question: "an echo to all (ibtap ping)",
        answers: heard.len(),
    })
}

fn send(socket: &OwnedFd, ifindex: u32, identifier: [u8; 2], sequence: u16) -> io::Result<()> {
    let [s0, s1] = sequence.to_be_bytes();
    // The kernel writes the checksum (RFC 3542, 3.1).
    let request = [ECHO_REQUEST, 0, 0, 0, identifier[0], identifier[1], s0, s1];
    let all = SocketAddrV6::new(ALL_NODES, 0, 0, ifindex);
    sendto(socket, &request, SendFlags::empty(), &all)?;
    Ok(())
}

/// Collects the addresses of answering hosts until the deadline.
fn collect(
    socket: &OwnedFd,
    ifindex: u32,
    identifier: [u8; 2],
    heard: &mut BTreeSet<Ipv6Addr>,
) -> io::Result<()> {
    let mut deadline = Instant::now() + PATIENCE / REQUESTS.into();
    while wait(socket, deadline)? {
        let mut buffer = [MaybeUninit::<u8>::uninit(); 64];
        let (answer, from) = match recvfrom(socket, &mut buffer, RecvFlags::empty()) {
            Ok(((answer, _), _, from)) => (answer, from),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => continue,
            Err(e) => return Err(e.into()),
        };
        // The socket receives every ICMPv6 packet of the host.
        let is_ours =
            matches!(answer, [ECHO_REPLY, 0, _, _, i0, i1, ..] if [*i0, *i1] == identifier);
        let from = from.and_then(|a| SocketAddrV6::try_from(a).ok());
        // A global address has no scope. The request was sent on this interface only.
        let is_near = |a: &SocketAddrV6| [0, ifindex].contains(&a.scope_id());
        if let Some(from) = from.filter(|a| is_ours && is_near(a)) {
            if heard.is_empty() {
                deadline = deadline.min(Instant::now() + OTHERS);
            }
            heard.insert(*from.ip());
        }
    }
    Ok(())
}

/// Waits until the socket is readable; false at the deadline.
fn wait(socket: &OwnedFd, deadline: Instant) -> io::Result<bool> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Ok(false);
    }
    let timeout = Timespec::try_from(left).ok();
    match poll(&mut [PollFd::new(socket, PollFlags::IN)], timeout.as_ref()) {
        Ok(0) => Ok(false),
        Ok(_) => Ok(true),
        Err(rustix::io::Errno::INTR) => Ok(true),
        Err(e) => Err(e.into()),
    }
}
