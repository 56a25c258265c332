//! Datagrams arrive whole and once.

use std::os::fd::AsFd;

use fabric::port::UdEndpoint;
use fabric::{AhAttributes, Gid, Qpn, Sent, TOKEN, UdDestination, Worker};
use rustix::event::{Timespec, epoll};

use crate::lab::{End, Family, Lab, mgid};
use crate::node::{Got, Node, QKEY, SOON, payloads};

/// The payloads received by an endpoint.
pub fn of<'g>(got: &'g [Got], endpoint: &UdEndpoint) -> Vec<&'g Vec<u8>> {
    let id = endpoint.id;
    let mine = got.iter().filter(|g| g.1.endpoint == id);
    mine.map(|g| &g.2).collect()
}

/// Sends a train; it arrives whole and in order, with the right source.
pub fn train_arrives(from: &mut Node<'_>, to: &mut Node<'_>, sent: &[Vec<u8>]) {
    let (s, r) = (from.endpoint(), to.endpoint());
    let (gid, qpn) = (to.gid(), r.qpn);
    assert_eq!(from.send(&s, gid, qpn, QKEY, sent), Sent::Done);
    let got = to.receive_from(from, sent.len());
    assert!(
        got.iter().map(|g| &g.2).eq(sent),
        "{} of {}: {:?} {:?}",
        got.len(),
        sent.len(),
        from.workers[0].counters(),
        to.workers[0].counters()
    );
    for (_, d, _) in &got {
        assert_eq!(
            (d.endpoint, d.src_qpn, d.src_gid),
            (r.id, s.qpn, from.gid())
        );
        assert_eq!((d.dst_gid, d.multicast, Some(d.pkey)), (gid, false, r.pkey));
    }
}

fn both_ways(a: &mut Node<'_>, b: &mut Node<'_>) {
    let most = a.payload_max();
    assert_eq!(b.payload_max(), most);
    for (count, len, last) in [
        (14, most, 1001),
        (14, most, most),
        (0, most, 5),
        (62, 64, 63),
    ] {
        let sent = payloads(count, len, last.min(len));
        train_arrives(a, b, &sent);
        train_arrives(b, a, &sent);
    }
}

#[test]
fn unicast_trains_over_ipv6() {
    let lab = Lab::new();
    let (mut a, mut b) = lab.pair();
    both_ways(&mut a, &mut b);
}

#[test]
fn unicast_trains_over_ipv4() {
    let lab = Lab::new();
    let (mut a, mut b) = lab.pair_of(Family::V4);
    assert!(a.gid().ipv4().is_some() && b.gid().ipv4().is_some());
    both_ways(&mut a, &mut b);
}

/// Payloads of every length around the limits of inline sends and of padding.
#[test]
fn small_payloads_of_every_length() {
    let lab = Lab::new();
    let (mut a, mut b) = lab.pair();
    let (s, r) = (a.endpoint(), b.endpoint());
    let gid = b.gid();
    train_arrives(&mut a, &mut b, &payloads(0, 9, 9));
    let mut expected = Vec::new();
    for len in 1..=300 {
        let one = payloads(0, len, len);
        assert_eq!(a.send(&s, gid, r.qpn, QKEY, &one), Sent::Done);
        expected.extend(one);
        if len % 20 == 0 {
            let got = b.receive_from(&mut a, expected.len());
            assert!(got.iter().map(|g| &g.2).eq(&expected), "up to {len}");
            expected.clear();
        }
    }
}

#[test]
fn multicast_reaches_a_group_once() {
    let lab = Lab::new();
    let (mut a, mut b) = lab.pair();
    let group: Gid = "ff12:401b:ffff::ffff:ffff".parse().unwrap();
    let (s, r, other) = (a.endpoint(), b.endpoint(), b.endpoint());
    a.attach(&s, group);
    b.attach(&r, group);
    let sent = payloads(5, a.payload_max().min(2000), 100);
    assert_eq!(a.send(&s, group, Qpn::MULTICAST, QKEY, &sent), Sent::Done);
    let got = b.receive_from(&mut a, sent.len());
    assert_eq!(of(&got, &r), sent.iter().collect::<Vec<_>>());
    for (_, d, _) in &got {
        assert_eq!(
            (d.dst_gid, d.multicast, d.src_qpn, d.src_gid),
            (group, true, s.qpn, a.gid())
        );
    }
    let more = b.receive_for_a_while_from(&mut a);
    assert!(more.is_empty() && of(&got, &other).is_empty());
    assert!(a.receive_for_a_while().is_empty(), "no echo");
}

