//! What `ibtap` has to offer beyond the control socket, for programs and fuzzers that link it.

#![forbid(unsafe_code)]

pub mod decode;
pub mod peer;
