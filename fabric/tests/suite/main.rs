//! What a port does, whichever provider it is of. The tests here are written against [`fabric::Port`]
//! and [`fabric::Worker`], and run over the provider that [`lab`] is asked for:
//!
//! - `cargo test -p fabric --test suite`: the software fabric, in network namespaces;
//! - `IBTAP_SUITE_DEVICE=rxe0 cargo test -p fabric --test suite -- --skip soft::`: an RDMA device of the
//!   kernel. It needs root, and an interface under it that may go down and away: its link is taken
//!   down, its MTU and addresses are changed, and an `rdma_rxe` device is deleted and made again.
//!
//! What a provider cannot do is asked from [`fabric::Capabilities`], and said on standard error where
//! it leaves out a part of a test. What only the software fabric has is in [`soft`].

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
