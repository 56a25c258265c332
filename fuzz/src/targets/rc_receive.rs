//! Arbitrary events of the network for a connected RC queue pair, at any time: it answers only valid packets,
//! completes each request once, and keeps its bounds.
//!
//! Input: records of a kind byte and its data. 0 to 3: a request packet, 4 and 5: a response packet (opcode,
//! flags, AckReq and PSN bits, a length; PSNs near the expected ones); 6: time passes; 7: a request is
//! posted. Bit 7 ends the batch, bit 6 flushes, bit 5 returns receive buffers, bit 4 lets the socket accept
//! only part.

use fabric::soft::qp::{Attributes, State};
use fabric::soft::rc::{
    Inbox, Layout, RcCounts, RcPacket, RcQp, SendBuffer, SendRequest, Shared, Srq,
};
use fabric::soft::wire::{Aeth, Bth, Packet, opcode};
use fabric::{IbMtu, Instant, PKey, Psn, Qpn, WcStatus};

const BUFFERS: usize = 4;
const BUFFER_LEN: usize = 2048;
const MTU: IbMtu = IbMtu::B256;
const FIRST: Psn = Psn::new(0xff_fffc);

struct Peer {
    qp: RcQp,
    shared: Shared,
    now: Instant,
    memory: Vec<u8>,
    /// Receive buffers held by the consumer.
    held: Vec<u32>,
    posted: u64,
    completed: u64,
    failed: bool,
}

impl Peer {
    fn new() -> Peer {
        let shared = Shared {
            srq: Srq::new(BUFFERS, BUFFER_LEN),
            inbox: Inbox::default(),
            counts: RcCounts::default(),
        };
        let mut peer = Peer {
            qp: RcQp::new(Qpn::new(0x11)),
            shared,
            now: Instant(1),
            memory: Vec::new(),
            held: Vec::new(),
            posted: 0,
            completed: 0,
            failed: false,
        };
        peer.connect();
        peer
    }

    fn connect(&mut self) {
        let init = Attributes::rc_init(0);
        let peer = "fd00::1".parse().expect("an address");
        let rtr = Attributes::rc_rtr(peer, Qpn::new(0x22), MTU, FIRST, 12);
        let rts = Attributes::rc_rts(FIRST, 15, 7, 7);
        for (state, attributes) in [(State::Init, init), (State::Rtr, rtr), (State::Rts, rts)] {
            self.qp
                .modify(&mut self.shared, state, &attributes)
                .expect("a legal transition");
        }
    }

    /// An arbitrary packet, into the batch.
    fn packet(&mut self, request: bool, spec: [u8; 4]) {
        let [op, flags, psn, len] = spec;
        let opcode = if request {
            op & 0x1f
        } else {
            opcode::RC_ACKNOWLEDGE
        };
        let [_, a, b, c] = FIRST
            .advance(i32::from(psn.cast_signed()).cast_unsigned())
            .get()
            .to_be_bytes();
        let bth = Bth {
            opcode,
            flags: flags & 0xb0,
            pkey: PKey::DEFAULT.get().into(),
            fecn_becn: 0,
            dest_qp: Qpn::new(0x11).to_bytes(),
            ack_req: if flags & 0x40 != 0 { Bth::ACK_REQ } else { 0 },
            psn: [a, b, c],
        };
        // Whole packets of the path MTU get furthest.
        let len = match len {
            0x80..=0xbf => 256,
            0xc0.. => 2 * usize::from(len),
            _ => usize::from(len),
        };
        let at = self.memory.len();
        self.memory.resize(at + if request { len } else { 0 }, op);
        let headers = opcode::headers(opcode).unwrap_or_default();
        let packet = RcPacket {
            bth,
            aeth: headers.aeth.then_some(Aeth {
                syndrome: op,
                msn: [0, 0, flags & 0x0f],
            }),
            immediate: headers.imm_dt.then_some([1, 2, 3, 4]),
            payload: &self.memory[at..],
            at,
        };
        self.qp.receive(self.now, &mut self.shared, &packet);
    }

