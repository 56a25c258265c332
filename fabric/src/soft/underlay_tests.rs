use std::net::Ipv6Addr;

use super::*;
use crate::soft::train::capacity;
use rtnl::{OperState, Scope};

const MAC: [u8; 6] = [0x52, 0x54, 0, 0, 0, 0x0a];
const EUI64: &str = "fe80::5054:ff:fe00:a";

fn link(mtu: u32) -> Link {
    Link {
        index: 7,
        name: "eth0".into(),
        hardware_type: 1,
        mtu,
        up: true,
        running: true,
        lower_up: true,
        carrier: true,
        multicast: true,
        operstate: OperState::Up,
        address: Some(MAC),
        gso_max_size: 65536,
        gso_ipv4_max_size: 65536,
        ..Link::default()
    }
}

fn address(ip: &str, created: u32) -> Address {
    Address {
        ifindex: 7,
        ip: ip.parse().unwrap(),
        prefix_len: 64,
        scope: Scope::Link,
        tentative: false,
        optimistic: false,
        dadfailed: false,
        deprecated: false,
        temporary: false,
        permanent: true,
        created,
    }
}

fn seen(mtu: u32, addresses: Vec<Address>) -> Seen {
    Seen {
        link: Some(link(mtu)),
        addresses,
        ..Seen::default()
    }
}

fn auto(seen: &Seen, current: Option<IpAddr>) -> Result<Usable, Unusable> {
    evaluate("eth0", seen, GidChoice::Auto, LinkMtu::Auto, current)
}

fn payload(mtu: u32, ip: &str, link_mtu: LinkMtu) -> Result<u32, Unusable> {
    let s = seen(mtu, vec![address(ip, 1)]);
    let choice = GidChoice::Address(ip.parse().unwrap());
    evaluate("eth0", &s, choice, link_mtu, None).map(|u| u.ud_payload_max)
}

/// Conformance item 89; the exact fit if no IB MTU of 2048 or more fits.
#[test]
fn t89_payload_follows_the_mtu() {
    for (mtu, v6, v4) in [
        (1280, 1208, 1228),
        (1500, 1428, 1448),
        (2099, 2024, 2044),
        (2100, 2028, 2048),
        (2120, 2048, 2048),
        (4167, 2048, 4096),
        (4168, 4096, 4096),
        (9000, 4096, 4096),
        (65535, 4096, 4096),
    ] {
        assert_eq!(payload(mtu, EUI64, LinkMtu::Auto), Ok(v6), "{mtu}");
        assert_eq!(payload(mtu, "192.0.2.1", LinkMtu::Auto), Ok(v4), "{mtu}");
    }
    assert_eq!(payload(9000, EUI64, LinkMtu::Exact), Ok(8928));
    assert_eq!(payload(1500, EUI64, LinkMtu::Bytes(1024)), Ok(1024));
}

#[test]
fn a_payload_that_does_not_fit_is_refused_with_the_maximum() {
    let refused = payload(1500, EUI64, LinkMtu::Bytes(2048)).unwrap_err();
    assert!(matches!(&refused, Unusable::Wrong(s) if s.contains("at most 1428")));
    // 1427 bytes are padded to 1428 and fit; 1429 would need 1432.
    assert_eq!(payload(1500, EUI64, LinkMtu::Bytes(1427)), Ok(1427));
    assert!(payload(1500, EUI64, LinkMtu::Bytes(1429)).is_err());
    // Rounding up to the pad must not overflow to 0.
    assert!(payload(1500, EUI64, LinkMtu::Bytes(u32::MAX)).is_err());
    assert!(payload(68, EUI64, LinkMtu::Auto).is_err());
}

