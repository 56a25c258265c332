//! From BTH to ICRC. An accepted packet is encoded again and decodes to the same fields.

use fabric::soft::wire::{Packet, opcode, pad_count};

pub fn run(data: &[u8]) {
    let Ok(packet) = Packet::parse(data) else {
        return;
    };
    assert!(opcode::name(packet.bth.opcode).is_some());
    assert_eq!(packet.covered.len() + packet.icrc.len(), data.len());
    let repr = packet.repr();
    let mut out = Vec::new();
    repr.emit(&mut out)
        .expect("the fields of a packet that was read");
    out.extend(packet.icrc);
    let again = Packet::parse(&out).expect("a packet that was written");
    assert_eq!(again.repr(), repr);
    if packet.bth.pad_count() == pad_count(packet.payload.len()) {
        assert_eq!(out.len(), data.len());
    }
}
