mod vnic;
mod vnic_management;

use std::fs;
use std::path::{Path, PathBuf};

use fabric::soft::icrc::Prefix;
use pcap_file::DataLink;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::{PcapNgBlock, PcapNgWriter};
use serde_json::Value as Json;

use super::*;

fn captures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/captures")
}

fn lines(file: &[u8]) -> (Summary, Vec<String>) {
    let mut out = Vec::new();
    let summary = decode(file, Format::Text, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    (summary, text.lines().map(str::to_owned).collect())
}

fn objects(file: &[u8]) -> Vec<Json> {
    let mut out = Vec::new();
    decode(file, Format::Json, &mut out).unwrap();
    serde_json::from_slice(&out).unwrap()
}

fn capture(name: &str) -> Vec<u8> {
    fs::read(captures().join(name)).unwrap()
}

/// A raw-IP capture of `packets`, each cut to `snap` bytes.
fn pcap(packets: &[Vec<u8>], snap: usize) -> Vec<u8> {
    pcap_of(DataLink::RAW, packets, snap)
}

/// A capture of `packets` with any link type.
fn pcap_of(datalink: DataLink, packets: &[Vec<u8>], snap: usize) -> Vec<u8> {
    let header = PcapHeader {
        datalink,
        ..PcapHeader::default()
    };
    let mut writer = PcapWriter::with_header(Vec::new(), header).unwrap();
    for p in packets {
        let kept = &p[..p.len().min(snap)];
        let time = std::time::Duration::from_micros(1_500_000);
        let packet = PcapPacket::new(time, p.len() as u32, kept);
        writer.write_packet(&packet).unwrap();
    }
    writer.into_writer()
}

/// The Q_Key of IPoIB.
const QKEY: u32 = 0x0b1b;

/// A UD packet from BTH to pad; byte 4 as in the ICRC's input.
fn transport(qkey: u32, psn: u8, payload: &[u8]) -> Vec<u8> {
    let pad = payload.len().wrapping_neg() & 3;
    let flags = (pad << 4) as u8;
    let mut t = vec![0x64, flags, 0xff, 0xff, 0xff, 0, 0, 0x42, 0, 0, 0, psn];
    t.extend(qkey.to_be_bytes());
    t.extend([0, 0, 0, 0x11]);
    t.extend(payload);
    t.resize(t.len() + pad, 0);
    t
}

/// A large send over IPv4; the ICRC of segment k is correct for identification `first_id + k`.
fn large_send(captured_id: u16, first_id: u16, payloads: &[&[u8]]) -> Vec<u8> {
    send(QKEY, captured_id, first_id, payloads)
}

/// A large send with any Q_Key.
fn send(qkey: u32, captured_id: u16, first_id: u16, payloads: &[&[u8]]) -> Vec<u8> {
    let (src, dst) = ([192, 0, 2, 1], [192, 0, 2, 2]);
    let mut body = Vec::new();
    for (k, payload) in payloads.iter().enumerate() {
        let mut t = transport(qkey, k as u8, payload);
        let udp_len = t.len() as u16 + 12;
        let id = first_id.wrapping_add(k as u16);
        let icrc = Prefix::ipv4(src, dst, 0xc001, 4791, udp_len, id).finish(&t);
        t[4] = 0;
        body.extend(t);
        body.extend(icrc);
    }
    let udp_len = body.len() as u16 + 8;
    let mut p = vec![0x45, 0];
    p.extend((udp_len + 20).to_be_bytes());
    p.extend(captured_id.to_be_bytes());
    p.extend([0x40, 0, 64, 17, 0, 0]);
    p.extend(src);
    p.extend(dst);
    p.extend(0xc001u16.to_be_bytes());
    p.extend(4791u16.to_be_bytes());
    p.extend(udp_len.to_be_bytes());
    p.extend([0, 0]);
    p.extend(body);
    p
}

#[test]
fn every_capture_is_good_in_both_forms() {
    let mut roce = 0;
    for directory in [captures(), captures().join("kernel-ipoib")] {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                continue;
            }
            let file = fs::read(&path).unwrap();
            let (summary, text) = lines(&file);
            assert_eq!(summary.good, summary.roce, "{}", path.display());
            assert_eq!(summary.exit_status(), EXIT_GOOD);
            assert_eq!(text.len() as u64, summary.frames + 1);
            assert_eq!(objects(&file).len() as u64, summary.frames);
            roce += summary.roce;
        }
    }
    assert_eq!(roce, 657);
}

