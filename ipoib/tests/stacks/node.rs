//! A host: a TCP/IP stack, a TAP, a core.

use std::net::{IpAddr, Ipv6Addr};

use fabric::{ConnectionId, Gid, PKey, Qpn};
use ipoib::{
    Config, FLAG_RC, HardwareAddress, Incoming, Ipoib, Limits, Meta, Mode, Outgoing, Time, TooBig,
};
use smoltcp::iface::{self, Interface, SocketHandle, SocketSet};
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::socket::{icmp, tcp};
use smoltcp::time::Instant;
use smoltcp::wire::{
    EthernetAddress, Icmpv4DstUnreachable, Icmpv4Message, Icmpv4Packet, Icmpv4Repr, Icmpv6Packet,
    Icmpv6Repr, IpAddress, IpCidr, Ipv4Packet, Ipv6Packet,
};

use crate::tap::Tap;

pub const LINK_MTU: usize = 2044;
const ECHO_IDENT: u16 = 0x1b1b;

/// What a host is.
#[derive(Clone, Copy)]
pub struct Host {
    pub mode: Mode,
    /// Bytes of IP that the host thinks the link takes.
    pub mtu: usize,
    /// Says in its address that it takes connections.
    pub flagged: bool,
    /// Connections that it takes.
    pub connections: usize,
}

pub const DATAGRAM: Host = Host {
    mode: Mode::Datagram,
    mtu: LINK_MTU,
    flagged: false,
    connections: 16,
};

pub const CONNECTED: Host = Host {
    mode: Mode::Connected,
    mtu: 65520,
    flagged: true,
    connections: 16,
};

/// A datagram that is under way.
pub struct Packet {
    pub at: u64,
    pub meta: Meta,
    pub qpn: Qpn,
    pub payload: Vec<u8>,
}

/// What a host sends.
pub enum Sent {
    Datagram(Gid, Qpn, Vec<u8>),
    Message(ConnectionId, Vec<u8>),
}

pub struct Node {
    pub tap: Tap,
    pub stack: Interface,
    pub sockets: SocketSet<'static>,
    pub tcp: SocketHandle,
    icmp: SocketHandle,
    pub core: Ipoib,
    pub qpn: Qpn,
    pub gid: Gid,
    mac: [u8; 6],
    number: u8,
    seed: u64,
    host: Host,
    pub arriving: Vec<Packet>,
}

fn gid(number: u8) -> Gid {
    Gid::from(Ipv6Addr::new(
        0xfe80,
        0,
        0,
        0,
        0x99,
        0xff,
        0xfe00,
        u16::from(number),
    ))
}

pub fn v4(number: u8) -> IpAddress {
    IpAddress::v4(10, 0, 0, number)
}

pub fn v6(number: u8) -> IpAddress {
    IpAddress::v6(0xfd00, 0, 0, 0, 0, 0, 0, u16::from(number))
}

fn new_core(gid: Gid, qpn: Qpn, mac: [u8; 6], host: Host) -> Ipoib {
    let flags = if host.flagged { FLAG_RC } else { 0 };
    Ipoib::new(Config {
        local: HardwareAddress::new(flags, qpn, gid),
        mac,
        pkey: PKey::DEFAULT,
        scope: 2,
        link_mtu: LINK_MTU,
        mode: host.mode,
        dhcp: ipoib::DhcpMode::default(),
        limits: Limits {
            connections: host.connections,
            ..Limits::default()
        },
    })
}

fn new_stack(tap: &mut Tap, mac: [u8; 6], number: u8, seed: u64, now: u64) -> Interface {
    let mut config = iface::Config::new(EthernetAddress(mac).into());
    config.random_seed = seed + u64::from(number);
    let mut stack = Interface::new(config, tap, Instant::from_millis(now as i64));
    stack.update_ip_addrs(|a| {
        a.push(IpCidr::new(v4(number), 24)).unwrap();
        a.push(IpCidr::new(v6(number), 64)).unwrap();
    });
    stack
}

