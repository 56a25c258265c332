//! Packets of the Linux kernel: `rdma_rxe`, and `ib_ipoib` above it. Each test decodes every packet,
//! encodes it from its fields, and compares the bytes, ICRC included.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use fabric::Qpn;
use fabric::mad::cm::{self, Answered, Message};
use fabric::mad::sa::{self, McMemberRecord, PathRecord, mc_member, path};
use fabric::mad::{Mad, class, method};
use fabric::sa::{GroupJoin, Request};
use fabric::soft::icrc::{Ipv4IdSolver, L3, Prefix, Verdict, verify_l3};
use fabric::soft::wire::{ICRC_LEN, Packet, ROCE_V2_PORT, opcode};
use pcap_file::pcap::PcapReader;
use zerocopy::FromZeros;

/// Bytes of an Ethernet header without a VLAN tag; no capture here has one.
const ETHERNET_HEADER_LEN: usize = 14;

/// Number of RoCEv2 packets in all captures; detects a capture that is not read.
const PACKETS: usize = 657;

fn captures() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/captures");
    let mut files: Vec<PathBuf> = [root.clone(), root.join("kernel-ipoib")]
        .iter()
        .flat_map(|d| fs::read_dir(d).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "pcap"))
        .collect();
    files.sort();
    files
}

/// Every IP packet to the RoCEv2 port: its place, and its bytes from the IP header on.
fn roce_packets() -> Vec<(String, Vec<u8>)> {
    let mut packets = Vec::new();
    for file in captures() {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let mut reader = PcapReader::new(File::open(&file).unwrap()).unwrap();
        let mut number = 0;
        while let Some(frame) = reader.next_raw_packet() {
            number += 1;
            let l3 = frame.unwrap().data[ETHERNET_HEADER_LEN..].to_vec();
            if L3::parse(&l3).is_ok() {
                packets.push((format!("{name} {number}"), l3));
            }
        }
    }
    packets
}

/// Checklist 27.
#[test]
fn every_icrc_is_right() {
    let packets = roce_packets();
    assert_eq!(packets.len(), PACKETS);
    for (place, l3) in &packets {
        assert_eq!(verify_l3(l3), Verdict::Good, "{place}");
    }
}

/// A flipped payload bit in any packet is detected.
#[test]
fn every_damaged_packet_is_noticed() {
    for (place, mut l3) in roce_packets() {
        let last = l3.len() - ICRC_LEN - 1;
        l3[last] ^= 1;
        assert!(matches!(verify_l3(&l3), Verdict::Bad { .. }), "{place}");
    }
}

#[test]
fn every_packet_is_written_again_from_its_fields() {
    let (mut kinds, mut families) = (BTreeMap::new(), BTreeMap::new());
    for (place, bytes) in roce_packets() {
        let l3 = L3::parse(&bytes).unwrap();
        let packet = Packet::parse(l3.transport).unwrap();
        let mut again = Vec::new();
        packet.repr().emit(&mut again).unwrap();
        let icrc = prefix_of_fields(&l3, again.len()).finish_received(&again);
        again.extend(icrc);
        assert_eq!(again, l3.transport, "{place}");
        *kinds.entry(packet.bth.opcode).or_insert(0) += 1;
        let multicast = packet.bth.dest_qp() == Qpn::MULTICAST;
        *families
            .entry((l3.source.is_ipv6(), multicast))
            .or_insert(0) += 1;
    }
    // The captures must contain UD with and without immediate data, over both address families, unicast
    // and multicast; RC with every operation; UC.
    for op in [
        opcode::UD_SEND_ONLY,
        opcode::UD_SEND_ONLY_IMM,
        opcode::RC_SEND_FIRST,
        opcode::RC_SEND_MIDDLE,
        opcode::RC_SEND_LAST,
        opcode::RC_SEND_ONLY,
        opcode::RC_WRITE_FIRST,
        opcode::RC_READ_REQUEST,
        opcode::RC_READ_RESPONSE_LAST,
        opcode::RC_ACKNOWLEDGE,
        opcode::RC_ATOMIC_ACKNOWLEDGE,
        opcode::RC_COMPARE_SWAP,
        opcode::RC_FETCH_ADD,
        opcode::UC | opcode::RC_SEND_ONLY,
    ] {
        assert!(kinds.contains_key(&op), "{:?}", opcode::name(op));
    }
    assert_eq!(families.len(), 4, "{families:?}");
}

