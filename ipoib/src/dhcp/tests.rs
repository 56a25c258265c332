use proptest::prelude::*;

use super::*;
use crate::testing::frames;

const MAC: Mac = [2, 0, 0, 0, 0, 0x0a];

/// The packets of udhcpc, dhclient and dnsmasq, without their Ethernet headers.
fn packets() -> Vec<Vec<u8>> {
    let strip = |f: Vec<u8>| f[14..].to_vec();
    frames("dhcp.pcap").into_iter().map(strip).collect()
}

fn first(kind: u8) -> Vec<u8> {
    let mut all = packets().into_iter();
    all.find(|p| parse(p, false).unwrap().kind == Some(kind))
        .unwrap()
}

/// Sets all lengths and checksums of a packet with a 20-byte header.
fn finish(packet: &mut [u8]) {
    let len = packet.len();
    packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
    packet[24..26].copy_from_slice(&(len as u16 - 20).to_be_bytes());
    packet[10..12].fill(0);
    let sum = checksum(&[&packet[..20]]).to_be_bytes();
    packet[10..12].copy_from_slice(&sum);
    packet[26..28].fill(0);
    let sum = udp_v4(packet, &packet[20..]).to_be_bytes();
    packet[26..28].copy_from_slice(&sum);
}

/// The packet with a changed message.
fn changed(mut packet: Vec<u8>, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut body = packet.split_off(28);
    change(&mut body);
    packet.extend_from_slice(&body);
    finish(&mut packet);
    packet
}

