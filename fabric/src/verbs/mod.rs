//! The verbs provider: RDMA devices of the kernel (InfiniBand HCAs, RoCE NICs, `rdma_rxe`), over
//! libibverbs and librdmacm, which are loaded when a port is opened.

mod config;
mod connections;
pub mod ibv;
#[allow(dead_code, reason = "the port uses it")]
mod open;
mod port;
pub mod sys;
mod sysfs;

pub use config::{GidChoice, VerbsConfig};
pub use port::VerbsPort;
