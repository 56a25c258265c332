//! The kernel's `ib_ipoib` as the peer: packets captured from an unmodified module are sent to a daemon, and
//! its answers are checked field by field.
//!
//! The kernel's port was `fe80::99:ff:fe00:10`, its `ib0` had queue pair 0x11.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::time::{Duration, Instant};

use crate::lab::packet::{ROCE_PORT, Ud, kernel_packet};
use crate::lab::{Host, Lab, SOON, eventually};

const KERNEL_PORT: &str = "02:99:00:00:00:10";
const KERNEL_GID: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0x99, 0xff, 0xfe00, 0x10);
const KERNEL_QPN: u32 = 0x11;
const PEER_PORT: &str = "02:99:00:00:00:20";
const PEER_GID: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0x99, 0xff, 0xfe00, 0x20);
const QKEY: u32 = 0x0b1b;

const ARP: &[u8] = &[0x08, 0x06, 0, 0];
const IPV4: &[u8] = &[0x08, 0x00, 0, 0];
const IPV6: &[u8] = &[0x86, 0xdd, 0, 0];

/// Offsets in the payload, from the encapsulation header's first byte (RFC 4391, 6 and 9.2).
mod arp {
    pub const OPERATION: usize = 4 + 6;
    pub const SENDER_HARDWARE: usize = 4 + 8;
    pub const SENDER_IP: usize = SENDER_HARDWARE + 20;
    pub const TARGET_HARDWARE: usize = SENDER_IP + 4;
    pub const TARGET_IP: usize = TARGET_HARDWARE + 20;
    pub const END: usize = TARGET_IP + 4;
}

/// The kernel's side: a host without a daemon whose sockets send and receive its packets.
struct Kernel {
    hears: UdpSocket,
    ifindex: u32,
}

impl Kernel {
    /// Sets the captured ports' MACs on both hosts, starts the daemon with `options` on the second, and joins
    /// a broadcast group on the first.
    fn with_daemon(lab: &mut Lab, options: &[&str], address: &str, broadcast: &str) -> Kernel {
        let (kernel, peer) = lab.two();
        for (host, mac) in [(&*kernel, KERNEL_PORT), (&*peer, PEER_PORT)] {
            host.ok("ip link set eth0 down");
            host.ok(&format!("ip link set eth0 address {mac}"));
            host.ok("ip link set eth0 up");
        }
        let mut all = vec!["--mtu", "2044"];
        all.extend(options);
        peer.start(&all);
        peer.ok(&format!("ip addr add {address}/24 dev ib0"));
        peer.ok("ip link set ib0 up");
        peer.await_carrier("ib0", true);
        assert_eq!(peer.show("ib0")["gid"], PEER_GID.to_string());
        assert_eq!(kernel.await_link_local("eth0"), KERNEL_GID.to_string());
        let index = kernel.link("eth0")["ifindex"].as_u64().expect("an index");
        let ifindex = u32::try_from(index).expect("an index");
        let group = broadcast.parse().expect("a group");
        let hears = kernel.namespace().within(|| {
            let socket = UdpSocket::bind(("::", ROCE_PORT)).expect("a socket");
            socket.join_multicast_v6(&group, ifindex).expect("joined");
            socket
        });
        hears
            .set_read_timeout(Some(Duration::from_millis(200)))
            .expect("a timeout");
        Kernel { hears, ifindex }
    }

    /// Sends a packet from the UDP port of the capture.
    fn send(&self, host: &Host, packet: &Ud) {
        let from = SocketAddrV6::new(packet.source, packet.source_port, 0, self.ifindex);
        let to = SocketAddrV6::new(packet.destination, ROCE_PORT, 0, self.ifindex);
        host.namespace().within(|| {
            let socket = UdpSocket::bind(from).expect("a socket");
            socket.send_to(&packet.datagram(), to).expect("sent");
        });
    }

    /// Sends a packet once a second until there is an answer: the first packet to the kernel's port or a group, with a
    /// correct ICRC, that `keep` accepts.
    fn ask(&self, host: &Host, packet: &Ud, what: &str, keep: impl Fn(&Ud) -> bool) -> Ud {
        let end = Instant::now() + SOON;
        let mut due = Instant::now();
        let mut bytes = [0; 4096];
        while Instant::now() < end {
            if Instant::now() >= due {
                self.send(host, packet);
                due = Instant::now() + Duration::from_secs(1);
            }
            let (n, from) = match self.hears.recv_from(&mut bytes) {
                Ok((n, SocketAddr::V6(from))) => (n, from),
                Ok(_) => continue,
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    continue;
                }
                Err(e) => panic!("cannot receive: {e}"),
            };
            // Unicast first: a group as destination gives another ICRC.
            let found = [KERNEL_GID]
                .into_iter()
                .find_map(|to| Ud::parse(*from.ip(), to, from.port(), &bytes[..n]));
            if let Some(ud) = found.filter(&keep) {
                return ud;
            }
        }
        panic!("no {what} arrived");
    }
}

