use fabric::{ConnectionId, EndpointId};

use super::super::testing::{Call, FakeFabric, peer};
use super::{OpenTrain, Packets, Pushed, Single, To};

/// `count` packets of `full` bytes, the last of `last`. All bytes of a packet are its number.
struct Cut {
    full: usize,
    last: usize,
    count: usize,
    done: usize,
}

impl Cut {
    fn new(full: usize, last: usize, count: usize) -> Cut {
        Cut {
            full,
            last,
            count,
            done: 0,
        }
    }
}

impl Packets for Cut {
    fn full_len(&self) -> usize {
        self.full
    }

    fn remaining(&self) -> usize {
        self.count - self.done
    }

    fn next_len(&self) -> Option<usize> {
        match self.remaining() {
            0 => None,
            1 => Some(self.last),
            _ => Some(self.full),
        }
    }

    fn write_next(&mut self, out: &mut [u8]) {
        out.fill(self.done as u8);
        self.done += 1;
    }
}

fn to(qpn: u32) -> To {
    To::Datagrams(EndpointId(1), peer(qpn))
}

#[test]
fn equal_packets_to_one_destination_share_a_train() {
    let (mut fabric, mut train) = (FakeFabric::new(8), OpenTrain::default());
    for byte in 0..5 {
        let packet = [byte; 10];
        train.push(&mut fabric, &to(7), &mut Single(Some(&packet)));
    }
    assert!(fabric.trains().is_empty());
    train.flush(&mut fabric);
    assert_eq!(fabric.sizes(), [[10; 5]]);
    assert_eq!(fabric.trains()[0][3], [3; 10]);
}

#[test]
fn another_destination_or_a_longer_packet_sends_the_train() {
    let (mut fabric, mut train) = (FakeFabric::new(8), OpenTrain::default());
    train.push(&mut fabric, &to(7), &mut Single(Some(&[1; 10])));
    train.push(&mut fabric, &to(8), &mut Single(Some(&[2; 10])));
    train.push(&mut fabric, &to(8), &mut Single(Some(&[3; 11])));
    train.push(
        &mut fabric,
        &To::Datagrams(EndpointId(2), peer(8)),
        &mut Single(Some(&[4; 11])),
    );
    train.flush(&mut fabric);
    assert_eq!(fabric.sizes(), [[10], [10], [11], [11]]);
    assert!(matches!(&fabric.state().calls[0], Call::Send(to, _) if *to == peer(7)));
}

#[test]
fn a_shorter_packet_ends_the_train_in_order() {
    let (mut fabric, mut train) = (FakeFabric::new(8), OpenTrain::default());
    for packet in [&[1; 10][..], &[2; 4], &[3; 10]] {
        train.push(&mut fabric, &to(7), &mut Single(Some(packet)));
    }
    train.flush(&mut fabric);
    assert_eq!(fabric.sizes(), [vec![10, 4], vec![10]]);
}

#[test]
fn packets_for_more_than_one_train_are_divided_equally() {
    let (mut fabric, mut train) = (FakeFabric::new(15), OpenTrain::default());
    let pushed = train.push(&mut fabric, &to(7), &mut Cut::new(100, 60, 16));
    assert_eq!(pushed, Pushed::All);
    train.flush(&mut fabric);
    let mut last = vec![100; 8];
    last[7] = 60;
    assert_eq!(fabric.sizes(), [vec![100; 8], last]);
    let numbers: Vec<u8> = fabric.trains().concat().iter().map(|p| p[0]).collect();
    assert_eq!(numbers, (0..16).collect::<Vec<u8>>());
}

#[test]
fn sends_that_are_larger_than_a_train_fill_trains_together() {
    let (mut fabric, mut train) = (FakeFabric::new(15), OpenTrain::default());
    for _ in 0..4 {
        train.push(&mut fabric, &to(7), &mut Cut::new(100, 100, 16));
    }
    train.flush(&mut fabric);
    let counts: Vec<usize> = fabric.trains().iter().map(Vec::len).collect();
    assert_eq!(counts, [8, 15, 15, 15, 11]);
}

#[test]
fn sends_that_fit_a_train_have_one_each() {
    let (mut fabric, mut train) = (FakeFabric::new(15), OpenTrain::default());
    for _ in 0..3 {
        train.push(&mut fabric, &to(7), &mut Cut::new(100, 100, 14));
    }
    train.flush(&mut fabric);
    let counts: Vec<usize> = fabric.trains().iter().map(Vec::len).collect();
    assert_eq!(counts, [14, 14, 14]);
}

