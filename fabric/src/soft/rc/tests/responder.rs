//! The responder's handling of requests and its replies, against a hand-written requester.

use std::ops::Range;
use std::time::Duration;

use proto::{IbMtu, WcStatus};

use super::side::{A, B, Choices, Side, packet, pair, read_ack};
use crate::soft::qp::State;
use crate::soft::rc::QpEvent;
use crate::soft::wire::opcode::*;

const MTU: usize = 256;
const ACK: u8 = 0x1f;
const RNR: u8 = 0x20 | 12;
const SEQUENCE: u8 = 0x60;
const INVALID: u8 = 0x61;

fn responder() -> Side {
    with(Choices::default())
}

fn with(choices: Choices) -> Side {
    Side::connected(
        B,
        A,
        Choices {
            mtu: IbMtu::B256,
            psn: 0,
            ..choices
        },
    )
}

/// A request that asks for an acknowledgement.
fn send(opcode: u8, psn: u32, payload: &[u8]) -> Vec<u8> {
    packet(opcode, psn, B, payload)
}

/// The replies at the end of the round, immediate and delayed.
fn answers(side: &mut Side) -> Vec<(u32, u8, u32)> {
    let mut acks = side.send(true);
    if acks.is_empty() {
        side.wait(Duration::from_millis(2));
        side.qp.handle_timeout(side.now, &mut side.shared);
        acks = side.send(true);
    }
    acks.iter().map(|bytes| read_ack(bytes)).collect()
}

fn silent(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes[8] = 0;
    bytes
}

#[test]
fn a_message_of_many_packets_is_one_message() {
    let mut b = responder();
    b.take(&[
        send(RC_SEND_FIRST, 0, &[1; MTU]),
        send(RC_SEND_MIDDLE, 1, &[2; MTU]),
        send(RC_SEND_LAST, 2, &[3; 5]),
    ]);
    let whole = [&[1; MTU][..], &[2; MTU], &[3; 5]].concat();
    assert_eq!(b.received.len(), 1);
    assert_eq!(b.received[0].payload, whole);
    assert_eq!(b.received[0].immediate, None);
    assert_eq!(answers(&mut b), [(2, ACK, 1)]);
}

#[test]
fn a_message_in_many_batches_is_one_message() {
    let mut b = responder();
    b.take(&[send(RC_SEND_FIRST, 0, &[1; MTU])]);
    b.take(&[
        send(RC_SEND_MIDDLE, 1, &[2; MTU]),
        send(RC_SEND_MIDDLE, 2, &[3; MTU]),
    ]);
    assert!(b.received.is_empty());
    b.take(&[
        send(RC_SEND_LAST, 3, &[4; 7]),
        send(RC_SEND_ONLY, 4, b"next"),
    ]);
    let whole = [&[1; MTU][..], &[2; MTU], &[3; MTU], &[4; 7]].concat();
    assert_eq!(b.received[0].payload, whole);
    assert_eq!(b.received[1].payload, b"next");
}

#[test]
fn packets_without_a_request_are_not_acknowledged() {
    let mut b = responder();
    b.take(&[silent(send(RC_SEND_ONLY, 0, b"x"))]);
    assert_eq!(b.qp.next_deadline(), None);
    assert_eq!(b.send(true), Vec::<Vec<u8>>::new());
    b.take(&[send(RC_SEND_ONLY, 1, b"x")]);
    assert_eq!(answers(&mut b), [(1, ACK, 2)]);
}

#[test]
fn an_acknowledgement_waits_a_millisecond_for_fifteen_others() {
    let mut b = responder();
    for psn in 0..15 {
        b.take(&[send(RC_SEND_ONLY, psn, b"x")]);
        assert!(b.send(true).is_empty());
    }
    assert_eq!(
        b.qp.next_deadline(),
        Some(b.now.after(Duration::from_millis(1)))
    );
    b.take(&[send(RC_SEND_ONLY, 15, b"x")]);
    assert!(b.send(false).is_empty());
    let acks = b.send(true);
    assert_eq!(acks.len(), 1);
    assert_eq!(read_ack(&acks[0]), (15, ACK, 16));
    b.take(&[send(RC_SEND_ONLY, 16, b"x")]);
    assert!(b.send(true).is_empty());
    b.expire();
    assert_eq!(read_ack(&b.send(false)[0]), (16, ACK, 17));
    assert!(b.qp.next_deadline().is_none_or(|at| at > b.now));
}

