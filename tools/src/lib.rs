//! Functions of `ibtap` beyond the control socket, for other programs and fuzzers.

#![forbid(unsafe_code)]

pub mod decode;
pub mod peer;
