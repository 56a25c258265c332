//! Sends contiguous packets: in one call with UDP_SEGMENT where the network supports it, otherwise one
//! by one.

use std::io;
use std::net::IpAddr;

use super::address_handle::Address;
use super::counts::Counts;
use super::snapshot::Outlet;
use super::socket::scope;
use super::sys::{self, Destination, SendOptions};
use super::train::{Ipv4Id, Route};
use super::wire::ROCE_V2_PORT;

/// The ECN bits of a traffic class (RFC 3168, section 5). Datagrams do not react to congestion marks,
/// so they are sent as not ECN-capable.
const ECN: u8 = 3;

/// Packets to send together.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Bytes of each packet except the last.
    pub stride: usize,
    /// Number of packets.
    pub count: usize,
    /// Packets sent already.
    pub first: usize,
}

/// The result of a send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// All packets were sent.
    Done,
    /// The network or a check refused.
    Failed,
    /// The socket had no room after this many packets.
    Blocked(usize),
}

/// The sending side of one worker's socket.
#[derive(Debug)]
pub struct Transmitter {
    /// UDP_SEGMENT works, as far as known.
    pub segmentation: bool,
}

impl Transmitter {
    /// Sends the packets in `memory` to one address. `seal` writes the fields that depend on the route,
    /// and returns the bytes of all packets.
    pub fn send(
        &mut self,
        counts: &mut Counts,
        (outlet, ifindex): (&Outlet, u32),
        to: &Address,
        shape: Shape,
        memory: &mut [u8],
        mut seal: impl FnMut(&mut [u8], &Route) -> Option<usize>,
    ) -> Outcome {
        let options = options(to);
        let scope = match to.ip {
            IpAddr::V6(a) => scope(a, ifindex),
            IpAddr::V4(_) => 0,
        };
        let destination = Destination::new(to.ip, ROCE_V2_PORT, scope);
        let Shape {
            stride,
            count,
            mut first,
        } = shape;
        loop {
            let whole = self.segmentation || count == 1;
            let route = Route {
                source: outlet.source,
                destination: to.ip,
                ids: if whole { Ipv4Id::Segment } else { Ipv4Id::Zero },
            };
            let Some(total) = seal(memory, &route) else {
                return Outcome::Failed;
            };
            let sent = if whole {
                let mut options = options;
                if count > 1 {
                    options.segment(stride as u16);
                }
                sys::send(&outlet.fd, &destination, &memory[..total], &options).map(|()| count)
            } else {
                let rest = &memory[first * stride..total];
                sys::send_each(&outlet.fd, &destination, rest, stride, &options)
            };
            match sent {
                Ok(sent) => {
                    first += sent;
                    if first >= count {
                        self.count_sent(counts, count, total);
                        return Outcome::Done;
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Outcome::Blocked(first),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if whole && count > 1 && refuses_segmentation(&e) => {
                    log::info!(
                        "the underlay does not support UDP_SEGMENT ({e}); sending packets one by one"
                    );
                    self.segmentation = false;
                }
                Err(e) => {
                    let too_long = e.raw_os_error() == Some(libc::EMSGSIZE);
                    if !whole && first == 0 && (too_long || refuses_segmentation(&e)) {
                        // Segmentation was not the cause: older kernels also return EINVAL for segments
                        // over the MTU of the route.
                        self.segmentation = true;
                    }
                    log::trace!("cannot send to {}: {e}", to.ip);
                    counts.packets.tx_too_big += u64::from(too_long);
                    return Outcome::Failed;
                }
            }
        }
    }

    fn count_sent(&self, counts: &mut Counts, packets: usize, bytes: usize) {
        counts.packets.tx_trains += 1;
        counts.packets.tx_packets += packets as u64;
        counts.packets.tx_bytes += bytes as u64;
        if !self.segmentation && packets > 1 {
            counts.packets.tx_unsegmented += 1;
        }
    }
}

fn options(to: &Address) -> SendOptions {
    let mut options = SendOptions::new();
    let (level, class, hops) = match to.ip {
        IpAddr::V6(_) => (libc::SOL_IPV6, libc::IPV6_TCLASS, libc::IPV6_HOPLIMIT),
        IpAddr::V4(_) => (libc::SOL_IP, libc::IP_TOS, libc::IP_TTL),
    };
    let traffic_class = to.traffic_class & !ECN;
    if traffic_class != 0 {
        options.int(level, class, traffic_class.into());
    }
    if to.hop_limit != 0 {
        options.int(level, hops, to.hop_limit.into());
    }
    options
}

/// EIO: the interface has no transmit checksums, or the route uses IPsec; EINVAL: the kernel has no
/// UDP_SEGMENT or a lower limit of segments (net/ipv4/udp.c, `udp_send_skb`).
fn refuses_segmentation(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EIO | libc::EINVAL))
}
