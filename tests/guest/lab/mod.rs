//! A host of this machine and guests with `rdma_rxe` on one Ethernet.

mod capture;
mod daemons;
mod guest;
mod local;
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

use namespace::Namespace;

pub use daemons::{SOFT, Side, VERBS, all_arrives, pair};
pub use guest::Guest;
pub use local::Local;
pub use node::Node;
pub use patience::{SOON, eventually};
pub use programs::{ibtap, ibtap_peer};
pub use running::Running;
pub use stage::{Stage, on_stage};
pub use station::{Done, Station};

/// The Ethernet's MTU: room for an RDMA MTU of 4096.
pub const UNDERLAY_MTU: u32 = 4500;