fn write(
    packet: &[u8],
    f: impl FnOnce(&Message<'_>, &mut [u8]) -> Option<usize>,
) -> Option<Vec<u8>> {
    let mut out = vec![0xee; 2048];
    let len = f(&parse(packet, false)?, &mut out)?;
    out.truncate(len);
    Some(out)
}

fn broadcast(packet: &[u8]) -> Option<Vec<u8>> {
    write(packet, |m, out| m.write_broadcast(out))
}

fn infiniband(packet: &[u8]) -> Option<Vec<u8>> {
    write(packet, |m, out| m.write_infiniband(MAC, out))
}

#[test]
fn what_clients_and_a_server_say() {
    let all = packets();
    assert_eq!(all.len(), 10);
    for p in &all {
        let m = parse(p, false).unwrap();
        assert_eq!(m.client(), Some(MAC));
        let reply = matches!(m.kind, Some(2 | ACK));
        assert_eq!((m.is_request(), m.is_reply()), (!reply, reply));
        assert_eq!((may_be_request(p), may_be_reply(p)), (!reply, reply));
        let lease = (m.kind == Some(ACK)).then(|| Ipv4Addr::new(10, 77, 0, 72));
        assert_eq!(m.lease(), lease);
    }
}

#[test]
fn the_flag_changes_nothing_but_itself_and_the_checksum() {
    for kind in [DISCOVER, SELECT] {
        let before = first(kind);
        let after = broadcast(&before).unwrap();
        let differ: Vec<usize> = (0..before.len())
            .filter(|i| before[*i] != after[*i])
            .collect();
        assert!(differ.iter().all(|i| [26, 27, 28 + FLAGS].contains(i)));
        assert_eq!((before[28 + FLAGS], after[28 + FLAGS]), (0, 0x80));
        assert!(parse(&after, false).is_some());
        assert_eq!(broadcast(&after), None, "it is set");
    }
}

#[test]
fn a_client_with_an_address_is_not_answered_by_broadcast() {
    let renewal = changed(first(SELECT), |b| b[CIADDR..][..4].fill(10));
    assert!(parse(&renewal, false).unwrap().is_request());
    assert_eq!(broadcast(&renewal), None);
    let release = changed(first(DISCOVER), |b| b[OPTIONS + 2] = 7);
    assert_eq!(parse(&release, false).unwrap().kind, Some(7));
    assert_eq!(broadcast(&release), None);
}

#[test]
fn plain_bootp_gets_the_flag_and_no_identifier() {
    let bootp = changed(first(DISCOVER), |b| b[FIXED_LEN..].fill(0));
    let after = broadcast(&bootp).unwrap();
    assert_eq!(after[28 + FLAGS], 0x80);
    assert_eq!(infiniband(&bootp), None);
}

/// The options of a message, in order, without padding.
fn options(packet: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut rest = &packet[28 + OPTIONS..];
    let mut all = Vec::new();
    while let [kind, len, after @ ..] = rest {
        if *kind == OPTION_END {
            break;
        }
        let (value, after) = after.split_at(usize::from(*len));
        all.push((*kind, value.to_vec()));
        rest = after;
    }
    all
}

#[test]
fn an_identifier_takes_the_place_of_padding() {
    let before = changed(first(DISCOVER), remove_identifier);
    assert!(options(&before).iter().all(|(k, _)| *k != OPTION_CLIENT));
    let after = infiniband(&before).unwrap();
    assert_eq!(after.len(), before.len());
    let mut expected = options(&before);
    let id = vec![255, 0, 0, 0, 0x0a, 0, 3, 0, 1, 2, 0, 0, 0, 0, 0x0a];
    expected.push((OPTION_CLIENT, id));
    assert_eq!(options(&after), expected);
}

/// Replaces option 61 by padding.
fn remove_identifier(body: &mut Vec<u8>) {
    let len = body.len();
    let mut at = OPTIONS;
    while body[at] != OPTION_END {
        let option = 2 + usize::from(body[at + 1]);
        if body[at] == OPTION_CLIENT {
            body.drain(at..at + option);
        } else {
            at += option;
        }
    }
    body.resize(len, OPTION_PAD);
}

#[test]
fn a_message_without_room_grows() {
    let before = changed(first(DISCOVER), |b| {
        remove_identifier(b);
        let end = b.iter().skip(OPTIONS).rposition(|o| *o == OPTION_END);
        b.truncate(OPTIONS + end.unwrap() + 1);
    });
    let after = infiniband(&before).unwrap();
    assert_eq!(after.len(), before.len() + CLIENT_OPTION_LEN);
    let m = parse(&after, false).unwrap();
    assert!(m.has_client);
    assert_eq!(m.len, after.len());
    let mut short = vec![0; before.len() + CLIENT_OPTION_LEN - 1];
    let m = parse(&before, false).unwrap();
    assert_eq!(m.write_infiniband(MAC, &mut short), None);
}

#[test]
fn bytes_behind_the_datagram_stay_where_they_are_no_part_of_it() {
    let mut before = first(DISCOVER);
    before.extend_from_slice(&[0xaa; 6]);
    let len = (before.len() as u16).to_be_bytes();
    before[2..4].copy_from_slice(&len);
    before[10..12].fill(0);
    let sum = checksum(&[&before[..20]]).to_be_bytes();
    before[10..12].copy_from_slice(&sum);
    let after = broadcast(&before).unwrap();
    assert_eq!(after[24..26], before[24..26]);
    assert_eq!(after[after.len() - 6..], [0xaa; 6]);
    assert!(parse(&after, false).is_some());
    assert!(parse(&infiniband(&before).unwrap(), false).is_some());
}

#[test]
fn no_checksum_stays_none() {
    let mut p = first(DISCOVER);
    p[26..28].fill(0);
    assert_eq!(broadcast(&p).unwrap()[26..28], [0, 0]);
    // The host left the checksum to be completed, so the result has one.
    let mut out = [0; 2048];
    let len = parse(&p, true).unwrap().write_broadcast(&mut out).unwrap();
    assert_eq!(udp_v4(&out, &out[20..len]), 0);
    assert_ne!(out[26..28], [0, 0]);
}

#[test]
fn a_reply_gets_the_client_back() {
    let before = first(ACK);
    let bare = changed(before.clone(), |b| {
        b[HTYPE] = HTYPE_INFINIBAND;
        b[HLEN] = 0;
        b[CHADDR..CHADDR + CHADDR_LEN].fill(0);
    });
    assert_eq!(parse(&bare, false).unwrap().client(), None);
    assert_eq!(
        write(&bare, |m, out| m.write_client(MAC, out)).unwrap(),
        before
    );
}

#[test]
fn what_is_malformed_is_not_read() {
    let good = first(DISCOVER);
    for len in 0..good.len() {
        assert!(len < 20 || parse(&good[..len], false).is_none(), "{len}");
    }
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x04;
        assert!(parse(&bad, false).is_none(), "byte {at}");
    }
    let no_end = changed(good.clone(), |b| {
        let end = b.iter().skip(OPTIONS).rposition(|o| *o == OPTION_END);
        b[OPTIONS + end.unwrap()] = OPTION_PAD;
    });
    assert!(parse(&no_end, false).is_none());
    let too_long = changed(good.clone(), |b| b[OPTIONS + 1] = 255);
    assert!(parse(&too_long, false).is_none());
    let two_types = changed(good, |b| b[OPTIONS + 1] = 2);
    assert!(parse(&two_types, false).is_none());
}

