//! `ibtap`.
fn main() {}
