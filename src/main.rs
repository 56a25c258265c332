//! The daemon `ibtapd`.
fn main() {}