#[test]
fn a_relayed_message_is_no_client_s() {
    let relayed = changed(first(DISCOVER), |b| b[GIADDR] = 10);
    assert!(!parse(&relayed, false).unwrap().is_request());
}

#[test]
fn clients_are_bounded_and_forgotten() {
    let mut c = Clients::default();
    assert!(c.remember(Time(0), 7, MAC));
    assert!(!c.remember(Time(59_999), 7, MAC));
    assert_eq!(c.find(Time(299_999), 7), Some(MAC));
    assert_eq!(c.find(Time(300_000), 7), None);
    assert!(c.remember(Time(60_000), 7, MAC));
    let other = [6; 6];
    assert!(c.remember(Time(60_001), 7, other));
    assert_eq!(c.find(Time(60_002), 7), Some(other));
    for xid in 100..100 + Clients::MAX as u32 {
        c.remember(Time(70_000), xid, MAC);
    }
    assert_eq!(c.list.len(), Clients::MAX);
    assert_eq!(c.find(Time(70_000), 7), None);
    assert_eq!(c.find(Time(70_000), 100), Some(MAC));
}

/// A well-formed request with these options.
fn request(options: &[(u8, Vec<u8>)], padding: usize) -> Vec<u8> {
    changed(first(DISCOVER), |b| {
        b.truncate(OPTIONS);
        for (kind, value) in options {
            b.extend_from_slice(&[*kind, value.len() as u8]);
            b.extend_from_slice(value);
        }
        b.push(OPTION_END);
        b.resize(b.len() + padding, OPTION_PAD);
    })
}

fn any_options() -> impl Strategy<Value = Vec<(u8, Vec<u8>)>> {
    let kinds = (1u8..255).prop_filter("has a fixed length", |k| *k != OPTION_TYPE);
    prop::collection::vec((kinds, prop::collection::vec(any::<u8>(), 0..40)), 0..12)
}

proptest! {
    #[test]
    fn no_bytes_panic(l3 in prop::collection::vec(any::<u8>(), 20..400), unfinished: bool) {
        let _ = (may_be_request(&l3), may_be_reply(&l3), parse(&l3, unfinished));
    }

    #[test]
    fn no_message_panics_behind_right_checksums(body in prop::collection::vec(any::<u8>(), 0..500), cookie: bool, room in 0usize..600) {
        let packet = changed(first(DISCOVER), |b| {
            *b = body;
            if cookie && b.len() >= OPTIONS {
                b[FIXED_LEN..OPTIONS].copy_from_slice(&COOKIE);
            }
        });
        if let Some(m) = parse(&packet, false) {
            let mut out = vec![0; room];
            let _ = (m.write_broadcast(&mut out), m.write_infiniband(MAC, &mut out), m.write_client(MAC, &mut out));
        }
    }

    #[test]
    fn what_leaves_as_infiniband_keeps_its_options_and_comes_back(list in any_options(), padding in 0usize..64) {
        let before = request(&list, padding);
        let after = infiniband(&before).unwrap();
        let m = parse(&after, false).unwrap();
        prop_assert!(m.has_client && m.client().is_none());
        prop_assert_eq!(m.len, after.len());
        let mut expected = list.clone();
        if list.iter().all(|(k, _)| *k != OPTION_CLIENT) {
            expected.push((OPTION_CLIENT, client_option(MAC)[2..].to_vec()));
        }
        prop_assert_eq!(options(&after), expected);
        let back = write(&after, |m, out| m.write_client(MAC, out)).unwrap();
        prop_assert_eq!(parse(&back, false).unwrap().client(), Some(MAC));
    }
}
