//! One queue pair with its shared state, and a network between two of them.

use std::time::Duration;

use proto::{Gid, IbMtu, Instant, PKey, Psn, Qpn, WcStatus};

use crate::soft::qp::{Attributes, State};
use crate::soft::rc::{
    Inbox, Layout, QpEvent, RcCounts, RcPacket, RcQp, SendBuffer, SendRequest, Shared, Srq,
};
use crate::soft::wire::{Packet, Repr};
use crate::worker::Part;

/// Parameters of a test.
#[derive(Clone, Copy)]
pub struct Choices {
    pub mtu: IbMtu,
    pub buffers: usize,
    pub buffer_len: usize,
    pub psn: u32,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
}

impl Default for Choices {
    fn default() -> Choices {
        Choices {
            mtu: IbMtu::B1024,
            buffers: 64,
            buffer_len: 1 << 17,
            psn: 0x1000,
            timeout: 15,
            retry_cnt: 7,
            rnr_retry: 7,
        }
    }
}

/// A received message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Received {
    pub payload: Vec<u8>,
    pub immediate: Option<[u8; 4]>,
    pub solicited: bool,
}

/// One end of a connection.
pub struct Side {
    pub qp: RcQp,
    pub shared: Shared,
    pub now: Instant,
    pub received: Vec<Received>,
    /// Post receive buffers again after their message was taken.
    pub repost: bool,
    choices: Choices,
    posted: u64,
}

pub const A: Qpn = Qpn::new(0x11);
pub const B: Qpn = Qpn::new(0x22);

impl Side {
    pub fn new(qpn: Qpn, choices: Choices) -> Side {
        Side {
            qp: RcQp::new(qpn),
            shared: Shared {
                srq: Srq::new(choices.buffers, choices.buffer_len),
                inbox: Inbox::default(),
                counts: RcCounts::default(),
            },
            now: Instant(1_000_000_000),
            received: Vec::new(),
            repost: true,
            choices,
            posted: 0,
        }
    }

    pub fn modify(&mut self, to: State, attributes: &Attributes) {
        self.qp.modify(&mut self.shared, to, attributes).unwrap();
    }

    pub fn reach_init(&mut self) {
        self.modify(State::Init, &Attributes::rc_init(0));
    }

    pub fn reach_rtr(&mut self, peer: Qpn) {
        let (mtu, psn) = (self.choices.mtu, Psn::new(self.choices.psn));
        let attributes = Attributes::rc_rtr(Gid::UNSPECIFIED, peer, mtu, psn, 12);
        self.modify(State::Rtr, &attributes);
    }

    pub fn reach_rts(&mut self) {
        let c = self.choices;
        let psn = Psn::new(c.psn);
        let attributes = Attributes::rc_rts(psn, c.timeout, c.retry_cnt, c.rnr_retry);
        self.modify(State::Rts, &attributes);
    }

    /// A queue pair in RTS, connected to `peer`.
    pub fn connected(qpn: Qpn, peer: Qpn, choices: Choices) -> Side {
        let mut side = Side::new(qpn, choices);
        side.reach_init();
        side.reach_rtr(peer);
        side.reach_rts();
        side
    }

    pub fn wait(&mut self, time: Duration) {
        self.now = self.now.after(time);
    }

    pub fn request(&mut self, message: &[u8]) -> SendRequest {
        let mtu = self.choices.mtu.bytes() as usize;
        let count = message.len().div_ceil(mtu).max(1);
        let payload = message.len().min(mtu).max(1);
        let mut buffer = SendBuffer::new(Vec::new(), Layout::Message, payload, count);
        // Old contents of the pad bytes must not be sent.
        buffer.memory.fill(0xee);
        let mut places = buffer.places();
        let mut rest = message;
        for _ in 0..count {
            let (part, tail) = rest.split_at(rest.len().min(mtu));
            places.next(part.len()).unwrap().copy_from_slice(part);
            rest = tail;
        }
        buffer.ticket = places.finish();
        self.posted += 1;
        SendRequest {
            id: self.posted,
            buffer,
            immediate: None,
            solicited: false,
        }
    }

    pub fn post(&mut self, message: &[u8]) {
        let request = self.request(message);
        self.qp.post_send(self.now, request).unwrap();
    }

    /// The packets to send now.
    pub fn send(&mut self, flush: bool) -> Vec<Vec<u8>> {
        self.runs(flush).into_iter().flatten().collect()
    }

    /// The packets to send now, run by run.
    pub fn runs(&mut self, flush: bool) -> Vec<Vec<Vec<u8>>> {
        let mut runs = Vec::new();
        while let Some(packets) = self.qp.poll_transmit(flush) {
            let count = packets.count;
            let run: Vec<_> = packets
                .memory
                .chunks(packets.stride)
                .map(<[u8]>::to_vec)
                .collect();
            assert_eq!(run.len(), count);
            self.qp.transmitted(self.now, &mut self.shared, count);
            runs.push(run);
        }
        runs
    }

