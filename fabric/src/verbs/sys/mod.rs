//! libibverbs and librdmacm: their types, and the table of their functions.
//!
//! Nothing is linked: [`Real`] loads the libraries when a device is opened, so that a machine without
//! rdma-core runs the same programs. All of `verbs` calls them through [`Library`]; tests insert their
//! own.

/// The types, made by `scripts/verbs-bindings`.
#[allow(
    missing_docs,
    missing_debug_implementations,
    non_camel_case_types,
    non_snake_case,
    clippy::all
)]
pub mod bindings;
#[cfg(all(test, target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
#[allow(clippy::all)]
mod layout;
#[allow(unsafe_code)]
mod library;
#[allow(unsafe_code)]
mod real;

pub use bindings::*;
pub use library::{Failing, Library};
pub use real::{LoadError, Real};
