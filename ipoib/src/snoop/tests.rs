use proptest::prelude::*;

use super::*;
use crate::testing::frames;
use crate::wire::TYPE_IPV6;

fn read(frame: &[u8]) -> Vec<(String, bool)> {
    records(be16(frame, 12), &frame[14..], false)
        .map(|r| (r.group.to_string(), r.joined))
        .collect()
}

/// The records of a capture, without repetitions.
fn reported(capture: &str) -> Vec<(String, bool)> {
    let mut records = Vec::new();
    for frame in frames(capture) {
        assert!(may_report(be16(&frame, 12), &frame[14..]));
        for record in read(&frame) {
            if !records.contains(&record) {
                records.push(record);
            }
        }
    }
    records
}

fn pairs(expected: &[(&str, bool)]) -> Vec<(String, bool)> {
    let owned = expected.iter().map(|(g, j)| ((*g).to_string(), *j));
    owned.collect()
}

#[test]
fn the_kernels_igmpv3_and_mldv2_reports() {
    let expected = [
        ("232.1.2.3", true),
        ("239.1.2.3", true),
        ("ff15::1234", true),
        ("239.1.2.3", false),
        ("ff15::1234", false),
    ];
    assert_eq!(reported("igmpv3-mldv2.pcap"), pairs(&expected));
}

#[test]
fn the_kernels_igmpv2_and_mldv1_reports() {
    let expected = [
        ("ff15::1234", true),
        ("239.1.2.3", true),
        ("239.1.2.3", false),
        ("ff15::1234", false),
    ];
    assert_eq!(reported("igmpv2-mldv1.pcap"), pairs(&expected));
}

#[test]
fn the_kernels_igmpv1_reports() {
    let expected = [
        ("ff15::1234", true),
        ("239.1.2.3", true),
        ("ff15::1234", false),
    ];
    assert_eq!(reported("igmpv1-mldv1.pcap"), pairs(&expected));
}

#[test]
fn a_byte_changed_or_cut_off_is_no_report() {
    for frame in frames("igmpv3-mldv2.pcap") {
        let ethertype = be16(&frame, 12);
        // The IPv6 traffic class, flow label, hop limit and options are not part of the checksum; other
        // tests cover them.
        let summed = if ethertype == TYPE_IPV4 { 14 } else { 14 + 48 };
        for at in summed..frame.len() {
            let mut bad = frame.clone();
            bad[at] ^= 0x10;
            assert_eq!(read(&bad), [], "byte {at} of {frame:02x?}");
        }
        for len in 14 + 40..frame.len() {
            assert_eq!(read(&frame[..len]), [], "{len} bytes");
        }
    }
}

#[test]
fn the_checksum_that_a_host_leaves_to_us_is_not_looked_at() {
    let frame = frames("igmpv2-mldv1.pcap").remove(0);
    let mut partial = frame.clone();
    partial[14 + 50] ^= 0xff;
    assert_eq!(read(&partial), []);
    let records: Vec<_> = records(TYPE_IPV6, &partial[14..], true).collect();
    assert_eq!(records.len(), 1);
}

#[test]
fn padding_behind_the_packet_does_not_count() {
    let mut frame = frames("igmpv2-mldv1.pcap").remove(1);
    frame.resize(60, 0xee);
    assert_eq!(read(&frame), pairs(&[("239.1.2.3", true)]));
}

#[test]
fn listener_discovery_that_crossed_a_router_does_not_count() {
    let frame = frames("igmpv2-mldv1.pcap").remove(0);
    for (at, value) in [(7, 2), (8, 0x20), (42, 1), (44, 1)] {
        let mut bad = frame.clone();
        bad[14 + at] = value;
        let l3 = &bad[14..];
        assert_eq!(records(TYPE_IPV6, l3, true).count(), 0, "byte {at}");
    }
}

/// An IGMPv3 report with these records.
fn igmpv3(count: u16, records: &[u8]) -> Vec<u8> {
    let mut message = vec![IGMP_V3_REPORT, 0, 0, 0, 0, 0];
    message.extend_from_slice(&count.to_be_bytes());
    message.extend_from_slice(records);
    igmp_packet(&message)
}

fn igmp_packet(message: &[u8]) -> Vec<u8> {
    let mut p = vec![0x46, 0xc0, 0, 0, 0, 0, 0x40, 0, 1, 2, 0, 0, 10, 0, 0, 1];
    p.extend_from_slice(&[224, 0, 0, 22, 0x94, 4, 0, 0]);
    p.extend_from_slice(message);
    let len = (p.len() as u16).to_be_bytes();
    p[2..4].copy_from_slice(&len);
    let sum = checksum(&[&p[..24]]).to_be_bytes();
    p[10..12].copy_from_slice(&sum);
    let sum = checksum(&[&p[24..]]).to_be_bytes();
    p[26..28].copy_from_slice(&sum);
    p
}

/// A group record for 239.1.2.`last` with `sources` sources.
fn record(kind: u8, sources: u8, last: u8) -> Vec<u8> {
    let mut r = vec![kind, 0, 0, sources, 239, 1, 2, last];
    for s in 0..sources {
        r.extend_from_slice(&[10, 0, 0, s]);
    }
    r
}

