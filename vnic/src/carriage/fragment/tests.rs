use proptest::prelude::*;

use super::*;

fn gid(n: u8) -> Gid {
    let mut raw = [0; 16];
    raw[0] = 0xfe;
    raw[15] = n;
    Gid(raw)
}

const QPN: Qpn = Qpn::new(0x123);

fn message(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(7) ^ seed).collect()
}

fn pieces(len: usize, payload_max: usize) -> Vec<Vec<u8>> {
    Splitter::new(9, payload_max)
        .split(&message(len, 0))
        .collect()
}

#[test]
fn a_short_message_is_one_datagram_with_the_header_before_it() {
    let all = pieces(40, 1024);
    let header = [1, 0, 0, 40, 0, 0, 0, 0, 0, 0, 0, 9];
    assert_eq!(all, [[&header[..], &message(40, 0)].concat()]);
}

#[test]
fn the_longest_message_has_as_many_pieces_as_the_payload_requires() {
    let sizes = |payload_max| {
        let lens: Vec<usize> = pieces(2048, payload_max).iter().map(Vec::len).collect();
        lens
    };
    assert_eq!(sizes(4096), [1036, 1036]);
    assert_eq!(sizes(1024), [1020, 1020, 44]);
    assert_eq!(sizes(256).len(), 9);
    assert!(sizes(256).iter().all(|len| *len <= 256));
    assert_eq!(pieces(2049, 1024), Vec::<Vec<u8>>::new());
    assert_eq!(pieces(0, 1024), Vec::<Vec<u8>>::new());
}

#[test]
fn a_message_with_a_missing_piece_times_out_after_two_seconds() {
    let all = pieces(2000, 1024);
    let mut r = Reassembler::default();
    assert_eq!(r.receive(Time(0), gid(1), QPN, &all[0]), None);
    assert_eq!(
        r.receive(Time(1999), gid(1), QPN, &all[1]),
        Some(message(2000, 0))
    );
    assert_eq!(r.receive(Time(5000), gid(1), QPN, &all[0]), None);
    assert_eq!(r.receive(Time(7000), gid(1), QPN, &all[1]), None);
    assert_eq!(r.counts().timed_out, 1);
}

#[test]
fn messages_of_two_senders_with_one_number_do_not_mix() {
    let (a, b) = (message(1500, 1), message(1500, 2));
    let split = |m| Splitter::new(3, 1024).split(m).collect::<Vec<_>>();
    let (a_pieces, b_pieces) = (split(&a), split(&b));
    let mut r = Reassembler::default();
    assert_eq!(r.receive(Time(0), gid(1), QPN, &a_pieces[0]), None);
    assert_eq!(r.receive(Time(0), gid(2), QPN, &b_pieces[1]), None);
    assert_eq!(r.receive(Time(0), gid(1), QPN, &a_pieces[1]), Some(a));
    assert_eq!(r.receive(Time(0), gid(2), QPN, &b_pieces[0]), Some(b));
}

#[test]
fn pieces_that_contradict_each_other_end_their_message() {
    let mut all = pieces(2000, 1024);
    let mut r = Reassembler::default();
    assert_eq!(r.receive(Time(0), gid(1), QPN, &all[0]), None);
    all[0][100] ^= 1;
    assert_eq!(r.receive(Time(0), gid(1), QPN, &all[0]), None);
    assert_eq!(r.receive(Time(0), gid(1), QPN, &all[1]), None);
    assert_eq!(r.counts().contradicted, 1);
    // Another length of the same message.
    all[1][3] -= 8;
    assert_eq!(r.receive(Time(0), gid(1), QPN, &all[1]), None);
    assert_eq!(r.counts().messages, 0);
}