impl Node {
    pub fn new(number: u8, seed: u64, host: Host) -> Node {
        let (gid, qpn) = (gid(number), Qpn::new(0x40 + u32::from(number)));
        let mac = ipoib::local_mac(gid, PKey::DEFAULT, "ib0");
        let mut tap = Tap::new(host.mtu);
        let stack = new_stack(&mut tap, mac, number, seed, 0);
        let mut sockets = SocketSet::new(vec![]);
        let bytes = if host.mtu > LINK_MTU { 256 } else { 32 } * 1024;
        let room = || tcp::SocketBuffer::new(vec![0; bytes]);
        let tcp = sockets.add(tcp::Socket::new(room(), room()));
        let queue = || icmp::PacketBuffer::new(vec![icmp::PacketMetadata::EMPTY; 8], vec![0; 4096]);
        let mut echo = icmp::Socket::new(queue(), queue());
        echo.bind(icmp::Endpoint::Ident(ECHO_IDENT)).unwrap();
        let icmp = sockets.add(echo);
        let core = new_core(gid, qpn, mac, host);
        Node {
            tap,
            stack,
            sockets,
            tcp,
            icmp,
            core,
            qpn,
            gid,
            mac,
            number,
            seed,
            host,
            arriving: Vec::new(),
        }
    }

    /// The daemon starts again: nothing of the core survives, the queue pair is another.
    pub fn restart(&mut self, qpn: Qpn) {
        self.qpn = qpn;
        self.core = new_core(self.gid, qpn, self.mac, self.host);
        self.core.announce(IpAddr::from(v4(self.number)));
        self.core.announce(IpAddr::from(v6(self.number)));
    }

    pub fn poll(&mut self, now: u64) {
        let at = Instant::from_millis(now as i64);
        self.stack.poll(at, &mut self.tap, &mut self.sockets);
    }

    pub fn send_echo(&mut self, to: IpAddress, request: bool) {
        let (ident, seq_no, data) = (ECHO_IDENT, 1, &b"echo"[..]);
        let checksums = ChecksumCapabilities::default();
        let socket = self.sockets.get_mut::<icmp::Socket<'_>>(self.icmp);
        match (to, v6(self.number)) {
            (IpAddress::Ipv6(dst), IpAddress::Ipv6(src)) => {
                let echo = match request {
                    true => Icmpv6Repr::EchoRequest {
                        ident,
                        seq_no,
                        data,
                    },
                    false => Icmpv6Repr::EchoReply {
                        ident,
                        seq_no,
                        data,
                    },
                };
                let place = socket.send(echo.buffer_len(), to).unwrap();
                let mut packet = smoltcp::wire::Icmpv6Packet::new_unchecked(place);
                echo.emit(&src, &dst, &mut packet, &checksums);
            }
            _ => {
                let echo = match request {
                    true => Icmpv4Repr::EchoRequest {
                        ident,
                        seq_no,
                        data,
                    },
                    false => Icmpv4Repr::EchoReply {
                        ident,
                        seq_no,
                        data,
                    },
                };
                let place = socket.send(echo.buffer_len(), to).unwrap();
                echo.emit(
                    &mut smoltcp::wire::Icmpv4Packet::new_unchecked(place),
                    &checksums,
                );
            }
        }
    }

    /// The next echo that the stack took in: whether it is a request, and from whom.
    pub fn receive_echo(&mut self) -> Option<(bool, IpAddress)> {
        let socket = self.sockets.get_mut::<icmp::Socket<'_>>(self.icmp);
        let (message, from) = socket.recv().ok()?;
        assert_eq!(message[8..], b"echo"[..]);
        Some((matches!(message[0], 8 | 128), from))
    }

    pub fn answer_echoes(&mut self) {
        while let Some((true, from)) = self.receive_echo() {
            self.send_echo(from, false);
        }
    }

    /// Everything that the core wants on the wire now.
    pub fn outgoing(&mut self, now: u64) -> Vec<Sent> {
        let t = Time(now);
        let mut out = Vec::new();
        if self.core.next_deadline().is_some_and(|d| d <= t) {
            self.core.handle_timeout(t);
        }
        while let Some((to, packet)) = self.core.poll_transmit(t) {
            let packet = packet.to_vec();
            let (gid, qpn) = self.core.address(to);
            out.push(Sent::Datagram(gid, qpn, packet));
        }
        while let Some(held) = self.core.pop_released() {
            self.tap.from_stack.push_back(held.frame.into_vec());
        }
        while let Some(frame) = self.tap.from_stack.pop_front() {
            out.extend(self.frame_out(t, &frame));
        }
        out
    }