/// The CRC before the BTH, computed only from addresses, port, length and identification.
fn prefix_of_fields(l3: &L3<'_>, transport_len: usize) -> Prefix {
    let udp_len = (8 + transport_len + ICRC_LEN) as u16;
    let port = l3.source_port;
    match (l3.source, l3.destination) {
        (IpAddr::V4(s), IpAddr::V4(d)) => {
            let id = l3.ipv4.unwrap().0;
            Prefix::ipv4(s.octets(), d.octets(), port, ROCE_V2_PORT, udp_len, id)
        }
        (IpAddr::V6(s), IpAddr::V6(d)) => {
            Prefix::ipv6(&s.octets(), &d.octets(), port, ROCE_V2_PORT, udp_len)
        }
        other => panic!("two families: {other:?}"),
    }
}

/// Checklist 26 with real packets: recovers the identification that a socket does not report.
#[test]
fn every_ipv4_identification_is_recovered() {
    let mut solver = Ipv4IdSolver::new();
    let mut recovered = 0;
    for (place, bytes) in roce_packets() {
        let l3 = L3::parse(&bytes).unwrap();
        let (IpAddr::V4(s), IpAddr::V4(d)) = (l3.source, l3.destination) else {
            continue;
        };
        let (covered, found) = l3.transport.split_last_chunk().unwrap();
        let hint = 0;
        let prefix = Prefix::ipv4(
            s.octets(),
            d.octets(),
            l3.source_port,
            ROCE_V2_PORT,
            l3.udp_len,
            hint,
        );
        let id = solver.recover(prefix.finish_received(covered), *found, covered.len(), hint);
        assert_eq!(id, Some(l3.ipv4.unwrap().0), "{place}");
        recovered += 1;
    }
    assert_eq!(recovered, 271);
}

#[test]
fn every_management_datagram_is_read_and_written_again() {
    let mut names = BTreeMap::new();
    for (place, bytes) in roce_packets() {
        let l3 = L3::parse(&bytes).unwrap();
        let packet = Packet::parse(l3.transport).unwrap();
        if packet.extended.deth.is_none() || packet.bth.dest_qp() != Qpn::GSI {
            continue;
        }
        let mad = Mad::parse(packet.payload).unwrap();
        assert_eq!(mad.to_bytes(), packet.payload, "{place}");
        *names.entry(mad.header.to_string()).or_insert(0) += 1;
    }
    for name in [
        "CM ConnectRequest",
        "CM ConnectReply",
        "CM ConnectReject",
        "CM ReadyToUse",
        "CM DisconnectRequest",
        "CM DisconnectReply",
        "CM ServiceIDResReq",
        "CM ServiceIDResReqResp",
        "SA Set MCMemberRecord",
        "SA GetResp MCMemberRecord",
        "SA Delete MCMemberRecord",
        "SA DeleteResp MCMemberRecord",
        "SA Get PathRecord",
        "SA GetResp PathRecord",
    ] {
        assert!(names.contains_key(name), "{name} is not among {names:?}");
    }
}

/// The kernel's joins, its first path queries and the SA's answers: records are written again from their
/// fields, and requests from their arguments.
#[test]
fn records_of_subnet_administration_are_written_again_from_their_fields() {
    let mut written = BTreeMap::new();
    for (place, bytes) in roce_packets() {
        let l3 = L3::parse(&bytes).unwrap();
        let packet = Packet::parse(l3.transport).unwrap();
        let Ok(mad) = Mad::parse(packet.payload) else {
            continue;
        };
        let Some((head, record)) = mad.subnet_administration() else {
            continue;
        };
        let (mask, tid) = (head.component_mask.get(), mad.header.transaction_id.get());
        let request = match mad.header.attribute_id.get() {
            sa::MC_MEMBER_RECORD => {
                let m = McMemberRecord::parse(record).unwrap();
                assert_eq!(m.write(), record[..McMemberRecord::LEN], "{place}");
                again_join(mask, &m)
            }
            sa::PATH_RECORD => {
                let p = PathRecord::parse(record).unwrap();
                assert_eq!(p.write(), record[..PathRecord::LEN], "{place}");
                // A repeated query has the last answer in other fields; the userspace peer asks for more.
                let asks = mask == path::IPOIB && p.dlid.0 == 0 && !p.reversible;
                asks.then(|| Request::path(p.sgid, p.dgid, p.pkey, p.tclass))
            }
            other => panic!("{place}: attribute {other:#x} is in no capture"),
        };
        let is_request = matches!(mad.header.method, method::GET | method::SET);
        if let Some(request) = request.filter(|_| is_request) {
            assert_eq!(request.datagram(tid), packet.payload, "{place}");
            *written.entry(mask).or_insert(0) += 1;
        }
    }
    let expected = [mc_member::JOIN, mc_member::CREATE, path::IPOIB];
    let mut masks: Vec<u64> = written.keys().copied().collect();
    masks.sort_by_key(|m| expected.iter().position(|e| e == m));
    assert_eq!(masks, expected, "{written:?}");
}

