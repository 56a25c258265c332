//! Two ports that reach each other, of the selected provider.

use std::io::Write;
use std::net::IpAddr;
use std::sync::Once;

use fabric::soft::SoftConfig;
use fabric::verbs::VerbsConfig;
use fabric::{Gid, PKey, ProviderConfig};

use crate::net::Cable;
use crate::node::Node;
use crate::verbs_lab::Devices;

/// One of the two ports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    A,
    B,
}

/// The address family of ports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    V4,
    V6,
}

/// The ports of the selected provider.
pub enum Lab {
    /// Each port has one end of a cable between two namespaces.
    Soft(Cable),
    /// Both ports are on one RDMA device, or each has its own.
    Verbs(Devices),
}

impl Lab {
    /// Creates the lab, with room for an IB MTU of 4096 if the MTU can be chosen.
    pub fn new() -> Lab {
        match Devices::asked_for() {
            Some(devices) => Lab::Verbs(devices),
            None => {
                static ONCE: Once = Once::new();
                ONCE.call_once(|| {
                    say(
                        "IBTAP_SUITE_DEVICE names no RDMA device: the suite runs over the software fabric \
                         alone",
                    );
                });
                Lab::Soft(Cable::new(9000))
            }
        }
    }

    /// Both ports, with IPv6 addresses.
    pub fn pair(&self) -> (Node<'_>, Node<'_>) {
        self.pair_of(Family::V6)
    }

    /// Both ports, with addresses of one family.
    pub fn pair_of(&self, family: Family) -> (Node<'_>, Node<'_>) {
        (self.node(End::A, family), self.node(End::B, family))
    }

    /// One port.
    pub fn node(&self, end: End, family: Family) -> Node<'_> {
        match self {
            Lab::Soft(cable) => {
                let (ns, peer) = match end {
                    End::A => (&cable.a, "192.0.2.2"),
                    End::B => (&cable.b, "192.0.2.1"),
                };
                Node::open(ns, soft_config(family, peer))
            }
            Lab::Verbs(devices) => {
                let (device, port) = devices.at(end);
                let config = VerbsConfig {
                    gid: match family {
                        Family::V4 => fabric::GidChoice::Ipv4,
                        Family::V6 => fabric::GidChoice::Auto,
                    },
                    ..VerbsConfig::new(device, port)
                };
                Node::open_here(ProviderConfig::Verbs(config))
            }
        }
    }

    /// Whether both ports have one address and one interface.
    pub fn is_one_device(&self) -> bool {
        matches!(self, Lab::Verbs(devices) if devices.is_one())
    }

    /// Runs `ip` in the namespace of a port's interface; `u0` is replaced by the interface's name.
    pub fn ip(&self, end: End, words: &str) {
        match self {
            Lab::Soft(cable) => {
                let ns = match end {
                    End::A => &cable.a,
                    End::B => &cable.b,
                };
                ns.ip(&words.split(' ').collect::<Vec<_>>());
            }
            Lab::Verbs(devices) => devices.ip(end, words),
        }
    }

    /// Removes the devices of both ports.
    pub fn unplug(&self) {
        match self {
            Lab::Soft(_) => self.ip(End::A, "link del u0"),
            Lab::Verbs(devices) => devices.unplug(),
        }
    }

    /// Whether they are removed: an RDMA device disappears when nobody has it open.
    pub fn is_unplugged(&self) -> bool {
        match self {
            Lab::Soft(_) => true,
            Lab::Verbs(devices) => devices.are_gone(),
        }
    }

    /// Restores the devices.
    pub fn plug(&self) {
        match self {
            Lab::Soft(cable) => cable.plug(9000),
            Lab::Verbs(devices) => devices.plug(),
        }
    }
}

/// The configuration of a soft port. Its multicast goes to a list of peers if the family has no groups.
fn soft_config(family: Family, peer: &str) -> SoftConfig {
    let config = SoftConfig::new("u0");
    match family {
        Family::V6 => config,
        Family::V4 => SoftConfig {
            gid: fabric::GidChoice::Ipv4,
            peers: vec![peer.parse::<IpAddr>().unwrap()],
            ..config
        },
    }
}

/// The P_Key table of a node, without empty places.
pub fn pkeys(node: &Node<'_>) -> Vec<PKey> {
    let table = node.port.attributes().pkeys;
    let is_entry = |key: &PKey| *key != fabric::pkeys::EMPTY;
    table.into_iter().filter(is_entry).collect()
}

/// A group of the default partition.
pub fn mgid(n: u16) -> Gid {
    format!("ff12:401b:ffff::{n:x}").parse().unwrap()
}

/// Reports on standard error what a test skips, even if the test runner captures output.
pub fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
