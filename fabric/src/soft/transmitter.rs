//! Handing packets that lie side by side to the network: in one call where it takes UDP_SEGMENT, one
//! by one where it does not.

use std::io;
use std::net::IpAddr;

use super::address_handle::Address;
use super::counts::Counts;
use super::snapshot::Sockets;
use super::socket::scope;
use super::sys::{self, Destination, SendOptions};
use super::train::{Ipv4Id, Route};
use super::wire::ROCE_V2_PORT;

/// The bits of a traffic class that are the network's (RFC 3168, section 5): we do not answer marks of
/// datagrams, so we do not offer to be marked.
const ECN: u8 = 3;

/// Packets that are to leave together.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Bytes of each of them but the last.
    pub stride: usize,
    /// How many there are.
    pub count: usize,
    /// Those that have left already.
    pub first: usize,
}

/// What became of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// They are on their way.
    Done,
    /// The network or a check refused.
    Failed,
    /// No room after this many packets.
    Blocked(usize),
}

/// The way out through one worker's socket.
#[derive(Debug)]
pub struct Transmitter {
    /// UDP_SEGMENT has not been refused.
    pub segmentation: bool,
}

impl Transmitter {
    /// Sends the packets in `memory` to one address. `seal` writes what depends on the route, and
    /// gives the bytes of all packets.
    pub fn send(
        &mut self,
        counts: &mut Counts,
        (socket, ifindex): (&Sockets, u32),
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
                source: socket.source,
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
                sys::send(&socket.transmit, &destination, &memory[..total], &options)
                    .map(|()| count)
            } else {
                let rest = &memory[first * stride..total];
                sys::send_each(&socket.transmit, &destination, rest, stride, &options)
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
                    log::info!("the underlay refuses UDP_SEGMENT ({e}); sending one by one");
                    self.segmentation = false;
                }
                Err(e) => {
                    let too_long = e.raw_os_error() == Some(libc::EMSGSIZE);
                    if !whole && first == 0 && (too_long || refuses_segmentation(&e)) {
                        // It was not the segmentation, then: older kernels answer EINVAL, too,
                        // to segments over the MTU of the route.
                        self.segmentation = true;
                    }
                    log::trace!("a send to {} failed: {e}", to.ip);
                    counts.tx_too_big += u64::from(too_long);
                    return Outcome::Failed;
                }
            }
        }
    }

    fn count_sent(&self, counts: &mut Counts, packets: usize, bytes: usize) {
        counts.tx_trains += 1;
        counts.tx_packets += packets as u64;
        counts.tx_bytes += bytes as u64;
        if !self.segmentation && packets > 1 {
            counts.tx_unsegmented += 1;
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

/// EIO: the device has no transmit checksums, or the route goes through IPsec; EINVAL: the kernel
/// knows no UDP_SEGMENT or takes fewer segments (net/ipv4/udp.c, `udp_send_skb`).
fn refuses_segmentation(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EIO | libc::EINVAL))
}
