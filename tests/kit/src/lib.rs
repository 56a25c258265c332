//! Parts shared by tests of several rooms. A dev-dependency only: no program uses this crate.

#![deny(unsafe_code)]

pub mod allocator;
pub mod pages;
mod skip;

pub use skip::{helper_thread, is_root, skip};
