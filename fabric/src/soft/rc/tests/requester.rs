//! The requester's handling of acknowledgements, NAKs and timeouts, against a hand-written responder.

use std::time::Duration;

use proto::IbMtu;

use super::side::{A, B, Choices, Side, ack, exchange, message, packet, pair, read_send};
use crate::soft::qp::State;
use crate::soft::rc::QpEvent;
use crate::soft::wire::opcode::*;
use proto::WcStatus::*;

const ACK: u8 = 0x1f;

fn requester() -> Side {
    with(Choices::default())
}

fn with(choices: Choices) -> Side {
    Side::connected(
        A,
        B,
        Choices {
            mtu: IbMtu::B256,
            psn: 0,
            ..choices
        },
    )
}

/// A side that has sent `n` messages of one packet.
fn having_sent(n: usize, choices: Choices) -> Side {
    let mut a = with(choices);
    for k in 0..n {
        a.post(&message(k, 10));
    }
    assert_eq!(a.send(true).len(), n);
    a
}

fn psns(packets: &[Vec<u8>]) -> Vec<u32> {
    packets.iter().map(|p| read_send(p).1).collect()
}

#[test]
fn one_acknowledgement_completes_all_before_it_in_order() {
    let mut a = having_sent(5, Choices::default());
    a.take(&[ack(3, A, ACK, 4)]);
    let done: Vec<_> = (1..=4).map(|id| (id, Success)).collect();
    assert_eq!(a.completions(), done);
    a.take(&[ack(4, A, ACK, 5)]);
    assert_eq!(a.completions(), [(5, Success)]);
    assert!(
        a.qp.next_deadline()
            .is_none_or(|at| at.since(a.now) > Duration::from_millis(900))
    );
}

#[test]
fn an_acknowledgement_inside_a_message_completes_nothing() {
    let mut a = requester();
    a.post(&message(0, 3 * 256));
    a.send(true);
    a.take(&[ack(1, A, ACK, 0)]);
    assert_eq!(a.completions(), []);
    assert_eq!(a.qp.statistics().in_flight, 1);
    a.take(&[ack(2, A, ACK, 1)]);
    assert_eq!(a.completions(), [(1, Success)]);
}

#[test]
fn acknowledgements_of_unsent_packets_are_ignored() {
    let mut a = having_sent(3, Choices::default());
    a.take(&[ack(1, A, ACK, 2)]);
    a.completions();
    for psn in [0, 3, 100, 0x80_0000, 0xff_ffff] {
        a.take(&[ack(psn, A, ACK, 1)]);
    }
    assert_eq!(a.shared.counts.out_of_window_ack, 5);
    // A second acknowledgement of the last packet is valid.
    a.take(&[ack(1, A, ACK, 2)]);
    assert_eq!(a.shared.counts.out_of_window_ack, 5);
    for psn in [1, 3] {
        for syndrome in [0x60, 0x61, 0x62, 0x63, 0x2c] {
            a.take(&[ack(psn, A, syndrome, 2)]);
        }
    }
    assert_eq!(a.shared.counts.out_of_window_ack, 15);
    assert_eq!(a.qp.state(), State::Rts);
    assert!(a.send(true).is_empty());
    assert_eq!(a.completions(), []);
}

#[test]
fn reserved_syndromes_are_ignored() {
    let mut a = having_sent(2, Choices::default());
    for syndrome in (0x40..0x60).chain(0x64..0x80).chain(0x80..=0xff) {
        a.take(&[ack(0, A, syndrome, 0)]);
    }
    assert_eq!((a.qp.state(), a.completions()), (State::Rts, vec![]));
}

#[test]
fn after_a_nak_the_missing_packet_goes_again_as_it_was() {
    let mut a = requester();
    a.post(&message(0, 256 * 5));
    let first = a.send(true);
    a.take(&[ack(2, A, 0x60, 0)]);
    let again = a.send(true);
    assert_eq!(again.len(), 1);
    let (mut was, is) = (first[2].clone(), &again[0]);
    // Except for the request of an acknowledgement.
    was[8] = 0x80;
    assert_eq!(&was, is);
    assert_eq!(a.shared.counts.packet_seq_err, 1);
    // An echo of the NAK changes nothing.
    a.take(&[ack(2, A, 0x60, 0)]);
    assert!(a.send(true).is_empty());
    // The peer discards packets after the gap: all of them are sent again.
    a.take(&[ack(2, A, ACK, 0)]);
    assert_eq!(psns(&a.send(true)), [3, 4]);
    assert_eq!(a.shared.counts.retransmitted, 3);
    a.take(&[ack(4, A, ACK, 1)]);
    assert_eq!(a.completions(), [(1, Success)]);
}