/// A message of `n` packets; all packets in `asking` request an acknowledgement.
fn of_packets(first: u32, n: u32, asking: &[u32]) -> Vec<Vec<u8>> {
    let packet = |k| {
        let opcode = match k {
            0 => RC_SEND_FIRST,
            k if k + 1 == n => RC_SEND_LAST,
            _ => RC_SEND_MIDDLE,
        };
        let packet = send(opcode, first + k, &[0; MTU]);
        match asking.contains(&k) {
            true => packet,
            false => silent(packet),
        }
    };
    (0..n).map(packet).collect()
}

#[test]
fn a_peer_that_asks_inside_messages_waits_for_64_packets_or_until_it_asks_again() {
    let mut b = responder();
    b.take(&of_packets(0, 15, &[14]));
    assert!(b.send(true).is_empty());
    b.take(&of_packets(15, 15, &[14]));
    assert_eq!(read_ack(&b.send(true)[0]), (29, ACK, 2));
    // From the first request inside a message on.
    b.take(&of_packets(30, 15, &[0, 14]));
    assert!(b.send(true).is_empty(), "fewer than 16 packets");
    b.take(&of_packets(45, 15, &[14]));
    assert_eq!(read_ack(&b.send(true)[0]), (59, ACK, 4));
    for k in 0..4 {
        b.take(&of_packets(60 + 15 * k, 15, &[14]));
        assert!(b.send(true).is_empty());
    }
    b.take(&of_packets(120, 15, &[14]));
    assert_eq!(read_ack(&b.send(true)[0]), (134, ACK, 9));
    b.take(&of_packets(135, 15, &[14]));
    b.take(&of_packets(150, 15, &[3, 14]));
    assert_eq!(read_ack(&b.send(true)[0]), (164, ACK, 11));
    // Sixteen messages do not wait, and neither does the rest after a millisecond.
    for psn in 165..180 {
        b.take(&[send(RC_SEND_ONLY, psn, b"x")]);
        assert!(b.send(true).is_empty());
    }
    b.take(&[send(RC_SEND_ONLY, 180, b"x")]);
    assert_eq!(read_ack(&b.send(true)[0]), (180, ACK, 27));
    b.take(&of_packets(181, 15, &[14]));
    b.expire();
    assert_eq!(read_ack(&b.send(false)[0]), (195, ACK, 28));
}

#[test]
fn a_message_number_counts_messages_modulo_2_to_the_24() {
    let mut b = responder();
    b.take(&[send(RC_SEND_FIRST, 0, &[0; MTU])]);
    assert_eq!(answers(&mut b), [(0, ACK, 0)]);
    b.take(&[send(RC_SEND_LAST, 1, &[0; 1])]);
    assert_eq!(answers(&mut b), [(1, ACK, 1)]);
    b.qp.responder.set_msn(0xff_ffff);
    b.take(&[send(RC_SEND_ONLY, 2, &[])]);
    assert_eq!(answers(&mut b), [(2, ACK, 0)]);
}

#[test]
fn each_gap_is_reported_once() {
    let mut b = responder();
    b.take(&[send(RC_SEND_ONLY, 0, b"0"), send(RC_SEND_ONLY, 2, b"2")]);
    // At once, without a request for an acknowledgement.
    let naks = b.send(false);
    assert_eq!(read_ack(&naks[0]), (1, SEQUENCE, 1));
    b.take(&[send(RC_SEND_ONLY, 3, b"3"), send(RC_SEND_ONLY, 5, b"5")]);
    assert!(b.send(true).is_empty());
    // The gap is filled, the packets after it are taken, and the next gap is reported.
    b.take(&[send(RC_SEND_ONLY, 1, b"1")]);
    assert_eq!(read_ack(&b.send(false)[0]), (4, SEQUENCE, 4));
    b.take(&[send(RC_SEND_ONLY, 4, b"4")]);
    assert_eq!(answers(&mut b), [(5, ACK, 6)]);
    let payloads: Vec<_> = b.received.iter().map(|m| m.payload.clone()).collect();
    assert_eq!(
        payloads,
        [b"0", b"1", b"2", b"3", b"4", b"5"].map(Vec::from)
    );
    assert_eq!(b.shared.counts.out_of_sequence, 3);
    assert_eq!(b.shared.counts.held_out_of_order, 3);
}

