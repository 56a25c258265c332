//! `ibtap-perf`.
fn main() {}
