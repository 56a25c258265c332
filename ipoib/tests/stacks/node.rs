//! A host: its TCP/IP stack, core and port.

use std::net::IpAddr;

use ipoib::{
    Config, FLAG_RC, HardwareAddress, Incoming, Ipoib, Limits, Mode, Outgoing, Time as CoreTime,
    TooBig,
};
use proto::{ConnectionEvent, ConnectionId, PKey, Qpn};
use smoltcp::iface::{self, Interface, SocketHandle, SocketSet};
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::socket::icmp;
use smoltcp::time::Instant;
use smoltcp::wire::{
    EthernetAddress, Icmpv4DstUnreachable, Icmpv4Message, Icmpv4Packet, Icmpv4Repr, Icmpv6Packet,
    Icmpv6Repr, IpAddress, IpCidr, Ipv4Packet, Ipv6Packet,
};

use crate::flow::Flow;
use crate::network::{MICROSECOND, MILLISECOND, Network, Time};
use crate::packets::gid;
use crate::port::Port;
use crate::random::Random;
use crate::tap::Tap;

pub const LINK_MTU: usize = 2044;
const ECHO_IDENT: u16 = 0x1b1b;

/// The configuration of a host.
#[derive(Clone, Copy)]
pub struct Host {
    pub mode: Mode,
    /// The MTU of the host's stack, in bytes of IP.
    pub mtu: usize,
    /// Whether the address has the RC flag.
    pub flagged: bool,
    /// Maximum number of connections.
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

pub struct Node {
    tap: Tap,
    stack: Interface,
    sockets: SocketSet<'static>,
    pub flows: Vec<Flow>,
    icmp: SocketHandle,
    pub core: Ipoib,
    pub port: Port,
    mac: [u8; 6],
    number: u8,
    seed: u64,
    pub host: Host,
    /// The daemon is down before this time.
    pub down_until: Time,
    /// The time of the next run.
    pub wake_at: Option<Time>,
}

/// The core's time.
pub const fn core_time(now: Time) -> CoreTime {
    CoreTime(now / MILLISECOND)
}

fn stack_time(now: Time) -> Instant {
    Instant::from_micros((now / MICROSECOND) as i64)
}

pub fn v4(number: u8) -> IpAddress {
    IpAddress::v4(10, 0, 0, number)
}

pub fn v6(number: u8) -> IpAddress {
    IpAddress::v6(0xfd00, 0, 0, 0, 0, 0, 0, u16::from(number))
}

fn new_core(index: usize, qpn: Qpn, mac: [u8; 6], host: Host) -> Ipoib {
    let flags = if host.flagged { FLAG_RC } else { 0 };
    Ipoib::new(Config {
        local: HardwareAddress::new(flags, qpn, gid(index)),
        mac,
        pkey: PKey::DEFAULT,
        scope: 2,
        link_mtu: LINK_MTU,
        mode: host.mode,
        services: proto::Services::Any,
        dhcp: ipoib::DhcpMode::default(),
        claims: ipoib::ClaimCheck::default(),
        refuse_requests: false,
        limits: Limits {
            connections: host.connections,
            ..Limits::default()
        },
    })
}

fn new_stack(tap: &mut Tap, mac: [u8; 6], number: u8, seed: u64, now: Time) -> Interface {
    let mut config = iface::Config::new(EthernetAddress(mac).into());
    config.random_seed = seed + u64::from(number);
    let mut stack = Interface::new(config, tap, stack_time(now));
    stack.update_ip_addrs(|a| {
        a.push(IpCidr::new(v4(number), 24)).unwrap();
        a.push(IpCidr::new(v6(number), 64)).unwrap();
    });
    stack
}

impl Node {
    /// Creates the node `index` of `nodes`.
    pub fn new(index: usize, nodes: usize, random: &mut Random, host: Host) -> Node {
        let number = u8::try_from(index + 1).expect("a last byte of an address");
        let (qpn, seed) = (Qpn::new(0x40 + u32::from(number)), random.word());
        let mac = ipoib::local_mac(gid(index), PKey::DEFAULT, "ib0");
        let mut tap = Tap::new(host.mtu);
        let stack = new_stack(&mut tap, mac, number, seed, 0);
        let mut sockets = SocketSet::new(vec![]);
        let queue = || icmp::PacketBuffer::new(vec![icmp::PacketMetadata::EMPTY; 8], vec![0; 4096]);
        let mut echo = icmp::Socket::new(queue(), queue());
        echo.bind(icmp::Endpoint::Ident(ECHO_IDENT)).unwrap();
        let icmp = sockets.add(echo);
        let core = new_core(index, qpn, mac, host);
        let mut port = Port::new(0, index, nodes, qpn, random);
        port.listen(&core);
        Node {
            tap,
            stack,
            sockets,
            flows: Vec::new(),
            icmp,
            core,
            port,
            mac,
            number,
            seed,
            host,
            down_until: 0,
            wake_at: Some(0),
        }
    }

