//! Captures for the tests of this crate.

use std::fs::File;
use std::path::Path;

use pcap_file::pcap::PcapReader;

/// The Ethernet frames of a capture in `tests/data/captures/services`.
pub fn frames(name: &str) -> Vec<Vec<u8>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/data/captures/services")
        .join(name);
    let mut reader = PcapReader::new(File::open(path).unwrap()).unwrap();
    let mut all = Vec::new();
    while let Some(packet) = reader.next_packet() {
        all.push(packet.unwrap().data.into_owned());
    }
    all
}

/// Bytes from hexadecimal digits; spaces are ignored.
pub fn hex(digits: &str) -> Vec<u8> {
    let digits: Vec<u8> = digits
        .chars()
        .filter(|c| !c.is_whitespace())
        .map(|c| c.to_digit(16).unwrap() as u8)
        .collect();
    digits.chunks(2).map(|c| c[0] << 4 | c[1]).collect()
}