#[test]
fn invalid_pieces_are_counted() {
    let good = pieces(2000, 1024).remove(0);
    let wrong = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        bytes
    };
    let mut r = Reassembler::default();
    let bad = [
        vec![],
        good[..HEADER_LEN].to_vec(),
        good[..HEADER_LEN - 1].to_vec(),
        // Wrong version, length above the maximum, length below the piece's end, unaligned offset, piece
        // beyond the end.
        wrong(0, 2),
        wrong(2, 0x10),
        wrong(2, 0),
        wrong(5, 4),
        wrong(4, 0x07),
        // Not a multiple of 8 bytes, and not the last piece.
        good[..good.len() - 1].to_vec(),
    ];
    for datagram in &bad {
        assert_eq!(r.receive(Time(0), gid(1), QPN, datagram), None);
    }
    assert_eq!(r.counts().malformed, bad.len() as u64);
    assert!(r.partial.is_empty());
}

#[test]
fn one_port_evicts_only_its_own_messages_and_memory_is_bounded() {
    let mut r = Reassembler::default();
    let mut other = Splitter::new(0, 1024);
    let theirs = message(2048, 7);
    let theirs: Vec<_> = other.split(&theirs).collect();
    r.receive(Time(0), gid(2), QPN, &theirs[0]);
    let mut flood = Splitter::new(0, 1024);
    for _ in 0..1000 {
        let first = flood.split(&[0; 2048]).next().unwrap();
        r.receive(Time(1), gid(1), QPN, &first);
    }
    assert_eq!(r.partial.len(), PARTIAL_OF_PORT + 1);
    // The limit is independent of the number of queue pairs.
    for sender in 0..1000 {
        let first = flood.split(&[0; 2048]).next().unwrap();
        r.receive(Time(1), gid(1), Qpn::new(sender), &first);
    }
    assert_eq!(r.partial.len(), PARTIAL_OF_PORT + 1);
    r.receive(Time(1), gid(2), QPN, &theirs[1]);
    assert!(r.receive(Time(1), gid(2), QPN, &theirs[2]).is_some());
    for sender in 0..1000_u16 {
        let first = flood.split(&[0; 2048]).next().unwrap();
        let mut from = gid(3);
        from.0[8..10].copy_from_slice(&sender.to_be_bytes());
        r.receive(Time(2), from, QPN, &first);
    }
    assert_eq!(r.partial.len(), PARTIAL_MAX);
}

proptest! {
    /// Every message arrives unchanged, in any order and with repeated pieces.
    #[test]
    fn messages_survive_duplication_and_any_order(
        lens in prop::collection::vec(1..=MAD_MAX, 1..6),
        payload_max in 20..2100_usize,
        order in any::<prop::sample::Index>(),
        seed in any::<u64>(),
    ) {
        let mut splitter = Splitter::new(u32::MAX - 1, payload_max);
        let messages: Vec<Vec<u8>> =
            lens.iter().enumerate().map(|(n, len)| message(*len, n as u8)).collect();
        let mut all: Vec<Vec<u8>> = Vec::new();
        for m in &messages {
            all.extend(splitter.split(m));
        }
        prop_assert!(all.iter().all(|d| d.len() <= payload_max.max(20)));
        all.extend_from_within(..order.index(all.len()));
        shuffle(&mut all, seed);
        let mut r = Reassembler::default();
        let mut got: Vec<Vec<u8>> =
            all.iter().filter_map(|d| r.receive(Time(0), gid(1), QPN, d)).collect();
        prop_assert_eq!(r.counts().contradicted + r.counts().malformed, 0);
        got.sort();
        got.dedup();
        let mut expected = messages;
        expected.sort();
        expected.dedup();
        prop_assert_eq!(got, expected);
    }

    #[test]
    fn any_datagram_is_handled(datagrams in prop::collection::vec(
        prop::collection::vec(any::<u8>(), 0..64), 0..8)) {
        let mut r = Reassembler::default();
        for mut d in datagrams {
            if let Some(version) = d.first_mut() {
                *version = VERSION;
            }
            if let Some(m) = r.receive(Time(0), gid(1), QPN, &d) {
                prop_assert!(!m.is_empty() && m.len() <= MAD_MAX);
            }
        }
    }
}

fn shuffle(all: &mut [Vec<u8>], seed: u64) {
    let mut state = seed | 1;
    for at in (1..all.len()).rev() {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        all.swap(at, (state >> 33) as usize % (at + 1));
    }
}
