//! Two TCP/IP stacks that are not ours (smoltcp), each on the Ethernet side of a core, joined by a
//! simulated fabric that loses, duplicates and reorders.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv6Addr};

use fabric::{Gid, PKey, Qpn};
use ipoib::{Config, HardwareAddress, Incoming, Ipoib, Limits, Meta, Outgoing, Target, Time};
use smoltcp::iface::{self, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{ChecksumCapabilities, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::{icmp, tcp};
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, Icmpv4Repr, Icmpv6Repr, IpAddress, IpCidr};

const LINK_MTU: usize = 2044;
const ECHO_IDENT: u16 = 0x1b1b;
const TCP_PORT: u16 = 5001;

/// Marsaglia's xorshift: all randomness comes from the seed that a failure prints.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }

    fn percent(&mut self, p: u64) -> bool {
        self.below(100) < p
    }
}

/// The TAP between a stack and its core.
#[derive(Default)]
struct Tap {
    to_stack: VecDeque<Vec<u8>>,
    from_stack: VecDeque<Vec<u8>>,
}

struct Received(Vec<u8>);
struct Sending<'a>(&'a mut VecDeque<Vec<u8>>);

impl RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

impl TxToken for Sending<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut frame = vec![0; len];
        let r = f(&mut frame);
        self.0.push_back(frame);
        r
    }
}

