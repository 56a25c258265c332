//! Translation of ARP and neighbour discovery in both directions.

use super::*;

#[test]
fn c06_flags_on_the_wire_are_what_we_were_given() {
    let mut c = a();
    let request = arp(1, &MAC_A, [10, 0, 0, 1], &[0; 6], [10, 0, 0, 2]);
    let f = frame(MAC_BROADCAST, MAC_A, 0x0806, &request);
    let Sent::Rewritten(_, _, p) = send(&mut c, T0, &f) else {
        panic!()
    };
    assert_eq!(p[12..32], c.local().0);
    assert_eq!(p[12], 0);
}

#[test]
fn c07_peers_with_flags_are_the_same_peers() {
    let mut c = a();
    let mut b = address(0xb, 0x4b);
    let plain = teach(&mut c, b, [10, 0, 0, 2]);
    b.0[0] = 0xc1;
    assert_eq!(teach(&mut c, b, [10, 0, 0, 2]), plain);
    assert_eq!(c.neighbours().count(), 1);
}

#[test]
fn c12_ethernet_padding_does_not_leave() {
    let mut c = a();
    let mut f = frame(
        MAC_BROADCAST,
        MAC_A,
        0x0806,
        &arp(1, &MAC_A, [10, 0, 0, 1], &[0; 6], [10, 0, 0, 2]),
    );
    f.resize(60, 0);
    let Sent::Rewritten(_, _, p) = send(&mut c, T0, &f) else {
        panic!()
    };
    assert_eq!(p.len(), 60);
}

#[test]
fn c42_request_has_infiniband_form_and_goes_to_the_broadcast_group() {
    let mut c = core(
        HardwareAddress::new(
            0x80,
            Qpn::new(0x4a),
            "fe80::2:c903:e7:7e12".parse().unwrap(),
        ),
        MAC_A,
    );
    let request = arp(1, &MAC_A, [10, 0, 0, 1], &[0; 6], [10, 0, 0, 2]);
    let mut expected = vec![8, 6, 0, 0, 0, 0x20, 8, 0, 0x14, 4, 0, 1];
    expected.extend_from_slice(&c.local().0);
    expected.extend_from_slice(&[10, 0, 0, 1]);
    expected.extend_from_slice(&[0; 20]);
    expected.extend_from_slice(&[10, 0, 0, 2]);
    let got = send(&mut c, T0, &frame(MAC_BROADCAST, MAC_A, 0x0806, &request));
    assert_eq!(
        got,
        Sent::Rewritten(c.broadcast_mgid(), Qpn::MULTICAST, expected)
    );
}

#[test]
fn c43_reply_is_unicast_to_the_requester() {
    let mut c = a();
    let b = address(0xb, 0x4b);
    let request = payload(
        0x0806,
        &arp(1, &b.0, [10, 0, 0, 2], &[0; 20], [10, 0, 0, 1]),
    );
    let g = c.broadcast_mgid();
    let f = receive(&mut c, &meta(b, g), &request).unwrap();
    let peer: Mac = f[6..12].try_into().unwrap();
    let reply = arp(2, &MAC_A, [10, 0, 0, 1], &peer, [10, 0, 0, 2]);
    let expected = payload(
        0x0806,
        &arp(2, &c.local().0, [10, 0, 0, 1], &b.0, [10, 0, 0, 2]),
    );
    assert_eq!(
        send(&mut c, T0, &frame(peer, MAC_A, 0x0806, &reply)),
        Sent::Rewritten(b.gid(), b.qpn(), expected)
    );
}

#[test]
fn c44_the_tap_sees_ethernet_arp_from_a_synthetic_address() {
    let mut c = a();
    let b = address(0xb, 0x4b);
    let request = payload(
        0x0806,
        &arp(1, &b.0, [10, 0, 0, 2], &[0; 20], [10, 0, 0, 1]),
    );
    let g = c.broadcast_mgid();
    let f = receive(&mut c, &meta(b, g), &request).unwrap();
    let m = peer_mac(&b);
    assert_eq!(m[0] & 3, 2);
    let expected = arp(1, &m, [10, 0, 0, 2], &[0; 6], [10, 0, 0, 1]);
    assert_eq!(f, frame(MAC_BROADCAST, m, 0x0806, &expected));
}

#[test]
fn c45_arp_of_other_lengths_is_dropped() {
    let mut c = a();
    let b = address(0xb, 0x4b);
    let good = payload(
        0x0806,
        &arp(1, &b.0, [10, 0, 0, 2], &[0; 20], [10, 0, 0, 1]),
    );
    let m = meta(b, c.broadcast_mgid());
    for (at, value) in [(5, 1), (6, 9), (8, 6), (9, 16)] {
        let mut bad = good.clone();
        bad[at] = value;
        assert_eq!(receive(&mut c, &m, &bad), Err(DropReason::BadArp));
    }
    assert_eq!(receive(&mut c, &m, &good[..59]), Err(DropReason::BadArp));
    let nobody = payload(
        0x0806,
        &arp(1, &[0; 20], [10, 0, 0, 2], &[0; 20], [10, 0, 0, 1]),
    );
    assert_eq!(receive(&mut c, &m, &nobody), Err(DropReason::BadAddress));
    assert_eq!(c.neighbours().count(), 0);
}