#[test]
fn a_gap_that_closes_in_the_same_batch_is_not_named() {
    let mut b = responder();
    b.take(&[send(RC_SEND_ONLY, 1, b"1"), send(RC_SEND_ONLY, 0, b"0")]);
    // Its acknowledgement does not wait for retransmissions, either.
    assert_eq!(read_ack(&b.send(true)[0]), (1, ACK, 2));
}

/// A range of packets that a requester sends again.
fn sends(psns: Range<u32>) -> Vec<Vec<u8>> {
    psns.map(|psn| send(RC_SEND_ONLY, psn, b"x")).collect()
}

/// rdma_rxe does not complete a request if its acknowledgement arrives before the request was sent
/// again (drivers/infiniband/sw/rxe/rxe_comp.c).
#[test]
fn packets_are_acknowledged_after_a_requester_that_goes_back_repeats_them() {
    let mut b = responder();
    for start in [0, 10, 20] {
        b.take(&sends(start..start + 1));
        b.take(&sends(start + 2..start + 6));
        assert_eq!(read_ack(&b.send(false)[0]).0, start + 1);
        for psn in start + 1..start + 5 {
            b.take(&sends(psn..psn + 1));
            assert!(b.send(true).is_empty(), "{psn}");
        }
        b.take(&sends(start + 5..start + 6));
        assert_eq!(read_ack(&b.send(true)[0]), (start + 5, ACK, start + 6));
        b.take(&sends(start + 6..start + 10));
        answers(&mut b);
    }
}

#[test]
fn a_requester_that_goes_back_comes_to_the_next_gap_by_itself() {
    let mut b = responder();
    b.take(&sends(0..1));
    b.take(&sends(2..4));
    assert_eq!(read_ack(&b.send(false)[0]), (1, SEQUENCE, 1));
    b.take(&sends(1..4));
    assert_eq!(read_ack(&b.send(true)[0]), (3, ACK, 4));
    // The kind of requester is known now. Two packets are lost.
    b.take(&[sends(5..7), sends(8..10)].concat());
    assert_eq!(read_ack(&b.send(false)[0]), (4, SEQUENCE, 4));
    for psn in 4..9 {
        b.take(&sends(psn..psn + 1));
        let replies = b.send(true);
        // No acknowledgement of 7, nor of later packets before they were sent again.
        let acks = replies.iter().map(|ack| read_ack(ack)).collect::<Vec<_>>();
        assert!(acks.iter().all(|ack| *ack == (6, ACK, 7)), "{acks:?}");
    }
    b.take(&sends(9..10));
    assert_eq!(read_ack(&b.send(true)[0]), (9, ACK, 10));
    // If it does not come, it is reported after all.
    b.take(&[sends(11..12), sends(13..14)].concat());
    assert_eq!(read_ack(&b.send(false)[0]), (10, SEQUENCE, 10));
    b.take(&sends(10..11));
    assert!(b.send(true).is_empty());
    b.wait(Duration::from_millis(6));
    b.qp.handle_timeout(b.now, &mut b.shared);
    assert_eq!(read_ack(&b.send(false)[0]), (12, SEQUENCE, 12));
}

