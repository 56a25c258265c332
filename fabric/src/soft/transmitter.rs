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
                    let before = first * stride;
                    first += sent;
                    counts.packets.tx_packets += sent as u64;
                    counts.packets.tx_bytes += (total.min(first * stride) - before) as u64;
                    if first >= count {
                        counts.packets.tx_trains += 1;
                        counts.packets.tx_unsegmented += u64::from(!whole);
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

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::thread;

    use rustix::net::sockopt::set_socket_send_buffer_size;

    use super::*;
    use crate::namespace::Namespace;

    /// The kernel keeps packets to a neighbour that does not answer, and the socket's buffer fills.
    fn to_nobody() {
        let _ns = Namespace::loopback("nobody");
        Namespace::ip("link add u0 up type veth peer name u1");
        Namespace::ip("link set u1 up");
        Namespace::ip("address add 192.0.2.1/24 dev u0");
        let socket = UdpSocket::bind("192.0.2.1:0").unwrap();
        set_socket_send_buffer_size(&socket, 0).unwrap();
        let outlet = Outlet {
            source: socket.local_addr().unwrap(),
            fd: socket.into(),
        };
        let mut counts = Counts::default();
        let mut transmitter = Transmitter {
            segmentation: false,
        };
        let shape = Shape {
            stride: 1000,
            count: 10,
            first: 0,
        };
        let to = Address::port("::ffff:192.0.2.2".parse().unwrap());
        let mut memory = [0; 9_500];
        let seal = |memory: &mut [u8], _: &Route| Some(memory.len());
        let sent = transmitter.send(&mut counts, (&outlet, 0), &to, shape, &mut memory, seal);
        let Outcome::Blocked(taken @ 1..10) = sent else {
            panic!("{sent:?}");
        };
        let counts = counts.packets;
        assert_eq!((counts.tx_packets, counts.tx_trains), (taken as u64, 0));
        assert_eq!(counts.tx_bytes, taken as u64 * 1000);
    }

    #[test]
    fn packets_before_a_blocked_one_are_counted() {
        thread::spawn(to_nobody).join().unwrap();
    }
}
