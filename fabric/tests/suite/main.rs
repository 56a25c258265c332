//! Tests of a port over either provider. They use [`fabric::Port`] and [`fabric::Worker`], and run over
//! the provider that [`lab`] selects:
//!
//! - `cargo test -p fabric --test suite`: the software fabric, in network namespaces;
//! - `IBTAP_SUITE_DEVICE=rxe0 cargo test -p fabric --test suite -- --skip soft::`: an RDMA device of
//!   the kernel. It needs root, and an interface that the tests may change: they set its link down,
//!   change its MTU and addresses, and delete and recreate an `rdma_rxe` device.
//!
//! [`fabric::Capabilities`] shows what a provider cannot do. Tests report skipped parts on standard
//! error. Tests for the software fabric only are in [`soft`].

mod connections;
mod events;
mod exchange;
mod groups;
mod lab;
mod net;
mod node;
mod partitions;
mod pressure;
mod refusals;
mod resources;
mod side;
mod soft;
mod verbs_lab;
