//! Overload.

use fabric::{AhAttributes, Room, Sent, UdDestination};

use std::time::Instant;

use crate::exchange::train_arrives;
use crate::lab::Lab;
use crate::node::{Node, QKEY, SOON, payloads};

const TRAINS: usize = 400;

/// Reads the numbers at the start of received datagrams.
fn take(from: &mut Node<'_>, numbers: &mut Vec<u32>) {
    let batch = from.workers[0].poll(64).unwrap();
    let number = |p: &[u8]| p.first_chunk().copied().map(u32::from_be_bytes);
    numbers.extend(batch.datagrams().filter_map(|(_, p)| number(p)));
}

/// A blocked sender continues as soon as there is room. Datagrams arrive once and in order, and a
/// receiver that keeps up gets nearly all.
#[test]
fn a_flood_arrives_in_order_and_room_returns() {
    let lab = Lab::new();
    let (mut a, mut b) = lab.pair();
    let (s, r) = (a.endpoint(), b.endpoint());
    let most = a.payload_max();
    // The address is resolved now: during resolution only a few datagrams may wait.
    train_arrives(&mut a, &mut b, &payloads(0, 9, 9));
    let ah = a.workers[0]
        .create_ah(&AhAttributes::to(b.gid(), fabric::PKey::DEFAULT))
        .unwrap();
    let to = UdDestination {
        ah,
        qpn: r.qpn,
        qkey: QKEY,
    };
    let (mut sent, mut blocked, mut received) = (0u32, 0, Vec::new());
    let deadline = Instant::now() + 2 * SOON;
    for _ in 0..TRAINS {
        while a.workers[0].room() == Room::Nothing {
            assert!(a.workers[0].train(100).is_none());
            assert!(Instant::now() < deadline, "{:?}", a.workers[0].counters());
            assert!(a.workers[0].poll(8).unwrap().is_empty());
            take(&mut b, &mut received);
        }
        let w = &mut a.workers[0];
        let mut train = w.train(most).unwrap();
        while let Some(place) = train.next(most) {
            place[..4].copy_from_slice(&sent.to_be_bytes());
            sent += 1;
        }
        let ticket = train.finish();
        match w.send(s.id, &to, ticket) {
            Sent::Done => {}
            Sent::Blocked => blocked += 1,
            Sent::Failed => panic!("{:?}", w.counters()),
        }
        take(&mut b, &mut received);
    }
    let mut last = Instant::now();
    while received.len() < sent as usize && last.elapsed() < SOON / 10 {
        let before = received.len();
        assert!(a.workers[0].poll(8).unwrap().is_empty());
        take(&mut b, &mut received);
        if received.len() > before {
            last = Instant::now();
        }
    }
    println!(
        "{sent} sent, {blocked} times blocked, {} received",
        received.len()
    );
    assert!(received.is_sorted_by(|x, y| x < y), "in order, and once");
    assert!(
        received.len() > sent as usize / 2,
        "{:?}",
        b.workers[0].counters()
    );
    assert!(a.workers[0].room() != Room::Nothing);
    a.workers[0].destroy_ah(ah);
}

/// A receiver that does not poll for long loses datagrams, and recovers.
#[test]
fn a_receiver_that_oversleeps_recovers() {
    let lab = Lab::new();
    let (mut a, mut b) = lab.pair();
    let (s, r) = (a.endpoint(), b.endpoint());
    let gid = b.gid();
    let most = a.payload_max();
    let full = crate::node::payloads(13, most, most);
    for _ in 0..1000 {
        a.receive_for_no_time();
        if a.workers[0].room() != Room::Nothing {
            a.send(&s, gid, r.qpn, QKEY, &full);
        }
    }
    while !b.receive_for_a_while_from(&mut a).is_empty() {}
    for _ in 0..20 {
        crate::exchange::train_arrives(&mut a, &mut b, &full);
    }
}
