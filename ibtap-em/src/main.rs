//! The program `ibtap-em`.
#![forbid(unsafe_code)]

fn main() {}