fn again_join(mask: u64, m: &McMemberRecord) -> Option<Request> {
    match mask {
        mc_member::JOIN => Some(Request::join(m.mgid, m.port_gid, m.pkey, m.join_state)),
        mc_member::CREATE => Some(Request::join_or_create(&GroupJoin {
            mgid: m.mgid,
            port_gid: m.port_gid,
            pkey: m.pkey,
            join_state: m.join_state,
            qkey: m.qkey,
            mtu: m.mtu.mtu().unwrap(),
            rate: m.rate.rate(),
            tclass: m.tclass,
            sl: m.sl,
            flow_label: m.flow_label,
            hop_limit: m.hop_limit,
        })),
        _ => None,
    }
}

/// Every message of communication management in the captures: place, transaction id, datagram.
fn cm_messages() -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for (place, bytes) in roce_packets() {
        let l3 = L3::parse(&bytes).unwrap();
        let packet = Packet::parse(l3.transport).unwrap();
        if let Ok(mad) = Mad::parse(packet.payload)
            && packet.bth.dest_qp() == Qpn::GSI
            && mad.header.mgmt_class == class::COM_MGT
        {
            assert!(mad.communication_management().is_some(), "{place}");
            found.push((place, packet.payload.to_vec()));
        }
    }
    found
}

/// Checklist 95: every message encoded from its fields equals the kernel's, bit by bit.
#[test]
fn messages_of_communication_management_are_written_again_from_their_fields() {
    let mut written = BTreeMap::new();
    for (place, bytes) in cm_messages() {
        let mad = Mad::parse(&bytes).unwrap();
        let same = match mad.communication_management().unwrap() {
            Message::Req(m) => again_req(m) == *m,
            Message::Rep(m) => again_rep(m) == *m,
            Message::Rtu(m) => again_rtu(m) == *m,
            Message::Rej(m) => again_rej(m) == *m,
            Message::Dreq(m) => again_dreq(m) == *m,
            Message::Drep(m) => again_drep(m) == *m,
            Message::SidrReq(m) => again_sidr_req(m) == *m,
            Message::SidrRep(m) => again_sidr_rep(m) == *m,
            other => panic!("{place}: {other:?} is in no capture"),
        };
        assert!(same, "{place}: {}", mad.header);
        *written.entry(mad.header.attribute_id.get()).or_insert(0) += 1;
    }
    let expected = [
        (cm::REQ, 5),
        (cm::REJ, 1),
        (cm::REP, 4),
        (cm::RTU, 4),
        (cm::DREQ, 4),
        (cm::DREP, 4),
        (cm::SIDR_REQ, 1),
        (cm::SIDR_REP, 1),
    ];
    assert_eq!(written, BTreeMap::from(expected));
}

fn again_req(from: &cm::Req) -> cm::Req {
    let mut req = cm::Req::new_zeroed();
    req.local_comm_id = from.local_comm_id;
    req.service_id = from.service_id;
    req.local_ca_guid = from.local_ca_guid;
    req.set_local_qpn(from.local_qpn());
    req.responder_resources = from.responder_resources;
    req.initiator_depth = from.initiator_depth;
    req.set_remote_response_timeout(from.remote_response_timeout());
    req.set_transport_service(from.transport_service());
    req.set_flow_control(from.flow_control());
    req.set_starting_psn(from.starting_psn());
    req.set_local_response_timeout(from.local_response_timeout());
    req.set_retry_count(from.retry_count());
    req.pkey = from.pkey;
    req.set_path_mtu(from.path_mtu());
    req.set_rnr_retry(from.rnr_retry());
    req.set_max_cm_retries(from.max_cm_retries());
    req.set_srq(from.srq());
    req.primary.local_lid = from.primary.local_lid;
    req.primary.remote_lid = from.primary.remote_lid;
    req.primary.local_gid = from.primary.local_gid;
    req.primary.remote_gid = from.primary.remote_gid;
    req.primary.flow_and_rate = from.primary.flow_and_rate;
    req.primary.hop_limit = from.primary.hop_limit;
    req.primary.set_subnet_local(from.primary.subnet_local());
    req.primary.set_ack_timeout(from.primary.ack_timeout());
    req.private_data = from.private_data;
    req
}

fn again_rep(from: &cm::Rep) -> cm::Rep {
    let mut rep = cm::Rep::new_zeroed();
    rep.local_comm_id = from.local_comm_id;
    rep.remote_comm_id = from.remote_comm_id;
    rep.set_local_qpn(from.local_qpn());
    rep.set_starting_psn(from.starting_psn());
    rep.responder_resources = from.responder_resources;
    rep.initiator_depth = from.initiator_depth;
    rep.set_target_ack_delay(from.target_ack_delay());
    rep.set_rnr_retry(from.rnr_retry());
    rep.set_srq(from.srq());
    rep.local_ca_guid = from.local_ca_guid;
    rep.private_data = from.private_data;
    rep
}

