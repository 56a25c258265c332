//! Forged packets ahead of the expected one. The forger knows queue pair, GIDs and P_Key, and guesses the PSN.

use proto::IbMtu;

use super::side::{A, B, Choices, Side, exchange, message, packet, pair, read_ack};
use crate::soft::qp::State;
use crate::soft::wire::opcode::*;

const FIRST: u32 = 0x1000;

/// The first PSN that is too far ahead, for a path MTU and the largest window with that MTU.
#[test]
fn packets_beyond_the_largest_window_of_a_peer_are_not_kept() {
    for (mtu, window) in [(IbMtu::B1024, 2048), (IbMtu::B4096, 512)] {
        let choices = Choices {
            mtu,
            ..Choices::default()
        };
        let mut b = Side::connected(B, A, choices);
        for ahead in [window, 8191] {
            b.take(&[packet(RC_SEND_ONLY, FIRST + ahead, B, b"forged")]);
        }
        assert_eq!(b.shared.counts.held_out_of_order, 0, "{mtu:?}");
        b.take(&[packet(RC_SEND_ONLY, FIRST + window - 1, B, b"genuine")]);
        assert_eq!(b.shared.counts.held_out_of_order, 1, "{mtu:?}");
    }
}

#[test]
fn an_invalid_packet_that_was_kept_does_not_end_the_connection() {
    let forged = [
        (RC_SEND_FIRST, 1024),
        (RC_SEND_ONLY, 10),
        (RC_SEND_MIDDLE, 10),
        (RC_SEND_LAST, 0),
    ];
    for (opcode, len) in forged {
        let (mut a, mut b) = pair(Choices::default());
        let long = message(1, 4 * 1024);
        a.post(&long);
        let packets = a.send(true);
        b.take(&[packet(opcode, FIRST + 2, B, &vec![0xee; len])]);
        b.take(&packets[..2]);
        assert_eq!(b.qp.state(), State::Rts, "opcode {opcode:#x}");
        assert_eq!(b.shared.counts.held_invalid, 1);
        assert_eq!(b.shared.srq.held(), 0, "nothing is kept");
        // The genuine packets after it are lost.
        let naks = b.send(false);
        assert_eq!(read_ack(&naks[0]), (FIRST + 2, 0x60, 0));
        a.take(&naks);
        exchange(&mut a, &mut b);
        assert_eq!(b.received.len(), 1);
        assert_eq!(b.received[0].payload, long);
        a.post(b"next");
        exchange(&mut a, &mut b);
        assert_eq!(b.received[1].payload, b"next");
    }
}

/// As many forged packets as fit, again and again.
#[test]
fn a_stream_beside_injected_packets_goes_on() {
    let (mut a, mut b) = pair(Choices::default());
    let mut sent = Vec::new();
    for round in 0..50 {
        let long = message(round, 10_000);
        a.post(&long);
        sent.push(long);
        let packets = a.send(true);
        let next = (FIRST + 10 * round as u32) + 1;
        let forged: Vec<_> = (0..200)
            .map(|k| packet(RC_SEND_MIDDLE, next + k, B, b"x"))
            .collect();
        b.take(&forged);
        b.take(&packets);
        exchange(&mut a, &mut b);
        while b.received.len() < sent.len() {
            a.expire();
            exchange(&mut a, &mut b);
        }
    }
    let received: Vec<_> = b.received.iter().map(|m| m.payload.clone()).collect();
    assert_eq!(received, sent);
    assert!(b.shared.counts.held_invalid >= 50);
    assert_eq!([a.qp.state(), b.qp.state()], [State::Rts; 2]);
}
