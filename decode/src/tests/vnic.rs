use ::vnic::Lid;
use ::vnic::packet::{Header16B, Profile, encode, packet_len};
use fabric::PKey;

use super::*;

/// A ping of 192.0.2.1 to 192.0.2.2 with VLAN 100, priority 5.
fn ping() -> Vec<u8> {
    let mut frame = vec![0x06, 0x2c, 0, 0x45, 0x23, 0x01, 0x06, 0x2c, 0, 0x05, 0, 0];
    frame.extend([0x81, 0, 0xa0, 0x64, 0x08, 0]);
    frame.extend([0x45, 0, 0, 84, 0, 0, 0, 0, 64, 1, 0, 0]);
    frame.extend([192, 0, 2, 1, 192, 0, 2, 2, 8, 0, 0, 0]);
    frame.resize(18 + 84, 7);
    frame
}

fn header() -> Header16B {
    Header16B {
        slid: Lid::new(5),
        dlid: Lid::new(0x12345),
        sc: 5,
        rc: 2,
        pkey: PKey::new(0x8001),
        entropy: 0x5a,
        vesw_id: 2,
        ..Header16B::default()
    }
}

fn packet(profile: Profile) -> Vec<u8> {
    let frame = ping();
    let mut packet = vec![0; packet_len(frame.len())];
    encode(&header(), &frame, profile, &mut packet).unwrap();
    packet
}

const SAID: &str = "16B slid 0x000005 dlid 0x012345 length 16 sc 5 rc 2 l2 2 lt 1 l4 0x78 \
    pkey 0x8001 entropy 0x005a vesw 2 pad 1 tail 0x41 len 102 | 06:2c:00:05:00:00 > 06:2c:00:45:23:01 \
    vlan 100 IPv4 192.0.2.1 > 192.0.2.2 ICMP echo request, 84 bytes";

#[test]
fn the_qkey_identifies_packets_of_a_switch() {
    let file = pcap(
        &[send(0x0b1b_0002, 0, 0, &[&packet(Profile::Wire0)])],
        usize::MAX,
    );
    let (summary, text) = lines(&file);
    assert_eq!((summary.roce, summary.good, summary.raw), (1, 1, 0));
    assert_eq!(summary.exit_status(), EXIT_GOOD);
    let printed = format!(" qkey 0x0b1b0002 len 128 | {SAID} | icrc good");
    assert!(text[0].ends_with(&printed), "{}", text[0]);
    let all = objects(&file);
    let vnic = &all[0]["vnic"];
    assert_eq!((&vnic["slid"], &vnic["dlid"]), (&5.into(), &0x12345.into()));
    assert_eq!((&vnic["sc"], &vnic["vesw"]), (&5.into(), &2.into()));
    assert_eq!(vnic["tail"]["pad"], 1);
    assert_eq!(vnic["frame"]["ethernet"]["vlans"], serde_json::json!([100]));
    assert_eq!(vnic["frame"]["ethertype"], 0x0800);
    // With another Q_Key, the same bytes are not a 16B packet.
    for other in [QKEY, 0x0b1b_0000, 0x0b1b_1002, 0x8b1b_0002] {
        let file = pcap(&[send(other, 0, 0, &[&packet(Profile::Wire0)])], usize::MAX);
        assert_eq!(objects(&file)[0].get("vnic"), None, "{other:#x}");
    }
}

#[test]
fn large_sends_of_16b_packets_are_split() {
    let p = packet(Profile::Wire0);
    let (summary, text) = lines(&pcap(&[send(0x0b1b_0fff, 0, 0, &[&p, &p])], usize::MAX));
    assert_eq!((summary.roce, summary.good), (2, 2));
    assert!(
        text[1].starts_with("1.2/2 ") && text[1].contains(SAID),
        "{}",
        text[1]
    );
}

#[test]
fn faults_of_16b_packets_are_reported() {
    let good = packet(Profile::Wire0);
    let printed = |at: usize, byte: u8| {
        let mut p = good.clone();
        p[at] = byte;
        let (summary, text) = lines(&pcap(&[send(0x0b1b_0002, 0, 0, &[&p])], usize::MAX));
        assert_eq!((summary.malformed, summary.good), (1, 1));
        assert_eq!(summary.exit_status(), EXIT_BAD);
        text[0].clone()
    };
    let length = printed(2, 0x10);
    assert!(length.contains(" length 17 "), "{length}");
    assert!(length.ends_with("malformed: length differs from the header | icrc good"));
    assert!(printed(8, 0x09).contains("l4 0x09 "));
    assert!(printed(8, 0x09).contains("malformed: not Ethernet"));
    let fecn_and_no_lt = printed(7, 0x54);
    assert!(
        fecn_and_no_lt.contains(" FECN sc 5 rc 2 l2 2 lt 0 "),
        "{fecn_and_no_lt}"
    );
    let short = pcap(&[send(0x0b1b_0002, 0, 0, &[&good[..16]])], usize::MAX);
    let (summary, text) = lines(&short);
    assert_eq!(summary.malformed, 1);
    assert!(
        text[0].contains("len 16 | malformed: length is too short"),
        "{}",
        text[0]
    );
}

#[test]
fn packets_by_themselves_have_an_icrc_of_their_own() {
    let good = packet(Profile::WireSw32);
    let mut damaged = good.clone();
    damaged[40] ^= 1;
    // Without an ICRC, as on a carrier with its own check.
    let none = packet(Profile::Wire0);
    // The ICRC does not cover fields that switches change.
    let mut marked = good.clone();
    marked[3] |= 0x80;
    let file = pcap_of(DataLink::USER0, &[good, damaged, none, marked], usize::MAX);
    let (summary, text) = lines(&file);
    assert_eq!((summary.roce, summary.raw), (0, 4));
    assert_eq!((summary.good, summary.bad, summary.malformed), (2, 2, 0));
    assert_eq!(summary.exit_status(), EXIT_BAD);
    assert_eq!(text[0], format!("1 1.500000 {SAID} | icrc good"));
    assert!(text[1].contains("icrc bad (expected "), "{}", text[1]);
    assert!(text[2].contains("icrc bad ("));
    assert!(text[3].contains(" length 16 BECN sc 5 ") && text[3].ends_with("icrc good"));
    assert_eq!(
        text[4],
        "4 frames, 0 RoCEv2 packets, 4 16B packets: ICRC 2 good, 2 bad, 0 unknown; 0 malformed"
    );
    let all = objects(&file);
    assert_eq!(all[0]["kind"], "16b");
    assert_eq!(all[0]["length"], 128);
    assert_eq!(all[0]["vnic"]["length"], 16);
    assert_eq!(all[2]["icrc"]["value"], "00000000");
}

#[test]
fn packets_by_themselves_may_be_cut_or_nothing() {
    let good = packet(Profile::WireSw32);
    let file = pcap_of(DataLink::USER0, std::slice::from_ref(&good), 40);
    let (summary, text) = lines(&file);
    assert_eq!((summary.unknown, summary.malformed), (1, 0));
    assert!(text[0].contains("dlid 0x012345 ") && text[0].contains("icrc unknown"));
    for cut in [0, 10, 24] {
        let file = pcap_of(DataLink::USER0, &[good[..cut].to_vec()], usize::MAX);
        let (summary, text) = lines(&file);
        assert_eq!((summary.raw, summary.malformed), (1, 1), "{}", text[0]);
        assert_eq!(objects(&file)[0]["length"], cut);
    }
}