#[test]
fn what_is_inside_is_named() {
    let (_, text) = lines(&capture("kernel-ipoib/01-datagram.pcap"));
    let has = |n: usize, s: &str| assert!(text[n - 1].contains(s), "{s}: {}", text[n - 1]);
    has(1, "SA Set MCMemberRecord");
    has(1, "mgid ff12:401b:ffff::ffff:ffff");
    has(26, "neighbour solicitation for fe80::299:ff:fe00:11");
    has(
        31,
        "source at 80:00:00:11:fe:80:00:00:00:00:00:00:00:99:00:ff:fe:00:00:11",
    );
    has(
        33,
        "IPoIB ARP request 10.50.0.17 tell 10.50.0.16 at 80:00:00:11",
    );
    has(34, "SA Get PathRecord");
    has(39, "IPoIB IPv4 10.50.0.16 > 10.50.0.17 ICMP echo request");
    let (_, text) = lines(&capture("cm_reject_v4.pcap"));
    assert!(text[0].contains("CM ConnectRequest"), "{}", text[0]);
    assert!(text[1].contains("reason 8 (invalid service ID)"));
    let (_, text) = lines(&capture("mcast_mckey_v4.pcap"));
    assert!(
        text[0].ends_with("224.0.0.22 IGMP, 40 bytes"),
        "{}",
        text[0]
    );
    assert!(text[4].contains("> 239.1.2.3 UD SEND_ONLY_IMM"));
}

#[test]
fn objects_have_the_fields_of_the_headers() {
    let all = objects(&capture("kernel-ipoib/01-datagram.pcap"));
    let arp = &all[32];
    assert_eq!(arp["number"], 33);
    assert_eq!(arp["kind"], "roce");
    assert_eq!(arp["destination"], "ff12:401b:ffff::ffff:ffff");
    assert_eq!(arp["bth"]["dest_qp"], 0xff_ffff);
    assert_eq!(arp["deth"]["qkey"], 0x0b1b);
    assert_eq!(arp["ipoib"]["protocol"], "arp");
    assert_eq!(arp["icrc"]["verdict"], "good");
    assert_eq!(arp["ethernet"]["destination"], "33:33:ff:ff:ff:ff");
    let join = &all[0]["mad"];
    assert_eq!(join["fields"]["component_mask"], 0x10083);
    assert_eq!(join["fields"]["join_state"], 1);
    let joined = &all[1]["mad"];
    assert_eq!(joined["fields"]["mlid"], 0xc000);
    assert_eq!(joined["fields"]["mtu"], 2048);
    assert_eq!(joined["fields"]["rate"], "10 Gbit/s");
}

/// A connection of the kernel's IPoIB: request, reply, data, acknowledgement, end.
#[test]
fn connections_are_decoded_from_request_to_end() {
    let (_, text) = lines(&capture("kernel-ipoib/03-connected.pcap"));
    let has = |n: usize, s: &str| assert!(text[n - 1].contains(s), "{s}: {}", text[n - 1]);
    has(
        11,
        "CM ConnectRequest tid 0x351466abc local_comm_id 0xbc6a4651",
    );
    has(
        11,
        "service_id 0x1000000000000011 local_ca_guid 0099:00ff:fe00:0010",
    );
    has(
        11,
        "local_qpn 0x12 starting_psn 0x0 pkey 0xffff transport RC path_mtu 2048 srq 1",
    );
    has(11, "retry_count 0 rnr_retry_count 0 max_cm_retries 15");
    has(11, "remote_cm_response_timeout 20 (4.3 s)");
    has(
        11,
        "local_gid fe80::99:ff:fe00:10 remote_gid fe80::99:ff:fe00:11",
    );
    has(
        11,
        "local_ack_timeout 19 (2.1 s) ud_qpn 0x11 receive_mtu 65524",
    );
    has(12, "CM ConnectReply tid 0x351466abc");
    has(12, "starting_psn 0x2f86fb srq 1");
    has(
        12,
        "target_ack_delay 15 (134 ms) ud_qpn 0x11 receive_mtu 65524",
    );
    has(104, "CM DisconnectRequest");
    has(104, "remote_qpn 0x12");
    // Packets that waited for the connection come before the ReadyToUse.
    has(13, "RC SEND_ONLY pkey 0xffff > qp 0x000012 psn 0x2f86fb");
    has(13, "IPoIB IPv4");
    let acknowledgements = text.iter().filter(|l| l.contains(" ACK msn ")).count();
    assert_eq!(acknowledgements, 10);
    // Only the first packet of a message has the encapsulation header.
    let with = |op: &str| -> Vec<bool> {
        let of_op = text.iter().filter(|l| l.contains(op));
        of_op.map(|l| l.contains("| IPoIB IPv4 ")).collect()
    };
    let firsts = with("RC SEND_FIRST");
    assert!(!firsts.is_empty() && firsts.iter().all(|ipoib| *ipoib));
    assert!(with("RC SEND_MIDDLE").iter().all(|ipoib| !*ipoib));
    let (_, text) = lines(&capture("rc_loss_v4.pcap"));
    assert!(
        text.iter()
            .any(|l| l.contains("NAK PSN sequence error msn "))
    );
}