#[test]
fn a_peer_that_keeps_packets_gets_only_the_missing_ones() {
    let (mut a, mut b) = pair(Choices::default());
    a.post(&message(0, 30 * 1024));
    let mut packets = a.send(true);
    packets.remove(20);
    packets.remove(10);
    b.take(&packets);
    exchange(&mut a, &mut b);
    b.expire();
    exchange(&mut a, &mut b);
    assert_eq!(b.received[0].payload, message(0, 30 * 1024));
    assert_eq!(a.shared.counts.retransmitted, 2);
}

#[test]
fn a_stretch_of_losses_does_not_make_everything_go_again() {
    let (mut a, mut b) = pair(Choices::default());
    a.post(&message(0, 60 * 1024));
    let mut packets = a.send(true);
    packets.drain(10..20);
    b.take(&packets);
    for _ in 0..5 {
        a.wait(Duration::from_millis(1));
        b.now = a.now;
        exchange(&mut a, &mut b);
    }
    assert_eq!(b.received[0].payload, message(0, 60 * 1024));
    // 1, 2, 4 and 8, of which five had arrived.
    assert_eq!(a.shared.counts.retransmitted, 15);
}

#[test]
fn a_lost_end_is_found_out_by_asking() {
    let (mut a, mut b) = pair(Choices::default());
    a.post(b"lost");
    a.send(true);
    let start = a.now;
    a.expire();
    // Long before the negotiated 134 ms.
    assert!(a.now.since(start) <= Duration::from_millis(50));
    b.now = a.now;
    exchange(&mut a, &mut b);
    assert_eq!(b.received.len(), 1);
    b.expire();
    exchange(&mut a, &mut b);
    assert_eq!(a.completions(), [(1, Success)]);
    assert_eq!(a.shared.counts.local_ack_timeout_err, 1);
}

/// Posts messages of 15 packets, as many as the window takes; returns their number.
fn fill(a: &mut Side) -> usize {
    let posts = std::iter::from_fn(|| a.qp.has_room().then(|| a.post(&message(1, 15 * 4096))));
    posts.count()
}

/// Twenty milliseconds on a network without loss.
fn go_on(a: &mut Side, b: &mut Side) {
    for _ in 0..20 {
        b.now = a.now;
        exchange(a, b);
        a.wait(Duration::from_millis(1));
        for side in [&mut *a, &mut *b] {
            side.qp.handle_timeout(side.now, &mut side.shared);
        }
    }
}

#[test]
fn a_lost_acknowledgement_of_many_packets_costs_one_retransmission() {
    let (mut a, mut b) = pair(Choices {
        mtu: IbMtu::B4096,
        ..Choices::default()
    });
    let posted = fill(&mut a);
    let packets = a.send(true);
    assert!(packets.len() >= 60, "{}", packets.len());
    b.take(&packets);
    // One for all of them.
    assert_eq!(b.send(true).len(), 1);
    a.expire();
    go_on(&mut a, &mut b);
    assert_eq!(a.completions().len(), posted);
    assert_eq!(a.shared.counts.retransmitted, 1);
}

#[test]
fn a_lost_request_for_an_acknowledgement_is_repeated() {
    let (mut a, mut b) = pair(Choices {
        mtu: IbMtu::B4096,
        ..Choices::default()
    });
    let posted = fill(&mut a);
    let mut packets = a.send(true);
    let last = |p: &Vec<u8>| read_send(p).0 == RC_SEND_LAST;
    let asks_inside = |p: &Vec<u8>| read_send(p).2 && !last(p);
    let at = packets.iter().position(asks_inside).unwrap();
    packets.remove(at);
    b.take(&packets);
    // Also without the NAK.
    assert_eq!(b.send(true).len(), 1);
    a.expire();
    go_on(&mut a, &mut b);
    assert_eq!(b.received.len(), posted);
    assert_eq!(a.completions().len(), posted);
}

#[test]
fn a_packet_that_is_lost_twice_is_asked_for_within_the_round_trip_not_the_timeout() {
    let mut a = having_sent(1, Choices::default());
    a.wait(Duration::from_micros(100));
    a.take(&[ack(0, A, ACK, 1)]);
    for k in 0..4 {
        a.post(&message(k, 10));
    }
    a.send(true);
    a.take(&[ack(2, A, 0x60, 2)]);
    assert_eq!(psns(&a.send(true)), [2]);
    let start = a.now;
    a.expire();
    assert_eq!(psns(&a.send(true)), [2]);
    assert!(a.now.since(start) <= Duration::from_millis(5));
}