#[test]
fn every_packet_leaves_once_and_in_order_for_any_sizes() {
    for capacity in 1..7 {
        for count in 1..20 {
            let (mut fabric, mut train) = (FakeFabric::new(capacity), OpenTrain::default());
            train.push(&mut fabric, &to(7), &mut Single(Some(&[200; 30])));
            train.push(&mut fabric, &to(7), &mut Cut::new(30, 9, count));
            train.push(&mut fabric, &to(7), &mut Cut::new(30, 30, count));
            train.flush(&mut fabric);
            let numbers: Vec<u8> = fabric.trains().concat().iter().map(|p| p[0]).collect();
            let counted = (0..count as u8).chain(0..count as u8);
            let expected: Vec<u8> = std::iter::once(200).chain(counted).collect();
            assert_eq!(numbers, expected, "capacity {capacity}, count {count}");
            assert!(fabric.sizes().iter().all(|t| t.len() <= capacity));
        }
    }
}

/// A provider lends no place for packets larger than an MTU that has shrunk.
#[test]
fn a_train_without_places_does_not_block_the_thread() {
    let (mut fabric, mut train) = (FakeFabric::new(0), OpenTrain::default());
    let pushed = train.push(&mut fabric, &to(7), &mut Cut::new(30, 9, 3));
    assert_eq!(pushed, Pushed::NoRoom);
    train.flush(&mut fabric);
    assert!(fabric.trains().is_empty());
}

#[test]
fn without_room_nothing_is_sent_and_the_result_is_no_room() {
    let (mut fabric, mut train) = (FakeFabric::new(8), OpenTrain::default());
    fabric.room = false;
    let pushed = train.push(&mut fabric, &to(7), &mut Single(Some(&[1; 10])));
    assert_eq!(pushed, Pushed::NoRoom);
    train.flush(&mut fabric);
    assert!(fabric.trains().is_empty());
}

fn over(connection: u32) -> To {
    To::Messages(ConnectionId(connection))
}

#[test]
fn small_messages_of_one_round_leave_together() {
    let (mut fabric, mut train) = (FakeFabric::new(64), OpenTrain::default());
    train.expect_more(true);
    for byte in 0..5 {
        train.push(&mut fabric, &over(1), &mut Single(Some(&[byte; 10])));
    }
    train.flush(&mut fabric);
    let packets = (0..5).map(|byte| vec![byte; 10]).collect();
    assert_eq!(fabric.state().calls, [Call::Post(ConnectionId(1), packets)]);
    assert_eq!(fabric.state().asked, [32]);
}

/// The provider keeps the memory of a message until the acknowledgement.
#[test]
fn a_single_message_requests_one_place_and_large_ones_few() {
    let (mut fabric, mut train) = (FakeFabric::new(64), OpenTrain::default());
    train.push(&mut fabric, &over(1), &mut Single(Some(&[0; 10])));
    train.flush(&mut fabric);
    train.expect_more(true);
    train.push(&mut fabric, &over(1), &mut Single(Some(&[0; 4096])));
    train.flush(&mut fabric);
    train.push(&mut fabric, &over(1), &mut Cut::new(4096, 100, 16));
    train.flush(&mut fabric);
    assert_eq!(fabric.state().asked, [1, 8, 16]);
    assert_eq!(fabric.sizes()[2].len(), 16, "a large send is one train");
}

#[test]
fn datagrams_and_messages_leave_in_the_order_they_came_in() {
    let (mut fabric, mut train) = (FakeFabric::new(8), OpenTrain::default());
    train.expect_more(true);
    let ways = [to(7), over(1), over(1), over(2), to(7), over(1)];
    for (byte, way) in ways.iter().enumerate() {
        train.push(&mut fabric, way, &mut Single(Some(&[byte as u8; 4])));
    }
    train.flush(&mut fabric);
    let packet = |byte: u8| vec![byte; 4];
    let expected = [
        Call::Send(peer(7), vec![packet(0)]),
        Call::Post(ConnectionId(1), vec![packet(1), packet(2)]),
        Call::Post(ConnectionId(2), vec![packet(3)]),
        Call::Send(peer(7), vec![packet(4)]),
        Call::Post(ConnectionId(1), vec![packet(5)]),
    ];
    assert_eq!(fabric.state().calls, expected);
}

#[test]
fn a_connection_without_room_does_not_block_others() {
    let (mut fabric, mut train) = (FakeFabric::new(8), OpenTrain::default());
    fabric.state().takes = 0;
    let refused = train.push(&mut fabric, &over(1), &mut Cut::new(30, 9, 3));
    assert_eq!(refused, Pushed::NoRoom);
    fabric.state().takes = 8;
    let taken = train.push(&mut fabric, &over(2), &mut Cut::new(30, 9, 3));
    assert_eq!(taken, Pushed::All);
    train.flush(&mut fabric);
    assert_eq!(fabric.sizes(), [[30, 30, 9]]);
}
