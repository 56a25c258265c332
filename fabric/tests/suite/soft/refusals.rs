//! Bad packets are dropped and counted, bad requests are refused with a sentence.

use std::net::UdpSocket;
use std::time::Duration;

use fabric::port::UdEndpoint;
use fabric::soft::{SoftConfig, SoftPort};
use fabric::{GidChoice, LinkMtu};
use fabric::{PKey, QKey, Qpn, Sent, UdDestination, UdInit};

use crate::net::{Cable, Namespace};
use crate::node::{Node, QKEY, open, payloads};

fn config() -> SoftConfig {
    SoftConfig::new("u0")
}

/// Why a port does not open.
fn refusal(ns: &Namespace, config: &SoftConfig) -> String {
    open(ns, config).map(drop).unwrap_err().to_string()
}

#[test]
fn foreign_keys_and_numbers_are_counted() {
    let cable = Cable::new(9000);
    let keys = || SoftConfig {
        pkeys: vec![PKey::DEFAULT, PKey::new(0x8001), PKey::new(0x0001)],
        ..config()
    };
    let mut a = Node::open(&cable.a, keys());
    let mut b = Node::open(&cable.b, keys());
    let (s, r) = (a.endpoint(), b.endpoint());
    let pkey = PKey::new(1);
    let other = a
        .port
        .create_ud(UdInit {
            pkey,
            qkey: QKEY,
            qpn: None,
        })
        .unwrap();
    assert_eq!(
        other.pkey,
        Some(PKey::new(0x8001)),
        "full membership is preferred"
    );
    let gid = b.gid();
    let two = payloads(1, 500, 500);
    let mut send = |from: &UdEndpoint, qpn, qkey| {
        assert_eq!(a.send(from, gid, qpn, qkey, &two), Sent::Done);
    };
    send(&other, r.qpn, QKEY);
    send(&s, r.qpn, QKey::new(1));
    send(&s, Qpn::new(r.qpn.get() ^ 1), QKEY);
    send(&s, Qpn::GSI, QKey::GSI);
    // A controlled Q_Key is replaced by the endpoint's own.
    send(&s, r.qpn, QKey::new(0x8000_0000));
    assert_eq!(b.receive(2).len(), 2);
    assert!(b.receive_for_a_while().is_empty());
    assert_eq!(b.counter("rx_pkey_violations"), 2);
    assert_eq!(b.counter("rx_unknown_qpn"), 2);
    // Two with a wrong Q_Key, and the management datagrams: an ordinary queue pair does not send a
    // controlled Q_Key (conformance item 36).
    assert_eq!(b.counter("rx_qkey_violations"), 4);
    assert_eq!(b.counter("rx_mads_unhandled"), 0);
}

#[test]
fn junk_from_the_network_is_counted() {
    let cable = Cable::new(1500);
    let mut b = Node::open(&cable.b, config());
    b.endpoint();
    let socket = cable.a.run(|| UdpSocket::bind("192.0.2.1:0")).unwrap();
    for len in [0, 1, 11, 28, 1400] {
        socket.send_to(&vec![0x64; len], "192.0.2.2:4791").unwrap();
    }
    assert!(b.receive_for_a_while().is_empty());
    let dropped = b.counter("rx_truncated")
        + b.counter("rx_length_errors")
        + b.counter("rx_bad_version")
        + b.counter("rx_unknown_qpn")
        + b.counter("rx_not_our_gid");
    assert_eq!(dropped, 5, "{:?}", b.workers[0].counters());
}

/// Conformance item 42.
#[test]
fn t42_a_send_over_the_mtu_never_leaves() {
    let cable = Cable::new(1500);
    let mut a = Node::open(&cable.a, config());
    let s = a.endpoint();
    let w = &mut a.workers[0];
    assert!(w.train(1428).unwrap().room() > 0);
    let mut train = w.train(1429).unwrap();
    assert_eq!(train.room(), 0);
    assert!(train.next(1429).is_none());
    let ticket = fabric::TrainTicket {
        count: 1,
        payload: 1429,
        last: 1429,
    };
    let ah = w
        .create_ah(&fabric::AhAttributes::to(
            "fe80::9".parse().unwrap(),
            fabric::PKey::DEFAULT,
        ))
        .unwrap();
    let to = UdDestination {
        ah,
        qpn: s.qpn,
        qkey: QKEY,
    };
    assert_eq!(w.send(s.id, &to, ticket), Sent::Failed);
    assert_eq!(a.counter("tx_too_big"), 1);
    assert_eq!(a.counter("tx_packets"), 0);
}

