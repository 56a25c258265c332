//! States, flushing, draining, and the cost of an idle queue pair.

use std::time::Duration;

use proto::IbMtu;

use super::side::{A, B, Choices, Side, ack, exchange, message, packet, pair, read_ack, read_send};
use crate::soft::qp::{Attributes, State};
use crate::soft::rc::{QpEvent, RcQp};
use crate::soft::wire::opcode::*;
use proto::WcStatus::*;

fn none() -> Attributes {
    Attributes::default()
}

fn notify() -> Attributes {
    Attributes {
        sqd_notify: Some(true),
        ..none()
    }
}

#[test]
fn sends_are_refused_before_rts() {
    let mut a = Side::new(A, Choices::default());
    for step in 0..3 {
        match step {
            0 => {}
            1 => a.reach_init(),
            _ => a.reach_rtr(B),
        }
        let request = a.request(b"too early");
        let refused = a.qp.post_send(a.now, request).unwrap_err();
        assert_eq!(refused.buffer.ticket.last, 9);
    }
    a.reach_rts();
    a.post(b"now");
    assert_eq!(a.send(true).len(), 1);
}

#[test]
fn an_illegal_transition_changes_nothing() {
    let mut a = Side::new(A, Choices::default());
    let rtr = a.qp.modify(&mut a.shared, State::Rtr, &none());
    assert!(rtr.is_err());
    assert!(a.qp.modify(&mut a.shared, State::Err, &none()).is_err());
    assert_eq!(a.qp.state(), State::Reset);
}

#[test]
fn acknowledgements_in_rtr_are_dropped() {
    let mut a = Side::new(A, Choices::default());
    a.reach_init();
    a.reach_rtr(B);
    a.take(&[ack(0xfff, A, 0x1f, 0), ack(0x1000, A, 0x61, 0)]);
    assert_eq!(a.qp.state(), State::Rtr);
    assert_eq!(a.shared.counts.rcvd_pkts, 0);
}

#[test]
fn to_err_everything_is_flushed_in_order() {
    let mut a = Side::connected(A, B, Choices::default());
    for k in 0..3 {
        a.post(&message(k, 5000));
    }
    a.send(true);
    // A message is incomplete.
    let free = a.shared.srq.available();
    a.take(&[packet(RC_SEND_FIRST, 0x1000, A, &[0; 1024])]);
    assert_eq!(a.shared.srq.available(), free - 1);
    a.modify(State::Err, &none());
    assert_eq!(a.shared.srq.available(), free);
    let flushed: Vec<_> = (1..=3).map(|id| (id, WrFlushErr)).collect();
    assert_eq!(a.completions(), flushed);
    assert_eq!(a.events(), [QpEvent::LastWqeReached]);
    // Later requests are flushed as well; received packets are dropped.
    a.post(b"late");
    assert_eq!(a.completions(), [(4, WrFlushErr)]);
    a.take(&[packet(RC_SEND_LAST, 0x1001, A, &[0; 4])]);
    assert!(a.received.is_empty() && a.send(true).is_empty());
    a.modify(State::Err, &none());
    assert_eq!(a.events(), []);
}

#[test]
fn draining_finishes_begun_messages_and_reports_once() {
    let choices = Choices {
        mtu: IbMtu::B256,
        psn: 0,
        ..Choices::default()
    };
    let mut a = Side::connected(A, B, choices);
    a.post(&message(0, 600 * 256));
    a.post(b"not begun");
    assert_eq!(a.send(true).len(), 512);
    a.modify(State::Sqd, &notify());
    a.post(b"waits");
    a.take(&[ack(511, A, 0x1f, 0)]);
    assert_eq!(a.send(true).len(), 88);
    assert_eq!(a.events(), []);
    // Requests of the peer are still served.
    a.take(&[packet(RC_SEND_ONLY, 0, A, b"x")]);
    assert_eq!(a.received.len(), 1);
    a.take(&[ack(599, A, 0x1f, 1)]);
    assert_eq!(a.events(), [QpEvent::SqDrained]);
    a.take(&[ack(599, A, 0x1f, 1)]);
    assert_eq!(a.events(), []);
    let still = a.send(true);
    assert!(still.iter().all(|p| p[0] == RC_ACKNOWLEDGE));
    a.modify(State::Rts, &none());
    let opcodes: Vec<_> = a.send(true).iter().map(|p| read_send(p).0).collect();
    assert_eq!(opcodes, [RC_SEND_ONLY, RC_SEND_ONLY]);
}

#[test]
fn an_idle_send_queue_is_drained_at_once_and_tells_only_if_asked() {
    let mut a = Side::connected(A, B, Choices::default());
    a.modify(State::Sqd, &notify());
    assert_eq!(a.events(), [QpEvent::SqDrained]);
    a.modify(State::Rts, &none());
    a.modify(State::Sqd, &none());
    assert_eq!(a.events(), []);
}

#[test]
fn reset_forgets_everything_without_completions() {
    let (mut a, mut b) = pair(Choices::default());
    a.post(b"one");
    exchange(&mut a, &mut b);
    b.expire();
    exchange(&mut a, &mut b);
    a.post(b"two");
    a.send(true);
    // A gap was reported, a message is incomplete.
    b.take(&[packet(RC_SEND_FIRST, 0x1001, B, &[0; 1024])]);
    b.take(&[packet(RC_SEND_ONLY, 0x1009, B, b"x")]);
    let free = b.shared.srq.available();
    a.completions();
    for side in [&mut a, &mut b] {
        side.modify(State::Reset, &none());
        assert_eq!(side.qp.next_deadline(), None);
        assert!(side.completions().is_empty() && side.send(true).is_empty());
    }
    assert_eq!(b.shared.srq.available(), free + 1);
    // A new start: same PSN, first message.
    for (side, peer) in [(&mut a, B), (&mut b, A)] {
        side.reach_init();
        side.reach_rtr(peer);
        side.reach_rts();
    }
    a.post(b"again");
    let packets = a.send(true);
    assert_eq!(read_send(&packets[0]).1, 0x1000);
    b.take(&[packets[0].clone(), packet(RC_SEND_ONLY, 0x1009, B, b"x")]);
    let nak = b.send(true);
    assert_eq!(read_ack(&nak[0]), (0x1001, 0x60, 1));
}

#[test]
fn an_idle_queue_pair_takes_little_memory() {
    let (mut a, mut b) = pair(Choices::default());
    for k in 0..200 {
        a.post(&message(k, 10_000));
        b.post(&message(k, 100));
    }
    exchange(&mut a, &mut b);
    for _ in 0..8 {
        for side in [&mut a, &mut b] {
            side.wait(Duration::from_millis(1500));
            side.qp.handle_timeout(side.now, &mut side.shared);
        }
        exchange(&mut a, &mut b);
    }
    for side in [&mut a, &mut b] {
        assert_eq!(side.completions().len(), 200);
        side.wait(Duration::from_secs(2));
        side.qp.handle_timeout(side.now, &mut side.shared);
        assert_eq!(side.qp.next_deadline(), None);
        let bytes = size_of::<RcQp>() + side.qp.heap_bytes();
        assert!(bytes < 2048, "{bytes} bytes");
    }
}