    /// The MTU of the host's stack, in bytes of IP.
    pub fn mtu(&self) -> usize {
        self.tap.mtu
    }

    /// Restarts the daemon at `from` with another queue pair: the host keeps its state, the daemon keeps
    /// nothing.
    pub fn restart(&mut self, from: Time, nodes: usize, qpn: Qpn, random: &mut Random) {
        let index = usize::from(self.number) - 1;
        self.core = new_core(index, qpn, self.mac, self.host);
        self.core.announce(IpAddr::from(v4(self.number)), false);
        self.core.announce(IpAddr::from(v6(self.number)), false);
        let messages = self.port.messages;
        self.port = Port::new(from, index, nodes, qpn, random);
        self.port.messages = messages;
        self.port.listen(&self.core);
        self.down_until = from;
    }

    pub fn set_mode(&mut self, now: Time, mode: Mode) {
        match mode {
            Mode::Connected => {
                self.core.set_mode(mode);
                self.set_mtu(now, CONNECTED.mtu);
            }
            Mode::Datagram => {
                self.set_mtu(now, LINK_MTU);
                self.core.set_mode(mode);
            }
        }
    }

    /// Makes a new stack, which reads its MTU only once, with the same sockets.
    fn set_mtu(&mut self, now: Time, mtu: usize) {
        self.tap.mtu = mtu;
        self.stack = new_stack(&mut self.tap, self.mac, self.number, self.seed, now);
    }

    pub fn abort_all(&mut self) {
        self.flows.iter().for_each(|f| f.abort(&mut self.sockets));
    }

    fn room(&self) -> usize {
        if self.host.mtu > LINK_MTU {
            256 << 10
        } else {
            32 << 10
        }
    }

    pub fn receive_on(&mut self, port: u16) {
        let room = self.room();
        let flow = Flow::receiver(&mut self.sockets, room, port);
        self.flows.push(flow);
    }

    pub fn send_to(&mut self, to: (IpAddress, u16), total: usize) {
        let room = self.room();
        let flow = Flow::sender(&mut self.stack, &mut self.sockets, room, to, total);
        self.flows.push(flow);
    }

    /// Runs the host and its daemon's data thread once.
    pub fn run(&mut self, now: Time, network: &mut Network) {
        if self.down_until > now {
            self.run_stack(now);
            self.tap.from_stack.clear();
            let wakes = self.stack_wakes(now).into_iter().chain([self.down_until]);
            self.wake_at = wakes.min();
            return;
        }
        self.receive(now, network);
        self.timers(now);
        self.run_stack(now);
        self.frames_out(now);
        self.events(now);
        self.port.transmit(now, network);
        self.events(now);
        self.wake_at = self.next_wake(now);
    }

    fn next_wake(&mut self, now: Time) -> Option<Time> {
        let core = self.core.next_deadline().map(|t| t.0 * MILLISECOND);
        let engine = self.port.engine.next_deadline().map(|t| t.0);
        assert!(engine.is_none_or(|at| at > now), "a deadline has passed");
        let stack = self.stack_wakes(now);
        let first = [core, engine, stack].into_iter().flatten().min();
        first.map(|at| at.max(now + MICROSECOND))
    }

    fn stack_wakes(&mut self, now: Time) -> Option<Time> {
        if !self.tap.to_stack.is_empty() {
            return Some(now + MICROSECOND);
        }
        let at = self.stack.poll_at(stack_time(now), &self.sockets);
        let at = at.map(|at| at.total_micros() as Time * MICROSECOND);
        let flows = self.flows.iter().filter_map(|f| f.wakes(&self.sockets));
        let first = flows.chain(at).min();
        first.map(|at| at.max(now + MICROSECOND))
    }

    /// The host: applications and stack.
    fn run_stack(&mut self, now: Time) {
        for _ in 0..2 {
            self.flows
                .iter_mut()
                .for_each(|f| f.run(now, &mut self.sockets));
            self.stack
                .poll(stack_time(now), &mut self.tap, &mut self.sockets);
            // The first host sends the request.
            if self.number != 1 {
                self.answer_echoes();
            }
        }
    }

