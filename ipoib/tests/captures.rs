//! Packets of the kernel's `ib_ipoib` (`tests/data/captures/kernel-ipoib`) as input of the core, and the
//! core's output for a host's answers.

use std::fs::File;
use std::path::Path;

use ipoib::{Config, HardwareAddress, Incoming, Ipoib, Limits, Meta, Outgoing};
use pcap_file::pcap::PcapReader;
use proto::{Gid, PKey, Qpn, Time};

const ETHERNET: usize = 14;
const IPV6: usize = 40;
const UDP: usize = 8;
const BTH: usize = 12;
const DETH: usize = 8;
const ICRC: usize = 4;
const UD_SEND_ONLY: u8 = 0x64;
const HOST_MAC: [u8; 6] = [6, 1, 2, 3, 4, 5];

#[derive(Clone, Debug)]
struct Datagram {
    pkey: PKey,
    dst_qpn: Qpn,
    meta: Meta,
    payload: Vec<u8>,
}

/// The UD packets of a capture, except management datagrams.
fn datagrams(name: &str) -> Vec<Datagram> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/data/captures/kernel-ipoib")
        .join(name);
    let mut reader = PcapReader::new(File::open(path).unwrap()).unwrap();
    let mut all = Vec::new();
    while let Some(packet) = reader.next_packet() {
        let frame = packet.unwrap().data.into_owned();
        all.extend(datagram(&frame));
    }
    all
}

fn datagram(frame: &[u8]) -> Option<Datagram> {
    let ip = &frame[ETHERNET..];
    let udp_len = usize::from(u16::from_be_bytes([ip[IPV6 + 4], ip[IPV6 + 5]]));
    let bth = &ip[IPV6 + UDP..IPV6 + udp_len];
    let deth = &bth[BTH..];
    let dst_qpn = Qpn::from_bytes([bth[5], bth[6], bth[7]]);
    if bth[0] != UD_SEND_ONLY || dst_qpn == Qpn::GSI {
        return None;
    }
    let pad = usize::from(bth[1] >> 4 & 3);
    let gid = |at: usize| Gid(ip[at..at + 16].try_into().unwrap());
    Some(Datagram {
        pkey: PKey::new(u16::from_be_bytes([bth[2], bth[3]])),
        dst_qpn,
        meta: Meta {
            src_qpn: Qpn::from_bytes([deth[5], deth[6], deth[7]]),
            src_gid: gid(8),
            has_src_gid: true,
            dst_gid: gid(24),
            multicast: dst_qpn == Qpn::MULTICAST,
        },
        payload: deth[DETH..deth.len() - ICRC - pad].to_vec(),
    })
}

fn core(local: HardwareAddress, pkey: PKey) -> Ipoib {
    Ipoib::new(Config {
        local,
        mac: HOST_MAC,
        pkey,
        scope: 2,
        link_mtu: 2044,
        mode: ipoib::Mode::Datagram,
        services: proto::Services::Any,
        dhcp: ipoib::DhcpMode::default(),
        claims: ipoib::ClaimCheck::default(),
        refuse_requests: false,
        limits: Limits::default(),
    })
}

fn sender(d: &Datagram) -> HardwareAddress {
    HardwareAddress::new(0, d.meta.src_qpn, d.meta.src_gid)
}

/// The frame that the host behind the core receives.
fn deliver(core: &mut Ipoib, d: &Datagram) -> Vec<u8> {
    match core.from_fabric(Time(0), &d.meta, &d.payload) {
        Incoming::Packet { ethernet, l3 } => [&ethernet[..], l3].concat(),
        Incoming::Frame(f) => f.to_vec(),
        Incoming::Held | Incoming::Consumed => panic!("nothing for the host"),
        Incoming::Dropped(reason) => panic!("dropped for {reason:?}: {d:02x?}"),
    }
}

/// The core's output for a frame of the host: destination and payload.
fn emit(core: &mut Ipoib, frame: &[u8]) -> (Gid, Qpn, Vec<u8>) {
    let (to, payload) = match core.from_tap(Time(0), &[0; 12], frame) {
        Outgoing::Forward { to, encap } => (to, [&encap[..], &frame[ETHERNET..]].concat()),
        Outgoing::Rewritten { to, packet } => (to, packet.to_vec()),
        other => panic!("{other:?}"),
    };
    let (gid, qpn) = core.address(to);
    (gid, qpn, payload)
}

