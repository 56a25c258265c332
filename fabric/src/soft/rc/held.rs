//! Packets that came behind a gap, kept until it is filled.

use std::collections::BTreeMap;

use super::Srq;
use super::types::RcPacket;

/// Bytes that one queue pair keeps at most: what a peer like us has in flight at most.
const BYTES_MAX: usize = 1 << 20;

/// What a packet costs beyond its payload.
const OVERHEAD: usize = 128;

/// A packet without the bytes around it.
#[derive(Debug)]
pub struct HeldPacket {
    pub opcode: u8,
    pub solicited: bool,
    pub ack_req: bool,
    pub immediate: Option<[u8; 4]>,
    pub payload: Box<[u8]>,
}

/// Packets of one queue pair by position, all behind the one that is expected.
#[derive(Debug, Default)]
pub struct Held {
    packets: BTreeMap<u64, HeldPacket>,
    bytes: usize,
}

impl Held {
    /// Keeps a packet. False if there are enough of them, or it is there already.
    pub fn insert(&mut self, srq: &mut Srq, at: u64, packet: &RcPacket<'_>) -> bool {
        let cost = packet.payload.len() + OVERHEAD;
        let is_too_much = self.bytes + cost > BYTES_MAX;
        if is_too_much || self.packets.contains_key(&at) || !srq.hold(cost) {
            return false;
        }
        self.bytes += cost;
        self.packets.insert(
            at,
            HeldPacket {
                opcode: packet.bth.opcode,
                solicited: packet.bth.solicited(),
                ack_req: packet.bth.ack_req(),
                immediate: packet.immediate,
                payload: packet.payload.into(),
            },
        );
        true
    }

    /// The packet at position `expected`, which stays; those before it are forgotten.
    pub fn next(&mut self, srq: &mut Srq, expected: u64) -> Option<&HeldPacket> {
        while *self.packets.first_key_value()?.0 < expected {
            self.pop(srq);
        }
        self.packets.get(&expected)
    }

    /// Forgets the first one.
    pub fn pop(&mut self, srq: &mut Srq) {
        if let Some((_, packet)) = self.packets.pop_first() {
            let cost = packet.payload.len() + OVERHEAD;
            self.bytes -= cost;
            srq.release(cost);
        }
    }

    /// What they cost.
    #[cfg(test)]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Forgets all of them.
    pub fn clear(&mut self, srq: &mut Srq) {
        srq.release(self.bytes);
        *self = Held::default();
    }
}