#[test]
fn c47_c49_c51_solicitation_gets_the_long_option_and_a_right_checksum() {
    let mut c = a();
    let ns = icmpv6(
        "fe80::a",
        "ff02::1:ff00:b",
        &nd(135, "fe80::b", &mac_option(1, MAC_A)),
    );
    let got = send(
        &mut c,
        T0,
        &frame([0x33, 0x33, 0xff, 0, 0, 0xb], MAC_A, 0x86dd, &ns),
    );
    let expected = icmpv6(
        "fe80::a",
        "ff02::1:ff00:b",
        &nd(135, "fe80::b", &ib_option(1, c.local())),
    );
    assert_eq!(expected.len(), ns.len() + 16);
    assert_eq!(icmpv6_checksum(&expected), 0);
    assert_eq!(expected[7], 255);
    let g = group(&c, "ff02::1:ff00:b");
    assert_eq!(
        got,
        Sent::Rewritten(g, Qpn::MULTICAST, payload(0x86dd, &expected))
    );
}

#[test]
fn partial_checksums_of_the_host_are_completed() {
    let mut c = a();
    let ns = icmpv6(
        "fe80::a",
        "ff02::1:ff00:b",
        &nd(135, "fe80::b", &mac_option(1, MAC_A)),
    );
    let mut partial = ns.clone();
    partial[42..44].copy_from_slice(&[0x12, 0x34]);
    let f = frame([0x33, 0x33, 0xff, 0, 0, 0xb], MAC_A, 0x86dd, &partial);
    assert_eq!(send(&mut c, T0, &f), Sent::Dropped(DropReason::BadChecksum));
    let mut needs = NO_OFFLOAD;
    needs[0] = 1;
    let Outgoing::Rewritten { packet, .. } = c.from_tap(T0, &needs, &f) else {
        panic!()
    };
    assert_eq!(icmpv6_checksum(&packet[4..]), 0);
}

#[test]
fn c50_c53_advertisement_gets_the_short_option_and_a_right_checksum() {
    let mut c = a();
    let b = address(0xb, 0x4b);
    let na = icmpv6("fe80::b", "ff02::1", &nd(136, "fe80::b", &ib_option(2, b)));
    let g = group(&c, "ff02::1");
    let f = receive(&mut c, &meta(b, g), &payload(0x86dd, &na)).unwrap();
    let m = peer_mac(&b);
    let expected = icmpv6("fe80::b", "ff02::1", &nd(136, "fe80::b", &mac_option(2, m)));
    assert_eq!(expected.len(), na.len() - 16);
    assert_eq!(f, frame([0x33, 0x33, 0, 0, 0, 1], m, 0x86dd, &expected));
    let n = c.neighbours().next().unwrap();
    assert_eq!(n.ips, ["fe80::b".parse::<IpAddr>().unwrap()]);
    assert!(n.confirmed);
}

#[test]
fn c48_options_of_the_other_links_size_are_no_addresses() {
    let mut c = a();
    let b = address(0xb, 0x4b);
    let forged = mac_option(2, [2, 1, 2, 3, 4, 5]);
    let na = icmpv6("fe80::b", "ff02::1", &nd(136, "fe80::b", &forged));
    let g = group(&c, "ff02::1");
    let f = receive(&mut c, &meta(b, g), &payload(0x86dd, &na)).unwrap();
    assert_eq!(
        f[14..],
        icmpv6("fe80::b", "ff02::1", &nd(136, "fe80::b", &[]))
    );
    assert_eq!(c.counters().nd_options_stripped, 1);
}

#[test]
fn c52_duplicate_address_detection_passes_untouched_and_does_not_echo() {
    let mut c = a();
    let nonce = [14, 1, 1, 2, 3, 4, 5, 6];
    let ns = icmpv6("::", "ff02::1:ff00:a", &nd(135, "fe80::a", &nonce));
    let f = frame([0x33, 0x33, 0xff, 0, 0, 0xa], MAC_A, 0x86dd, &ns);
    let g = group(&c, "ff02::1:ff00:a");
    assert_eq!(
        send(&mut c, T0, &f),
        Sent::Forward(g, Qpn::MULTICAST, [0x86, 0xdd, 0, 0])
    );
    let own = meta(c.local(), g);
    assert_eq!(
        receive(&mut c, &own, &payload(0x86dd, &ns)),
        Err(DropReason::SelfEcho)
    );
    let other = meta(address(0xb, 0x4b), g);
    assert_eq!(
        receive(&mut c, &other, &payload(0x86dd, &ns)).unwrap()[14..],
        ns
    );
}

