//! A busy reliable connection allocates nothing: neither for packets nor for messages nor for
//! acknowledgements.

use std::time::Duration;

use fabric::soft::qp::{Attributes, State};
use fabric::soft::rc::{
    Inbox, Layout, RcCounts, RcPacket, RcQp, SendBuffer, SendRequest, Shared, Srq,
};
use fabric::soft::wire::Packet;
use fabric::{Gid, IbMtu, Instant, Psn, Qpn};
use kit::allocator;

/// One end: a queue pair with its shared state, and buffers for reuse.
struct End {
    qp: RcQp,
    shared: Shared,
    spare: Vec<Vec<u8>>,
    received: usize,
}

const MTU: usize = 4096;

impl End {
    fn new(qpn: Qpn, peer: Qpn) -> End {
        let mut end = End {
            qp: RcQp::new(qpn),
            shared: Shared {
                srq: Srq::new(64, 65_536),
                inbox: Inbox::default(),
                counts: RcCounts::default(),
            },
            spare: vec![Vec::new(); 8],
            received: 0,
        };
        let psn = Psn::new(7);
        let init = Attributes::rc_init(0);
        let rtr = Attributes::rc_rtr(Gid::UNSPECIFIED, peer, IbMtu::B4096, psn, 12);
        let rts = Attributes::rc_rts(psn, 15, 7, 7);
        for (state, attributes) in [(State::Init, init), (State::Rtr, rtr), (State::Rts, rts)] {
            end.qp
                .modify(&mut end.shared, state, &attributes)
                .expect("valid attributes");
        }
        end
    }

    /// Posts messages of `len` bytes in all free buffers.
    fn post(&mut self, now: Instant, len: usize) {
        while let Some(memory) = self.spare.pop() {
            let count = len.div_ceil(MTU);
            let mut buffer = SendBuffer::new(memory, Layout::Message, len.min(MTU), count);
            let mut places = buffer.places();
            for k in 0..count {
                places
                    .next((len - k * MTU).min(MTU))
                    .expect("enough places")
                    .fill(k as u8);
            }
            buffer.ticket = places.finish();
            let request = SendRequest {
                id: 0,
                buffer,
                immediate: None,
                solicited: false,
            };
            self.qp.post_send(now, request).expect("in RTS");
        }
    }

    /// Sends all pending packets to `peer`, run by run, as a port does.
    fn send(&mut self, now: Instant, peer: &mut End) {
        while let Some(packets) = self.qp.poll_transmit(true) {
            let count = packets.count;
            peer.take(now, packets.memory, packets.stride);
            self.qp.transmitted(now, &mut self.shared, count);
        }
        while let Some(done) = self.qp.poll_completion() {
            self.spare.push(done.buffer.memory);
        }
    }

    fn take(&mut self, now: Instant, memory: &[u8], stride: usize) {
        for bytes in memory.chunks(stride) {
            let packet = Packet::parse(bytes).expect("a packet of our own");
            let packet = RcPacket {
                bth: packet.bth,
                aeth: packet.extended.aeth,
                immediate: None,
                payload: packet.payload,
                at: packet.payload.as_ptr().addr() - memory.as_ptr().addr(),
            };
            self.qp.receive(now, &mut self.shared, &packet);
        }
        self.qp.end_batch(&mut self.shared, memory);
        for message in &self.shared.inbox.messages {
            self.shared.srq.post(message.buffer);
            self.received += 1;
        }
        self.shared.inbox.clear();
    }
}

/// Streams messages of 64 kB one way and small messages the other way, for `rounds`.
fn stream(a: &mut End, b: &mut End, now: &mut Instant, rounds: usize) {
    for _ in 0..rounds {
        a.post(*now, 65_524);
        b.post(*now, 52);
        a.send(*now, b);
        b.send(*now, a);
        *now = now.after(Duration::from_micros(100));
        for end in [&mut *a, &mut *b] {
            end.qp.handle_timeout(*now, &mut end.shared);
        }
    }
}

#[test]
fn a_busy_connection_allocates_nothing() {
    let (mut a, mut b) = (
        End::new(Qpn::new(0x11), Qpn::new(0x22)),
        End::new(Qpn::new(0x22), Qpn::new(0x11)),
    );
    let mut now = Instant(1);
    stream(&mut a, &mut b, &mut now, 200);
    let (before, received) = (allocator::allocations(), b.received);
    // Less than the second after which unused memory is released.
    stream(&mut a, &mut b, &mut now, 5_000);
    let messages = b.received - received;
    assert!(messages > 10_000, "only {messages} messages");
    assert_eq!(
        allocator::allocations() - before,
        0,
        "in {messages} messages"
    );
}