fn again_rtu(from: &cm::Rtu) -> cm::Rtu {
    let mut rtu = cm::Rtu::new_zeroed();
    rtu.local_comm_id = from.local_comm_id;
    rtu.remote_comm_id = from.remote_comm_id;
    rtu.private_data = from.private_data;
    rtu
}

fn again_rej(from: &cm::Rej) -> cm::Rej {
    let mut rej = cm::Rej::new_zeroed();
    rej.local_comm_id = from.local_comm_id;
    rej.remote_comm_id = from.remote_comm_id;
    rej.set_rejected_bits(from.rejected() as u8);
    rej.set_ari_length(from.ari_length());
    rej.reason = from.reason;
    rej.ari = from.ari;
    rej.private_data = from.private_data;
    rej
}

fn again_dreq(from: &cm::Dreq) -> cm::Dreq {
    let mut dreq = cm::Dreq::new_zeroed();
    dreq.local_comm_id = from.local_comm_id;
    dreq.remote_comm_id = from.remote_comm_id;
    dreq.set_remote_qpn(from.remote_qpn());
    dreq.private_data = from.private_data;
    dreq
}

fn again_drep(from: &cm::Drep) -> cm::Drep {
    let mut drep = cm::Drep::new_zeroed();
    drep.local_comm_id = from.local_comm_id;
    drep.remote_comm_id = from.remote_comm_id;
    drep.private_data = from.private_data;
    drep
}

fn again_sidr_req(from: &cm::SidrReq) -> cm::SidrReq {
    let mut req = cm::SidrReq::new_zeroed();
    req.request_id = from.request_id;
    req.pkey = from.pkey;
    req.service_id = from.service_id;
    req.private_data = from.private_data;
    req
}

fn again_sidr_rep(from: &cm::SidrRep) -> cm::SidrRep {
    let mut rep = cm::SidrRep::new_zeroed();
    rep.request_id = from.request_id;
    rep.status = from.status;
    rep.info_length = from.info_length;
    rep.set_local_qpn(from.local_qpn());
    rep.service_id = from.service_id;
    rep.qkey = from.qkey;
    rep.info = from.info;
    rep.private_data = from.private_data;
    rep
}

/// The fields of a connection of the kernel's IPoIB, as in tshark and in the log of the session.
#[test]
fn the_kernels_ipoib_connection_is_read() {
    let all = cm_messages();
    let of = |n: usize| {
        let place = format!("03-connected.pcap {n}");
        let (_, mad) = all.iter().find(|(p, _)| *p == place).unwrap();
        Mad::parse(mad).unwrap()
    };
    let (req, rep, dreq) = (of(11), of(12), of(104));
    let Some(Message::Req(req)) = req.communication_management() else {
        panic!("{}", req.header);
    };
    assert_eq!(req.service_id.get(), 0x1000_0000_0000_0011);
    assert_eq!(
        (req.local_qpn(), req.starting_psn().get()),
        (Qpn::new(0x12), 0)
    );
    assert_eq!((req.responder_resources, req.initiator_depth), (4, 0));
    let timeouts = (req.remote_response_timeout(), req.local_response_timeout());
    assert_eq!((timeouts, req.primary.ack_timeout()), ((20, 20), 19));
    assert_eq!(
        (req.retry_count(), req.rnr_retry(), req.max_cm_retries()),
        (0, 0, 15)
    );
    assert_eq!((req.path_mtu(), req.srq(), req.pkey.get()), (4, 1, 0xffff));
    assert_eq!(req.private_data[..8], [0, 0, 0, 0x11, 0, 0, 0xff, 0xf4]);
    let Some(Message::Rep(rep)) = rep.communication_management() else {
        panic!("{}", rep.header);
    };
    assert_eq!(rep.starting_psn().get(), 0x2f_86fb);
    assert_eq!(
        (rep.target_ack_delay(), rep.rnr_retry(), rep.srq()),
        (15, 0, 1)
    );
    let Some(Message::Dreq(dreq)) = dreq.communication_management() else {
        panic!("{}", dreq.header);
    };
    assert_eq!(dreq.remote_qpn(), Qpn::new(0x12));
    let (_, rej) = all
        .iter()
        .find(|(p, _)| p == "cm_reject_v4.pcap 2")
        .unwrap();
    let rej = Mad::parse(rej).unwrap();
    let Some(Message::Rej(rej)) = rej.communication_management() else {
        panic!("{}", rej.header);
    };
    assert_eq!(
        (rej.rejected(), rej.reason.get(), rej.ari_length()),
        (Answered::Req, 8, 0)
    );
}
