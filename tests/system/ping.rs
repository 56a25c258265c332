//! ICMP echoes over IPv4 and IPv6, of all sizes that matter.

use crate::lab::{LINK_MTU, Lab, one_of_three, unanswered};

/// Bytes of an IPv4 and an ICMP header.
const V4_HEADERS: u32 = 28;
/// Bytes of an IPv6 and an ICMPv6 header.
const V6_HEADERS: u32 = 48;

#[test]
fn echoes_of_every_size_up_to_the_mtu_come_back_unfragmented() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    assert_eq!(a.mtu("ib0"), u64::from(LINK_MTU));
    for (address, headers) in [(b.v4(), V4_HEADERS), (b.v6(), V6_HEADERS)] {
        for packet in [headers, 60, 1280, 1500, 2044, LINK_MTU - 1, LINK_MTU] {
            let size = packet.max(headers) - headers;
            a.ok(&format!("ping -M do -c 3 -i 0.05 -W 2 -s {size} {address}"));
        }
    }
}

#[test]
fn a_packet_over_the_mtu_is_refused_or_fragmented() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    for (address, headers) in [(b.v4(), V4_HEADERS), (b.v6(), V6_HEADERS)] {
        let over = LINK_MTU + 1 - headers;
        let refused = a.run(&format!("ping -M do -c 1 -W 1 -s {over} {address}"));
        assert_ne!(refused.code, Some(0), "{refused:?}");
        a.ok(&format!(
            "ping -M dont -c 3 -i 0.05 -W 2 -s 20000 {address}"
        ));
    }
}

#[test]
fn link_local_addresses_answer() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    a.await_link_local("ib0");
    let address = b.await_link_local("ib0");
    a.ok(&format!("ping -c 5 -i 0.3 -W 2 {address}%ib0"));
}

#[test]
fn every_echo_of_a_long_series_comes_back_once() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    for address in [b.v4(), b.v6()] {
        let series = || {
            let output = a.answered(500, &format!("-i 0.002 {address}"));
            assert!(!output.contains("duplicates"), "{output}");
            unanswered(&output, " ", 500)
        };
        assert_eq!(one_of_three(series, Option::is_none), None, "{address}");
    }
}

#[test]
fn a_smaller_mtu_is_kept_on_both_sides() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    for host in [&mut *a, &mut *b] {
        host.start(&["--mtu", "2044"]);
        host.configure("ib0");
        assert_eq!(host.mtu("ib0"), 2044);
    }
    a.reaches(b);
    a.ok(&format!("ping -M do -c 2 -i 0.1 -W 2 -s 2016 {}", b.v4()));
    let refused = a.run(&format!("ping -M do -c 1 -W 1 -s 2017 {}", b.v4()));
    assert_ne!(refused.code, Some(0), "{refused:?}");
}

#[test]
fn an_underlay_of_1500_bytes_still_carries_ipv6() {
    let Some(mut lab) = Lab::pair_with_mtu(1500) else {
        return;
    };
    let (a, b) = lab.two();
    for host in [&mut *a, &mut *b] {
        host.start(&[]);
        host.configure("ib0");
        assert!(host.mtu("ib0") >= 1280, "IPv6's minimum (RFC 8200, 5)");
    }
    a.reaches(b);
    let size = a.mtu("ib0") - u64::from(V6_HEADERS);
    a.ok(&format!("ping -M do -c 2 -i 0.1 -W 2 -s {size} {}", b.v6()));
}
