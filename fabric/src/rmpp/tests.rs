use proptest::prelude::*;
use proto::Instant;
use zerocopy::big_endian::{U16, U32, U64};

use super::*;
use crate::cm::tests::kernel::captured;
use crate::mad::{BASE_VERSION, Mad, class, sa};
use crate::random::Random;

const NOW: Instant = Instant(1_000_000_000);

fn headers() -> (Header, SaHeader) {
    let header = Header {
        base_version: BASE_VERSION,
        mgmt_class: class::SUBN_ADM,
        class_version: sa::CLASS_VERSION,
        method: method::GET_TABLE_RESP,
        status: U16::ZERO,
        class_specific: U16::ZERO,
        transaction_id: U64::new(0x1_0000_1234),
        attribute_id: U16::new(sa::MC_MEMBER_RECORD),
        reserved: U16::ZERO,
        attribute_modifier: U32::ZERO,
    };
    let head = SaHeader {
        rmpp_version: 0,
        rmpp_type: 0,
        rmpp_flags: 0,
        rmpp_status: 0,
        data1: U32::ZERO,
        data2: U32::ZERO,
        sm_key: U64::ZERO,
        attribute_offset: U16::new(7),
        reserved: U16::ZERO,
        component_mask: U64::ZERO,
    };
    (header, head)
}

fn sender(bytes: usize) -> Sender {
    let (header, head) = headers();
    Sender::new(NOW, header, head, records(bytes))
}

fn records(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|n| (n % 251) as u8).collect()
}

fn head_of(mad: &[u8; MAD_LEN]) -> SaHeader {
    Mad::parse(mad).unwrap().subnet_administration().unwrap().0
}

/// Type, status, segment number, second number.
fn said(mad: &[u8; MAD_LEN]) -> (u8, u8, u32, u32) {
    let h = head_of(mad);
    (h.rmpp_type, h.rmpp_status, h.data1.get(), h.data2.get())
}

fn all(sender: &mut Sender) -> Vec<[u8; MAD_LEN]> {
    std::iter::from_fn(|| sender.poll_transmit()).collect()
}

#[test]
fn an_answer_of_one_segment_has_all_flags() {
    let mut sender = sender(56);
    let mad = sender.poll_transmit().unwrap();
    assert_eq!(mad[24..36], [1, 1, 7, 0, 0, 0, 0, 1, 0, 0, 0, 76]);
    assert_eq!(sender.poll_transmit(), None);
    let mut receiver = Receiver::new(NOW, &mad, 10).unwrap();
    let step = receiver.receive(NOW, &mad);
    assert_eq!(step.end, Some(Ok(records(56))));
    let ack = step.reply.unwrap();
    assert_eq!((ack[3], said(&ack)), (0x12, (2, 0, 1, 1)));
    sender.receive(NOW, &ack);
    assert_eq!((sender.end(), sender.next_deadline()), (Some(Ok(())), None));
    // The acknowledgement was lost: the segment comes again.
    assert_eq!(receiver.receive(NOW, &mad).reply, Some(ack));
}

/// The numbers that Linux's receiver answers with: windows of 64 segments behind the first.
#[test]
fn the_window_opens_as_linuxs() {
    let mut sender = sender(130 * 200 - 100);
    let first = all(&mut sender);
    assert_eq!(first.len(), 1);
    let total = 130 * 220 - 100;
    assert_eq!(first[0][24..28], [1, 1, 3, 0]);
    assert_eq!(said(&first[0]), (1, 0, 1, total));
    let mut receiver = Receiver::new(NOW, &first[0], 1000).unwrap();
    let (mut segments, mut acks, mut end) = (first, Vec::new(), None);
    while !segments.is_empty() {
        for segment in &segments {
            let step = receiver.receive(NOW, segment);
            if let Some(reply) = step.reply {
                acks.push(said(&reply));
                sender.receive(NOW, &reply);
            }
            end = step.end.or(end);
        }
        segments = all(&mut sender);
    }
    assert_eq!(
        acks,
        [
            (2, 0, 1, 65),
            (2, 0, 65, 129),
            (2, 0, 129, 193),
            (2, 0, 130, 193)
        ]
    );
    assert_eq!(end, Some(Ok(records(130 * 200 - 100))));
    assert_eq!(sender.end(), Some(Ok(())));
}