#[test]
fn a_peer_that_is_gone_is_noticed_in_about_a_second() {
    let mut a = having_sent(3, Choices::default());
    let start = a.now;
    while a.qp.state() == State::Rts {
        a.expire();
        // Only the oldest packet is sent again.
        assert!(psns(&a.send(true)).iter().all(|&psn| psn == 0));
        assert!(a.now.since(start) < Duration::from_secs(2));
    }
    assert!(a.now.since(start) > Duration::from_millis(900));
    assert_eq!(
        a.completions(),
        [(1, RetryExcErr), (2, WrFlushErr), (3, WrFlushErr)]
    );
    assert_eq!(a.qp.failure(), Some(RetryExcErr));
    assert_eq!(a.events(), [QpEvent::LastWqeReached]);
    assert_eq!(a.shared.counts.retry_exceeded_err, 1);
    assert!(a.send(true).is_empty());
}

#[test]
fn retry_count_0_gives_up_at_the_first_timeout() {
    let choices = Choices {
        timeout: 14,
        retry_cnt: 0,
        ..Choices::default()
    };
    let mut a = having_sent(1, choices);
    let start = a.now;
    a.expire();
    assert_eq!(a.now.since(start), Duration::from_nanos(4096 << 14));
    assert_eq!(a.completions(), [(1, RetryExcErr)]);
    assert_eq!(a.shared.counts.retransmitted, 0);
}

#[test]
fn retry_count_0_gives_up_at_the_first_nak() {
    let choices = Choices {
        retry_cnt: 0,
        ..Choices::default()
    };
    let mut a = having_sent(4, choices);
    a.take(&[ack(2, A, 0x60, 2)]);
    assert_eq!(a.qp.failure(), Some(RetryExcErr));
    // The packets before the gap have arrived.
    assert_eq!(
        a.completions(),
        [
            (1, Success),
            (2, Success),
            (3, RetryExcErr),
            (4, WrFlushErr)
        ]
    );
    assert_eq!(a.shared.counts.retry_exceeded_err, 1);
    assert!(a.send(true).is_empty());
}

/// Lost packets do not spend retries if there is progress before each NAK.
#[test]
fn naks_with_progress_between_them_have_no_end() {
    let choices = Choices {
        retry_cnt: 1,
        ..Choices::default()
    };
    let mut a = having_sent(1, choices);
    for k in 0..100 {
        a.post(b"next");
        a.wait(Duration::from_millis(1));
        a.take(&[ack(k, A, 0x60, k)]);
        assert_eq!(psns(&a.send(true))[0], k);
        a.take(&[ack(k, A, ACK, k + 1)]);
        a.send(true);
    }
    assert_eq!(a.qp.state(), State::Rts);
}

#[test]
fn progress_gives_the_tries_back() {
    let mut a = having_sent(2, Choices::default());
    while a.now.0 < 1_000_000_000 + 900_000_000 {
        a.expire();
        a.send(true);
    }
    a.take(&[ack(0, A, ACK, 1)]);
    let start = a.now;
    while a.qp.state() == State::Rts {
        a.expire();
        a.send(true);
    }
    assert!(a.now.since(start) > Duration::from_millis(1000));
}

#[test]
fn an_rnr_nak_is_waited_out_and_nothing_goes_meanwhile() {
    for (code, micros) in [(12, 640), (0, 655_360), (1, 10)] {
        let mut a = having_sent(3, Choices::default());
        a.take(&[ack(1, A, 0x20 | code, 1)]);
        // The NAK acknowledges the packets before it.
        assert_eq!(a.completions(), [(1, Success)]);
        a.post(b"more");
        let start = a.now;
        // rdma_rxe's replies to later packets change nothing, and neither does an echo.
        a.take(&[ack(1, A, 0x60, 1), ack(1, A, 0x20, 1)]);
        assert!(a.send(true).is_empty());
        a.expire();
        assert_eq!(a.now.since(start), Duration::from_micros(micros));
        assert_eq!(psns(&a.send(true)), [1]);
        a.take(&[ack(1, A, ACK, 2)]);
        assert_eq!(psns(&a.send(true)), [2, 3]);
        a.take(&[ack(3, A, ACK, 4)]);
        assert_eq!(a.completions().len(), 3);
    }
}

