//! What tests of several rooms share. A dev-dependency only: no program uses it.

#![deny(unsafe_code)]

pub mod allocator;