#[test]
fn a_second_port_names_the_first() {
    let cable = Cable::new(1500);
    let _a = Node::open(&cable.a, config());
    let opened = cable.a.run(|| SoftPort::open(config()));
    let text = opened.map(drop).unwrap_err().to_string();
    assert!(
        text.contains("another ibtapd") && text.contains("u0"),
        "{text}"
    );
    assert!(text.contains(&std::process::id().to_string()), "{text}");
}

#[test]
fn a_taken_port_names_its_process() {
    let cable = Cable::new(1500);
    let _socket = cable.a.run(|| UdpSocket::bind("[::]:4791")).unwrap();
    let ours = format!("process {}", std::process::id());
    // Other tests start programs: a process that was forked, but has not called exec yet, also holds the socket.
    let named = (0..100).any(|_| {
        let text = refusal(&cable.a, &config());
        assert!(text.contains("UDP port 4791 of u0 is taken"), "{text}");
        text.contains(&ours)
    });
    assert!(named, "{ours}");
}

#[test]
fn an_unusable_underlay_is_explained() {
    let cable = Cable::new(1500);
    let soon = || SoftConfig {
        gid_wait: Duration::from_millis(50),
        ..config()
    };
    let missing = SoftConfig {
        underlay: "nope0".into(),
        ..soon()
    };
    assert!(refusal(&cable.a, &missing).contains("no interface nope0"));
    let big = SoftConfig {
        link_mtu: LinkMtu::Bytes(2048),
        ..soon()
    };
    assert!(refusal(&cable.a, &big).contains("at most 1428"));
    let elsewhere = GidChoice::Address("2001:db8::1".parse().unwrap());
    let foreign = SoftConfig {
        gid: elsewhere,
        ..soon()
    };
    assert!(refusal(&cable.a, &foreign).contains("2001:db8::1"));
    let mixed = SoftConfig {
        peers: vec!["192.0.2.2".parse().unwrap()],
        ..soon()
    };
    assert!(refusal(&cable.a, &mixed).contains("192.0.2.2"));
    cable
        .a
        .run(|| std::fs::write("/proc/sys/net/ipv6/conf/u0/disable_ipv6", "1").unwrap());
    assert!(refusal(&cable.a, &soon()).contains("disable_ipv6=0"));
    cable.a.ip(&["link", "set", "u0", "down"]);
    assert!(refusal(&cable.a, &soon()).contains("ip link set u0 up"));
}

#[test]
fn a_number_wished_for_is_given_unless_it_is_taken_or_reserved() {
    let cable = Cable::new(1500);
    let mut a = Node::open(&cable.a, config());
    let mut made = |number| a.endpoint_wishing(Some(Qpn::new(number)));
    let first = made(0xabcdef);
    assert_eq!(first.qpn, Qpn::new(0xabcdef));
    assert_eq!(made(0xabcdef).qpn, Qpn::new(0xabcdf0));
    for reserved in [0, 1, 0xff_ffff] {
        let qpn = made(reserved).qpn;
        assert!((2..5).contains(&qpn.get()), "{reserved:#x}: {qpn}");
    }
    a.port.destroy_ud(first.id).unwrap();
    let mut made = |number| a.endpoint_wishing(Some(Qpn::new(number)));
    assert_eq!(made(0xabcdef).qpn, first.qpn);
}

#[test]
fn c85_full_membership_is_preferred_in_either_order() {
    for keys in [[0x0001, 0x8001], [0x8001, 0x0001]] {
        let cable = Cable::new(9000);
        let table = keys.map(PKey::new).to_vec();
        let mut node = Node::open(
            &cable.a,
            SoftConfig {
                pkeys: table,
                ..config()
            },
        );
        for wished in keys {
            let init = UdInit {
                pkey: PKey::new(wished),
                qkey: QKEY,
                qpn: None,
            };
            let endpoint = node.port.create_ud(init).unwrap();
            assert_eq!(
                endpoint.pkey,
                Some(PKey::new(0x8001)),
                "{wished:#06x} of {keys:x?}"
            );
        }
    }
}
