//! The verbs provider: RDMA devices of the kernel (InfiniBand HCAs, RoCE NICs, `rdma_rxe`), over
//! libibverbs and librdmacm, which are loaded when a port is opened.

mod config;
mod connections;
mod port;

pub use config::{GidChoice, VerbsConfig};
pub use port::VerbsPort;
