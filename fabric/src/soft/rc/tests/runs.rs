//! How messages are cut into packets, and packets into runs.

use proto::{IbMtu, PKey};

use super::side::{A, B, Choices, Side, exchange, message, pair, read_send};
use crate::soft::rc::{Layout, SendBuffer, SendRequest};
use crate::soft::wire::opcode::*;
use crate::soft::wire::{Bth, Packet};

fn sender(mtu: IbMtu) -> Side {
    let choices = Choices {
        mtu,
        psn: 0,
        ..Choices::default()
    };
    Side::connected(A, B, choices)
}

#[test]
fn the_largest_datagram_at_mtu_1024_is_64_packets_in_equal_runs() {
    let mut a = sender(IbMtu::B1024);
    a.post(&message(0, 65_524));
    let runs = a.runs(true);
    assert_eq!(runs.iter().map(Vec::len).collect::<Vec<_>>(), [32, 32]);
    let packets = runs.concat();
    assert_eq!(Packet::parse(&packets[63]).unwrap().payload.len(), 1012);
    let opcodes: Vec<_> = packets.iter().map(|p| read_send(p).0).collect();
    assert_eq!(opcodes[0], RC_SEND_FIRST);
    assert!(opcodes[1..63].iter().all(|&o| o == RC_SEND_MIDDLE));
    assert_eq!(opcodes[63], RC_SEND_LAST);
}

#[test]
fn at_mtu_4096_it_is_two_runs_of_eight() {
    let mut a = sender(IbMtu::B4096);
    a.post(&message(0, 65_524));
    let runs = a.runs(true);
    assert_eq!(runs.iter().map(Vec::len).collect::<Vec<_>>(), [8, 8]);
    // A smaller limit makes more runs.
    a.qp.set_path(PKey::new(0x8001), 5 * 4112);
    a.post(&message(0, 65_524));
    let runs = a.runs(true);
    assert_eq!(runs.iter().map(Vec::len).collect::<Vec<_>>(), [4, 4, 4, 4]);
    let bth = Bth::from_prefix(&runs[0][0]).unwrap();
    assert_eq!((bth.pkey(), bth.dest_qp()), (PKey::new(0x8001), B));
}

#[test]
fn every_end_of_a_message_and_a_half_full_window_ask_for_an_acknowledgement() {
    let mut a = sender(IbMtu::B4096);
    a.post(&message(0, 20));
    for _ in 0..4 {
        a.post(&message(0, 15 * 4096));
    }
    // The window is 64. The third long message fills half of it.
    let asking: Vec<_> = a
        .send(true)
        .iter()
        .map(|p| read_send(p))
        .filter(|(_, _, asks)| *asks)
        .map(|(_, psn, _)| psn)
        .collect();
    assert_eq!(asking, [0, 15, 30, 31, 45, 60]);
}

#[test]
fn pad_bytes_are_zero_and_counted() {
    let mut a = sender(IbMtu::B256);
    for len in 0..9 {
        a.post(&vec![0xff; len]);
        let packets = a.send(true);
        let packet = Packet::parse(&packets[0]).unwrap();
        assert_eq!(packet.bth.opcode, RC_SEND_ONLY);
        assert_eq!(packet.payload, vec![0xff; len]);
        assert!(packet.pad.iter().all(|&b| b == 0));
        assert_eq!((packet.payload.len() + packet.pad.len()) % 4, 0);
        assert!(!packet.bth.mig_req() && !packet.bth.solicited());
    }
}

#[test]
fn an_empty_message_is_one_packet() {
    let (mut a, mut b) = pair(Choices::default());
    a.post(b"");
    exchange(&mut a, &mut b);
    assert_eq!(b.received[0].payload, b"");
}

