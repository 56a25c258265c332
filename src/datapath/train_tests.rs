use std::io;
use std::os::fd::BorrowedFd;

use fabric::worker::Counters;
use fabric::{
    AddressHandle, AhAttributes, Batch, EndpointId, QKey, Qpn, Sent, Train, TrainTicket,
    UdDestination, Worker,
};

use super::{OpenTrain, Packets, Pushed, Single};

const HEAD: usize = 4;

/// A fabric that keeps what is sent, in trains of at most `capacity` packets.
struct Recorder {
    memory: Vec<u8>,
    capacity: usize,
    room: bool,
    sent: Vec<(UdDestination, Vec<Vec<u8>>)>,
}

impl Recorder {
    fn new(capacity: usize) -> Recorder {
        Recorder {
            memory: vec![0; 1 << 16],
            capacity,
            room: true,
            sent: Vec::new(),
        }
    }

    fn sizes(&self) -> Vec<Vec<usize>> {
        let lengths = |t: &(_, Vec<Vec<u8>>)| t.1.iter().map(Vec::len).collect();
        self.sent.iter().map(lengths).collect()
    }
}

impl Worker for Recorder {
    fn register(&mut self, _: BorrowedFd<'_>, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn poll(&mut self, _: usize) -> io::Result<Batch<'_>> {
        Ok(Batch::new(&[], &[]))
    }

    fn create_ah(&mut self, _: &AhAttributes) -> io::Result<AddressHandle> {
        Ok(AddressHandle(0))
    }

    fn destroy_ah(&mut self, _: AddressHandle) {}

    fn train(&mut self, payload: usize) -> Option<Train<'_>> {
        self.room.then(|| {
            self.resume(TrainTicket {
                payload,
                ..TrainTicket::default()
            })
        })
    }

    fn resume(&mut self, ticket: TrainTicket) -> Train<'_> {
        let stride = HEAD + ticket.payload;
        Train::new(&mut self.memory, HEAD, stride, self.capacity, ticket)
    }

    fn send(&mut self, _: EndpointId, to: &UdDestination, t: TrainTicket) -> Sent {
        let packet = |i: usize| {
            let at = i * (HEAD + t.payload) + HEAD;
            let len = if i + 1 == t.count { t.last } else { t.payload };
            self.memory[at..at + len].to_vec()
        };
        self.sent.push((*to, (0..t.count).map(packet).collect()));
        Sent::Done
    }

    fn has_room(&self) -> bool {
        self.room
    }

    fn counters(&self) -> Counters {
        Vec::new()
    }
}

/// `count` packets of `full` bytes but the last, numbered by their bytes.
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

fn to(qpn: u32) -> UdDestination {
    UdDestination {
        ah: AddressHandle(qpn),
        qpn: Qpn::new(qpn),
        qkey: QKey::IPOIB_DEFAULT,
    }
}

const FROM: EndpointId = EndpointId(1);

#[test]
fn equal_packets_to_one_destination_share_a_train() {
    let (mut fabric, mut train) = (Recorder::new(8), OpenTrain::default());
    for byte in 0..5 {
        let packet = [byte; 10];
        train.push(&mut fabric, FROM, &to(7), &mut Single(Some(&packet)));
    }
    assert!(fabric.sent.is_empty());
    train.flush(&mut fabric);
    assert_eq!(fabric.sizes(), [[10; 5]]);
    assert_eq!(fabric.sent[0].1[3], [3; 10]);
}

#[test]
fn another_destination_or_a_longer_packet_sends_what_is_there() {
    let (mut fabric, mut train) = (Recorder::new(8), OpenTrain::default());
    train.push(&mut fabric, FROM, &to(7), &mut Single(Some(&[1; 10])));
    train.push(&mut fabric, FROM, &to(8), &mut Single(Some(&[2; 10])));
    train.push(&mut fabric, FROM, &to(8), &mut Single(Some(&[3; 11])));
    train.push(
        &mut fabric,
        EndpointId(2),
        &to(8),
        &mut Single(Some(&[4; 11])),
    );
    train.flush(&mut fabric);
    assert_eq!(fabric.sizes(), [[10], [10], [11], [11]]);
    assert_eq!(fabric.sent[0].0, to(7));
}