/// A train filled in two steps is one train.
#[test]
fn a_train_is_gone_on_with() {
    let lab = Lab::new();
    let (mut a, mut b) = lab.pair();
    let (s, r) = (a.endpoint(), b.endpoint());
    let sent = payloads(5, 200, 70);
    let w = &mut a.workers[0];
    let ah = w
        .create_ah(&AhAttributes::to(b.gid(), fabric::PKey::DEFAULT))
        .unwrap();
    let mut train = w.train(200).unwrap();
    for payload in &sent[..3] {
        train.next(200).unwrap().copy_from_slice(payload);
    }
    let ticket = train.finish();
    let mut train = w.resume(ticket);
    assert!(train.take(200 * 2 + 70));
    for (i, payload) in sent.iter().enumerate().skip(3) {
        train.taken(i).unwrap().copy_from_slice(payload);
    }
    assert_eq!(train.room(), 0, "a shorter one ends it");
    let ticket = train.finish();
    let to = UdDestination {
        ah,
        qpn: r.qpn,
        qkey: QKEY,
    };
    assert_eq!(w.send(s.id, &to, ticket), Sent::Done);
    let got = b.receive_from(&mut a, sent.len());
    assert!(got.iter().map(|g| &g.2).eq(&sent));
    a.workers[0].destroy_ah(ah);
}

/// A thread that has armed and sleeps is woken each time; arming reports earlier completions.
#[test]
fn a_sleeping_thread_is_woken_by_packets() {
    let lab = Lab::new();
    let (mut a, mut b) = lab.pair();
    let (s, r) = (a.endpoint(), b.endpoint());
    let gid = b.gid();
    let one = payloads(0, 100, 100);
    // The address is resolved now: later sends do not wait for the sender's next poll.
    assert_eq!(a.send(&s, gid, r.qpn, QKEY, &one), Sent::Done);
    assert_eq!(b.receive_from(&mut a, 1).len(), 1);
    let sleepers = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    b.workers[0].register(sleepers.as_fd(), MINE).unwrap();
    let ah = a.workers[0]
        .create_ah(&AhAttributes::to(gid, fabric::PKey::DEFAULT))
        .unwrap();
    for round in 0..50 {
        let w = &mut b.workers[0];
        while w.arm().unwrap() {
            assert!(w.poll(8).unwrap().is_empty(), "round {round}");
        }
        let mut train = a.workers[0].train(100).unwrap();
        train.next(100).unwrap().copy_from_slice(&one[0]);
        let ticket = train.finish();
        let to = UdDestination {
            ah,
            qpn: r.qpn,
            qkey: QKEY,
        };
        assert_eq!(a.workers[0].send(s.id, &to, ticket), Sent::Done);
        // Readiness may have another cause, such as a completed send: then nothing has arrived yet.
        let mut got = 0;
        while got == 0 {
            let w = &mut *b.workers[0];
            assert!(is_woken(w, &sleepers), "round {round}");
            loop {
                let batch = b.workers[0].poll(8).unwrap();
                if batch.is_empty() {
                    break;
                }
                got += batch.datagrams().len();
            }
            if got == 0 && b.workers[0].arm().unwrap() {
                got = b.receive_from(&mut a, 1).len();
            }
        }
        assert_eq!(got, 1, "round {round}");
        // Sends complete and release their memory.
        assert!(a.receive_for_no_time().is_empty());
    }
    a.workers[0].destroy_ah(ah);
}

/// The caller's part of the data word.
const MINE: u64 = 42;

/// Sleeps, then passes the event to the worker.
fn is_woken(worker: &mut dyn Worker, epoll: &impl AsFd) -> bool {
    let patience = Timespec {
        tv_sec: SOON.as_secs() as i64,
        tv_nsec: 0,
    };
    let mut events = Vec::with_capacity(4);
    let count = rustix::io::retry_on_intr(|| {
        let room = rustix::buffer::spare_capacity(&mut events);
        epoll::wait(epoll, room, Some(&patience))
    });
    let words: Vec<u64> = events.iter().map(|e| e.data.u64()).collect();
    words.iter().for_each(|word| worker.woken(*word));
    count.unwrap() > 0 && words.iter().all(|word| word & TOKEN == MINE)
}

/// Closing a port destroys its endpoints; another port can be opened.
#[test]
fn ports_come_and_go() {
    let lab = Lab::new();
    let mut a = lab.node(End::A, Family::V6);
    for _ in 0..3 {
        let mut b = lab.node(End::B, Family::V6);
        let r = b.endpoint();
        b.attach(&r, mgid(1));
        train_arrives(&mut a, &mut b, &payloads(3, 1000, 500));
    }
}