    fn timers(&mut self, now: Time) {
        let engine = &mut self.port.engine;
        if engine.next_deadline().is_some_and(|at| at.0 <= now) {
            engine.handle_timeout(proto::Instant(now));
        }
        let at = core_time(now);
        if self.core.next_deadline().is_some_and(|d| d <= at) {
            self.core.handle_timeout(at);
        }
        self.service(now);
    }

    /// Passes connection events to the core and carries out its actions.
    fn events(&mut self, now: Time) {
        while let Some(event) = self.port.engine.poll_event() {
            self.core.connection_event(core_time(now), &event);
            if !matches!(event, ConnectionEvent::Requested { .. }) {
                self.service(now);
            }
        }
        self.service(now);
    }

    /// Sends the core's own packets, and frames that it no longer holds.
    fn service(&mut self, now: Time) {
        let at = core_time(now);
        while let Some((to, packet)) = self.core.poll_transmit(at) {
            let packet = packet.to_vec();
            let (gid, qpn) = self.core.address(to);
            self.port.datagram(gid, qpn, &packet);
        }
        loop {
            let acted = self.port.act(now, &mut self.core);
            while let Some(held) = self.core.pop_released() {
                self.frame_out(now, &held.frame);
            }
            if !acted {
                break;
            }
        }
    }

    /// Does not read from the TAP while the window of a connection is full.
    fn frames_out(&mut self, now: Time) {
        while self.port.engine.has_room()
            && let Some(frame) = self.tap.from_stack.pop_front()
        {
            self.frame_out(now, &frame);
        }
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

    /// The next echo received by the stack: whether it is a request, and its sender.
    pub fn receive_echo(&mut self) -> Option<(bool, IpAddress)> {
        let socket = self.sockets.get_mut::<icmp::Socket<'_>>(self.icmp);
        let (message, from) = socket.recv().ok()?;
        assert_eq!(message[8..], b"echo"[..]);
        Some((matches!(message[0], 8 | 128), from))
    }

    fn answer_echoes(&mut self) {
        while let Some((true, from)) = self.receive_echo() {
            self.send_echo(from, false);
        }
    }

    fn frame_out(&mut self, now: Time, frame: &[u8]) {
        let (at, len) = (core_time(now), frame.len() - 14);
        let (to, mtu, connection, encap) = match self.core.from_tap(at, &[0; 12], frame) {
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
                return self.port.datagram(gid, qpn, &packet);
            }
            // Nodes here have no siblings and no tags.
            Outgoing::Sibling { .. } | Outgoing::Held | Outgoing::Tagged | Outgoing::Dropped(_) => {
                return;
            }
        };
        if len > mtu {
            if let TooBig::Answer(answer) = self.core.too_big(at, to, &[0; 12], frame, len) {
                let answer = answer.to_vec();
                self.lower_mtu(now, &answer);
            }
            return;
        }
        let payload = [&encap[..], &frame[14..]].concat();
        match connection {
            Some(connection) => self.port.message(now, connection, &payload),
            None => {
                let (gid, qpn) = self.core.address(to);
                self.port.datagram(gid, qpn, &payload);
            }
        }
    }

    /// The stack ignores such errors. The host here changes the MTU of the stack and its sockets, as a
    /// kernel does for the route.
    fn lower_mtu(&mut self, now: Time, answer: &[u8]) {
        let mtu = read_mtu(&answer[14..]);
        if mtu >= self.tap.mtu {
            // The packet was sent before the last error arrived.
            return;
        }
        self.set_mtu(now, mtu);
    }

    fn receive(&mut self, now: Time, network: &mut Network) {
        let arrived = self.port.receive(now, network);
        for (meta, payload) in arrived.datagrams {
            let got = self.core.from_fabric(core_time(now), &meta, &payload);
            to_stack(&mut self.tap, got);
        }
        for (connection, message) in arrived.messages {
            self.message(now, connection, &message);
        }
    }

    /// Passes the beginning of a received message to the core.
    fn message(&mut self, now: Time, connection: ConnectionId, message: &[u8]) {
        let head = &message[..message.len().min(4096)];
        let got = self
            .core
            .from_connection(core_time(now), connection, head, message.len());
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

/// The MTU in an error, read by the stack's parsers, with all checksums verified.
fn read_mtu(packet: &[u8]) -> usize {
    let checksums = ChecksumCapabilities::default();
    if packet[0] >> 4 == 4 {
        let ip = Ipv4Packet::new_checked(packet).unwrap();
        assert!(ip.verify_checksum());
        let icmp = Icmpv4Packet::new_checked(ip.payload()).unwrap();
        // The stack's parser rejects the whole message, because it requires a complete quoted packet.
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
