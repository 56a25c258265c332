//! Tests of the codec, named after docs/conformance.md.

mod bounds;
mod fields;
mod properties;
mod vectors;

use proto::PKey;

use super::*;
use crate::Lid;

/// A header with a value in every field.
fn header() -> Header16B {
    Header16B {
        slid: Lid::new(0x9a_bcde),
        dlid: Lid::new(0x65_4321),
        length_qw: 13,
        sc: 21,
        rc: 5,
        pkey: PKey::new(0x8fed),
        entropy: 0x5a,
        vesw_id: 0xabc,
        ..Header16B::default()
    }
}

/// A frame of `len` bytes, each different from its neighbours.
fn frame(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + len) as u8).collect()
}

fn encoded(header: &Header16B, frame: &[u8], profile: Profile) -> Vec<u8> {
    let mut out = vec![0xa5; packet_len(frame.len())];
    let len = encode(header, frame, profile, &mut out).unwrap();
    assert_eq!(len, out.len());
    out
}

/// A packet between two ports of a switch.
fn packet(len: usize, profile: Profile) -> Vec<u8> {
    encoded(&header(), &frame(len), profile)
}