    /// Receives packets in one batch.
    pub fn take(&mut self, packets: &[Vec<u8>]) {
        let memory = packets.concat();
        let mut start = 0;
        for bytes in packets {
            let packet = Packet::parse(bytes).unwrap();
            let offset = packet.payload.as_ptr().addr() - bytes.as_ptr().addr();
            let received = RcPacket {
                bth: packet.bth,
                aeth: packet.extended.aeth,
                immediate: packet.extended.imm_dt.map(|i| i.0),
                payload: packet.payload,
                at: start + offset,
            };
            self.qp.receive(self.now, &mut self.shared, &received);
            start += bytes.len();
        }
        self.qp.end_batch(&mut self.shared, &memory);
        self.collect(&memory);
    }

    fn collect(&mut self, memory: &[u8]) {
        let shared = &mut self.shared;
        for message in shared.inbox.messages.drain(..) {
            let mut payload = Vec::new();
            for part in &shared.inbox.parts[message.parts.clone()] {
                match part {
                    Part::Arrived(range) => payload.extend_from_slice(&memory[range.clone()]),
                    Part::Kept(range) => {
                        payload.extend_from_slice(&shared.srq.memory()[range.clone()]);
                    }
                }
            }
            assert_eq!(payload.len(), message.len);
            self.received.push(Received {
                payload,
                immediate: message.immediate,
                solicited: message.solicited,
            });
            if self.repost {
                shared.srq.post(message.buffer);
            }
        }
        shared.inbox.parts.clear();
    }

    /// Advances time to the next deadline.
    pub fn expire(&mut self) {
        let deadline = self.qp.next_deadline().expect("nothing to wait for");
        self.now = self.now.max(deadline);
        self.qp.handle_timeout(self.now, &mut self.shared);
    }

    pub fn completions(&mut self) -> Vec<(u64, WcStatus)> {
        std::iter::from_fn(|| self.qp.poll_completion())
            .map(|c| (c.id, c.status))
            .collect()
    }

    pub fn events(&mut self) -> Vec<QpEvent> {
        std::iter::from_fn(|| self.qp.poll_event()).collect()
    }
}

/// Two connected sides.
pub fn pair(choices: Choices) -> (Side, Side) {
    (
        Side::connected(A, B, choices),
        Side::connected(B, A, choices),
    )
}

/// Exchanges packets until neither side has any.
pub fn exchange(a: &mut Side, b: &mut Side) {
    loop {
        let to_b = a.send(true);
        b.take(&to_b);
        let to_a = b.send(true);
        a.take(&to_a);
        if to_a.is_empty() && to_b.is_empty() {
            return;
        }
    }
}

/// A packet as a peer builds it.
pub fn packet(opcode: u8, psn: u32, dest: Qpn, payload: &[u8]) -> Vec<u8> {
    let headers = crate::soft::wire::opcode::headers(opcode).unwrap();
    let mut extended = crate::soft::wire::Extended::default();
    if headers.imm_dt {
        extended.imm_dt = Some(crate::soft::wire::ImmDt([1, 2, 3, 4]));
    }
    if headers.atomic_eth {
        extended.atomic_eth = Some(zerocopy::FromZeros::new_zeroed());
    }
    if headers.reth {
        extended.reth = Some(zerocopy::FromZeros::new_zeroed());
    }
    if headers.ieth {
        extended.ieth = Some(zerocopy::FromZeros::new_zeroed());
    }
    if headers.cnp {
        extended.cnp = Some([0; 16]);
    }
    emit(opcode, psn, dest, extended, payload)
}

/// An acknowledgement as a peer builds it.
pub fn ack(psn: u32, dest: Qpn, syndrome: u8, msn: u32) -> Vec<u8> {
    let [_, m0, m1, m2] = msn.to_be_bytes();
    let extended = crate::soft::wire::Extended {
        aeth: Some(crate::soft::wire::Aeth {
            syndrome,
            msn: [m0, m1, m2],
        }),
        ..Default::default()
    };
    emit(
        crate::soft::wire::opcode::RC_ACKNOWLEDGE,
        psn,
        dest,
        extended,
        &[],
    )
}

fn emit(
    opcode: u8,
    psn: u32,
    dest: Qpn,
    extended: crate::soft::wire::Extended,
    payload: &[u8],
) -> Vec<u8> {
    let repr = Repr {
        opcode,
        solicited: false,
        mig_req: false,
        pkey: PKey::DEFAULT,
        fecn: false,
        becn: false,
        dest_qp: dest,
        ack_req: true,
        psn: Psn::new(psn),
        extended,
        payload,
    };
    let mut bytes = Vec::new();
    repr.emit(&mut bytes).unwrap();
    bytes.extend_from_slice(&[0; 4]);
    bytes
}

/// PSN, syndrome and MSN of an acknowledgement.
pub fn read_ack(bytes: &[u8]) -> (u32, u8, u32) {
    let packet = Packet::parse(bytes).unwrap();
    let aeth = packet.extended.aeth.unwrap();
    (packet.bth.psn().get(), aeth.syndrome, aeth.msn())
}

/// Opcode and PSN of a SEND packet, and whether it requests an acknowledgement.
pub fn read_send(bytes: &[u8]) -> (u8, u32, bool) {
    let packet = Packet::parse(bytes).unwrap();
    let bth = packet.bth;
    (bth.opcode, bth.psn().get(), bth.ack_req())
}

/// A unique message.
pub fn message(seed: usize, len: usize) -> Vec<u8> {
    (0..len)
        .map(|k| (k.wrapping_mul(31) ^ seed.wrapping_mul(17) ^ (k >> 8)) as u8)
        .collect()
}
