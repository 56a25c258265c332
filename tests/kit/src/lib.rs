//! Parts shared by tests of several rooms. A dev-dependency only: no program uses this crate.

#![deny(unsafe_code)]

pub mod allocator;
pub mod pages;
mod skip;

pub use skip::{helper_thread, is_root, skip};

/// Options of tshark for captures with any payload. The kernel gives a client a port of this range, and tshark has
/// protocols for some of them: for it, the bytes at port 57000 are malformed IRC.
pub const TSHARK_ANY_PAYLOAD: [&str; 2] = ["-d", "tcp.port==32768-60999,data"];