/// Passes the packets of a capture to the core of a third node; checks the frames with an independent
/// parser.
fn listen(name: &str) -> Vec<Datagram> {
    let all = datagrams(name);
    for d in &all {
        let here = HardwareAddress::new(0, Qpn::new(0x777), "fe80::7".parse().unwrap());
        let mut core = core(here, d.pkey);
        let frame = deliver(&mut core, d);
        let parsed = etherparse::SlicedPacket::from_ethernet(&frame).unwrap();
        assert!(parsed.net.is_some(), "no network layer in {frame:02x?}");
        assert_eq!(frame[0] & 1 != 0, d.meta.multicast);
        let source: [u8; 6] = frame[6..12].try_into().unwrap();
        assert_eq!(source, ipoib::peer_mac(&sender(d)));
        assert_eq!(
            core.counters()
                .named()
                .iter()
                .filter(|(n, v)| n.starts_with("rx_") && *v > 0)
                .count(),
            0
        );
    }
    all
}

/// Repeats the conversation of two kernels with two cores and the hosts behind them: every translated
/// packet translates back to the same bytes.
fn there_and_back(name: &str) -> usize {
    let mut compared = 0;
    let all = datagrams(name);
    for d in &all {
        // The host behind a core with the sender's address has sent the frame that another host would
        // receive.
        let far = HardwareAddress::new(0, Qpn::new(0x777), "fe80::7".parse().unwrap());
        let mut seen_by = core(far, d.pkey);
        let mut frame = deliver(&mut seen_by, d);
        let theirs: [u8; 6] = frame[6..12].try_into().unwrap();
        let flags = if d.payload[..2] == [8, 6] {
            d.payload[12]
        } else {
            link_flags(&d.payload)
        };
        let local = HardwareAddress::new(flags, d.meta.src_qpn, d.meta.src_gid);
        let mut own = core(local, d.pkey);
        own.set_mac(theirs);
        if !d.meta.multicast {
            let peer =
                HardwareAddress::new(arp_target_flags(&d.payload), d.dst_qpn, d.meta.dst_gid);
            let mac = teach(&mut own, peer);
            frame[..6].copy_from_slice(&mac);
            replace_target(&mut frame, mac);
        }
        let (gid, qpn, payload) = emit(&mut own, &frame);
        assert_eq!((gid, qpn), (d.meta.dst_gid, d.dst_qpn), "{d:02x?}");
        assert_eq!(payload, d.payload, "{d:02x?}");
        compared += 1;
    }
    compared
}

/// The flags in the link-layer address option of neighbour discovery. The kernel writes the option last,
/// except if a nonce follows.
fn link_flags(payload: &[u8]) -> u8 {
    payload
        .windows(4)
        .skip(44)
        .find(|w| matches!(w, [1 | 2, 3, 0, 0]))
        .map_or(0, |_| 0x80)
}

/// A reply names the requester with the requester's flags.
fn arp_target_flags(payload: &[u8]) -> u8 {
    if payload[..2] == [8, 6] {
        payload[36]
    } else {
        0
    }
}

fn replace_target(frame: &mut [u8], mac: [u8; 6]) {
    if frame[12..14] == [8, 6] && frame[21] == 2 {
        frame[32..38].copy_from_slice(&mac);
    }
}

/// Teaches a core a peer; returns the peer's MAC on the TAP.
fn teach(core: &mut Ipoib, peer: HardwareAddress) -> [u8; 6] {
    let mut arp = vec![8, 6, 0, 0, 0, 32, 8, 0, 20, 4, 0, 1];
    arp.extend_from_slice(&peer.0);
    arp.extend_from_slice(&[0; 28]);
    let meta = Meta {
        src_qpn: peer.qpn(),
        src_gid: peer.gid(),
        has_src_gid: true,
        dst_gid: core.broadcast_mgid(),
        multicast: true,
    };
    let d = Datagram {
        pkey: PKey::DEFAULT,
        dst_qpn: Qpn::MULTICAST,
        meta,
        payload: arp,
    };
    deliver(core, &d)[6..12].try_into().unwrap()
}

#[test]
fn every_packet_of_the_kernel_is_understood() {
    for (name, at_least) in [
        ("01-datagram.pcap", 40),
        ("02-multicast.pcap", 10),
        ("04-pkey.pcap", 30),
        ("05-userspace-peer.pcap", 30),
    ] {
        let n = listen(name).len();
        assert!(n >= at_least, "{name}: {n} datagrams");
    }
}

