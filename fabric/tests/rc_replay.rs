//! Replays packets of `rdma_rxe` to our responder, packet by packet, and compares its replies with
//! those of the other `rdma_rxe`: syndrome, PSN and MSN.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::IpAddr;
use std::path::Path;

use fabric::soft::icrc::{L3, Verdict, verify_l3};
use fabric::soft::qp::{Attributes, State};
use fabric::soft::rc::{Inbox, RcCounts, RcPacket, RcQp, Shared, Srq};
use fabric::soft::wire::{Packet, opcode};
use fabric::{IbMtu, Instant, Psn, Qpn};
use pcap_file::pcap::PcapReader;

/// Bytes of an Ethernet header without a VLAN tag; no capture here has one.
const ETHERNET_HEADER_LEN: usize = 14;
const MILLISECOND: u64 = 1_000_000;

/// A packet of a capture: source, destination, and bytes from the BTH on.
struct Captured {
    from: IpAddr,
    to: IpAddr,
    transport: Vec<u8>,
}

impl Captured {
    fn packet(&self) -> Packet<'_> {
        Packet::parse(&self.transport).unwrap()
    }
}

fn captured(name: &str) -> Vec<Captured> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/data/captures")
        .join(name);
    let mut reader = PcapReader::new(File::open(file).unwrap()).unwrap();
    let mut packets = Vec::new();
    while let Some(frame) = reader.next_raw_packet() {
        let frame = frame.unwrap();
        let Ok(l3) = L3::parse(&frame.data[ETHERNET_HEADER_LEN..]) else {
            continue;
        };
        assert_eq!(verify_l3(&frame.data[ETHERNET_HEADER_LEN..]), Verdict::Good);
        packets.push(Captured {
            from: l3.source,
            to: l3.destination,
            transport: l3.transport.to_vec(),
        });
    }
    packets
}

/// A reply: syndrome, PSN, MSN.
type Answer = (u8, u32, u32);

/// The requests that one queue pair received, and its replies.
#[derive(Default)]
struct Exchange<'a> {
    requests: Vec<Packet<'a>>,
    answers: Vec<Answer>,
}

/// The exchanges of a capture that contains only messages, by the receiver's address and queue pair.
fn exchanges(packets: &[Captured]) -> Vec<((IpAddr, u32), Exchange<'_>)> {
    let mut all: BTreeMap<(IpAddr, u32), Exchange<'_>> = BTreeMap::new();
    for captured in packets {
        let packet = captured.packet();
        if packet.bth.opcode <= opcode::RC_SEND_ONLY_IMM {
            let key = (captured.to, packet.bth.dest_qp().get());
            all.entry(key).or_default().requests.push(packet);
        }
    }
    for captured in packets {
        let packet = captured.packet();
        let (opcode::RC_ACKNOWLEDGE, Some(aeth)) = (packet.bth.opcode, packet.extended.aeth) else {
            continue;
        };
        // A reply names its receiver; its PSN shows the exchange.
        let psn = packet.bth.psn();
        let exchange = all.iter_mut().find(|((to, _), e)| {
            let first = e.requests[0].bth.psn();
            *to == captured.from && (0..1000).contains(&psn.since(first))
        });
        if let Some((_, exchange)) = exchange {
            exchange
                .answers
                .push((aeth.syndrome, psn.get(), aeth.msn()));
        }
    }
    all.into_iter().collect()
}

/// A responder that expects the first PSN of an exchange.
struct Responder {
    qp: RcQp,
    shared: Shared,
    now: Instant,
    messages: Vec<Vec<u8>>,
    answers: Vec<Answer>,
}