    fn post(&mut self, spec: [u8; 4]) {
        if !self.qp.has_room() {
            return;
        }
        let [len, several, flags, _] = spec;
        let mtu = MTU.bytes() as usize;
        let (layout, payload, count) = if several & 1 == 0 {
            (Layout::Message, mtu, usize::from(several >> 4) + 1)
        } else {
            (
                Layout::Messages,
                usize::from(len),
                usize::from(several >> 4) + 1,
            )
        };
        let mut buffer = SendBuffer::new(Vec::new(), layout, payload, count);
        let mut places = buffer.places();
        for k in 0..count {
            let len = if k + 1 == count {
                usize::from(len).max(usize::from(layout == Layout::Message && count > 1))
            } else {
                payload
            };
            let Some(place) = places.next(len) else { break };
            place.fill(k as u8);
        }
        buffer.ticket = places.finish();
        let request = SendRequest {
            id: self.posted + 1,
            buffer,
            immediate: (flags & 1 != 0).then_some([9; 4]),
            solicited: flags & 2 != 0,
        };
        if self.qp.post_send(self.now, request).is_ok() {
            self.posted += 1;
        }
    }

    fn end_batch(&mut self) {
        self.qp.end_batch(&mut self.shared, &self.memory);
        for got in &self.shared.inbox.messages {
            assert!(got.len <= BUFFER_LEN);
            let Shared { inbox, srq, .. } = &self.shared;
            let message = inbox.message(got, &self.memory, srq.memory());
            let len: usize = message.parts().map(<[u8]>::len).sum();
            assert_eq!(len, got.len);
            self.held.push(got.buffer);
        }
        self.shared.inbox.clear();
        self.memory.clear();
        assert!(self.held.len() + self.shared.srq.available() <= BUFFERS);
    }

    fn transmit(&mut self, flush: bool, part: bool) {
        let mut packets_sent = 0;
        while let Some(packets) = self.qp.poll_transmit(flush) {
            assert!(packets.count > 0);
            for bytes in packets.memory.chunks(packets.stride) {
                let packet = Packet::parse(bytes).expect("what we send can be read");
                assert_eq!(packet.bth.dest_qp(), Qpn::new(0x22));
            }
            let count = packets.count;
            let taken = if part { count / 2 } else { count };
            self.qp.transmitted(self.now, &mut self.shared, taken);
            packets_sent += count;
            assert!(packets_sent < 10_000, "sends without end");
            if part {
                break;
            }
        }
    }

    fn check(&mut self) {
        while let Some(done) = self.qp.poll_completion() {
            self.completed += 1;
            assert_eq!(done.id, self.completed);
            match done.status {
                WcStatus::Success => assert!(!self.failed),
                status => {
                    assert!(!self.failed || status == WcStatus::WrFlushErr);
                    self.failed = true;
                }
            }
        }
        assert!(self.completed <= self.posted);
        while self.qp.poll_event().is_some() {}
        if self.qp.state() == State::Err {
            assert_eq!(self.completed, self.posted, "everything is flushed");
            let arrived = self.shared.inbox.messages.len();
            assert_eq!(
                self.held.len() + arrived + self.shared.srq.available(),
                BUFFERS
            );
        }
    }
}

pub fn run(data: &[u8]) {
    let mut peer = Peer::new();
    for record in data.chunks_exact(5) {
        let spec = [record[1], record[2], record[3], record[4]];
        match record[0] & 7 {
            0..=3 => peer.packet(true, spec),
            4 | 5 => peer.packet(false, spec),
            6 => {
                let step = u64::from(u32::from_le_bytes(spec));
                peer.now = Instant(peer.now.0 + step);
                peer.qp.handle_timeout(peer.now, &mut peer.shared);
            }
            _ => peer.post(spec),
        }
        if record[0] & 0x80 != 0 {
            peer.end_batch();
        }
        if record[0] & 0x20 != 0 {
            peer.held.drain(..).for_each(|b| peer.shared.srq.post(b));
        }
        peer.transmit(record[0] & 0x40 != 0, record[0] & 0x10 != 0);
        peer.check();
    }
    peer.end_batch();
    let reset = Attributes::default();
    peer.qp
        .modify(&mut peer.shared, State::Reset, &reset)
        .expect("any state may go to RESET");
    assert_eq!(peer.held.len() + peer.shared.srq.available(), BUFFERS);
}
