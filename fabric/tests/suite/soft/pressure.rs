//! A slow underlay, and one without offloads.

use std::time::{Duration, Instant};

use fabric::soft::SoftConfig;
use fabric::{AhAttributes, Room, Sent, UdDestination};
use rustix::event::{Timespec, epoll};

use super::exchange::ipv4;
use crate::exchange::train_arrives;
use crate::net::Cable;
use crate::node::{Node, QKEY, payloads};

/// Reads the numbers at the start of received datagrams.
fn take(from: &mut Node<'_>, numbers: &mut Vec<u32>) {
    let batch = from.workers[0].poll(8).unwrap();
    let number = |p: &[u8]| p.first_chunk().copied().map(u32::from_be_bytes);
    numbers.extend(batch.datagrams().filter_map(|(_, p)| number(p)));
}

/// A blocked train is sent later without another call; nothing is lost or duplicated.
#[test]
fn a_blocked_train_leaves_when_there_is_room() {
    const TOKEN: u64 = 42;
    let cable = Cable::new(9000);
    let rate = "root tbf rate 800mbit burst 100kb limit 64mb";
    cable.a.tool("tc", &format!("qdisc add dev u0 {rate}"));
    let mut a = Node::open(&cable.a, SoftConfig::new("u0"));
    let mut b = Node::open(&cable.b, SoftConfig::new("u0"));
    let (s, r) = (a.endpoint(), b.endpoint());
    let (gid, qpn) = (b.gid(), r.qpn);
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    let w = &mut a.workers[0];
    w.register(std::os::fd::AsFd::as_fd(&epoll), TOKEN).unwrap();
    let ah = w
        .create_ah(&AhAttributes::to(gid, fabric::PKey::DEFAULT))
        .unwrap();
    let to = UdDestination {
        ah,
        qpn,
        qkey: QKEY,
    };
    let (mut sent, mut received) = (0u32, Vec::new());
    let outcome = loop {
        let mut train = w.train(4096).unwrap();
        while let Some(place) = train.next(4096) {
            place[..4].copy_from_slice(&sent.to_be_bytes());
            sent += 1;
        }
        let ticket = train.finish();
        let outcome = w.send(s.id, &to, ticket);
        take(&mut b, &mut received);
        assert!(sent < 100_000, "it never blocks");
        if outcome != Sent::Done {
            break outcome;
        }
    };
    assert_eq!(outcome, Sent::Blocked);
    assert!(w.room() == Room::Nothing && w.train(100).is_none());
    let mut events = Vec::with_capacity(4);
    let second = Timespec {
        tv_sec: 1,
        tv_nsec: 0,
    };
    let count = rustix::io::retry_on_intr(|| {
        let room = rustix::buffer::spare_capacity(&mut events);
        epoll::wait(&epoll, room, Some(&second))
    });
    assert_eq!(count.unwrap(), 1, "readiness reports room");
    assert_eq!(events[0].data.u64(), TOKEN);
    while w.room() == Room::Nothing {
        assert!(w.poll(8).unwrap().is_empty());
    }
    let deadline = Instant::now() + Duration::from_secs(3);
    let quiet = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    events.clear();
    let count = epoll::wait(
        &epoll,
        rustix::buffer::spare_capacity(&mut events),
        Some(&quiet),
    );
    assert_eq!(
        count.unwrap(),
        0,
        "readiness to send is waited for only while blocked"
    );
    while received.len() < sent as usize && Instant::now() < deadline {
        take(&mut b, &mut received);
    }
    assert!(
        received.iter().copied().eq(0..sent),
        "{} of {sent}",
        received.len()
    );
    assert!(a.counter("tx_blocked") > 0);
}

/// The ICRC of each packet is right, with and without the kernel's offloads.
#[test]
fn trains_survive_without_offloads() {
    for (mine, theirs) in [
        (SoftConfig::new("u0"), SoftConfig::new("u0")),
        (ipv4("192.0.2.2"), ipv4("192.0.2.1")),
    ] {
        let cable = Cable::new(9000);
        for ns in [&cable.a, &cable.b] {
            ns.tool("ethtool", "-K u0 tx off sg off gso off gro off");
        }
        let mut a = Node::open(&cable.a, mine);
        let mut b = Node::open(&cable.b, theirs);
        train_arrives(&mut a, &mut b, &payloads(12, 4096, 77));
        assert_eq!(b.counter("rx_icrc_errors"), 0);
        assert_eq!(b.counter("rx_trains"), 13, "no run is merged");
    }
}