/// The requester got no acknowledgement, because the acknowledgement was lost.
#[test]
fn packets_are_acknowledged_after_a_repetition_without_a_gap() {
    let mut b = responder();
    b.take(&sends(0..6));
    answers(&mut b);
    for _ in 0..3 {
        for psn in 0..5 {
            b.take(&sends(psn..psn + 1));
            assert!(b.send(true).is_empty(), "{psn}");
        }
        b.take(&sends(5..6));
        assert_eq!(read_ack(&b.send(true)[0]), (5, ACK, 6));
    }
}

#[test]
fn a_requester_that_sends_only_missing_packets_waits_once() {
    let mut b = responder();
    for start in [0, 10, 20] {
        b.take(&sends(start..start + 1));
        b.take(&sends(start + 2..start + 10));
        assert_eq!(read_ack(&b.send(false)[0]).0, start + 1);
        b.take(&sends(start + 1..start + 2));
        if start == 0 {
            assert!(b.send(true).is_empty());
            b.expire();
        }
        assert_eq!(read_ack(&b.send(true)[0]), (start + 9, ACK, start + 10));
    }
}

#[test]
fn a_message_out_of_order_is_put_together() {
    let mut b = responder();
    b.take(&[
        send(RC_SEND_FIRST, 0, &[1; MTU]),
        send(RC_SEND_MIDDLE, 2, &[3; MTU]),
        send(RC_SEND_MIDDLE, 1, &[2; MTU]),
        send(RC_SEND_MIDDLE, 3, &[4; MTU]),
        send(RC_SEND_LAST, 4, &[5; MTU]),
    ]);
    let whole = [[1; MTU], [2; MTU], [3; MTU], [4; MTU], [5; MTU]].concat();
    assert_eq!(b.received[0].payload, whole);
}

#[test]
fn kept_packets_are_bounded() {
    let mut b = responder();
    for psn in 1..20_000 {
        b.take(&[send(RC_SEND_ONLY, psn, &[0; MTU])]);
    }
    // The largest window of the peer, two mebibytes, without the missing packet.
    assert_eq!(b.shared.counts.held_out_of_order, (2 << 20) / 256 - 1);
}

#[test]
fn a_duplicate_is_acknowledged_and_not_delivered() {
    let mut b = responder();
    b.take(&[send(RC_SEND_ONLY, 0, b"0"), send(RC_SEND_ONLY, 1, b"1")]);
    assert_eq!(answers(&mut b), [(1, ACK, 2)]);
    for _ in 0..3 {
        b.take(&[silent(send(RC_SEND_ONLY, 0, b"0"))]);
        assert_eq!(answers(&mut b), [(1, ACK, 2)]);
    }
    assert_eq!(b.received.len(), 2);
    assert_eq!(b.shared.counts.duplicate_request, 3);
}

#[test]
fn psns_wrap() {
    let mut b = Side::connected(
        B,
        A,
        Choices {
            psn: 0xff_fffe,
            ..Choices::default()
        },
    );
    for psn in [0xff_fffe, 0xff_ffff, 0, 1] {
        b.take(&[send(RC_SEND_ONLY, psn, b"x")]);
        let (acked, syndrome, _) = answers(&mut b)[0];
        assert_eq!((acked, syndrome), (psn, ACK));
    }
    b.take(&[send(RC_SEND_ONLY, 0xff_ffff, b"x")]);
    assert_eq!(answers(&mut b), [(1, ACK, 4)]);
}

/// Expects a NAK of `psn` and a failure with `status`.
#[track_caller]
fn refuses(mut b: Side, packets: &[Vec<u8>], psn: u32, status: WcStatus) {
    let message = [0; 3];
    b.post(&message);
    let free = b.shared.srq.available();
    b.take(packets);
    assert_eq!(b.qp.state(), State::Err);
    assert_eq!(b.qp.failure(), Some(status));
    let answers = answers(&mut b);
    assert_eq!((answers[0].0, answers[0].1), (psn, INVALID));
    assert_eq!(answers.len(), 1);
    // The receive buffer is free, the send is flushed, and nothing more is sent.
    assert_eq!(b.shared.srq.available(), free);
    assert_eq!(b.completions(), [(1, WcStatus::WrFlushErr)]);
    b.take(&[send(RC_SEND_ONLY, psn, b"x")]);
    assert!(b.send(true).is_empty());
    let event = match status {
        WcStatus::LocLenErr => QpEvent::QpFatal,
        _ => QpEvent::QpReqErr,
    };
    assert_eq!(b.events(), [event, QpEvent::LastWqeReached]);
    let counts = &b.shared.counts;
    let counted = counts.resp_invalid_request + counts.resp_local_length_error;
    assert_eq!(counted, 1);
}

