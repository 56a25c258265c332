//! Micro-benchmarks.
fn main() {
    divan::main();
}
