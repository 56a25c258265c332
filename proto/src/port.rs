//! What a port and its endpoints are named by, and the states a port has.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Names an endpoint (a queue pair with its lanes) of one port. Never reused while the port lives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(transparent)]
pub struct EndpointId(pub u32);

/// The logical state of a port (IBA vol. 1, 14.2.5.6, as far as a consumer needs it).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum PortState {
    /// No link, or no usable address.
    Down,
    /// Packets flow.
    Active,
}

impl fmt::Display for PortState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PortState::Down => "DOWN",
            PortState::Active => "ACTIVE",
        })
    }
}

/// Where a datagram goes below the queue pair: made by a worker (IBA vol. 1, 11.2.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AddressHandle(pub u32);

/// What carries a port's packets (IBA vol. 1, annex A16: `rdma_port_get_link_layer`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum LinkLayer {
    /// RoCE: ports are found by MAC, and have no LID.
    #[default]
    Ethernet,
    /// InfiniBand: ports are found by LID.
    InfiniBand,
}

impl fmt::Display for LinkLayer {
    /// As `ibv_devinfo` and /sys/class/infiniband/*/ports/*/link_layer have it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LinkLayer::Ethernet => "Ethernet",
            LinkLayer::InfiniBand => "InfiniBand",
        })
    }
}

/// Which requests for connections reach a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Services {
    /// Those for any service id: communication management (QP1) is the provider's own.
    Any,
    /// Those for services of rdma_cm's port space alone ([`crate::ServiceId::rdma_cm`]): the kernel
    /// owns QP1 and keeps the rest to itself.
    RdmaCm,
}
