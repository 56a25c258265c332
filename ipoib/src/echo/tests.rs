use proptest::prelude::*;

use super::*;
use crate::testing::hex;

fn echo() -> Echo {
    Echo {
        operation: Operation::Request,
        id: 0x0102,
        sequence: 0x0304_0506,
        stamp: 0x0708_090a_0b0c_0d0e,
        target: Gid([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
    }
}

#[test]
fn the_bytes_of_a_request_and_its_answer() {
    let request = "88b50000 69627431 01 00 0102 03040506 0708090a0b0c0d0e
        fe800000000000000000000000000001 28292a2b";
    assert_eq!(echo().write(44), hex(request));
    let reply = request.replace(" 01 00 ", " 02 00 ");
    assert_eq!(answer(&hex(request)), hex(&reply));
}

#[test]
fn what_is_no_echo() {
    let good = echo().write(HEADER_LEN);
    assert_eq!(Echo::parse(&good), Some(echo()));
    assert_eq!(Echo::parse(&good[..HEADER_LEN - 1]), None);
    for (at, value) in [(4, b'I'), (7, b'2'), (8, 0), (8, 3)] {
        let mut bad = good.clone();
        bad[at] = value;
        assert_eq!(Echo::parse(&bad), None, "byte {at}");
    }
}

#[test]
fn a_second_has_a_thousand_answers() {
    let mut q = EchoQueue::default();
    for second in [5, 6] {
        let now = Time(second * 1000);
        let taken = (0..1500).filter(|_| q.may_answer(now)).count();
        assert_eq!(taken, 1000);
    }
}

#[test]
fn answers_have_room_where_requests_have_none() {
    let mut q = EchoQueue::default();
    let asked = (0..300).filter(|_| q.ask(To::Everybody, vec![])).count();
    assert_eq!(asked, 64);
    let answered = (0..300).filter(|_| q.answer(To::Everybody, vec![])).count();
    assert_eq!(answered, 256 - 64);
    assert_eq!(std::iter::from_fn(|| q.next()).count(), 256);
}

proptest! {
    #[test]
    fn no_bytes_panic(payload in prop::collection::vec(any::<u8>(), 0..100)) {
        let _ = (Echo::parse(&payload), answer(&payload));
    }

    #[test]
    fn what_was_written_is_read(id: u16, sequence: u32, stamp: u64, gid: [u8; 16], reply: bool, len in 0usize..200) {
        let operation = if reply { Operation::Reply } else { Operation::Request };
        let echo = Echo { operation, id, sequence, stamp, target: Gid(gid) };
        let payload = echo.write(len);
        prop_assert_eq!(payload.len(), len.max(HEADER_LEN));
        prop_assert_eq!(Echo::parse(&payload), Some(echo));
    }
}
