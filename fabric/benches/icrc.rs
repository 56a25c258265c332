//! The cost of the ICRC: prefixes, packets of usual sizes, and the search for an IPv4 identification.

use divan::counter::BytesCount;
use divan::{Bencher, black_box};
use fabric::soft::icrc::{Ipv4IdSolver, Prefix};
use fabric::soft::wire::ROCE_V2_PORT;

fn main() {
    divan::main();
}

const SRC: [u8; 16] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const DST: [u8; 16] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];

#[divan::bench]
fn prefix_ipv6() -> Prefix {
    Prefix::ipv6(
        black_box(&SRC),
        black_box(&DST),
        0xc001,
        ROCE_V2_PORT,
        black_box(1072),
    )
}

#[divan::bench]
fn prefix_ipv4() -> Prefix {
    Prefix::ipv4(
        [192, 0, 2, 1],
        [192, 0, 2, 2],
        0xc001,
        ROCE_V2_PORT,
        black_box(1072),
        black_box(7),
    )
}

/// From BTH to pad; 20 bytes are headers.
#[divan::bench(args = [64, 1040, 4116])]
fn finish(bencher: Bencher<'_, '_>, len: usize) {
    let transport = vec![0xff; len];
    let prefix = Prefix::ipv6(&SRC, &DST, 0xc001, ROCE_V2_PORT, len as u16 + 12);
    bencher
        .counter(BytesCount::new(len))
        .bench_local(|| prefix.finish(black_box(&transport)));
}

#[divan::bench(args = [64, 1040, 4116])]
fn finish_received(bencher: Bencher<'_, '_>, len: usize) {
    let transport = vec![0xff; len];
    let prefix = Prefix::ipv6(&SRC, &DST, 0xc001, ROCE_V2_PORT, len as u16 + 12);
    bencher
        .counter(BytesCount::new(len))
        .bench_local(|| prefix.finish_received(black_box(&transport)));
}

/// With a known length.
#[divan::bench]
fn recover_known_length(bencher: Bencher<'_, '_>) {
    let mut solver = Ipv4IdSolver::new();
    bencher.bench_local(|| solver.recover(black_box([1; 4]), black_box([2; 4]), 1040, 0));
}

/// With a new length each time.
#[divan::bench]
fn recover_new_length(bencher: Bencher<'_, '_>) {
    let mut solver = Ipv4IdSolver::new();
    let mut len = 12;
    bencher.bench_local(|| {
        len = 12 + (len + 64) % 9000;
        solver.recover(black_box([1; 4]), black_box([2; 4]), len, 0)
    });
}
