//! Hosts of this machine and virtual machines with `rdma_rxe` on Ethernets.

mod capture;
mod daemons;
mod local;
mod machine;
mod node;
mod running;
mod stage;

// What the whole-system tests of this machine alone use, too.
#[allow(dead_code)]
#[path = "../../system/lab/namespace.rs"]
mod namespace;
#[allow(dead_code)]
#[path = "../../system/lab/patience.rs"]
mod patience;
#[allow(dead_code)]
#[path = "../../system/lab/programs.rs"]
mod programs;
#[allow(dead_code)]
#[path = "../../system/lab/station.rs"]
mod station;

use std::time::Duration;

use namespace::Namespace;

pub use daemons::{SOFT, Side, VERBS, all_arrives, echoes, multicast, pair};
pub use local::Local;
pub use machine::Machine;
pub use node::Node;
pub use patience::eventually;
pub use programs::{ibtap, ibtap_peer};
pub use running::Running;
pub use stage::{Stage, on_both_stages, on_stage};
pub use station::{Done, Station};

/// Patience for what takes a moment, in an emulated machine on a busy host.
pub const SOON: Duration = Duration::from_secs(60);

/// The Ethernet's MTU: room for an RDMA MTU of 4096.
pub const UNDERLAY_MTU: u32 = 4500;