/// The daemon's queue pair; it replaces 0x4242 of the captured peer.
fn qpn(host: &Host) -> u32 {
    let qpn = host.show("ib0")["qpn"].as_u64().expect("a number");
    u32::try_from(qpn).expect("24 bits")
}

fn assert_addressed(ud: &Ud, host: &Host, pkey: u16, to_qpn: u32) {
    assert_eq!(ud.source, PEER_GID);
    assert_eq!(ud.pkey, pkey);
    assert_eq!(ud.qkey, QKEY);
    assert_eq!(ud.destination_qpn, to_qpn);
    assert_eq!(ud.source_qpn, qpn(host));
}

fn assert_arp_reply(reply: &Ud, request: &Ud, host: &Host) {
    let (out, asked) = (&reply.payload, &request.payload);
    assert_eq!(out.len(), arp::END);
    assert_eq!(out[..arp::OPERATION], asked[..arp::OPERATION]);
    assert_eq!(out[arp::OPERATION..arp::SENDER_HARDWARE], [0, 2]);
    let own = &out[arp::SENDER_HARDWARE..arp::SENDER_IP];
    assert_eq!(own[1..4], qpn(host).to_be_bytes()[1..]);
    assert_eq!(own[4..], PEER_GID.octets());
    assert_eq!(
        out[arp::SENDER_IP..arp::TARGET_HARDWARE],
        asked[arp::TARGET_IP..arp::END]
    );
    assert_eq!(
        out[arp::TARGET_IP..],
        asked[arp::SENDER_IP..arp::TARGET_HARDWARE]
    );
    // Flags may differ: the kernel announces connected mode.
    assert_eq!(
        out[arp::TARGET_HARDWARE + 1..arp::TARGET_IP],
        asked[arp::SENDER_HARDWARE + 1..arp::SENDER_IP]
    );
}

/// Sends the kernel's broadcast ARP request, byte for byte, and checks the answer.
fn broadcast_arp_is_answered(
    capture: &str,
    number: usize,
    options: &[&str],
    pkey: u16,
    kernel_qpn: u32,
) {
    let Some(mut lab) = Lab::pair() else { return };
    let request = kernel_packet(capture, number);
    let target: [u8; 4] = request.payload[arp::TARGET_IP..arp::END]
        .try_into()
        .expect("four bytes");
    let address = Ipv4Addr::from(target).to_string();
    let broadcast = request.destination.to_string();
    let kernel = Kernel::with_daemon(&mut lab, options, &address, &broadcast);
    let (here, peer) = lab.two();
    let reply = kernel.ask(here, &request, "an ARP reply", |ud| {
        ud.payload.starts_with(ARP) && ud.payload[arp::OPERATION + 1] == 2
    });
    assert_addressed(&reply, peer, pkey, kernel_qpn);
    assert_arp_reply(&reply, &request, peer);
    let sender: [u8; 4] = request.payload[arp::SENDER_IP..arp::TARGET_HARDWARE]
        .try_into()
        .expect("four bytes");
    let sender = IpAddr::from(sender).to_string();
    let known = eventually(SOON, "the kernel among the neighbours", || {
        peer.ask("neigh ib0").into_iter().find(|entry| {
            entry["ips"]
                .as_array()
                .is_some_and(|ips| ips.contains(&sender.clone().into()))
        })
    });
    assert_eq!(known["gid"], KERNEL_GID.to_string());
    assert_eq!(known["qpn"], kernel_qpn);
}

#[test]
fn the_kernels_broadcast_arp_is_answered() {
    broadcast_arp_is_answered("01-datagram.pcap", 33, &[], 0xffff, KERNEL_QPN);
}

#[test]
fn the_kernels_broadcast_arp_in_another_partition_is_answered() {
    let (number, request) = crate::lab::packet::kernel_packets("04-pkey.pcap")
        .find(|(_, ud)| {
            ud.pkey == 0x8001
                && ud.source == KERNEL_GID
                && ud.payload.starts_with(ARP)
                && ud.destination.is_multicast()
        })
        .expect("the capture has one");
    let options = ["--pkey", "0x8001"];
    broadcast_arp_is_answered("04-pkey.pcap", number, &options, 0x8001, request.source_qpn);
}