#[test]
fn c54_router_messages_and_redirects_are_translated_both_ways() {
    let mut c = a();
    let b = address(0xb, 0x4b);
    let peer = teach(&mut c, b, [10, 0, 0, 2]);
    let mut redirect = nd(137, "fe80::b", &[]);
    redirect.extend_from_slice(&"2001:db8::9".parse::<Ipv6Addr>().unwrap().octets());
    for (head, kind, near, far) in [
        (vec![133, 0, 0, 0, 0, 0, 0, 0], 1, MAC_A, c.local()),
        ([&[134][..], &[0; 15]].concat(), 1, MAC_A, c.local()),
        (redirect.clone(), 2, MAC_A, c.local()),
        (redirect.clone(), 2, peer, b),
    ] {
        let ethernet = icmpv6(
            "fe80::a",
            "fe80::b",
            &[&head[..], &mac_option(kind, near)].concat(),
        );
        let infiniband = icmpv6(
            "fe80::a",
            "fe80::b",
            &[&head[..], &ib_option(kind, far)].concat(),
        );
        assert_eq!(
            send(&mut c, T0, &frame(peer, MAC_A, 0x86dd, &ethernet)),
            Sent::Rewritten(b.gid(), b.qpn(), payload(0x86dd, &infiniband))
        );
        let mut other = core(b, [6; 6]);
        let f = receive(
            &mut other,
            &meta(c.local(), b.gid()),
            &payload(0x86dd, &infiniband),
        )
        .unwrap();
        // The address of a host other than the sender is not believed.
        let seen = match far == c.local() {
            true => mac_option(kind, other.mac_of(&far)),
            false => Vec::new(),
        };
        assert_eq!(
            f[14..],
            icmpv6("fe80::a", "fe80::b", &[&head[..], &seen].concat())
        );
    }
}

#[test]
fn redirects_are_trimmed_to_1280_bytes() {
    let mut c = a();
    let b = address(0xb, 0x4b);
    let peer = teach(&mut c, b, [10, 0, 0, 2]);
    let mut m = nd(137, "fe80::b", &[]);
    m.extend_from_slice(&[0x20; 16]);
    m.extend_from_slice(&mac_option(2, peer));
    let quoted = 1280 - 40 - m.len();
    let at = 40 + m.len() + 16;
    m.extend_from_slice(&[4, (quoted / 8) as u8, 0, 0, 0, 0, 0, 0]);
    m.extend((8..quoted).map(|i| i as u8));
    let whole = icmpv6("fe80::a", "fe80::b", &m);
    assert_eq!(whole.len(), 1280);
    let got = send(&mut c, T0, &frame(peer, MAC_A, 0x86dd, &whole));
    let Sent::Rewritten(_, _, p) = got else {
        panic!()
    };
    let p = &p[4..];
    assert_eq!((p.len(), icmpv6_checksum(p)), (1280, 0));
    assert_eq!(usize::from(p[at + 1]), quoted / 8 - 2);
    assert_eq!(p[at + 8..], whole[at - 16 + 8..1264]);
}

#[test]
fn bad_neighbour_discovery_is_dropped() {
    let b = address(0xb, 0x4b);
    let try_it = |change: &dyn Fn(&mut Vec<u8>), refill: bool| {
        let mut c = a();
        let mut na = icmpv6("fe80::b", "fe80::a", &nd(136, "fe80::b", &ib_option(2, b)));
        change(&mut na);
        if refill {
            fill_icmpv6_checksum(&mut na);
        }
        let m = meta(b, c.local().gid());
        let r = receive(&mut c, &m, &payload(0x86dd, &na));
        assert_eq!(c.neighbours().count(), usize::from(r.is_ok()));
        r.err()
    };
    assert_eq!(try_it(&|_| {}, true), None);
    assert_eq!(try_it(&|p| p[7] = 254, true), Some(DropReason::BadHopLimit));
    assert_eq!(
        try_it(&|p| p[50] ^= 1, false),
        Some(DropReason::BadChecksum)
    );
    assert_eq!(try_it(&|p| p[65] = 0, true), Some(DropReason::BadNdOption));
    assert_eq!(try_it(&|p| p[65] = 4, true), Some(DropReason::BadNdOption));
    assert_eq!(try_it(&|p| p[65] = 2, true), Some(DropReason::BadNdOption));
    assert_eq!(try_it(&|p| p[5] = 20, true), Some(DropReason::Malformed));
    assert_eq!(try_it(&|p| p[5] = 200, true), Some(DropReason::Malformed));
    assert_eq!(
        try_it(&|p| p[68..88].fill(0), true),
        Some(DropReason::BadAddress)
    );
    let fragment = |p: &mut Vec<u8>| {
        p.splice(40..40, [58, 0, 0, 1, 0, 0, 0, 1]);
        p[6] = 44;
        p[5] += 8;
    };
    assert_eq!(try_it(&fragment, false), Some(DropReason::FragmentedNd));
}

#[test]
fn signed_messages_pass_untouched() {
    let mut c = a();
    let options = [&mac_option(1, MAC_A)[..], &[11, 1, 0, 0, 0, 0, 0, 0]].concat();
    let ns = icmpv6("fe80::a", "ff02::1:ff00:b", &nd(135, "fe80::b", &options));
    let f = frame([0x33, 0x33, 0xff, 0, 0, 0xb], MAC_A, 0x86dd, &ns);
    assert!(matches!(send(&mut c, T0, &f), Sent::Forward(..)));
    assert_eq!(c.counters().nd_signed, 1);
}