#[test]
fn messages_side_by_side_are_packets_of_their_own() {
    let (mut a, mut b) = pair(Choices::default());
    let mut buffer = SendBuffer::new(Vec::new(), Layout::Messages, 100, 8);
    let mut places = buffer.places();
    for k in 0..7u8 {
        let len = if k == 6 { 33 } else { 100 };
        places.next(len).unwrap().fill(k);
    }
    buffer.ticket = places.finish();
    let request = SendRequest {
        id: 7,
        buffer,
        immediate: None,
        solicited: false,
    };
    a.qp.post_send(a.now, request).unwrap();
    let runs = a.runs(true);
    assert_eq!(runs.len(), 1);
    assert!(
        runs[0]
            .iter()
            .all(|p| read_send(p).0 == RC_SEND_ONLY && read_send(p).2)
    );
    // The fourth packet is lost.
    let mut packets = runs[0].clone();
    packets.remove(3);
    b.take(&packets);
    assert_eq!(b.received.len(), 3);
    assert!(a.completions().is_empty());
    exchange(&mut a, &mut b);
    // A requester that may send the others again gets the acknowledgement a little later.
    b.expire();
    exchange(&mut a, &mut b);
    let lens: Vec<_> = b.received.iter().map(|m| m.payload.len()).collect();
    assert_eq!(lens, [100, 100, 100, 100, 100, 100, 33]);
    assert_eq!(a.completions().len(), 1);
    assert_eq!(a.qp.statistics().tx_messages, 7);
    assert_eq!(a.qp.statistics().tx_bytes, 633);
}

#[test]
fn immediate_data_travel_with_the_last_packet_even_if_it_is_full() {
    for len in [0, 3, 1024, 1025, 4096] {
        let (mut a, mut b) = pair(Choices::default());
        let mut request = a.request(&message(1, len));
        request.immediate = Some([9, 8, 7, 6]);
        request.solicited = true;
        a.qp.post_send(a.now, request).unwrap();
        a.post(b"behind it");
        exchange(&mut a, &mut b);
        assert_eq!(b.received[0].payload, message(1, len));
        assert_eq!(b.received[0].immediate, Some([9, 8, 7, 6]));
        assert!(b.received[0].solicited);
        assert_eq!(b.received[1].payload, b"behind it");
        assert!(!b.received[1].solicited);
    }
}

#[test]
fn a_mebibyte_goes_through() {
    let choices = Choices {
        buffer_len: 1 << 20,
        buffers: 2,
        mtu: IbMtu::B256,
        ..Choices::default()
    };
    let (mut a, mut b) = pair(choices);
    let long = message(5, 1 << 20);
    a.post(&long);
    exchange(&mut a, &mut b);
    assert_eq!(b.received[0].payload, long);
}

#[test]
fn a_run_sent_in_part_continues_where_it_stopped() {
    let (mut a, mut b) = pair(Choices::default());
    let sent = message(3, 20 * 1024);
    a.post(&sent);
    let mut given = Vec::new();
    for k in 0.. {
        let Some(packets) = a.qp.poll_transmit(true) else {
            break;
        };
        let take = (k % 4).min(packets.count);
        let stride = packets.stride;
        given.extend(packets.memory.chunks(stride).take(take).map(<[u8]>::to_vec));
        a.qp.transmitted(a.now, &mut a.shared, take);
    }
    b.take(&given);
    assert_eq!(b.received[0].payload, sent);
}

#[test]
fn buffers_not_cut_for_the_path_are_refused() {
    let mut a = sender(IbMtu::B1024);
    let buffer = |payload, count, fill: &[usize]| {
        let mut buffer = SendBuffer::new(Vec::new(), Layout::Message, payload, count);
        let mut places = buffer.places();
        for &len in fill {
            places.next(len).unwrap();
        }
        buffer.ticket = places.finish();
        buffer
    };
    let mut post = |buffer| {
        let request = SendRequest {
            id: 1,
            buffer,
            immediate: None,
            solicited: false,
        };
        a.qp.post_send(a.now, request).is_ok()
    };
    assert!(!post(buffer(1024, 2, &[])));
    assert!(!post(buffer(1025, 1, &[1025])));
    assert!(!post(buffer(1000, 2, &[1000, 5])));
    assert!(!post(buffer(1024, 2, &[1024, 0])));
    let mut lying = buffer(1024, 1, &[1024]);
    lying.ticket.count = usize::MAX;
    assert!(!post(lying));
    let mut too_little = buffer(1024, 4, &[1024, 1024, 1024, 1024]);
    too_little.memory.truncate(4 * 1040 - 1);
    assert!(!post(too_little));
    assert!(post(buffer(1024, 2, &[1024, 1024])));
}