#[test]
fn a_shorter_packet_ends_the_train_in_order() {
    let (mut fabric, mut train) = (Recorder::new(8), OpenTrain::default());
    for packet in [&[1; 10][..], &[2; 4], &[3; 10]] {
        train.push(&mut fabric, FROM, &to(7), &mut Single(Some(packet)));
    }
    train.flush(&mut fabric);
    assert_eq!(fabric.sizes(), [vec![10, 4], vec![10]]);
}

#[test]
fn what_does_not_fit_one_train_is_cut_into_equal_ones() {
    let (mut fabric, mut train) = (Recorder::new(15), OpenTrain::default());
    let pushed = train.push(&mut fabric, FROM, &to(7), &mut Cut::new(100, 60, 16));
    assert_eq!(pushed, Pushed::All);
    train.flush(&mut fabric);
    let mut last = vec![100; 8];
    last[7] = 60;
    assert_eq!(fabric.sizes(), [vec![100; 8], last]);
    let numbers: Vec<u8> = fabric
        .sent
        .iter()
        .flat_map(|t| &t.1)
        .map(|p| p[0])
        .collect();
    assert_eq!(numbers, (0..16).collect::<Vec<u8>>());
}

#[test]
fn sends_that_are_larger_than_a_train_fill_trains_together() {
    let (mut fabric, mut train) = (Recorder::new(15), OpenTrain::default());
    for _ in 0..4 {
        train.push(&mut fabric, FROM, &to(7), &mut Cut::new(100, 100, 16));
    }
    train.flush(&mut fabric);
    let counts: Vec<usize> = fabric.sent.iter().map(|t| t.1.len()).collect();
    assert_eq!(counts, [8, 15, 15, 15, 11]);
}

#[test]
fn sends_that_fit_a_train_have_one_each() {
    let (mut fabric, mut train) = (Recorder::new(15), OpenTrain::default());
    for _ in 0..3 {
        train.push(&mut fabric, FROM, &to(7), &mut Cut::new(100, 100, 14));
    }
    train.flush(&mut fabric);
    let counts: Vec<usize> = fabric.sent.iter().map(|t| t.1.len()).collect();
    assert_eq!(counts, [14, 14, 14]);
}

#[test]
fn every_packet_leaves_once_and_in_order_for_any_sizes() {
    for capacity in 1..7 {
        for count in 1..20 {
            let (mut fabric, mut train) = (Recorder::new(capacity), OpenTrain::default());
            train.push(&mut fabric, FROM, &to(7), &mut Single(Some(&[200; 30])));
            train.push(&mut fabric, FROM, &to(7), &mut Cut::new(30, 9, count));
            train.push(&mut fabric, FROM, &to(7), &mut Cut::new(30, 30, count));
            train.flush(&mut fabric);
            let numbers: Vec<u8> = fabric
                .sent
                .iter()
                .flat_map(|t| &t.1)
                .map(|p| p[0])
                .collect();
            let counted = (0..count as u8).chain(0..count as u8);
            let expected: Vec<u8> = std::iter::once(200).chain(counted).collect();
            assert_eq!(numbers, expected, "capacity {capacity}, count {count}");
            assert!(fabric.sizes().iter().all(|t| t.len() <= capacity));
        }
    }
}

/// What a provider lends for packets over an MTU that has shrunk.
#[test]
fn a_train_without_a_place_does_not_hold_the_thread_up() {
    let (mut fabric, mut train) = (Recorder::new(0), OpenTrain::default());
    let pushed = train.push(&mut fabric, FROM, &to(7), &mut Cut::new(30, 9, 3));
    assert_eq!(pushed, Pushed::NoRoom);
    train.flush(&mut fabric);
    assert!(fabric.sent.is_empty());
}

#[test]
fn without_room_nothing_is_sent_and_the_caller_is_told() {
    let (mut fabric, mut train) = (Recorder::new(8), OpenTrain::default());
    fabric.room = false;
    let pushed = train.push(&mut fabric, FROM, &to(7), &mut Single(Some(&[1; 10])));
    assert_eq!(pushed, Pushed::NoRoom);
    train.flush(&mut fabric);
    assert!(fabric.sent.is_empty());
}