impl Responder {
    fn expecting(requests: &[Packet<'_>]) -> Responder {
        let full = |p: &&Packet<'_>| p.bth.opcode <= opcode::RC_SEND_MIDDLE;
        let mtu = requests.iter().find(full).map_or(4096, |p| p.payload.len());
        let shared = Shared {
            srq: Srq::new(64, 1 << 17),
            inbox: Inbox::default(),
            counts: RcCounts::default(),
        };
        let mut responder = Responder {
            qp: RcQp::new(requests[0].bth.dest_qp()),
            shared,
            now: Instant(MILLISECOND),
            messages: Vec::new(),
            answers: Vec::new(),
        };
        responder.make_ready(IbMtu::fitting(mtu as u32).unwrap(), requests[0].bth.psn());
        responder
    }

    fn make_ready(&mut self, path_mtu: IbMtu, rq_psn: Psn) {
        let init = Attributes::rc_init(0);
        let peer = "fd00::1".parse().unwrap();
        let rtr = Attributes::rc_rtr(peer, Qpn::new(0x77), path_mtu, rq_psn, 12);
        for (state, attributes) in [(State::Init, init), (State::Rtr, rtr)] {
            self.qp
                .modify(&mut self.shared, state, &attributes)
                .unwrap();
        }
    }

    /// Receives one batch and waits until no reply is delayed.
    fn receive(&mut self, batch: &[Packet<'_>]) {
        let mut memory = Vec::new();
        let starts: Vec<usize> = batch
            .iter()
            .map(|packet| {
                memory.extend_from_slice(packet.payload);
                memory.len() - packet.payload.len()
            })
            .collect();
        for (packet, at) in batch.iter().zip(starts) {
            let packet = RcPacket {
                bth: packet.bth,
                aeth: packet.extended.aeth,
                immediate: packet.extended.imm_dt.map(|i| i.0),
                payload: &memory[at..at + packet.payload.len()],
                at,
            };
            self.qp.receive(self.now, &mut self.shared, &packet);
        }
        self.qp.end_batch(&mut self.shared, &memory);
        let Shared { inbox, srq, .. } = &self.shared;
        for got in &inbox.messages {
            let message = inbox.message(got, &memory, srq.memory());
            self.messages
                .push(message.parts().flatten().copied().collect());
        }
        for got in self.shared.inbox.messages.clone() {
            self.shared.srq.post(got.buffer);
        }
        self.shared.inbox.clear();
        self.answer();
        self.now = Instant(self.now.0 + 2 * MILLISECOND);
        self.qp.handle_timeout(self.now, &mut self.shared);
        self.answer();
    }

    fn answer(&mut self) {
        while let Some(packets) = self.qp.poll_transmit(true) {
            let count = packets.count;
            for bytes in packets.memory.chunks(packets.stride) {
                let packet = Packet::parse(bytes).unwrap();
                assert_eq!(packet.bth.opcode, opcode::RC_ACKNOWLEDGE);
                assert_eq!(packet.bth.dest_qp(), Qpn::new(0x77));
                let aeth = packet.extended.aeth.unwrap();
                let answer = (aeth.syndrome, packet.bth.psn().get(), aeth.msn());
                self.answers.push(answer);
            }
            self.qp.transmitted(self.now, &mut self.shared, count);
        }
    }
}

/// The messages of the packets; each PSN counts once.
fn messages_of(requests: &[Packet<'_>]) -> Vec<Vec<u8>> {
    let first = requests[0].bth.psn();
    let by_psn: BTreeMap<i32, &Packet<'_>> = requests
        .iter()
        .map(|p| (p.bth.psn().since(first), p))
        .collect();
    let mut messages = vec![Vec::new()];
    for packet in by_psn.values() {
        messages
            .last_mut()
            .unwrap()
            .extend_from_slice(packet.payload);
        if packet.bth.opcode >= opcode::RC_SEND_LAST {
            messages.push(Vec::new());
        }
    }
    assert_eq!(messages.pop(), Some(Vec::new()), "an incomplete message");
    messages
}

/// Without loss our replies are the same, those to duplicates included, if each packet is a batch. With
/// larger batches, the last reply covers all others.
#[test]
fn answers_are_those_of_rxe() {
    let mut compared = 0;
    for name in [
        "rc_send_v4.pcap",
        "rc_send_v6.pcap",
        "rc_send_multi_v4.pcap",
        "kernel-ipoib/03-connected.pcap",
    ] {
        let packets = captured(name);
        for (receiver, exchange) in exchanges(&packets) {
            let mut singly = Responder::expecting(&exchange.requests);
            for packet in &exchange.requests {
                singly.receive(&[*packet]);
            }
            assert_eq!(singly.answers, exchange.answers, "{name} {receiver:?}");
            let mut at_once = Responder::expecting(&exchange.requests);
            for batch in exchange.requests.chunks(7) {
                at_once.receive(batch);
            }
            assert_eq!(at_once.answers.last(), exchange.answers.last(), "{name}");
            assert!(at_once.answers.len() <= exchange.answers.len(), "{name}");
            let wanted = messages_of(&exchange.requests);
            assert_eq!(singly.messages, wanted, "{name}");
            assert_eq!(at_once.messages, wanted, "{name}");
            compared += exchange.answers.len();
        }
    }
    assert_eq!(compared, 31);
}

/// With loss towards the receiver: the gap causes the NAK that rxe sent. Then `rdma_rxe` has discarded
/// the packets after the gap and requests them again; our responder has kept them.
#[test]
fn a_gap_draws_the_nak_of_rxe() {
    let packets = captured("rc_loss_v4.pcap");
    let mut exchanges = exchanges(&packets).into_iter();
    let (_, lossy) = exchanges.next().unwrap();
    let mut ours = Responder::expecting(&lossy.requests);
    for packet in &lossy.requests {
        ours.receive(&[*packet]);
    }
    let naks = |answers: &[Answer]| -> Vec<Answer> {
        answers.iter().copied().filter(|a| a.0 == 0x60).collect()
    };
    let theirs = naks(&lossy.answers);
    assert_eq!(theirs, [(0x60, 0x08_0171, 3), (0x60, 0x08_0172, 3)]);
    assert_eq!(naks(&ours.answers), theirs[..1]);
    assert_eq!(ours.answers.last(), lossy.answers.last());
    assert_eq!(ours.messages, messages_of(&lossy.requests));
    assert_eq!(ours.shared.counts.out_of_sequence, 2);

    // In the other direction only replies were lost.
    let (_, whole) = exchanges.next().unwrap();
    let mut ours = Responder::expecting(&whole.requests);
    for packet in &whole.requests {
        ours.receive(&[*packet]);
    }
    for answer in &whole.answers {
        assert!(ours.answers.contains(answer), "{answer:x?}");
    }
    assert_eq!(ours.answers.last(), whole.answers.last());
    assert_eq!(ours.messages, messages_of(&whole.requests));
}
