//! Datagrams between two ports of a device.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fabric::verbs::sys::Library;
use fabric::verbs::{VerbsConfig, VerbsPort};
use fabric::{FabricError, Gid, PKey, Port, Qpn, Room, UdInit};

use crate::device;
use crate::node::{Node, PATIENCE, QKEY};
use crate::shim::{Lie, Shim};

/// An MGID of IPoIB, of link-local scope.
const MGID: &str = "ff12:401b:ffff::1234";

/// Many more datagrams than places to send from and to receive in: all places are used again.
#[test]
fn places_come_back() {
    let Some((_device, mut a, mut b)) = Node::pair() else {
        return;
    };
    let (from, to) = (a.endpoint(), b.endpoint());
    let ah = a.ah(b.gid());
    let (mut sent, mut got) = (0, 0);
    let begun = Instant::now();
    while got < 6000 && begun.elapsed() < PATIENCE {
        while sent < got + 256 && a.worker.room() != Room::Nothing {
            let train: Vec<Vec<u8>> = (0..16).map(|i| vec![i as u8; 900]).collect();
            a.send(&from, ah, to.qpn, &train);
            sent += train.len();
        }
        a.round(Duration::ZERO);
        while b.receive_one(Duration::from_millis(1)).is_some() {
            got += 1;
        }
    }
    assert!(got >= 6000, "{got} of {sent}: {:?}", b.worker.counters());
}

/// As [`places_come_back`], with a receive queue for each endpoint. Places of destroyed endpoints
/// return, and an idle endpoint takes none from the others.
#[test]
fn places_come_back_without_shared_receive_queues() {
    let Some(d) = device::find() else {
        return;
    };
    let shim = Arc::new(Shim::lying(&d.library, Lie::NoSharedQueues));
    let library: Arc<dyn Library> = shim.clone();
    let (mut a, mut b) = (Node::open(&library, &d.name), Node::open(&library, &d.name));
    assert_eq!(b.port.capabilities().message_max, 0);
    let from = a.endpoint();
    let ah = a.ah(b.gid());
    let init = || UdInit {
        pkey: PKey::DEFAULT,
        qkey: QKEY,
        qpn: None,
    };
    let most = (0..1000)
        .map(|_| b.port.create_ud(init()))
        .take_while(Result::is_ok)
        .flatten()
        .collect::<Vec<_>>();
    assert!((1..1000).contains(&most.len()), "{}", most.len());
    let refused = b.port.create_ud(init());
    assert!(matches!(refused, Err(FabricError::Limit(_))), "{refused:?}");
    for round in 0..4u8 {
        // Endpoints of the first round are idle in all others.
        let to = match round {
            0 => most[0],
            _ => b.endpoint(),
        };
        b.round(Duration::ZERO);
        for _ in 0..20 {
            let train = vec![vec![round; 900]; 16];
            // A poll returns the places of completed sends.
            a.round(Duration::ZERO);
            a.send(&from, ah, to.qpn, &train);
            let got = b.receive(train.len());
            assert_eq!(got.len(), train.len(), "{:?}", b.worker.counters());
            assert!(got.iter().all(|(r, _)| r.endpoint == to.id));
        }
        let ends = if round == 0 { most[1].id } else { to.id };
        b.port.destroy_ud(ends).unwrap();
        b.round(Duration::ZERO);
    }
    drop((a, b, library));
    assert_eq!(shim.leaks(), [""; 0]);
}

/// Without arming there is no wake-up, and with it none is lost.
#[test]
fn no_wake_up_is_lost() {
    let Some((_device, mut a, mut b)) = Node::pair() else {
        return;
    };
    let (ea, eb) = (a.endpoint(), b.endpoint());
    let (to_a, to_b) = (b.ah(a.gid()), a.ah(b.gid()));
    let (gid_a, gid_b) = (a.gid(), b.gid());
    std::thread::scope(|s| {
        s.spawn(|| {
            for k in 0..500u32 {
                let got = b
                    .receive_one(PATIENCE)
                    .unwrap_or_else(|| panic!("ping {k}"));
                assert_eq!(got.1, k.to_be_bytes());
                assert_eq!(got.0.src_gid, gid_a);
                b.send(&eb, to_a, ea.qpn, &[got.1]);
            }
        });
        for k in 0..500u32 {
            a.send(&ea, to_b, eb.qpn, &[k.to_be_bytes().to_vec()]);
            let got = a
                .receive_one(PATIENCE)
                .unwrap_or_else(|| panic!("pong {k}"));
            assert_eq!(got.1, k.to_be_bytes());
            assert_eq!(got.0.src_gid, gid_b);
        }
    });
    assert!(a.counter("cq_events") > 0 && a.counter("cq_arms") > 0);
}