impl Device for Tap {
    type RxToken<'a> = Received;
    type TxToken<'a> = Sending<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Received, Sending<'_>)> {
        let frame = self.to_stack.pop_front()?;
        Some((Received(frame), Sending(&mut self.from_stack)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Sending<'_>> {
        Some(Sending(&mut self.from_stack))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut c = DeviceCapabilities::default();
        c.medium = Medium::Ethernet;
        c.max_transmission_unit = LINK_MTU + 14;
        c
    }
}

struct Packet {
    at: u64,
    meta: Meta,
    qpn: Qpn,
    payload: Vec<u8>,
}

struct Node {
    tap: Tap,
    stack: Interface,
    sockets: SocketSet<'static>,
    tcp: SocketHandle,
    icmp: SocketHandle,
    core: Ipoib,
    qpn: Qpn,
    gid: Gid,
    mac: [u8; 6],
    number: u8,
    arriving: Vec<Packet>,
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

fn v4(number: u8) -> IpAddress {
    IpAddress::v4(10, 0, 0, number)
}

fn v6(number: u8) -> IpAddress {
    IpAddress::v6(0xfd00, 0, 0, 0, 0, 0, 0, u16::from(number))
}

fn new_core(gid: Gid, qpn: Qpn, mac: [u8; 6]) -> Ipoib {
    Ipoib::new(Config {
        local: HardwareAddress::new(0, qpn, gid),
        mac,
        pkey: PKey::DEFAULT,
        scope: 2,
        link_mtu: 2044,
        mode: ipoib::Mode::Datagram,
        dhcp: ipoib::DhcpMode::default(),
        limits: Limits::default(),
    })
}

impl Node {
    fn new(number: u8, seed: u64) -> Node {
        let (gid, qpn) = (gid(number), Qpn::new(0x40 + u32::from(number)));
        let mac = ipoib::local_mac(gid, PKey::DEFAULT, "ib0");
        let mut tap = Tap::default();
        let mut config = iface::Config::new(EthernetAddress(mac).into());
        config.random_seed = seed + u64::from(number);
        let mut stack = Interface::new(config, &mut tap, Instant::ZERO);
        stack.update_ip_addrs(|a| {
            a.push(IpCidr::new(v4(number), 24)).unwrap();
            a.push(IpCidr::new(v6(number), 64)).unwrap();
        });
        let mut sockets = SocketSet::new(vec![]);
        let room = || tcp::SocketBuffer::new(vec![0; 32 * 1024]);
        let tcp = sockets.add(tcp::Socket::new(room(), room()));
        let queue = || icmp::PacketBuffer::new(vec![icmp::PacketMetadata::EMPTY; 8], vec![0; 4096]);
        let mut echo = icmp::Socket::new(queue(), queue());
        echo.bind(icmp::Endpoint::Ident(ECHO_IDENT)).unwrap();
        let icmp = sockets.add(echo);
        let core = new_core(gid, qpn, mac);
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
            arriving: Vec::new(),
        }
    }

    /// The daemon starts again: nothing of the core survives, the queue pair is another.
    fn restart(&mut self, qpn: Qpn) {
        self.qpn = qpn;
        self.core = new_core(self.gid, qpn, self.mac);
        self.core.announce(IpAddr::from(v4(self.number)));
        self.core.announce(IpAddr::from(v6(self.number)));
    }

    fn poll(&mut self, now: u64) {
        let at = Instant::from_millis(now as i64);
        self.stack.poll(at, &mut self.tap, &mut self.sockets);
    }

    fn send_echo(&mut self, to: IpAddress, request: bool) {
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
    fn receive_echo(&mut self) -> Option<(bool, IpAddress)> {
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

    /// Everything that the core wants on the wire now.
    fn outgoing(&mut self, now: u64) -> Vec<(Gid, Qpn, Vec<u8>)> {
        let t = Time(now);
        let mut out = Vec::new();
        if self.core.next_deadline().is_some_and(|d| d <= t) {
            self.core.handle_timeout(t);
        }
        while let Some((to, packet)) = self.core.poll_transmit(t) {
            let packet = packet.to_vec();
            let (gid, qpn) = self.core.address(to);
            out.push((gid, qpn, packet));
        }
        while let Some(held) = self.core.pop_released() {
            self.tap.from_stack.push_back(held.frame.into_vec());
        }
        while let Some(frame) = self.tap.from_stack.pop_front() {
            if let Some((to, payload)) = self.frame_out(t, &frame) {
                let (gid, qpn) = self.core.address(to);
                out.push((gid, qpn, payload));
            }
        }
        out
    }

    fn frame_out(&mut self, now: Time, frame: &[u8]) -> Option<(Target, Vec<u8>)> {
        match self.core.from_tap(now, &[0; 12], frame) {
            Outgoing::Forward { to, encap } | Outgoing::Message { to, encap, .. } => {
                Some((to, [&encap[..], &frame[14..]].concat()))
            }
            Outgoing::Rewritten { to, packet } => Some((to, packet.to_vec())),
            Outgoing::Held | Outgoing::Dropped(_) => None,
        }
    }

    fn incoming(&mut self, now: u64) {
        let (due, later) = std::mem::take(&mut self.arriving)
            .into_iter()
            .partition(|p| p.at <= now);
        self.arriving = later;
        let due: Vec<Packet> = due;
        for p in due
            .iter()
            .filter(|p| p.qpn == self.qpn || p.qpn == Qpn::MULTICAST)
        {
            match self.core.from_fabric(Time(now), &p.meta, &p.payload) {
                Incoming::Packet { ethernet, l3 } => {
                    self.tap.to_stack.push_back([&ethernet[..], l3].concat());
                }
                Incoming::Frame(f) => self.tap.to_stack.push_back(f.to_vec()),
                Incoming::Dropped(_) | Incoming::Held | Incoming::Consumed => {}
            }
        }
    }
}

/// What the wire does to packets, in percent and milliseconds.
#[derive(Clone, Copy)]
struct Wire {
    loss: u64,
    duplicate: u64,
    delay: u64,
}

struct Net {
    nodes: [Node; 2],
    now: u64,
    wire: Wire,
    random: Random,
    lost: u64,
}

impl Net {
    fn new(seed: u64, wire: Wire) -> Net {
        println!("seed {seed:#x}");
        Net {
            nodes: [Node::new(1, seed), Node::new(2, seed)],
            now: 1,
            wire,
            random: Random(seed),
            lost: 0,
        }
    }

    fn step(&mut self) {
        self.now += 1;
        for from in 0..2 {
            self.nodes[from].incoming(self.now);
            self.nodes[from].poll(self.now);
            if from == 1 {
                self.nodes[from].answer_echoes();
                self.nodes[from].poll(self.now);
            }
            let out = self.nodes[from].outgoing(self.now);
            for (gid, qpn, payload) in out {
                assert!(payload.len() <= LINK_MTU + 4, "{} bytes", payload.len());
                self.carry(from, gid, qpn, payload);
            }
        }
    }

    /// Multicast also comes back to its sender, as it does from real adapters.
    fn carry(&mut self, from: usize, dst_gid: Gid, qpn: Qpn, payload: Vec<u8>) {
        let sender = &self.nodes[from];
        let meta = Meta {
            src_qpn: sender.qpn,
            src_gid: sender.gid,
            dst_gid,
            multicast: qpn == Qpn::MULTICAST,
        };
        for to in 0..2 {
            if !meta.multicast && self.nodes[to].gid != dst_gid {
                continue;
            }
            let copies = 1 + u64::from(self.random.percent(self.wire.duplicate));
            for _ in 0..copies {
                if self.random.percent(self.wire.loss) {
                    self.lost += 1;
                    continue;
                }
                let at = self.now + self.random.below(self.wire.delay + 1);
                self.nodes[to].arriving.push(Packet {
                    at,
                    meta,
                    qpn,
                    payload: payload.clone(),
                });
            }
        }
    }

    fn run_until(&mut self, limit_ms: u64, what: &str, mut done: impl FnMut(&mut Net) -> bool) {
        let end = self.now + limit_ms;
        while !done(self) {
            assert!(self.now < end, "{what}: not within {limit_ms} ms");
            self.step();
        }
    }

    fn ping(&mut self, to: IpAddress) {
        self.nodes[0].send_echo(to, true);
    }

    fn ponged(&mut self, from: IpAddress) -> bool {
        self.nodes[0].receive_echo() == Some((false, from))
    }

    /// Pings once a second until an answer comes.
    fn ping_until_answered(&mut self, to: IpAddress, seconds: u64) {
        let start = self.now;
        let mut asked = None;
        self.run_until(seconds * 1000, "ping", |net| {
            let second = (net.now - start) / 1000;
            if asked != Some(second) {
                asked = Some(second);
                net.ping(to);
            }
            net.ponged(to)
        });
    }

    /// Sends `total` bytes over TCP from the first to the second stack. `meanwhile` is called once,
    /// half way.
    fn transfer(&mut self, to: IpAddress, total: usize, meanwhile: impl FnOnce(&mut Net)) {
        let server = &mut self.nodes[1];
        server
            .sockets
            .get_mut::<tcp::Socket<'_>>(server.tcp)
            .listen(TCP_PORT)
            .unwrap();
        let client = &mut self.nodes[0];
        let socket = client.sockets.get_mut::<tcp::Socket<'_>>(client.tcp);
        socket
            .connect(client.stack.context(), (to, TCP_PORT), 40000)
            .unwrap();
        let (mut sent, mut got, mut meanwhile) = (0usize, 0usize, Some(meanwhile));
        self.run_until(600_000, "transfer", |net| {
            let node = &mut net.nodes[0];
            let socket = node.sockets.get_mut::<tcp::Socket<'_>>(node.tcp);
            while socket.can_send() && sent < total {
                let byte = [pattern(sent)];
                sent += socket.send_slice(&byte).unwrap();
            }
            let node = &mut net.nodes[1];
            let socket = node.sockets.get_mut::<tcp::Socket<'_>>(node.tcp);
            while socket.can_recv() {
                got += socket
                    .recv(|bytes| {
                        let right = bytes
                            .iter()
                            .enumerate()
                            .all(|(i, b)| *b == pattern(got + i));
                        assert!(right, "wrong bytes behind {got}");
                        (bytes.len(), bytes.len())
                    })
                    .unwrap();
            }
            if got >= total / 2
                && let Some(f) = meanwhile.take()
            {
                f(net);
            }
            got == total
        });
    }
}

fn pattern(i: usize) -> u8 {
    (i * 7 + i / 251) as u8
}

const CLEAN: Wire = Wire {
    loss: 0,
    duplicate: 0,
    delay: 0,
};
const ROUGH: Wire = Wire {
    loss: 5,
    duplicate: 5,
    delay: 8,
};

#[test]
fn arp_nd_and_ping_on_a_clean_wire() {
    let mut net = Net::new(0x1b, CLEAN);
    net.ping_until_answered(v4(2), 2);
    net.ping_until_answered(v6(2), 2);
    for node in &net.nodes {
        let n: Vec<_> = node.core.neighbours().collect();
        assert_eq!(n.len(), 1);
        assert_eq!(n[0].ips.len(), 2);
        assert_eq!(node.core.counters().frames_held, 0);
    }
}

#[test]
fn ping_and_tcp_through_loss_duplication_and_reordering() {
    let mut lost = 0;
    for seed in [0x5eed_0001, 0x5eed_0002, 0x5eed_0003] {
        let mut net = Net::new(seed, ROUGH);
        net.ping_until_answered(v4(2), 60);
        net.ping_until_answered(v6(2), 60);
        net.transfer(if seed & 1 == 0 { v4(2) } else { v6(2) }, 200_000, |_| {});
        lost += net.lost;
    }
    assert!(lost > 10, "the wires lost {lost}");
}

#[test]
fn c55_connections_outlive_a_restart_of_the_peer_with_another_queue_pair() {
    for (seed, to) in [(0x5eed_0011, v4(2)), (0x5eed_0012, v6(2))] {
        let mut net = Net::new(seed, CLEAN);
        net.transfer(to, 200_000, |net| net.nodes[1].restart(Qpn::new(0x999)));
        assert_eq!(net.nodes[0].core.counters().neighbours_superseded, 1);
    }
}

#[test]
fn connections_outlive_our_own_restart() {
    for (seed, to) in [(0x5eed_0021, v4(2)), (0x5eed_0022, v6(2))] {
        let mut net = Net::new(seed, ROUGH);
        net.transfer(to, 200_000, |net| net.nodes[0].restart(Qpn::new(0x998)));
        // The stack's neighbour cache survived, the core's table did not: it had to ask.
        assert!(net.nodes[0].core.counters().resolutions_sent > 0);
    }
}
