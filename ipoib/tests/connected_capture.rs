//! The conversation of two kernels in connected mode
//! (`tests/data/captures/kernel-ipoib/03-connected.pcap`), with the core in place of either one.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

use ipoib::{
    Config, ConnectionAction, FLAG_RC, HardwareAddress, Incoming, Ipoib, Limits, Meta, Mode,
    Outgoing,
};
use pcap_file::pcap::PcapReader;
use proto::{
    CloseReason, ConnectionEvent, ConnectionId, EndpointId, Gid, PKey, Qpn, ServiceId, Time,
};

const ETHERNET: usize = 14;
const IPV6: usize = 40;
const UDP: usize = 8;
const BTH: usize = 12;
const DETH: usize = 8;
const ICRC: usize = 4;
const MAD_HEADER: usize = 24;
const CLASS_CM: u8 = 7;
const HOST_MAC: [u8; 6] = [6, 1, 2, 3, 4, 5];

/// The two ports, and the queue pair of both interfaces.
const PORTS: [&str; 2] = ["fe80::99:ff:fe00:10", "fe80::99:ff:fe00:11"];
const QPN: Qpn = Qpn::new(0x11);

#[derive(Clone, Debug)]
enum Content {
    Datagram(Meta, Vec<u8>),
    /// A whole message to an RC queue pair.
    Message(Qpn, Vec<u8>),
    /// The future sending RC queue pair, service, private data.
    Request(Qpn, ServiceId, [u8; 8]),
    /// The future receiving RC queue pair, private data.
    Reply(Qpn, [u8; 8]),
    Disconnect,
}

struct Packet {
    from: Gid,
    to: Gid,
    content: Content,
}

fn qpn_at(bytes: &[u8], at: usize) -> Qpn {
    Qpn::from_bytes(bytes[at..at + 3].try_into().unwrap())
}

/// The contents of a management datagram of class CM; `None` for others.
fn cm(mad: &[u8]) -> Option<Content> {
    let message = &mad[MAD_HEADER..];
    let eight = |at: usize| -> [u8; 8] { message[at..at + 8].try_into().unwrap() };
    if mad[1] != CLASS_CM {
        return None;
    }
    match u16::from_be_bytes([mad[16], mad[17]]) {
        0x10 => {
            let service = ServiceId(u64::from_be_bytes(eight(8)));
            Some(Content::Request(qpn_at(message, 32), service, eight(140)))
        }
        0x13 => Some(Content::Reply(qpn_at(message, 12), eight(36))),
        0x15 => Some(Content::Disconnect),
        _ => None,
    }
}

fn capture() -> Vec<Packet> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/data/captures/kernel-ipoib/03-connected.pcap");
    let mut reader = PcapReader::new(File::open(path).unwrap()).unwrap();
    let (mut all, mut open) = (Vec::new(), HashMap::<(Gid, Qpn), Vec<u8>>::new());
    while let Some(packet) = reader.next_packet() {
        let frame = packet.unwrap().data.into_owned();
        let ip = &frame[ETHERNET..];
        let gid = |at: usize| Gid(ip[at..at + 16].try_into().unwrap());
        let (from, to) = (gid(8), gid(24));
        let udp_len = usize::from(u16::from_be_bytes([ip[IPV6 + 4], ip[IPV6 + 5]]));
        let bth = &ip[IPV6 + UDP..IPV6 + udp_len];
        let pad = usize::from(bth[1] >> 4 & 3);
        let behind = &bth[BTH..bth.len() - ICRC - pad];
        let qpn = qpn_at(bth, 5);
        let content = match bth[0] {
            0x64 if qpn == Qpn::GSI => cm(&behind[DETH..]),
            0x64 => {
                let meta = Meta {
                    src_qpn: qpn_at(behind, 5),
                    src_gid: from,
                    has_src_gid: true,
                    dst_gid: to,
                    multicast: qpn == Qpn::MULTICAST,
                };
                Some(Content::Datagram(meta, behind[DETH..].to_vec()))
            }
            // SEND first, middle, last, only.
            opcode @ (0 | 1 | 2 | 4) => {
                let message = open.entry((to, qpn)).or_default();
                message.extend_from_slice(behind);
                let whole = opcode >= 2;
                whole.then(|| Content::Message(qpn, std::mem::take(message)))
            }
            _ => None,
        };
        all.extend(content.map(|content| Packet { from, to, content }));
    }
    assert!(open.values().all(Vec::is_empty), "half a message");
    all
}

/// Counts of compared packets.
#[derive(Default, Debug)]
struct Seen {
    requests: usize,
    replies: usize,
    sent: usize,
    received: usize,
    longest: usize,
}

struct StandIn {
    core: Ipoib,
    gid: Gid,
    /// The kernel's RC queue pairs and their connection ids: senders to the queue pair use this id.
    connections: HashMap<Qpn, ConnectionId>,
    seen: Seen,
}

impl StandIn {
    fn new(gid: Gid) -> StandIn {
        let core = Ipoib::new(Config {
            local: HardwareAddress::new(FLAG_RC, QPN, gid),
            mac: HOST_MAC,
            pkey: PKey::DEFAULT,
            scope: 2,
            link_mtu: 2044,
            mode: Mode::Connected,
            services: proto::Services::Any,
            dhcp: ipoib::DhcpMode::default(),
            claims: ipoib::ClaimCheck::default(),
            refuse_requests: false,
            limits: Limits::default(),
        });
        StandIn {
            core,
            gid,
            connections: HashMap::new(),
            seen: Seen::default(),
        }
    }

    fn event(&mut self, event: &ConnectionEvent) -> Option<ConnectionAction> {
        self.core.connection_event(Time(0), event);
        self.core.poll_connection()
    }

