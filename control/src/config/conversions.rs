//! The configuration in the words of the fabric's providers.

use fabric::soft;
use fabric::verbs::{self, VerbsConfig};

use super::{GidChoice, LinkMtu, PortConfig};

/// The choice of a GID in the software fabric's words.
pub fn gid_choice(gid: GidChoice) -> soft::GidChoice {
    match gid {
        // No address has an index, as `PortConfig::check` has said.
        GidChoice::Auto | GidChoice::Index(_) => soft::GidChoice::Auto,
        GidChoice::Ipv4 => soft::GidChoice::Ipv4,
        GidChoice::Address(address) => soft::GidChoice::Address(address),
    }
}

/// The settings of a port of an RDMA device in the fabric's words.
pub fn rdma_port(device: &str, number: u8, port: &PortConfig) -> VerbsConfig {
    VerbsConfig {
        gid: match port.gid {
            GidChoice::Auto => verbs::GidChoice::Auto,
            GidChoice::Ipv4 => verbs::GidChoice::Ipv4,
            GidChoice::Address(address) => verbs::GidChoice::Address(address),
            GidChoice::Index(index) => verbs::GidChoice::Index(index),
        },
        link_mtu: match port.link_mtu {
            LinkMtu::Bytes(bytes) => Some(bytes),
            LinkMtu::Auto | LinkMtu::Exact => None,
        },
        lids: port.lids.clone(),
        ..VerbsConfig::new(device, number)
    }
}

/// The link MTU in the software fabric's words.
pub fn link_mtu(mtu: LinkMtu) -> soft::LinkMtu {
    match mtu {
        LinkMtu::Auto => soft::LinkMtu::Auto,
        LinkMtu::Exact => soft::LinkMtu::Exact,
        LinkMtu::Bytes(bytes) => soft::LinkMtu::Bytes(bytes),
    }
}
