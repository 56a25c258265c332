//! Packets received after a gap, kept until the gap is filled.

use std::collections::BTreeMap;

use super::types::RcPacket;
use super::{Srq, window};

/// Maximum payload bytes kept for one queue pair: the maximum that our requester has in flight. With less, a lost packet
/// of a full window would cost many others.
const BYTES_MAX: usize = window::BYTES_MAX as usize;

/// Memory of a packet in addition to its payload.
const OVERHEAD: usize = 128;

/// The necessary parts of a packet.
#[derive(Debug)]
pub struct HeldPacket {
    pub opcode: u8,
    pub solicited: bool,
    pub ack_req: bool,
    pub immediate: Option<[u8; 4]>,
    pub payload: Box<[u8]>,
}

/// Packets of one queue pair by position, all after the expected one.
#[derive(Debug, Default)]
pub struct Held {
    packets: BTreeMap<u64, HeldPacket>,
    /// Payload bytes.
    bytes: usize,
}

impl Held {
    /// Keeps a packet. False if a limit is reached or the packet is a duplicate.
    pub fn insert(&mut self, srq: &mut Srq, at: u64, packet: &RcPacket<'_>) -> bool {
        let len = packet.payload.len();
        let is_too_much = self.bytes + len > BYTES_MAX;
        if is_too_much || self.packets.contains_key(&at) || !srq.hold(len + OVERHEAD) {
            return false;
        }
        self.bytes += len;
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

    /// The packet at position `expected`; earlier packets are removed.
    pub fn next(&mut self, srq: &mut Srq, expected: u64) -> Option<&HeldPacket> {
        while *self.packets.first_key_value()?.0 < expected {
            self.pop(srq);
        }
        self.packets.get(&expected)
    }

    /// Removes the first packet.
    pub fn pop(&mut self, srq: &mut Srq) {
        if let Some((_, packet)) = self.packets.pop_first() {
            self.bytes -= packet.payload.len();
            srq.release(packet.payload.len() + OVERHEAD);
        }
    }

    /// Memory of all packets in bytes.
    pub fn memory(&self) -> usize {
        self.bytes + self.packets.len() * OVERHEAD
    }

    /// Whether no packets are kept.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Removes all packets.
    pub fn clear(&mut self, srq: &mut Srq) {
        srq.release(self.memory());
        *self = Held::default();
    }
}