#[test]
fn rnr_naks_are_counted_out() {
    let choices = Choices {
        rnr_retry: 3,
        ..Choices::default()
    };
    let mut a = having_sent(2, choices);
    for _ in 0..3 {
        a.take(&[ack(0, A, 0x21, 0)]);
        a.expire();
        assert_eq!(psns(&a.send(true)), [0]);
    }
    a.take(&[ack(0, A, 0x21, 0)]);
    assert_eq!(a.completions(), [(1, RnrRetryExcErr), (2, WrFlushErr)]);
    // RNR NAKs within the limit, as adapters count them.
    assert_eq!(a.shared.counts.rnr_nak_retry_err, 3);
    assert_eq!(a.shared.counts.retry_rnr_exceeded_err, 1);
}

#[test]
fn rnr_retry_7_has_no_end() {
    let mut a = having_sent(1, Choices::default());
    for _ in 0..500 {
        a.take(&[ack(0, A, 0x21, 0)]);
        a.expire();
        assert_eq!(psns(&a.send(true)), [0]);
    }
    assert_eq!(a.qp.state(), State::Rts);
}

#[test]
fn a_receiver_that_runs_out_of_buffers_gets_everything_in_the_end() {
    let choices = Choices {
        buffers: 2,
        ..Choices::default()
    };
    let (mut a, mut b) = pair(choices);
    b.repost = false;
    for k in 0..20 {
        a.post(&message(k, 3000));
    }
    let mut handled = 0;
    while b.received.len() < 20 {
        exchange(&mut a, &mut b);
        // The consumer handles the messages.
        while handled < b.received.len() {
            b.shared.srq.post((handled % 2) as u32);
            handled += 1;
        }
        let deadline = [a.qp.next_deadline(), b.qp.next_deadline()];
        let now = deadline.into_iter().flatten().min().unwrap();
        for side in [&mut a, &mut b] {
            side.now = side.now.max(now);
            side.qp.handle_timeout(side.now, &mut side.shared);
        }
    }
    assert!((0..20).all(|k| b.received[k].payload == message(k, 3000)));
    assert!(a.shared.counts.rnr_nak_retry_err > 0);
    assert_eq!(a.qp.state(), State::Rts);
}

#[test]
fn naks_of_errors_end_it_with_their_status() {
    for (syndrome, status) in [(0x61, RemInvReqErr), (0x62, RemAccessErr), (0x63, RemOpErr)] {
        let mut a = having_sent(4, Choices::default());
        a.take(&[ack(1, A, syndrome, 1)]);
        assert_eq!(
            a.completions(),
            [(1, Success), (2, status), (3, WrFlushErr), (4, WrFlushErr)]
        );
        assert_eq!((a.qp.state(), a.qp.failure()), (State::Err, Some(status)));
        let counts = a.shared.counts;
        let counted = counts.req_remote_invalid_request + counts.req_remote_access_errors;
        assert_eq!(counted, 1);
    }
}

/// A requester whose window has few packets, because they are large.
fn with_small_window() -> Side {
    let choices = Choices {
        mtu: IbMtu::B4096,
        ..Choices::default()
    };
    Side::connected(A, B, choices)
}

#[test]
fn the_window_bounds_packets_in_flight_and_room() {
    let mut a = requester();
    a.post(&message(0, 63 * 256));
    assert_eq!(a.send(true).len(), 63);
    assert!(a.qp.has_room());
    a.post(&message(1, 4000 * 256));
    assert!(!a.qp.has_room());
    // A single packet at the end of the window, after runs of 64, waits for others.
    assert_eq!(a.send(true).len(), 7 * 64);
    assert_eq!(a.qp.statistics().in_flight, 511);
    a.take(&[ack(31, A, ACK, 0)]);
    // The window has grown by the acknowledged packets.
    assert_eq!(a.send(true).len(), 64);
}

#[test]
fn the_window_never_exceeds_two_mebibytes() {
    let (mut a, mut b) = pair(Choices {
        mtu: IbMtu::B4096,
        ..Choices::default()
    });
    for _ in 0..40 {
        while a.qp.has_room() {
            a.post(&message(0, 65_524));
        }
        let packets = a.send(true);
        assert!(a.qp.statistics().in_flight <= 512);
        a.wait(Duration::from_micros(100));
        b.take(&packets);
        let acks = b.send(true);
        a.take(&acks);
    }
    assert_eq!(a.qp.statistics().window, 512);
}

#[test]
fn one_lost_packet_of_the_largest_window_costs_one_packet() {
    for mtu in [IbMtu::B1024, IbMtu::B4096] {
        let (mut a, mut b) = pair(Choices {
            mtu,
            ..Choices::default()
        });
        let window = (2 << 20) / mtu.bytes();
        while a.qp.statistics().window < window {
            while a.qp.has_room() {
                a.post(&message(0, 65_524));
            }
            exchange(&mut a, &mut b);
        }
        while a.qp.has_room() {
            a.post(&message(0, 65_524));
        }
        let packets = a.send(true);
        b.take(&packets[1..]);
        exchange(&mut b, &mut a);
        assert_eq!(a.qp.statistics().window, window);
        assert_eq!(a.shared.counts.retransmitted, 1);
    }
}

