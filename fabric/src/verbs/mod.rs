//! The verbs provider: RDMA devices of the kernel (InfiniBand HCAs, RoCE NICs, `rdma_rxe`), over
//! libibverbs and librdmacm, which are loaded when a port is opened.

mod backoff;
mod config;
mod gid;
mod grh;
mod handles;
mod port;
mod wr_id;

pub use config::{GidChoice, VerbsConfig};
pub use port::VerbsPort;