/// The segments that Linux received for a umad agent, and its acknowledgements, byte for byte.
#[test]
fn acknowledgements_are_linuxs() {
    const PACKETS: usize = 73;
    let packet = |number| captured("../subnet-administration/rmpp.pcap", number);
    // The first packet is the request.
    let (linux, _, _) = packet(1);
    let (theirs, segments): (Vec<_>, Vec<_>) = (2..=PACKETS)
        .map(packet)
        .partition(|(source, ..)| *source == linux);
    let [theirs, segments] =
        [theirs, segments].map(|all| all.into_iter().map(|(.., mad)| mad).collect::<Vec<_>>());
    let mut receiver = Receiver::new(NOW, &segments[0], 1000).unwrap();
    let steps = segments.iter().map(|mad| receiver.receive(NOW, mad));
    let (replies, ends): (Vec<_>, Vec<_>) = steps.map(|step| (step.reply, step.end)).unzip();
    let ours: Vec<_> = replies.into_iter().flatten().collect();
    assert_eq!((theirs.len(), segments.len()), (3, 69));
    assert!(ours == theirs);
    let Some(Some(Ok(table))) = ends.last() else {
        panic!("no table");
    };
    assert_eq!(table.len(), 243 * 56);
}

/// A segment with these values of its header.
fn segment(version: u8, kind: u8, flags: u8, number: u32, length: u32) -> [u8; MAD_LEN] {
    let (header, mut head) = headers();
    head.rmpp_version = version;
    head.rmpp_type = kind;
    head.rmpp_flags = flags;
    head.data1 = number.into();
    head.data2 = length.into();
    datagram(&header, &head, &[7; 200])
}

#[test]
fn bad_segments_end_the_transfer_with_their_status() {
    let first = segment(1, 1, 3, 1, 0);
    let cases = [
        (
            segment(2, 1, 1, 2, 0),
            kind::ABORT,
            status::UNSUPPORTED_VERSION,
        ),
        (segment(1, 9, 1, 2, 0), kind::ABORT, status::BAD_TYPE),
        (
            segment(1, 1, 1, 0, 0),
            kind::ABORT,
            status::INCONSISTENT_FIRST,
        ),
        (
            segment(1, 1, 3, 2, 0),
            kind::ABORT,
            status::INCONSISTENT_FIRST,
        ),
        (
            segment(1, 1, 1, 1, 0),
            kind::ABORT,
            status::INCONSISTENT_FIRST,
        ),
        (
            segment(1, 1, 5, 2, 19),
            kind::ABORT,
            status::INCONSISTENT_LENGTH,
        ),
        (
            segment(1, 1, 5, 2, 221),
            kind::ABORT,
            status::INCONSISTENT_LENGTH,
        ),
        (
            segment(1, 1, 1, 6, 0),
            kind::STOP,
            status::RESOURCES_EXHAUSTED,
        ),
    ];
    for (bad, kind, status) in cases {
        let mut receiver = Receiver::new(NOW, &first, 5).unwrap();
        assert_eq!(
            said(&receiver.receive(NOW, &first).reply.unwrap()),
            (2, 0, 1, 65)
        );
        let step = receiver.receive(NOW, &bad);
        assert_eq!(step.end, Some(Err(status)));
        let reply = step.reply.unwrap();
        assert_eq!(said(&reply), (kind, status, 0, 0));
        assert_eq!(
            receiver.receive(NOW, &bad),
            Step::default(),
            "after the end"
        );
        let mut sender = sender(1000);
        all(&mut sender);
        sender.receive(NOW, &reply);
        assert_eq!(sender.end(), Some(Err(status)));
    }
}

