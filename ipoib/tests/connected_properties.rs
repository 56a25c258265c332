//! Properties of connected mode with arbitrary input.

use std::collections::{HashMap, HashSet};

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use ipoib::{
    Config, ConnectionAction, FLAG_RC, HardwareAddress, Incoming, Ipoib, Limits, Meta, Mode,
    Outgoing, PrivateData, Target, TooBig, peer_mac,
};
use proptest::prelude::*;
use proto::{
    CloseReason, ConnectError, ConnectionEvent, ConnectionId, EndpointId, Gid, PKey, Qpn,
    RejectReason, Time, WcStatus,
};

const MAC: [u8; 6] = [6, 0, 0, 0, 0, 1];
const PEERS: u8 = 8;
const LIMITS: Limits = Limits {
    neighbours: 6,
    groups: 8,
    guests: 4,
    connections: 5,
    unresolved: 4,
    held_per_neighbour: 2,
};

fn gid(n: u8) -> Gid {
    let mut gid = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    gid[15] = n;
    Gid(gid)
}

fn peer(n: u8, flags: u8) -> HardwareAddress {
    HardwareAddress::new(flags, Qpn::new(0x100 + u32::from(n)), gid(0x10 + n))
}

fn core(limits: Limits) -> Ipoib {
    Ipoib::new(Config {
        local: HardwareAddress::new(FLAG_RC, Qpn::new(0x4a), gid(1)),
        mac: MAC,
        pkey: PKey::DEFAULT,
        scope: 2,
        link_mtu: 2044,
        mode: Mode::Connected,
        services: proto::Services::Any,
        dhcp: ipoib::DhcpMode::default(),
        claims: ipoib::ClaimCheck::default(),
        refuse_requests: false,
        limits,
    })
}

fn hear(c: &mut Ipoib, now: Time, from: HardwareAddress, ip: u8) {
    let head = [8, 6, 0, 0, 0, 32, 8, 0, 20, 4, 0, 1];
    let arp = [
        &head[..],
        &from.0,
        &[10, 0, 0, ip],
        &[0; 20],
        &[10, 0, 0, 1],
    ]
    .concat();
    let meta = Meta {
        src_qpn: from.qpn(),
        src_gid: from.gid(),
        has_src_gid: true,
        dst_gid: c.local().gid(),
        multicast: false,
    };
    let _ = c.from_fabric(now, &meta, &arp);
}

fn frame_to(n: u8, ethertype: [u8; 2], l3: &[u8]) -> Vec<u8> {
    [&peer_mac(&peer(n, 0))[..], &MAC, &ethertype, l3].concat()
}

fn packet_to(n: u8, len: u16) -> Vec<u8> {
    let mut l3 = vec![0; usize::from(len)];
    l3[..10].copy_from_slice(&[0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17]);
    l3[2..4].copy_from_slice(&len.to_be_bytes());
    l3[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, n]);
    frame_to(n, [8, 0], &l3)
}

/// Checks that another implementation can parse the error, and that checksums and bounds are right.
fn check_answer(answer: &[u8], offender: &[u8], mtu_allowed: &[u32]) {
    assert_eq!(
        (&answer[..6], &answer[6..12]),
        (&offender[6..12], &offender[..6])
    );
    let parsed = SlicedPacket::from_ethernet(answer).expect("a frame");
    let mtu = match (parsed.net.expect("IP"), parsed.transport.expect("ICMP")) {
        (NetSlice::Ipv4(ip), TransportSlice::Icmpv4(icmp)) => {
            let header = ip.header().to_header();
            assert_eq!(header.header_checksum, header.calc_header_checksum());
            assert_eq!(
                icmp.icmp_type().calc_checksum(icmp.payload()),
                icmp.checksum()
            );
            assert!(answer.len() <= 14 + 576 && icmp.payload().len() >= 28);
            assert_eq!((icmp.type_u8(), icmp.code_u8()), (3, 4));
            u32::from_be_bytes(icmp.bytes5to8())
        }
        (NetSlice::Ipv6(ip), TransportSlice::Icmpv6(icmp)) => {
            let header = ip.header();
            assert!(icmp.is_checksum_valid(header.source(), header.destination()));
            assert!(answer.len() <= 14 + 1280);
            assert_eq!((icmp.type_u8(), icmp.code_u8()), (2, 0));
            u32::from_be_bytes(icmp.bytes5to8())
        }
        other => panic!("{other:?}"),
    };
    assert!(mtu_allowed.contains(&mtu), "MTU {mtu}");
}