#[test]
fn at_a_peer_that_discards_loss_makes_the_window_smaller_once_a_round_trip() {
    let mut a = requester();
    a.post(&message(0, 1000 * 256));
    a.send(true);
    a.take(&[ack(10, A, 0x60, 0)]);
    a.send(true);
    a.take(&[ack(10, A, ACK, 0)]);
    a.send(true);
    let before = a.qp.statistics().window;
    a.take(&[ack(20, A, 0x60, 0)]);
    let once = a.qp.statistics().window;
    assert!(once < before);
    a.send(true);
    a.take(&[ack(22, A, 0x60, 0)]);
    assert_eq!(a.qp.statistics().window, once);
}

#[test]
fn a_congestion_notification_counts_once_a_round_trip_and_only_with_something_in_flight() {
    let mut a = with_small_window();
    let cnp = packet(CNP, 0, A, &[]);
    a.take(std::slice::from_ref(&cnp));
    assert_eq!(a.qp.statistics().window, 64);
    a.post(&message(0, 200 * 4096));
    a.send(true);
    a.take(&[cnp.clone(), cnp.clone(), cnp]);
    assert_eq!(a.qp.statistics().window, 32);
    let counts = a.shared.counts;
    assert_eq!((counts.rp_cnp_handled, counts.rp_cnp_ignored), (1, 3));
}

#[test]
fn credits_are_obeyed_until_the_peer_stops_counting() {
    let mut a = having_sent(1, Choices::default());
    // No more buffers.
    a.take(&[ack(0, A, 0, 1)]);
    for k in 0..6 {
        a.post(&message(k, 10));
    }
    // One message as a probe.
    assert_eq!(psns(&a.send(true)), [1]);
    a.take(&[ack(1, A, 2, 2)]);
    assert_eq!(psns(&a.send(true)), [2, 3, 4]);
    a.take(&[ack(2, A, ACK, 3)]);
    assert_eq!(psns(&a.send(true)), [5, 6]);
}

#[test]
fn the_round_trip_is_measured_on_packets_that_went_once() {
    let mut a = having_sent(1, Choices::default());
    a.wait(Duration::from_millis(3));
    a.take(&[ack(0, A, ACK, 1)]);
    assert_eq!(a.qp.statistics().srtt, Duration::from_millis(3));
    a.post(b"lost");
    a.send(true);
    a.expire();
    a.send(true);
    a.wait(Duration::from_secs(1) / 100);
    a.take(&[ack(1, A, ACK, 2)]);
    assert_eq!(a.qp.statistics().srtt, Duration::from_millis(3));
}

#[test]
fn a_packet_that_was_named_missing_measures_the_round_trip_as_well() {
    let mut a = having_sent(3, Choices::default());
    a.take(&[ack(0, A, 0x60, 0)]);
    a.send(true);
    a.wait(Duration::from_millis(2));
    a.take(&[ack(2, A, ACK, 3)]);
    assert_eq!(a.qp.statistics().srtt, Duration::from_millis(2));
}

#[test]
fn a_packet_that_was_named_missing_but_only_late_does_not_set_the_minimum_round_trip() {
    let mut a = Side::connected(
        A,
        B,
        Choices {
            mtu: IbMtu::B4096,
            psn: 0,
            ..Choices::default()
        },
    );
    let round_trip = Duration::from_millis(20);
    let mut sent = 0;
    let mut send = |a: &mut Side| {
        while a.qp.has_room() {
            a.post(&message(0, 4096));
            sent += 1;
        }
        a.send(true);
        a.wait(round_trip);
        sent
    };
    for _ in 0..10 {
        let sent = send(&mut a);
        a.take(&[ack(sent - 1, A, ACK, sent)]);
    }
    let window = a.qp.statistics().window;
    let first = a.qp.statistics().tx_messages as u32;
    let sent = send(&mut a);
    a.take(&[ack(first, A, 0x60, first)]);
    a.send(true);
    // The acknowledgement of the original.
    a.wait(Duration::from_micros(500));
    a.take(&[ack(sent - 1, A, ACK, sent)]);
    for _ in 0..10 {
        let sent = send(&mut a);
        a.take(&[ack(sent - 1, A, ACK, sent)]);
    }
    // Later round trips do not count as a full queue.
    assert!(a.qp.statistics().window >= window);
}
