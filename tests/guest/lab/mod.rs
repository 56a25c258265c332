//! Hosts of this machine and virtual machines: with `rdma_rxe` on Ethernets, on an InfiniBand subnet, with systemd.

mod capture;
mod daemons;
mod local;
mod machine;
mod node;
mod pool;
mod running;
mod sa;
mod served;
mod shared;
mod stage;
mod subnet;

// Shared with the whole-system tests.
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
#[path = "../../system/lab/sniffer.rs"]
mod sniffer;
#[allow(dead_code)]
#[path = "../../system/lab/station.rs"]
mod station;
#[path = "../../system/lab/sweep.rs"]
mod sweep;

use std::time::Duration;

use namespace::Namespace;

pub use daemons::{
    SOFT, Side, VERBS, all_arrives, carrier, echoes, goes_on, multicast, pair, reach, traffic,
};
pub use local::Local;
pub use machine::Machine;
pub use node::Node;
pub use patience::eventually;
pub use programs::{ibtap, ibtap_peer};
pub use running::Running;
pub use sa::Sa;
pub use served::{Served, UNITS, VERSIONS, on_packages, on_systemd};
use sniffer::Sniffer;
pub use stage::{Stage, on_both_stages, on_silent_stage, on_stage};
use station::Background;
pub use station::{Done, Station};
use subnet::LID_CHANGE;
pub use subnet::{CLIENT_REREGISTER, Framing, P_KEY_CHANGE, Subnet, gid_of, on_subnet};
use sweep::Scratch;

/// Time limit for events that take a moment, in an emulated machine on a busy host.
pub const SOON: Duration = Duration::from_secs(60);

/// The Ethernet's MTU: room for an RDMA MTU of 4096.
pub const UNDERLAY_MTU: u32 = 4500;