#[test]
fn the_meaning_of_each_type_of_record() {
    let cases = [
        (1, 0, Some(false)),
        (1, 2, Some(true)),
        (2, 0, Some(true)),
        (2, 2, Some(true)),
        (3, 0, Some(false)),
        (3, 1, Some(true)),
        (4, 0, Some(true)),
        (4, 3, Some(true)),
        (5, 0, None),
        (5, 1, Some(true)),
        (6, 1, None),
        (7, 0, None),
    ];
    for (kind, sources, joined) in cases {
        let p = igmpv3(1, &record(kind, sources, 3));
        let got: Vec<bool> = records(TYPE_IPV4, &p, false).map(|r| r.joined).collect();
        let expected: Vec<bool> = joined.into_iter().collect();
        assert_eq!(got, expected, "type {kind}, {sources} sources");
    }
}

#[test]
fn one_record_too_many_makes_the_report_none() {
    let two = [record(4, 1, 1), record(3, 0, 2)].concat();
    assert_eq!(records(TYPE_IPV4, &igmpv3(2, &two), false).count(), 2);
    assert_eq!(records(TYPE_IPV4, &igmpv3(3, &two), false).count(), 0);
}

#[test]
fn auxiliary_data_is_skipped() {
    let mut first = record(4, 1, 1);
    first[1] = 2;
    first.extend_from_slice(&[0xee; 8]);
    let p = igmpv3(2, &[first, record(4, 0, 2)].concat());
    let groups: Vec<_> = records(TYPE_IPV4, &p, false).map(|r| r.group).collect();
    let expected: [IpAddr; 2] = [[239, 1, 2, 1].into(), [239, 1, 2, 2].into()];
    assert_eq!(groups, expected);
}

#[test]
fn groups_that_need_no_report_are_not_reported() {
    for (group, expected) in [
        ("224.0.0.1", false),
        ("224.0.0.251", true),
        ("10.0.0.1", false),
        ("ff02::1", false),
        ("ff02::fb", true),
        ("ff02::1:ff00:1", true),
        ("ff01::fb", false),
        ("ff00::fb", false),
        ("ff11::fb", false),
        ("ff15::1", true),
        ("fe80::1", false),
    ] {
        assert_eq!(is_reported(group.parse().unwrap()), expected, "{group}");
    }
}

#[test]
fn a_fragment_is_no_report() {
    let mut p = igmpv3(1, &record(4, 0, 3));
    p[6] = 0x20;
    p[10..12].fill(0);
    let sum = checksum(&[&p[..24]]).to_be_bytes();
    p[10..12].copy_from_slice(&sum);
    assert_eq!(records(TYPE_IPV4, &p, false).count(), 0);
}

#[test]
fn repetitions_are_news_after_a_second() {
    let mut lately = Lately::new();
    let join = Record {
        group: [239, 1, 2, 3].into(),
        joined: true,
    };
    let leave = Record {
        joined: false,
        ..join
    };
    let (a, b) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    assert!(lately.is_news(Time(0), a, join));
    assert!(!lately.is_news(Time(999), a, join));
    assert!(lately.is_news(Time(999), b, join));
    assert!(lately.is_news(Time(1000), a, join));
    assert!(lately.is_news(Time(1001), a, leave));
    assert!(lately.is_news(Time(1002), a, join));
}

/// Group records with their bytes.
fn group_records(ipv6: bool) -> impl Strategy<Value = Vec<(u8, u8, u8, u16)>> {
    let sources = if ipv6 { 0..4u8 } else { 0..8u8 };
    prop::collection::vec((1u8..7, sources, 0u8..4, any::<u16>()), 0..12)
}

proptest! {
    #[test]
    fn no_bytes_panic(ethertype in prop::sample::select(vec![TYPE_IPV4, TYPE_IPV6]), mut l3 in prop::collection::vec(any::<u8>(), 40..200), unfinished: bool) {
        let _ = records(ethertype, &l3, unfinished).count();
        l3[6] = NEXT_HEADER_HOP_BY_HOP;
        l3[9] = PROTOCOL_IGMP;
        prop_assert!(may_report(ethertype, &l3));
        let _ = records(ethertype, &l3, unfinished).count();
    }

    #[test]
    fn no_group_records_panic_behind_right_checksums(kind: u8, count in 0u16..16, bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut message = vec![kind, 0, 0, 0, 0, 0];
        message.extend_from_slice(&count.to_be_bytes());
        message.extend_from_slice(&bytes);
        let p = igmp_packet(&message);
        prop_assert!(records(TYPE_IPV4, &p, false).count() <= usize::from(count).max(1));
    }

    #[test]
    fn records_that_were_written_are_read(list in group_records(false)) {
        let mut bytes = Vec::new();
        let mut expected = Vec::new();
        for (kind, sources, auxiliary, group) in &list {
            let [high, low] = group.to_be_bytes();
            bytes.extend_from_slice(&[*kind, *auxiliary, 0, *sources, 239, 7, high, low]);
            bytes.extend(std::iter::repeat_n(9, 4 * usize::from(sources + auxiliary)));
            let joined = match (kind, sources) {
                (1 | 3, 0) => false,
                (5, 0) | (6, _) => continue,
                _ => true,
            };
            expected.push(Record { group: [239, 7, high, low].into(), joined });
        }
        let p = igmpv3(list.len() as u16, &bytes);
        prop_assert_eq!(records(TYPE_IPV4, &p, false).collect::<Vec<_>>(), expected);
    }
}
