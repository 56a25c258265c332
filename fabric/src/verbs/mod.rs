//! The verbs provider: RDMA devices of the kernel (InfiniBand HCAs, RoCE NICs, `rdma_rxe`), over
//! libibverbs and librdmacm, which are loaded when a port is opened.

mod config;
mod connections;
mod counts;
mod device;
mod endpoint;
mod gid;
mod grh;
mod groups;
mod handles;
mod held;
pub mod ibv;
mod lane;
pub mod look;
mod maker;
mod open;
mod port;
mod presence;
mod receive;
mod shares;
mod snapshot;
pub mod sys;
mod sysfs;
mod transmit;
mod watch;
mod worker;

pub use config::VerbsConfig;
pub use port::VerbsPort;
