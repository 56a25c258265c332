//! The library of `ibtap-peer`; `ibtap generate` uses its command line.

#![forbid(unsafe_code)]

pub mod peer;