#[test]
fn messages_of_user_programs_are_decoded() {
    let all = objects(&capture("cm_rping_v4.pcap"));
    let req = &all[0]["mad"]["fields"];
    assert_eq!(req["retry_count"], 7);
    assert_eq!(req["local_ack_timeout"], 19);
    assert_eq!(req["path_mtu"], 1024);
    assert_eq!(req["local_gid"], "::ffff:192.168.77.11");
    // As text: many JSON readers lose digits of a 64-bit number.
    assert_eq!(req["service_id"], "0x0000000001061c06");
    // The header of rdma_cm, and no further data.
    assert_eq!(req["rdma_cm_source"], "192.168.77.11:56801");
    assert_eq!(req["rdma_cm_destination"], "192.168.77.10");
    for none in ["ud_qpn", "to_qpn", "private_data"] {
        assert_eq!(req.get(none), None);
    }
    let sidr = &objects(&capture("cm_udaddy_v4.pcap"))[0]["mad"]["fields"];
    assert_eq!(sidr["rdma_cm_source"], "192.168.77.11:36879");
    let rep = &all[1]["mad"]["fields"];
    assert_eq!(rep["target_ack_delay"], 15);
    assert_eq!((rep.get("private_data"), rep.get("ud_qpn")), (None, None));
    let all = objects(&capture("cm_reject_v4.pcap"));
    let rej = &all[1]["mad"]["fields"];
    assert_eq!(
        (&rej["message"], &rej["remote_comm_id"]),
        (&"REQ".into(), &0x212e_3dde.into())
    );
}

#[test]
fn damage_is_bad_and_exits_1() {
    let mut file = capture("ud_send_v4.pcap");
    let last = file.len() - 6;
    file[last] ^= 1;
    let (summary, text) = lines(&file);
    assert_eq!((summary.bad, summary.exit_status()), (1, EXIT_BAD));
    assert!(text[5].contains("icrc bad ("), "{}", text[5]);
}

#[test]
fn a_wrong_identification_is_bad_and_explained() {
    let packet = large_send(9, 7, &[b"hello"]);
    let (summary, text) = lines(&pcap(&[packet], usize::MAX));
    assert_eq!(summary.bad, 1);
    assert!(
        text[0].contains("correct for IPv4 identification 0x0007"),
        "{}",
        text[0]
    );
}

#[test]
fn large_sends_are_split() {
    let payloads: [&[u8]; 4] = [&[1; 1024], &[2; 1024], &[3; 1024], &[4; 77]];
    let (summary, text) = lines(&pcap(&[large_send(0, 0, &payloads)], usize::MAX));
    assert_eq!((summary.frames, summary.roce, summary.good), (1, 4, 4));
    assert!(text[0].starts_with("1.1/4 1.500000 "), "{}", text[0]);
    assert!(text[3].contains("psn 0x000003") && text[3].contains("len 77"));
    let all = objects(&pcap(&[large_send(0, 0, &payloads)], usize::MAX));
    assert_eq!(all[3]["segment"]["index"], 3);
    assert_eq!(all[3]["ipv4_identification"], 3);
}

#[test]
fn one_bad_packet_of_a_large_send_is_found() {
    let payloads: [&[u8]; 3] = [&[1; 256], &[2; 256], &[3; 256]];
    let mut packet = large_send(0, 0, &payloads);
    // Change the payload of the first packet.
    packet[28 + 20 + 5] ^= 0x80;
    let (summary, _) = lines(&pcap(&[packet], usize::MAX));
    assert_eq!((summary.good, summary.bad), (2, 1));
}

#[test]
fn identifications_that_the_capture_lacks_are_unknown() {
    // The first packet has the captured identification; the others do not have the following ones.
    let payloads: [&[u8]; 3] = [&[1; 256], &[2; 256], &[3; 256]];
    let mut packet = large_send(5, 5, &payloads);
    let other = large_send(100, 100, &payloads);
    let segment = 280;
    packet[28 + segment..].copy_from_slice(&other[28 + segment..]);
    let (summary, text) = lines(&pcap(&[packet], usize::MAX));
    assert_eq!((summary.good, summary.unknown, summary.bad), (1, 2, 0));
    assert!(text[1].contains("correct for 0x0065"), "{}", text[1]);
    assert_eq!(summary.exit_status(), EXIT_GOOD);
}

#[test]
fn a_snap_length_leaves_the_icrc_unknown() {
    let packet = large_send(0, 0, &[&[1; 512]]);
    let (summary, text) = lines(&pcap(&[packet], 64));
    assert_eq!((summary.unknown, summary.malformed), (1, 0));
    assert!(text[0].contains("> qp 0x000042"), "{}", text[0]);
    assert!(text[0].contains("len 512"), "{}", text[0]);
}