#[test]
fn packets_out_of_their_place_in_a_message_are_invalid() {
    let first = send(RC_SEND_FIRST, 0, &[0; MTU]);
    let invalid = WcStatus::RemInvReqErr;
    for opcode in [RC_SEND_MIDDLE, RC_SEND_LAST, RC_SEND_LAST_IMM] {
        refuses(responder(), &[send(opcode, 0, &[0; MTU])], 0, invalid);
    }
    for opcode in [RC_SEND_FIRST, RC_SEND_ONLY, RC_SEND_ONLY_IMM] {
        let packets = [first.clone(), send(opcode, 1, &[0; MTU])];
        refuses(responder(), &packets, 1, invalid);
    }
}

#[test]
fn lengths_that_do_not_fit_the_path_mtu_are_invalid() {
    let first = send(RC_SEND_FIRST, 0, &[0; MTU]);
    let invalid = WcStatus::RemInvReqErr;
    for len in [0, 100, MTU - 1, MTU + 4] {
        let wrong = send(RC_SEND_FIRST, 0, &vec![0; len]);
        refuses(responder(), &[wrong], 0, invalid);
        let wrong = send(RC_SEND_MIDDLE, 1, &vec![0; len]);
        refuses(responder(), &[first.clone(), wrong], 1, invalid);
    }
    for len in [0, MTU + 1] {
        let wrong = send(RC_SEND_LAST, 1, &vec![0; len]);
        refuses(responder(), &[first.clone(), wrong], 1, invalid);
    }
    refuses(
        responder(),
        &[send(RC_SEND_ONLY, 0, &[0; MTU + 1])],
        0,
        invalid,
    );
}

#[test]
fn operations_that_are_not_served_are_invalid() {
    for opcode in [
        RC_WRITE_FIRST,
        RC_WRITE_ONLY,
        RC_WRITE_ONLY_IMM,
        RC_SEND_ONLY_INVALIDATE,
    ] {
        let packets = [send(opcode, 0, &[0; 8])];
        refuses(responder(), &packets, 0, WcStatus::RemInvReqErr);
    }
    for opcode in [RC_READ_REQUEST, RC_COMPARE_SWAP, RC_FETCH_ADD] {
        let packets = [send(opcode, 0, &[])];
        refuses(responder(), &packets, 0, WcStatus::RemInvReqErr);
    }
}

#[test]
fn a_message_longer_than_the_receive_buffer_is_refused() {
    let short = |buffer_len| {
        with(Choices {
            buffer_len,
            ..Choices::default()
        })
    };
    let only = [send(RC_SEND_ONLY, 0, &[0; 101])];
    refuses(short(100), &only, 0, WcStatus::LocLenErr);
    let many = [
        send(RC_SEND_FIRST, 0, &[0; MTU]),
        send(RC_SEND_LAST, 1, &[0; 2]),
    ];
    refuses(short(MTU + 1), &many, 1, WcStatus::LocLenErr);
    // A kept packet is dropped first, because anybody may have sent it. The requester sends it again.
    let held = [
        send(RC_SEND_LAST, 1, &[0; 2]),
        send(RC_SEND_FIRST, 0, &[0; MTU]),
        send(RC_SEND_LAST, 1, &[0; 2]),
    ];
    refuses(short(MTU + 1), &held, 1, WcStatus::LocLenErr);
}