proptest! {
    #[test]
    fn a_too_big_packet_gets_a_right_answer_or_none(
        ethertype in prop::sample::select(vec![[8, 0], [0x86, 0xdd], [8, 6], [0, 0]]),
        mut l3 in prop::collection::vec(any::<u8>(), 0..3000),
        shape in any::<bool>(),
        next in prop::sample::select(vec![0u8, 1, 6, 17, 43, 44, 58, 60]),
        claimed in 0usize..70_000,
        cut in 0usize..60,
        group in any::<bool>(),
    ) {
        if shape && l3.len() >= 48 {
            if ethertype == [8, 0] {
                l3[0] = 0x45;
                l3[6..8].fill(0);
                l3[9] = next;
                l3[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
            } else {
                l3[0] = 0x60;
                l3[6] = next;
                l3[8..24].copy_from_slice(&gid(1).0);
                l3[24..40].copy_from_slice(&gid(2).0);
            }
        }
        let mut c = core(LIMITS);
        hear(&mut c, Time(0), peer(2, 0), 2);
        let Outgoing::Forward { to, .. } = c.from_tap(Time(0), &[0; 12], &packet_to(2, 60)) else {
            panic!("a datagram")
        };
        let to = if group { Target::Group(0) } else { to };
        let frame = frame_to(2, ethertype, &l3);
        for frame in [&frame[..], &frame[..cut.min(frame.len())]] {
            match c.too_big(Time(0), to, &[0; 12], frame, claimed) {
                TooBig::Answer(answer) => check_answer(answer, frame, &[2044]),
                TooBig::Dropped => {}
                TooBig::Held => prop_assert!(false, "nothing is being made"),
            }
        }
    }

    #[test]
    fn nothing_from_a_connection_panics(
        head in prop::collection::vec(any::<u8>(), 0..300),
        ethertype in prop::sample::select(vec![[8, 0], [0x86, 0xdd], [8, 6], [0x88, 0xb5], [0, 0]]),
        version in any::<bool>(),
        next in prop::sample::select(vec![0u8, 1, 17, 44, 58]),
        more in 0usize..70_000,
    ) {
        let mut c = core(LIMITS);
        request(&mut c, Time(0), ConnectionId(1), 3, &PrivateData::new(peer(3, 0).qpn()).to_bytes());
        let mut message = [&ethertype[..], &[0, 0], &head].concat();
        if version && head.len() >= 40 {
            message[4] = if ethertype == [8, 0] { 0x45 } else { 0x60 };
            message[if ethertype == [8, 0] { 13 } else { 10 }] = next;
        }
        let len = message.len() + more;
        if let Incoming::Packet { l3, .. } = c.from_connection(Time(0), ConnectionId(1), &message, len) {
            prop_assert!(l3.len() <= message.len() - 4);
        }
        for len in 0..5 {
            let _ = c.from_connection(Time(0), ConnectionId(1), &message[..len.min(message.len())], len);
        }
    }
}

fn request(c: &mut Ipoib, now: Time, connection: ConnectionId, from: u8, private_data: &[u8]) {
    let event = ConnectionEvent::Requested {
        connection,
        endpoint: EndpointId(0),
        service: c.service_ids()[usize::from(from) % 3],
        peer: peer(from, 0).gid(),
        private_data: private_data.into(),
    };
    c.connection_event(now, &event);
}

/// An input of an interface in connected mode.
#[derive(Clone, Debug)]
enum Happening {
    /// A peer sends ARP: peer, IP address, RC flag.
    Arp(u8, u8, bool),
    /// A frame for a peer, with this number of bytes.
    Send(u8, u16),
    /// A peer requests a connection, with this private data or a correct one.
    Request(u8, Option<Vec<u8>>),
    /// The oldest open request of this host gets a reply with this receive MTU.
    Reply(u32),
    /// The oldest connection or request ends.
    Close(u8, CloseReason),
    /// A message on a connection, by its index in order of creation.
    Receive(u8),
    /// Whether the fabric can start connections from now on.
    Unable(bool),
    Mode(bool),
    Local(u8),
    Later(u64),
}

fn happenings() -> impl Strategy<Value = Happening> {
    use Happening::*;
    let p = || 0..PEERS;
    let data = prop::option::weighted(0.2, prop::collection::vec(any::<u8>(), 0..20));
    let reasons = prop::sample::select(vec![
        CloseReason::Disconnected,
        CloseReason::TimedOut,
        CloseReason::PortGone,
        CloseReason::PathMtu,
        CloseReason::Failed(WcStatus::RetryExcErr),
        CloseReason::Rejected(RejectReason::INVALID_SERVICE_ID),
        CloseReason::Rejected(RejectReason::STALE_CONNECTION),
        CloseReason::Rejected(RejectReason::NO_QP),
    ]);
    prop_oneof![
        4 => (p(), p(), any::<bool>()).prop_map(|(n, ip, rc)| Arp(n, ip, rc)),
        8 => (p(), prop::sample::select(vec![60u16, 2044, 2045, 9000, 65_520])).prop_map(|(n, len)| Send(n, len)),
        3 => (p(), data).prop_map(|(n, data)| Request(n, data)),
        4 => prop::sample::select(vec![0u32, 4, 2048, 9004, 65_524, u32::MAX]).prop_map(Reply),
        3 => (any::<u8>(), reasons).prop_map(|(n, reason)| Close(n, reason)),
        3 => any::<u8>().prop_map(Receive),
        1 => any::<bool>().prop_map(Unable),
        1 => any::<bool>().prop_map(Mode),
        1 => (0u8..3).prop_map(Local),
        3 => prop::sample::select(vec![1u64, 100, 2000, 21_000, 61_000, 520_000]).prop_map(Later),
    ]
}

/// A fabric that verifies the core's actions.
#[derive(Default)]
struct Fabric {
    last: u32,
    /// Connections in order of creation, and whether the core requested them.
    open: Vec<(ConnectionId, bool)>,
    /// Connections on which the core may send.
    established: HashSet<ConnectionId>,
    unable: bool,
    mtus: HashMap<ConnectionId, u32>,
}

impl Fabric {
    fn name(&mut self, active: bool) -> ConnectionId {
        self.last += 1;
        self.open.push((ConnectionId(self.last), active));
        ConnectionId(self.last)
    }

    fn forget(&mut self, connection: ConnectionId) {
        self.open.retain(|(c, _)| *c != connection);
        self.established.remove(&connection);
    }

    fn is_open(&self, connection: ConnectionId, active: bool) -> bool {
        self.open.contains(&(connection, active))
    }

    /// Carries out the core's actions.
    fn serve(&mut self, c: &mut Ipoib, now: Time) {
        while let Some(action) = c.poll_connection() {
            match action {
                ConnectionAction::Connect { request, .. } if self.unable => {
                    c.connecting(now, request, Err(ConnectError::Full));
                }
                ConnectionAction::Connect { request, .. } => {
                    let name = self.name(true);
                    c.connecting(now, request, Ok(name));
                }
                ConnectionAction::Accept { connection, .. } => {
                    assert!(self.is_open(connection, false));
                }
                ConnectionAction::Establish { connection } => {
                    assert!(self.is_open(connection, true));
                    self.established.insert(connection);
                }
                ConnectionAction::Reject { connection, .. } => self.forget(connection),
                ConnectionAction::Close { connection } => self.forget(connection),
            }
        }
    }

    fn happen(&mut self, c: &mut Ipoib, now: Time, what: &Happening) {
        match what {
            Happening::Arp(n, ip, rc) => {
                hear(c, now, peer(*n, if *rc { FLAG_RC } else { 0 }), *ip);
            }
            Happening::Send(n, len) => self.send(c, now, &packet_to(*n, *len)),
            Happening::Request(n, data) => {
                let right = PrivateData::new(peer(*n, 0).qpn()).to_bytes().to_vec();
                let name = self.name(false);
                request(c, now, name, *n, data.as_ref().unwrap_or(&right));
            }
            Happening::Reply(mtu) => {
                let asked = self
                    .open
                    .iter()
                    .find(|(name, active)| *active && !self.established.contains(name));
                if let Some(&(connection, _)) = asked {
                    let data = PrivateData {
                        qpn: Qpn::new(5),
                        receive_mtu: *mtu,
                    };
                    let private_data = data.to_bytes().into();
                    self.mtus.insert(connection, *mtu);
                    c.connection_event(
                        now,
                        &ConnectionEvent::Replied {
                            connection,
                            private_data,
                        },
                    );
                }
            }
            Happening::Close(n, reason) => {
                if self.open.is_empty() {
                    return;
                }
                let (connection, _) = self.open[usize::from(*n) % self.open.len()];
                self.forget(connection);
                let reason = *reason;
                c.connection_event(now, &ConnectionEvent::Closed { connection, reason });
            }
            Happening::Receive(n) => {
                let connection = ConnectionId(u32::from(*n));
                let packet = packet_to(3, 60);
                let message = [&[8, 0, 0, 0][..], &packet[14..]].concat();
                let got = c.from_connection(now, connection, &message, message.len());
                let known = self.open.iter().any(|(open, _)| *open == connection);
                assert!(known || matches!(got, Incoming::Dropped(_)));
            }
            Happening::Unable(on) => self.unable = *on,
            Happening::Mode(connected) => {
                c.set_mode(if *connected {
                    Mode::Connected
                } else {
                    Mode::Datagram
                });
            }
            Happening::Local(n) => {
                let qpn = Qpn::new(0x4a + u32::from(*n));
                c.set_local(now, HardwareAddress::new(FLAG_RC, qpn, gid(1)));
            }
            Happening::Later(_) => {}
        }
    }

    fn send(&self, c: &mut Ipoib, now: Time, frame: &[u8]) {
        let len = frame.len() - 14;
        let (to, fits, allowed) = match c.from_tap(now, &[0; 12], frame) {
            Outgoing::Message {
                connection,
                to,
                mtu,
                ..
            } => {
                assert!(self.established.contains(&connection), "{connection:?}");
                let theirs = self.mtus[&connection] as usize - 4;
                assert!(mtu == theirs.min(65_520));
                (to, len <= mtu, mtu)
            }
            Outgoing::Forward { to, .. } => (to, len <= 2044, 2044),
            _ => return,
        };
        if fits {
            return;
        }
        if let TooBig::Answer(answer) = c.too_big(now, to, &[0; 12], frame, len) {
            check_answer(answer, frame, &[allowed as u32]);
        }
    }
}

proptest! {
    #[test]
    fn tables_stay_bounded_and_nothing_is_sent_on_what_was_accepted(
        all in prop::collection::vec(happenings(), 0..300)
    ) {
        let mut c = core(LIMITS);
        let mut fabric = Fabric::default();
        let mut now = Time(0);
        for what in &all {
            if let Happening::Later(ms) = what {
                now = now.after(*ms);
            }
            fabric.happen(&mut c, now, what);
            fabric.serve(&mut c, now);
            if c.next_deadline().is_some_and(|due| due <= now) {
                c.handle_timeout(now);
                fabric.serve(&mut c, now);
            }
            let mut released = 0;
            while let Some(held) = c.pop_released() {
                released += 1;
                prop_assert!(released < 1000, "frames go round");
                fabric.send(&mut c, now, &held.frame);
                fabric.serve(&mut c, now);
            }
            while c.poll_transmit(now).is_some() {}
            c.drain_updates().for_each(drop);
            // The core and the fabric have the same connections.
            let known: HashSet<_> = c.connections().map(|(name, _)| name).collect();
            let open: HashSet<_> = fabric.open.iter().map(|(name, _)| *name).collect();
            prop_assert_eq!(&known, &open);
            prop_assert!(known.len() <= LIMITS.connections);
        }
        // Without further packets, all connections finally end.
        for _ in 0..10_000 {
            let Some(due) = c.next_deadline() else { break };
            now = now.max(due);
            c.handle_timeout(now);
            fabric.serve(&mut c, now);
            while c.poll_transmit(now).is_some() {}
            while c.pop_released().is_some() {}
        }
        prop_assert_eq!(c.next_deadline(), None);
        prop_assert_eq!(c.connections().count(), 0);
        prop_assert!(fabric.open.is_empty());
    }
}