#[test]
fn an_announced_length_beyond_the_limit_stops_the_transfer() {
    let first = segment(1, 1, 3, 1, 6 * 220);
    let mut receiver = Receiver::new(NOW, &first, 5).unwrap();
    assert_eq!(receiver.receive(NOW, &first).end, Some(Err(1)));
}

#[test]
fn impossible_acknowledgements_end_the_transfer() {
    for (ack, status) in [
        (segment(1, 2, 1, 1, 0), status::WINDOW_TOO_SMALL),
        (segment(1, 2, 1, 2, 66), status::SEGMENT_TOO_BIG),
    ] {
        let mut sender = sender(1000);
        all(&mut sender);
        sender.receive(NOW, &ack);
        assert_eq!(sender.end(), Some(Err(status)));
        let abort = sender.poll_transmit().unwrap();
        assert_eq!((abort[3], said(&abort)), (0x92, (4, status, 0, 0)));
        assert_eq!(sender.poll_transmit(), None);
    }
}

#[test]
fn a_sender_without_acknowledgements_gives_up() {
    let mut sender = sender(1000);
    let mut sent = 0;
    while let Some(at) = sender.next_deadline() {
        sent += all(&mut sender).len();
        sender.handle_timeout(at);
    }
    assert_eq!(
        (sent, sender.end()),
        (6, Some(Err(status::TOO_MANY_RETRIES)))
    );
}

/// A network that loses, doubles and reorders; time passes when nothing is on the way.
fn transfer(seed: u64, bytes: usize, loss: u64) -> Option<Vec<u8>> {
    let mut random = Random::new([seed, 0]);
    let (mut now, mut sender) = (NOW, sender(bytes));
    let (mut receiver, mut result) = (None::<Receiver>, None);
    let mut wire: Vec<(bool, [u8; MAD_LEN])> = Vec::new();
    loop {
        while let Some(mad) = sender.poll_transmit() {
            for _ in 0..1 + u64::from(random.below(10) == 0) {
                wire.push((true, mad));
            }
        }
        if wire.is_empty() {
            let Some(at) = sender.next_deadline() else {
                return result;
            };
            now = at;
            sender.handle_timeout(now);
            continue;
        }
        let near = (wire.len() as u64).min(8);
        let (forward, mad) = wire.remove(random.below(near) as usize);
        if random.below(100) < loss {
            continue;
        }
        if !forward {
            sender.receive(now, &mad);
            continue;
        }
        if head_of(&mad).rmpp_type != kind::DATA {
            return result;
        }
        let receiver = receiver.get_or_insert_with(|| Receiver::new(now, &mad, 1000).unwrap());
        assert!(receiver.held() <= 1000 * 200);
        let step = receiver.receive(now, &mad);
        if let Some(reply) = step.reply {
            wire.push((false, reply));
        }
        if let Some(end) = step.end {
            assert!(result.is_none(), "a transfer ends once");
            result = Some(end.expect("nothing wrong was sent"));
        }
    }
}

proptest! {
    #[test]
    fn a_transfer_arrives_over_a_bad_network(seed: u64, bytes in 0usize..40_000) {
        prop_assert_eq!(transfer(seed, bytes, 0), Some(records(bytes)), "seed {}", seed);
        if let Some(arrived) = transfer(seed, bytes, 20) {
            prop_assert_eq!(arrived, records(bytes), "seed {}", seed);
        }
    }

    #[test]
    fn segments_of_any_content_are_survived(
        mads in prop::collection::vec((0u8..6, 0u8..8, 0u32..80, 0u32..300, 0u8..3), 1..100)
    ) {
        let first = segment(1, 1, 3, 1, 0);
        let mut receiver = Receiver::new(NOW, &first, 70).unwrap();
        let mut ends = 0;
        for (kind, flags, number, length, status) in mads {
            let mut mad = segment(1, kind, flags, number, length);
            mad[27] = status / 2;
            let step = receiver.receive(NOW, &mad);
            ends += usize::from(step.end.is_some());
            prop_assert!(receiver.held() <= 70 * 200);
        }
        prop_assert!(ends <= 1);
    }
}