#[test]
fn without_a_receive_buffer_the_sender_gets_an_rnr_nak() {
    let mut b = with(Choices {
        buffers: 1,
        ..Choices::default()
    });
    let (taken, _) = b.shared.srq.take().unwrap();
    let message = [send(RC_SEND_ONLY, 0, b"0"), send(RC_SEND_ONLY, 1, b"1")];
    b.take(&message);
    let acks: Vec<_> = b.send(true).iter().map(|p| read_ack(p)).collect();
    // One RNR NAK; packets after it get no NAK.
    assert_eq!(acks, [(0, RNR, 0)]);
    b.take(&message[..1]);
    assert_eq!(read_ack(&b.send(false)[0]), (0, RNR, 0));
    assert_eq!(b.shared.counts.send_rnr_err, 2);
    b.shared.srq.post(taken);
    b.take(&message[..1]);
    b.take(&message[1..]);
    assert_eq!(b.received.len(), 2);
}

/// Refuses the first packet for lack of a receive buffer, and keeps the others.
fn refuses_the_first(b: &mut Side, psns: Range<u32>) {
    let first = psns.start;
    let taken: Vec<_> = std::iter::from_fn(|| b.shared.srq.take()).collect();
    b.take(&sends(psns));
    let replies: Vec<_> = b.send(true).iter().map(|p| read_ack(p)).collect();
    assert_eq!(replies, [(first, RNR, first)]);
    for (buffer, _) in taken {
        b.shared.srq.post(buffer);
    }
}

/// As [`packets_are_acknowledged_after_a_requester_that_goes_back_repeats_them`], after an RNR NAK.
#[test]
fn packets_kept_after_an_rnr_nak_are_acknowledged_after_they_are_repeated() {
    let mut b = with(Choices {
        buffers: 8,
        ..Choices::default()
    });
    for start in [0, 5, 10] {
        refuses_the_first(&mut b, start..start + 5);
        for psn in start..start + 4 {
            b.take(&sends(psn..psn + 1));
            assert!(b.send(true).is_empty(), "{psn}");
        }
        b.take(&sends(start + 4..start + 5));
        assert_eq!(read_ack(&b.send(true)[0]), (start + 4, ACK, start + 5));
    }
}

#[test]
fn a_requester_that_repeats_only_the_packet_of_an_rnr_nak_waits_once() {
    let mut b = with(Choices {
        buffers: 8,
        ..Choices::default()
    });
    for start in [0, 5, 10] {
        refuses_the_first(&mut b, start..start + 5);
        b.take(&sends(start..start + 1));
        if start == 0 {
            assert!(b.send(true).is_empty());
            b.expire();
        }
        assert_eq!(read_ack(&b.send(true)[0]), (start + 4, ACK, start + 5));
    }
}

/// Without kept packets there is nothing to wait for, neither at once nor after a later reordering.
#[test]
fn an_rnr_nak_alone_delays_no_acknowledgement() {
    let mut b = with(Choices {
        buffers: 8,
        ..Choices::default()
    });
    refuses_the_first(&mut b, 0..1);
    b.take(&sends(0..1));
    assert_eq!(read_ack(&b.send(true)[0]), (0, ACK, 1));
    b.take(&[sends(2..3), sends(1..2)].concat());
    assert_eq!(read_ack(&b.send(true)[0]), (2, ACK, 3));
}

#[test]
fn packets_before_an_rnr_nak_are_acknowledged_separately() {
    let mut b = with(Choices {
        buffers: 1,
        ..Choices::default()
    });
    b.repost = false;
    b.take(&[send(RC_SEND_ONLY, 0, b"0"), send(RC_SEND_ONLY, 1, b"1")]);
    let acks: Vec<_> = b.send(true).iter().map(|p| read_ack(p)).collect();
    assert_eq!(acks, [(0, ACK, 1), (1, RNR, 1)]);
}