/// Conformance item 90: frames are smaller than the size at which the kernel cuts them in software.
#[test]
fn t90_sends_stay_below_the_gso_limit() {
    let v6 = auto(&seen(9000, vec![address(EUI64, 1)]), None).unwrap();
    assert_eq!(v6.send_max, 65473);
    let s = seen(9000, vec![address("192.0.2.1", 1)]);
    let v4 = evaluate("eth0", &s, GidChoice::Ipv4, LinkMtu::Auto, None).unwrap();
    assert_eq!(v4.send_max, 65493);
    assert_eq!(capacity(4096, v6.send_max), 15);
    assert_eq!(capacity(1428, v6.send_max), 45);
    assert_eq!(capacity(64, v6.send_max), 64);

    let message_train = |mtu, link_mtu| {
        let s = seen(mtu, vec![address(EUI64, 1)]);
        let usable = evaluate("eth0", &s, GidChoice::Auto, link_mtu, None).unwrap();
        usable.message_train()
    };
    assert_eq!(message_train(9000, LinkMtu::Auto), 15 * 4096);
    assert_eq!(message_train(9000, LinkMtu::Exact), 15 * 4096);
    assert_eq!(message_train(1500, LinkMtu::Auto), 62 * 1024);
    assert_eq!(message_train(1500, LinkMtu::Bytes(256)), 64 * 256);
    assert_eq!(message_train(1500, LinkMtu::Bytes(64)), 0);

    let mut small = seen(9000, vec![address(EUI64, 1)]);
    small.link.as_mut().unwrap().gso_max_size = 16384;
    assert_eq!(auto(&small, None).unwrap().send_max, 16384 - 63);
    small.link.as_mut().unwrap().gso_max_size = 2000;
    assert_eq!(
        auto(&small, None).unwrap().send_max,
        packet_len(4096),
        "one packet always fits"
    );
}

#[test]
fn the_address_from_the_mac_comes_first_then_the_oldest() {
    let (old, young) = (address("fe80::1", 5), address("fe80::2", 9));
    let eui = address(EUI64, 50);
    let gid = |list: Vec<Address>| auto(&seen(1500, list), None).unwrap().address.to_string();
    assert_eq!(gid(vec![young, old, eui]), EUI64);
    assert_eq!(gid(vec![young, old]), "fe80::1");
    let global = address("2001:db8::1", 1);
    assert_eq!(gid(vec![global, young]), "fe80::2");
}

#[test]
fn the_gid_stays_while_its_address_exists() {
    let current: Ipv6Addr = "fe80::2".parse().unwrap();
    let all = vec![address(EUI64, 1), address("fe80::2", 9)];
    let kept = auto(&seen(1500, all.clone()), Some(current.into())).unwrap();
    assert_eq!(kept.address, current);
    let gone = auto(&seen(1500, all[..1].to_vec()), Some(current.into())).unwrap();
    assert_eq!(gone.address.to_string(), EUI64);
}

#[test]
fn every_refusal_has_a_reason_and_a_remedy() {
    let why = |s: &Seen, choice| {
        let refused = evaluate("eth0", s, choice, LinkMtu::Auto, None).unwrap_err();
        refused.reason().to_owned()
    };
    let has = |s: &Seen, words: &[&str]| {
        let text = why(s, GidChoice::Auto);
        assert!(words.iter().all(|w| text.contains(w)), "{text}");
    };
    has(&Seen::default(), &["no interface eth0"]);
    let mut down = seen(1500, vec![]);
    down.link.as_mut().unwrap().up = false;
    has(&down, &["is down", "ip link set eth0 up"]);
    let mut unplugged = seen(1500, vec![]);
    unplugged.link.as_mut().unwrap().lower_up = false;
    has(&unplugged, &["no carrier"]);
    let mut disabled = seen(1500, vec![]);
    disabled.ipv6_disabled = true;
    has(&disabled, &["disable_ipv6=0", "gid ="]);
    let mut none = seen(1500, vec![]);
    none.no_link_local = true;
    has(&none, &["addrgenmode eui64", "gid ="]);
    let uncreated = &["has created none", "ip link set eth0 up", "gid ="];
    has(&seen(1500, vec![]), uncreated);
    let mut tentative = address("fe80::1", 1);
    tentative.tentative = true;
    has(
        &seen(1500, vec![tentative]),
        &["fe80::1", "duplicate address detection"],
    );
    tentative.dadfailed = true;
    has(&seen(1500, vec![tentative]), &["another host", "fe80::1"]);
    let empty = seen(1500, vec![]);
    assert!(why(&empty, GidChoice::Ipv4).contains("no IPv4 address"));
    let wanted = GidChoice::Address("2001:db8::9".parse().unwrap());
    assert!(why(&empty, wanted).contains("2001:db8::9"));
}

#[test]
fn only_a_missing_interface_counts_as_removed() {
    let missing = auto(&Seen::default(), None).unwrap_err();
    assert!(matches!(missing, Unusable::Missing(_)));
    let waiting = auto(&seen(1500, vec![]), None).unwrap_err();
    assert!(matches!(waiting, Unusable::Waiting(_)));
}