/// Each worker sends from a queue pair of its own. The first one has the advertised queue pair and the groups; the
/// others receive what is sent to theirs.
#[test]
fn each_worker_sends_and_the_first_one_is_in_the_groups() {
    let Some(d) = device::find() else {
        return;
    };
    let config = VerbsConfig {
        workers: 2,
        ..VerbsConfig::new(&d.name, 1)
    };
    let (mut a, mut b) = (
        Node::open_as(&d.library, config),
        Node::open(&d.library, &d.name),
    );
    assert_eq!(a.port.capabilities().lanes, 2);
    let (from, to) = (a.endpoint(), b.endpoint());
    let mgid: Gid = MGID.parse().unwrap();
    a.join(from.id, mgid);
    b.join(to.id, mgid);
    let mut sources = Vec::new();
    for _ in 0..2 {
        let (ah, group) = (a.ah(b.gid()), a.ah(mgid));
        a.send(&from, ah, to.qpn, &[b"to one".to_vec()]);
        a.send(&from, group, Qpn::MULTICAST, &[b"to all".to_vec()]);
        let got = b.receive(2);
        assert_eq!(got.len(), 2, "{:?}", b.worker.counters());
        assert!(got.iter().all(|(r, _)| r.src_gid == a.gid()));
        assert_eq!(got[0].0.src_qpn, got[1].0.src_qpn);
        sources.push(got[0].0.src_qpn);
        assert_eq!(a.counter("tx_trains"), 2);
        a.next_worker();
    }
    assert_eq!(sources[0], from.qpn);
    assert_ne!(sources[0], sources[1]);
    let listed = a.port.resources();
    let qpns: Vec<Qpn> = listed.queue_pairs.iter().map(|q| q.qpn).collect();
    assert_eq!(qpns, sources);
    assert_eq!(listed.completion_queues.len(), 4);
    assert_eq!(listed.protection_domains, [0, 1]);
    let regions = |worker| {
        let all = listed.memory_regions.iter();
        all.filter(|region| region.worker == worker && region.mrlen > 0)
            .count()
    };
    // Memory to send from and to receive datagrams in; with connections also messages.
    let srqs = listed.shared_receive_queues.iter();
    let messages = srqs.filter(|srq| srq.contents == "messages" && srq.worker == 0);
    let expected = 2 + messages.count();
    assert_eq!((regions(0), regions(1)), (expected, expected));
    assert_eq!(listed.groups[0].qpn, from.qpn);
    // The multicast of both is the endpoint's own.
    assert!(a.receive_one(Duration::from_millis(300)).is_none());
    assert_eq!(a.counter("rx_own_multicast"), 2);
    assert_eq!(a.counter("tx_failed") + b.counter("rx_malformed"), 0);
    assert!(b.counter("verbs_calls") > 0);
    assert!(b.receive_one(Duration::from_millis(300)).is_none());
    // Answers to the sender of a packet arrive, each at its worker.
    let back = b.ah(a.gid());
    for qpn in sources {
        b.send(&to, back, qpn, &[b"back".to_vec()]);
        let (r, payload) = a.receive_one(PATIENCE).expect("an answer");
        assert_eq!((r.endpoint, &payload[..]), (from.id, &b"back"[..]));
        assert_eq!(a.counter("rx_packets"), 1);
        a.next_worker();
    }
    a.port.destroy_ud(from.id).unwrap();
    assert!(a.port.resources().queue_pairs.is_empty());
}

/// Sends to an address that nobody has do not block others, and are dropped in the end.
#[test]
fn an_address_that_does_not_resolve_blocks_no_others() {
    let Some((_device, mut a, mut b)) = Node::pair() else {
        return;
    };
    let (from, to) = (a.endpoint(), b.endpoint());
    let nobody = a.ah("fe80::dead:beef".parse().unwrap());
    let ah = a.ah(b.gid());
    for _ in 0..40 {
        a.begin_send(&from, nobody, to.qpn, &[vec![0; 10]]);
    }
    assert!(a.worker.room() != Room::Nothing);
    a.send(&from, ah, to.qpn, &[vec![1; 10]]);
    let got = b.receive_one(PATIENCE).expect("others are reached");
    assert_eq!(got.1, [1; 10]);
    let begun = Instant::now();
    while a.counter("ah_failed") == 0 && begun.elapsed() < PATIENCE {
        a.round(Duration::from_millis(100));
    }
    assert!(a.counter("ah_failed") > 0);
    assert!(a.counter("tx_no_ah") > 0, "{:?}", a.worker.counters());
    a.worker.destroy_ah(nobody);
    for k in 0..100 {
        a.send(&from, ah, to.qpn, &[vec![k; 10]]);
        a.round(Duration::ZERO);
        assert_eq!(
            b.receive_one(PATIENCE).expect("places came back").1,
            [k; 10]
        );
    }
}

#[test]
fn a_port_that_is_not_there_is_named() {
    let Some(d) = device::find() else {
        return;
    };
    let refused = |config| VerbsPort::open_with(d.library.clone(), config).map(drop);
    let unknown = refused(VerbsConfig::new("nosuch0", 1));
    assert!(matches!(unknown, Err(FabricError::Unusable(text)) if text.contains("nosuch0")));
    let ninth = refused(VerbsConfig::new(&d.name, 9));
    assert!(matches!(ninth, Err(FabricError::Unusable(text)) if text.contains("no port 9")));
}