    /// Passes a packet of the other kernel, or a multicast, to the core.
    fn hear(&mut self, packet: &Packet) {
        match &packet.content {
            Content::Datagram(meta, payload) => {
                if let Incoming::Dropped(why) = self.core.from_fabric(Time(0), meta, payload) {
                    panic!("{why:?}: {payload:02x?}");
                }
            }
            Content::Message(qpn, message) => {
                let connection = self.connections[qpn];
                let got = self
                    .core
                    .from_connection(Time(0), connection, message, message.len());
                match got {
                    Incoming::Packet { l3, .. } => assert_eq!(l3, &message[4..]),
                    Incoming::Frame(_) => {}
                    other => panic!("{other:?}"),
                }
                self.seen.received += 1;
                self.seen.longest = self.seen.longest.max(message.len());
            }
            Content::Request(qpn, service, private_data) => {
                let connection = ConnectionId(qpn.get() + 1000);
                let action = self.event(&ConnectionEvent::Requested {
                    connection,
                    endpoint: EndpointId(0),
                    service: *service,
                    peer: packet.from,
                    private_data: padded(private_data, 92),
                });
                assert!(matches!(action, Some(ConnectionAction::Accept { .. })));
            }
            Content::Reply(qpn, private_data) => {
                let connection = self.asked();
                self.connections.insert(*qpn, connection);
                let action = self.event(&ConnectionEvent::Replied {
                    connection,
                    private_data: padded(private_data, 196),
                });
                assert_eq!(action, Some(ConnectionAction::Establish { connection }));
            }
            Content::Disconnect => {
                let passive = ipoib::Role::Passive;
                let all: Vec<_> = self.core.connections().collect();
                for (connection, _) in all.into_iter().filter(|(_, p)| p.role == passive) {
                    let reason = CloseReason::Disconnected;
                    let closed = ConnectionEvent::Closed { connection, reason };
                    assert_eq!(self.event(&closed), None);
                }
            }
        }
    }

    fn asked(&self) -> ConnectionId {
        let mut all = self.core.connections();
        let active = all.find(|(_, p)| p.role == ipoib::Role::Active);
        active.expect("a requested connection").0
    }

    /// Compares a packet of the replaced kernel with the core's output.
    fn compare(&mut self, packet: &Packet) {
        match &packet.content {
            Content::Request(_, service, private_data) => {
                // The first packet triggers the connection; which one it was is known only later.
                let ip = [&[0x45, 0, 0, 20][..], &[0; 16]].concat();
                let got = self.host_sends(packet.to, &[8, 0], &ip);
                assert_eq!(got, None, "still a datagram");
                let Some(ConnectionAction::Connect {
                    request,
                    peer,
                    to: _,
                    service: asked,
                    private_data: data,
                }) = self.core.poll_connection()
                else {
                    panic!("no connection requested")
                };
                assert_eq!((peer, asked, &data), (packet.to, *service, private_data));
                let connection = ConnectionId(request);
                self.core.connecting(Time(0), request, Ok(connection));
                self.seen.requests += 1;
            }
            Content::Reply(qpn, private_data) => {
                // The core has accepted the request before, with the same private data.
                let ours = ipoib::PrivateData::new(QPN).to_bytes();
                assert_eq!(&ours, private_data);
                let mut all = self.core.connections();
                let passive = all.find(|(_, p)| p.role == ipoib::Role::Passive);
                let connection = passive.expect("an accepted connection").0;
                self.connections.insert(*qpn, connection);
                self.seen.replies += 1;
            }
            Content::Message(qpn, message) => {
                let got = self.host_sends(packet.to, &message[..2], &message[4..]);
                let nd = message[..2] == [0x86, 0xdd] && matches!(message[44], 133..=137);
                if nd && message[10] == 58 {
                    return;
                }
                assert_eq!(got, Some((self.connections[qpn], message[..4].to_vec())));
                self.seen.sent += 1;
            }
            Content::Datagram(..) | Content::Disconnect => {}
        }
    }

    /// The connection of a packet of the host, and its encapsulation header.
    fn host_sends(
        &mut self,
        to: Gid,
        ethertype: &[u8],
        l3: &[u8],
    ) -> Option<(ConnectionId, Vec<u8>)> {
        let mut all = self.core.neighbours();
        let mac = all
            .find(|n| n.address.gid() == to)
            .expect("a known neighbour")
            .mac;
        drop(all);
        let frame = [&mac[..], &HOST_MAC, ethertype, l3].concat();
        match self.core.from_tap(Time(0), &[0; 12], &frame) {
            Outgoing::Message {
                connection,
                encap,
                mtu,
                ..
            } => {
                assert!(l3.len() <= mtu && mtu == 65520);
                Some((connection, encap.to_vec()))
            }
            _ => None,
        }
    }
}

fn padded(bytes: &[u8; 8], len: usize) -> Box<[u8]> {
    let mut all = vec![0; len];
    all[..8].copy_from_slice(bytes);
    all.into()
}

#[test]
fn stands_in_for_either_kernel_in_connected_mode() {
    let packets = capture();
    for port in PORTS {
        let mut node = StandIn::new(port.parse().unwrap());
        for packet in &packets {
            if packet.from == node.gid {
                node.compare(packet);
            } else if packet.to == node.gid || packet.to.is_multicast() {
                node.hear(packet);
            }
        }
        println!("{port}: {:?}", node.seen);
        assert_eq!((node.seen.requests, node.seen.replies), (1, 1));
        assert!(node.seen.sent >= 5 && node.seen.received >= 5);
        assert!(node.seen.longest > 60_000);
    }
}