#[test]
fn the_kernels_neighbour_solicitation_is_answered() {
    let Some(mut lab) = Lab::pair() else { return };
    let solicitation = kernel_packet("01-datagram.pcap", 56);
    let kernel = Kernel::with_daemon(&mut lab, &[], "10.50.0.17", "ff12:401b:ffff::ffff:ffff");
    let (here, peer) = lab.two();
    peer.ok("ip addr add fe80::299:ff:fe00:11/64 dev ib0 nodad");
    eventually(SOON, "the solicited-node group", || {
        let group = solicitation.destination.to_string();
        peer.groups("ib0", |g| g["send_only"] == false)
            .contains(&group)
            .then_some(())
    });
    let advertisement = kernel.ask(here, &solicitation, "a neighbour advertisement", |ud| {
        ud.payload.starts_with(IPV6) && ud.payload.get(44) == Some(&136)
    });
    assert_addressed(&advertisement, peer, 0xffff, KERNEL_QPN);
    // IPv6 header, 24 bytes of advertisement, then the option (RFC 4391, 9.3): type 2, three units of eight
    // bytes, two reserved bytes, the 20-byte address.
    let option = &advertisement.payload[44 + 24..];
    assert_eq!(option[..4], [2, 3, 0, 0]);
    assert_eq!(option[5..8], qpn(peer).to_be_bytes()[1..]);
    assert_eq!(option[8..24], PEER_GID.octets());
    assert_eq!(icmpv6_sum(&advertisement.payload[4..]), 0xffff);
}

/// The one's complement sum, 0xffff for a correct ICMPv6 checksum (RFC 4443, 2.3).
fn icmpv6_sum(packet: &[u8]) -> u16 {
    let mut bytes = packet[8..].to_vec();
    bytes.extend([0, 58]);
    bytes.extend(&packet[4..6]);
    let mut sum: u32 = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0)))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[test]
fn the_kernels_multicast_reaches_a_member() {
    let Some(mut lab) = Lab::pair() else { return };
    let packet = kernel_packet("02-multicast.pcap", 11);
    let kernel = Kernel::with_daemon(&mut lab, &[], "10.50.0.17", "ff12:401b:ffff::ffff:ffff");
    let (here, peer) = lab.two();
    // Encapsulation header, IPv4 header of 20 bytes, then the UDP header.
    let udp = &packet.payload[24..];
    let port = u16::from_be_bytes([udp[2], udp[3]]);
    let length = usize::from(u16::from_be_bytes([udp[4], udp[5]]));
    let group = Ipv4Addr::new(239, 1, 2, 3);
    let member = peer.namespace().within(|| {
        let socket = UdpSocket::bind(("0.0.0.0", port)).expect("a socket");
        socket
            .join_multicast_v4(&group, &Ipv4Addr::new(10, 50, 0, 17))
            .expect("joined");
        socket
    });
    member
        .set_read_timeout(Some(Duration::from_secs(1)))
        .expect("a timeout");
    eventually(SOON, "the group", || {
        peer.groups("ib0", |g| g["send_only"] == false)
            .contains(&packet.destination.to_string())
            .then_some(())
    });
    let mut bytes = [0; 2048];
    let (n, from) = eventually(SOON, "the kernel's packet", || {
        kernel.send(here, &packet);
        member.recv_from(&mut bytes).ok()
    });
    assert_eq!(bytes[..n], udp[8..length]);
    assert_eq!(from.ip(), Ipv4Addr::new(10, 50, 0, 16));
}

/// The unicast packets of the kernel to the userspace peer of capture 05, with the daemon's queue pair and
/// address instead of the peer's.
#[test]
fn the_daemon_stands_in_the_userspace_peers_place() {
    let Some(mut lab) = Lab::pair() else { return };
    let kernel = Kernel::with_daemon(&mut lab, &[], "10.50.0.32", "ff12:401b:ffff::ffff:ffff");
    let (here, peer) = lab.two();
    let qpn = qpn(peer);
    let captured = |number| {
        let mut ud = kernel_packet("05-userspace-peer.pcap", number);
        assert_eq!((ud.source, ud.destination_qpn), (KERNEL_GID, 0x4242));
        ud.destination_qpn = qpn;
        ud
    };

    // 37: the kernel repeats the request, by unicast to the known peer.
    let mut request = captured(37);
    let hardware = arp::TARGET_HARDWARE + 1..arp::TARGET_HARDWARE + 4;
    if request.payload[hardware.clone()] != [0; 3] {
        request.payload[hardware].copy_from_slice(&qpn.to_be_bytes()[1..]);
    }
    let reply = kernel.ask(here, &request, "an ARP reply", |ud| {
        ud.payload.starts_with(ARP)
    });
    assert_addressed(&reply, peer, 0xffff, KERNEL_QPN);
    assert_arp_reply(&reply, &request, peer);

    // 21 and 33: echo requests of 84 and of 1928 bytes, without a GRH on the captured link.
    for number in [21, 33] {
        let request = captured(number);
        // A late answer to the former request has another length.
        let reply = kernel.ask(here, &request, "an echo reply of the same length", |ud| {
            ud.payload.starts_with(IPV4)
                && ud.payload.get(24) == Some(&0)
                && ud.payload.len() == request.payload.len()
        });
        assert_addressed(&reply, peer, 0xffff, KERNEL_QPN);
        let (out, asked) = (&reply.payload, &request.payload);
        assert_eq!(
            out[16..20],
            asked[20..24],
            "from the address that was asked"
        );
        assert_eq!(out[20..24], asked[16..20], "to the one that asked");
        assert_eq!(out[28..], asked[28..], "identifier, number and data");
    }
}
