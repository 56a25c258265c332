//! From IP header to ICRC. A correct packet is accepted, and over IPv4 its identification is found from any
//! guess.

use std::net::IpAddr;

use fabric::soft::icrc::{Ipv4IdSolver, L3, Prefix, Verdict, verify_l3};
use fabric::soft::wire::{ICRC_LEN, ROCE_V2_PORT};

pub fn run(data: &[u8]) {
    let Verdict::Bad { computed } = verify_l3(data) else {
        return;
    };
    let l3 = L3::parse(data).expect("a packet with a verdict");
    let covered = &l3.transport[..l3.transport.len() - ICRC_LEN];
    assert_eq!(l3.prefix().finish_received(covered), computed);
    let (IpAddr::V4(src), IpAddr::V4(dst), Some((id, fragment))) =
        (l3.source, l3.destination, l3.ipv4)
    else {
        return;
    };
    let hint = u16::from_be_bytes([covered[0], covered[1]]);
    let guessed = Prefix::ipv4_with_fragment_field(
        src.octets(),
        dst.octets(),
        l3.source_port,
        ROCE_V2_PORT,
        l3.udp_len,
        hint,
        fragment,
    );
    let guessed = guessed.finish_received(covered);
    let found = Ipv4IdSolver::new().recover(guessed, computed, covered.len(), hint);
    assert_eq!(found, Some(id));
}
