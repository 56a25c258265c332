//! Cost of the codec for one frame, compared with a copy of the frame.

use divan::{Bencher, black_box};
use proto::PKey;
use vnic::Lid;
use vnic::packet::{
    Arrival, Header16B, Prefix, Profile, Receiver, Strictness, admit, decode, encode, packet_len,
};

/// Frame lengths in bytes: the shortest, a full one, and a full one of MTU 9000.
const LENGTHS: [usize; 3] = [60, 1514, 9014];

fn main() {
    divan::main();
}

fn header() -> Header16B {
    Header16B {
        slid: Lid::new(5),
        dlid: Lid::new(0x12345),
        pkey: PKey::new(0x8001),
        vesw_id: 2,
        ..Header16B::default()
    }
}

fn packet(len: usize, profile: Profile) -> Vec<u8> {
    let mut packet = vec![0; packet_len(len)];
    encode(&header(), &vec![0x5a; len], profile, &mut packet).expect("a frame that fits");
    packet
}

fn receiver() -> Receiver<'static> {
    Receiver {
        lid: Lid::new(0x12345),
        groups: &[Lid::MULTICAST],
        pkey: PKey::new(0x8001),
        vesw_id: 2,
        forwarding: true,
        eth_mtu: 9000,
    }
}

/// Reference: copies the frame.
#[divan::bench(args = LENGTHS)]
fn memcpy(bencher: Bencher, len: usize) {
    let (from, mut to) = (vec![0x5a_u8; len], vec![0_u8; len]);
    bencher.bench_local(|| black_box(&mut to[..]).copy_from_slice(black_box(&from)));
}

/// Writes header and trailer in place, with a new header each time.
#[divan::bench(args = LENGTHS)]
fn wrap(bencher: Bencher, len: usize) {
    let (header, mut out) = (header(), packet(len, Profile::Wire0));
    bencher.bench_local(|| {
        Prefix::new(black_box(&header)).wrap(Profile::Wire0, black_box(len), black_box(&mut out))
    });
}

/// Writes header and trailer in place, with one header for all, as for a large send.
#[divan::bench(args = LENGTHS)]
fn wrap_with_prefix(bencher: Bencher, len: usize) {
    let (prefix, mut out) = (Prefix::new(&header()), packet(len, Profile::Wire0));
    bencher.bench_local(|| {
        black_box(&prefix).wrap(Profile::Wire0, black_box(len), black_box(&mut out))
    });
}

/// Decodes a packet, with all checks.
#[divan::bench(args = LENGTHS)]
fn unwrap(bencher: Bencher, len: usize) {
    let packet = packet(len, Profile::Wire0);
    bencher.bench_local(|| {
        let decoded = decode(black_box(&packet), Profile::Wire0, Strictness::Strict);
        decoded.and_then(|d| admit(&d, black_box(&receiver()), Arrival::Addressed).map(|()| d))
    });
}

/// Encodes and decodes.
#[divan::bench(args = LENGTHS)]
fn wrap_and_unwrap(bencher: Bencher, len: usize) {
    let (header, mut out) = (header(), packet(len, Profile::Wire0));
    bencher.bench_local(|| {
        let prefix = Prefix::new(black_box(&header));
        let _ = prefix.wrap(Profile::Wire0, black_box(len), black_box(&mut out[..]));
        let decoded = decode(black_box(&out), Profile::Wire0, Strictness::Strict);
        decoded
            .and_then(|d| admit(&d, black_box(&receiver()), Arrival::Addressed))
            .is_ok()
    });
}

/// Encodes with a copy of the frame, as for a frame that is not segmented.
#[divan::bench(args = LENGTHS)]
fn encode_with_copy(bencher: Bencher, len: usize) {
    let (header, frame, mut out) = (header(), vec![0x5a; len], vec![0; packet_len(len)]);
    bencher.bench_local(|| {
        encode(
            black_box(&header),
            black_box(&frame),
            Profile::Wire0,
            black_box(&mut out),
        )
    });
}

/// Encodes with an ICRC, for carriers without one.
#[divan::bench(args = LENGTHS)]
fn wrap_with_icrc(bencher: Bencher, len: usize) {
    let (header, mut out) = (header(), packet(len, Profile::WireSw32));
    bencher.bench_local(|| {
        Prefix::new(black_box(&header)).wrap(Profile::WireSw32, len, black_box(&mut out))
    });
}