#[test]
fn what_the_kernel_sent_is_what_we_send_for_the_same_host() {
    for name in [
        "01-datagram.pcap",
        "02-multicast.pcap",
        "04-pkey.pcap",
        "05-userspace-peer.pcap",
    ] {
        assert!(there_and_back(name) > 0);
    }
}

#[test]
fn multicast_gids_are_those_of_the_kernel() {
    let mut groups = 0;
    for name in ["01-datagram.pcap", "02-multicast.pcap", "04-pkey.pcap"] {
        for d in datagrams(name).iter().filter(|d| d.meta.multicast) {
            let ip = match d.payload[..2] {
                [8, 0] => std::net::IpAddr::from(<[u8; 4]>::try_from(&d.payload[20..24]).unwrap()),
                [0x86, 0xdd] => {
                    std::net::IpAddr::from(<[u8; 16]>::try_from(&d.payload[28..44]).unwrap())
                }
                _ => continue,
            };
            let expected = ipoib::mgid(ip, d.pkey, 2).unwrap_or(ipoib::broadcast_mgid(d.pkey, 2));
            assert_eq!(d.meta.dst_gid, expected);
            groups += 1;
        }
    }
    assert!(groups > 20);
}

/// The conversation of capture 05 with the core in place of the userspace peer: input is the kernel's
/// packets and a scripted host's answers, output must equal that peer's packets.
#[test]
fn stands_in_for_the_userspace_peer_of_capture_05() {
    let all = datagrams("05-userspace-peer.pcap");
    let peer = HardwareAddress::new(0, Qpn::new(0x4242), "fe80::99:ff:fe00:20".parse().unwrap());
    let mut core = core(peer, PKey::DEFAULT);
    let (mut answers, mut heard) = (Vec::new(), 0);
    let ours = |d: &Datagram| d.meta.src_qpn == peer.qpn() && d.meta.src_gid == peer.gid();
    let mut compared = 0;
    for d in &all {
        if ours(d) {
            compared += 1;
            if d.payload[..2] == [8, 6] && d.payload[11] == 1 {
                let frame = ethernet_arp(1, HOST_MAC, &d.payload, [0; 6], [0xff; 6]);
                let (gid, qpn, payload) = emit(&mut core, &frame);
                assert_eq!(
                    (gid, qpn, &payload),
                    (d.meta.dst_gid, d.dst_qpn, &d.payload)
                );
            } else {
                let mac = kernel_mac(&core, d.meta.dst_gid, d.dst_qpn);
                let frame = [&mac[..], &HOST_MAC, &d.payload[..2], &d.payload[4..]].concat();
                let frame = if d.payload[..2] == [8, 6] {
                    ethernet_arp(2, HOST_MAC, &d.payload, mac, mac)
                } else {
                    frame
                };
                let (gid, qpn, payload) = emit(&mut core, &frame);
                assert_eq!(
                    (gid, qpn, &payload),
                    (d.meta.dst_gid, d.dst_qpn, &d.payload)
                );
                answers.push(payload);
            }
        } else if d.dst_qpn == peer.qpn() && d.meta.dst_gid == peer.gid() {
            heard += 1;
            let frame = deliver(&mut core, d);
            assert_eq!(frame[..6], HOST_MAC);
        }
    }
    assert!(
        compared >= 10 && heard >= 10,
        "{compared} sent, {heard} heard"
    );
    assert!(answers.iter().any(|p| p[..2] == [8, 0]));
}

fn kernel_mac(core: &Ipoib, gid: Gid, qpn: Qpn) -> [u8; 6] {
    let n = core
        .neighbours()
        .find(|n| n.address.gid() == gid && n.address.qpn() == qpn);
    n.expect("a known neighbour").mac
}

/// A host's ARP frame with the protocol addresses of an InfiniBand one.
fn ethernet_arp(op: u8, sha: [u8; 6], infiniband: &[u8], tha: [u8; 6], dst: [u8; 6]) -> Vec<u8> {
    let (spa, tpa) = (&infiniband[32..36], &infiniband[56..60]);
    let head = [8, 6, 0, 1, 8, 0, 6, 4, 0, op];
    [&dst[..], &sha, &head, &sha, spa, &tha, tpa].concat()
}