#[test]
fn headers_that_the_capture_lacks_are_no_zeros() {
    let packet = large_send(0, 0, &[&[1; 512]]);
    let record = |snap| objects(&pcap(std::slice::from_ref(&packet), snap)).remove(0);
    // IP, UDP, BTH, DETH.
    let all = 20 + 8 + 12 + 8;
    let whole = record(all);
    assert_eq!(whole["deth"], record(999)["deth"]);
    for snap in [all - 8, all - 1] {
        let cut = record(snap);
        assert_eq!(cut["bth"], whole["bth"]);
        assert!(cut.get("deth").is_none(), "{cut}");
    }
}

#[test]
fn malformed_packets_exit_1() {
    let good = large_send(0, 0, &[b"hello"]);
    let mut opcode = good.clone();
    opcode[28] = 0x7f;
    let mut length = good.clone();
    length[25] -= 4;
    let (summary, text) = lines(&pcap(&[opcode, length, good], usize::MAX));
    assert_eq!((summary.malformed, summary.good), (2, 1));
    assert_eq!(summary.exit_status(), EXIT_BAD);
    assert!(text[0].contains("unknown opcode 0x7f"), "{}", text[0]);
    assert!(text[1].contains("wrong length field"), "{}", text[1]);
}

/// A pcapng capture with one packet, of the time 1.5 s.
fn pcapng(packet: &[u8], options: Vec<InterfaceDescriptionOption<'static>>) -> Vec<u8> {
    let mut writer = PcapNgWriter::new(Vec::new()).unwrap();
    let mut interface = InterfaceDescriptionBlock::new(DataLink::RAW, 0);
    interface.options = options;
    writer.write_block(&interface.into_block()).unwrap();
    let block = EnhancedPacketBlock {
        interface_id: 0,
        // Number of ticks, here microseconds.
        timestamp: std::time::Duration::from_nanos(1_500_000),
        original_len: packet.len() as u32,
        data: packet.into(),
        options: Vec::new(),
    };
    writer.write_block(&block.into_block()).unwrap();
    writer.into_inner()
}

#[test]
fn pcapng_is_read_like_pcap() {
    let packet = large_send(0, 0, &[b"hello"]);
    let ng = pcapng(&packet, Vec::new());
    assert_eq!(lines(&ng), lines(&pcap(&[packet], usize::MAX)));
}

#[test]
fn the_offset_of_an_interface_is_part_of_the_time() {
    let packet = large_send(0, 0, &[b"hello"]);
    let time = |offset: u64| {
        let options = vec![InterfaceDescriptionOption::IfTsOffset(offset)];
        let (_, text) = lines(&pcapng(&packet, options));
        let words: Vec<&str> = text[0].split_ascii_whitespace().collect();
        words[1].to_owned()
    };
    let back = |seconds: i64| time(seconds.cast_unsigned());
    assert_eq!(time(0), "1.500000");
    assert_eq!(time(1000), "1001.500000");
    assert_eq!(back(-1), "0.500000");
    assert_eq!(back(-2), "0.000000");
    assert_eq!(back(i64::MIN), "0.000000");
    assert!(back(i64::MAX).starts_with("922337203685477"));
}

#[test]
fn other_files_are_refused() {
    let refusal = |file: &[u8]| {
        let e = decode(file, Format::Text, &mut Vec::new()).unwrap_err();
        e.to_string()
    };
    let neither = "the file is neither pcap nor pcapng";
    assert_eq!(refusal(b""), neither);
    assert_eq!(
        refusal(b"GIF89a, which is a picture and no capture at all"),
        neither
    );
    let file = capture("ud_send_v4.pcap");
    assert_eq!(
        refusal(&file[..file.len() - 1]),
        "the file ends in the middle of a packet"
    );
}

#[test]
fn json_is_an_array_even_when_empty_or_cut_short() {
    assert_eq!(objects(&pcap(&[], 0)).len(), 0);
    let file = capture("ud_send_v4.pcap");
    let mut out = Vec::new();
    decode(&file[..file.len() - 1], Format::Json, &mut out).unwrap_err();
    let all: Vec<Json> = serde_json::from_slice(&out).unwrap();
    assert_eq!(all.len(), 5);
}

#[test]
fn indented_json_is_the_array_of_all_packets() {
    let file = capture("cm_reject_v4.pcap");
    let mut out = Vec::new();
    decode(&*file, Format::PrettyJson, &mut out).unwrap();
    let all: Vec<Json> = serde_json::from_slice(&out).unwrap();
    assert_eq!(all, objects(&file));
    let expected = serde_json::to_string_pretty(&all).unwrap();
    let lines = |text: &str| text.lines().count();
    let text = String::from_utf8(out).unwrap();
    assert_eq!(lines(&text), lines(&expected));
    assert!(text.starts_with("[\n  {\n    \""), "{text}");
}