/// Kept packets of a peer that does not return occupy memory.
#[test]
fn kept_packets_are_dropped_after_a_silence() {
    let mut b = responder();
    b.take(&[send(RC_SEND_ONLY, 2, b"c")]);
    assert!(b.shared.srq.held() > 0);
    b.wait(Duration::from_millis(900));
    b.take(&[send(RC_SEND_ONLY, 3, b"d")]);
    let start = b.now;
    while b.shared.srq.held() > 0 {
        b.expire();
    }
    let after = b.now.since(start);
    assert!(after >= Duration::from_secs(1) && after <= Duration::from_secs(2));
    assert_eq!(b.qp.next_deadline(), None);
    // The peer did return.
    b.take(&[send(RC_SEND_ONLY, 0, b"a"), send(RC_SEND_ONLY, 1, b"b")]);
    assert_eq!(b.received.len(), 2);
    b.take(&[send(RC_SEND_ONLY, 2, b"c"), send(RC_SEND_ONLY, 3, b"d")]);
    assert_eq!(b.received.len(), 4);
}

#[test]
fn held_packets_that_find_no_buffer_draw_an_rnr_nak_and_stay() {
    let mut b = with(Choices {
        buffers: 1,
        ..Choices::default()
    });
    b.repost = false;
    b.take(&[send(RC_SEND_ONLY, 1, b"1"), send(RC_SEND_ONLY, 2, b"2")]);
    b.send(true);
    b.take(&[send(RC_SEND_ONLY, 0, b"0")]);
    assert_eq!(answers(&mut b), [(0, ACK, 1), (1, RNR, 1)]);
    b.shared.srq.post(0);
    b.repost = true;
    b.take(&[send(RC_SEND_ONLY, 1, b"1")]);
    // The second packet had to wait for the end of the batch.
    b.take(&[send(RC_SEND_ONLY, 2, b"2")]);
    assert_eq!(b.received.len(), 3);
}

#[test]
fn immediate_data_and_the_solicited_event_come_with_the_message() {
    let mut b = responder();
    let mut solicited = send(RC_SEND_LAST_IMM, 1, &[7; 3]);
    solicited[1] |= 0x80;
    b.take(&[
        send(RC_SEND_FIRST, 0, &[0; MTU]),
        solicited,
        send(RC_SEND_ONLY_IMM, 2, b""),
        send(RC_SEND_ONLY, 3, b""),
    ]);
    let got: Vec<_> = b
        .received
        .iter()
        .map(|m| (m.immediate, m.solicited, m.payload.len()))
        .collect();
    let immediate = Some([1, 2, 3, 4]);
    assert_eq!(
        got,
        [
            (immediate, true, MTU + 3),
            (immediate, false, 0),
            (None, false, 0)
        ]
    );
}

#[test]
fn rtr_takes_and_acknowledges_and_tells_that_communication_is_established() {
    let mut b = Side::new(B, Choices::default());
    b.reach_init();
    b.take(&[send(RC_SEND_ONLY, 0x1000, b"too early")]);
    assert_eq!(b.events(), []);
    b.reach_rtr(A);
    b.take(&[send(RC_SEND_ONLY, 0x1000, b"0")]);
    b.take(&[send(RC_SEND_ONLY, 0x1001, b"1")]);
    assert_eq!(answers(&mut b), [(0x1001, ACK, 2)]);
    assert_eq!(b.events(), [QpEvent::CommEst]);
    assert_eq!(b.received.len(), 2);
}

#[test]
fn the_limit_event_comes_once_for_each_arming() {
    let mut b = with(Choices {
        buffers: 8,
        ..Choices::default()
    });
    b.repost = false;
    b.shared.srq.arm(6);
    for psn in 0..6 {
        b.take(&[send(RC_SEND_ONLY, psn, b"x")]);
        let expected: &[QpEvent] = match psn {
            2 => &[QpEvent::SrqLimitReached],
            _ => &[],
        };
        assert_eq!(b.events(), expected, "after {psn}");
    }
}

#[test]
fn unsolicited_responses_do_no_harm() {
    let (mut a, mut b) = pair(Choices::default());
    for opcode in [RC_READ_RESPONSE_MIDDLE, UC | RC_SEND_ONLY] {
        b.take(&[send(opcode, 0x1000, b"x")]);
    }
    assert_eq!(b.qp.state(), State::Rts);
    a.post(b"still there");
    super::side::exchange(&mut a, &mut b);
    assert_eq!(b.received.len(), 1);
}