    fn frame_out(&mut self, now: Time, frame: &[u8]) -> Option<Sent> {
        let len = frame.len() - 14;
        let (to, mtu, connection, encap) = match self.core.from_tap(now, &[0; 12], frame) {
            Outgoing::Forward { to, encap } => (to, LINK_MTU, None, encap),
            Outgoing::Message {
                connection,
                to,
                encap,
                mtu,
            } => (to, mtu, Some(connection), encap),
            Outgoing::Rewritten { to, packet } => {
                let packet = packet.to_vec();
                let (gid, qpn) = self.core.address(to);
                return Some(Sent::Datagram(gid, qpn, packet));
            }
            Outgoing::Held | Outgoing::Dropped(_) => return None,
        };
        if len > mtu {
            if let TooBig::Answer(answer) = self.core.too_big(now, to, &[0; 12], frame, len) {
                let answer = answer.to_vec();
                self.told_mtu(now, &answer);
            }
            return None;
        }
        let payload = [&encap[..], &frame[14..]].concat();
        Some(match connection {
            Some(connection) => Sent::Message(connection, payload),
            None => {
                let (gid, qpn) = self.core.address(to);
                Sent::Datagram(gid, qpn, payload)
            }
        })
    }

    /// The stack reads such answers and does nothing about them. So its host does here what a kernel
    /// does for the route: the stack goes on with a smaller MTU, and the sockets that it has.
    fn told_mtu(&mut self, now: Time, answer: &[u8]) {
        let mtu = read_mtu(&answer[14..]);
        if mtu >= self.tap.mtu {
            // About a packet that was sent before it was told.
            return;
        }
        self.tap.mtu = mtu;
        self.stack = new_stack(&mut self.tap, self.mac, self.number, self.seed, now.0);
    }

    pub fn incoming(&mut self, now: u64) {
        let (due, later) = std::mem::take(&mut self.arriving)
            .into_iter()
            .partition(|p| p.at <= now);
        self.arriving = later;
        let due: Vec<Packet> = due;
        for p in due
            .iter()
            .filter(|p| p.qpn == self.qpn || p.qpn == Qpn::MULTICAST)
        {
            let got = self.core.from_fabric(Time(now), &p.meta, &p.payload);
            to_stack(&mut self.tap, got);
        }
    }

    /// A message came over a connection. The core sees its beginning.
    pub fn message(&mut self, now: u64, connection: ConnectionId, message: &[u8]) {
        let head = &message[..message.len().min(4096)];
        let got = self
            .core
            .from_connection(Time(now), connection, head, message.len());
        if let Incoming::Packet { ethernet, .. } = got {
            let frame = [&ethernet[..], &message[4..]].concat();
            self.tap.to_stack.push_back(frame);
        } else {
            to_stack(&mut self.tap, got);
        }
    }
}

fn to_stack(tap: &mut Tap, got: Incoming<'_, '_>) {
    match got {
        Incoming::Packet { ethernet, l3 } => {
            tap.to_stack.push_back([&ethernet[..], l3].concat());
        }
        Incoming::Frame(f) => tap.to_stack.push_back(f.to_vec()),
        Incoming::Dropped(_) | Incoming::Held | Incoming::Consumed => {}
    }
}

/// The MTU of an error as the stack's own parsers read it, all checksums verified.
fn read_mtu(packet: &[u8]) -> usize {
    let checksums = ChecksumCapabilities::default();
    if packet[0] >> 4 == 4 {
        let ip = Ipv4Packet::new_checked(packet).unwrap();
        assert!(ip.verify_checksum());
        let icmp = Icmpv4Packet::new_checked(ip.payload()).unwrap();
        // The whole message is more than the stack's parser takes: it wants the quoted packet whole.
        assert!(icmp.verify_checksum());
        assert_eq!(icmp.msg_type(), Icmpv4Message::DstUnreachable);
        assert_eq!(
            icmp.msg_code(),
            u8::from(Icmpv4DstUnreachable::FragRequired)
        );
        usize::from(u16::from_be_bytes([ip.payload()[6], ip.payload()[7]]))
    } else {
        let ip = Ipv6Packet::new_checked(packet).unwrap();
        let icmp = Icmpv6Packet::new_checked(ip.payload()).unwrap();
        let (from, to) = (ip.src_addr(), ip.dst_addr());
        let Icmpv6Repr::PktTooBig { mtu, .. } =
            Icmpv6Repr::parse(&from, &to, &icmp, &checksums).unwrap()
        else {
            panic!("{icmp:?}")
        };
        mtu as usize
    }
}
