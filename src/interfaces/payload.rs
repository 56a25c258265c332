//! The payload of an interface: IPoIB or Ethernet.

use std::ops::RangeInclusive;

use control::config::{InterfaceConfig, InterfaceKey};
use ipoib::Mode;

use crate::ethernet::{Ethernet, wanted_mtu};
use crate::interface::{FabricLink, Interface, InterfaceError};
use crate::ip::Ip;
use crate::port::PortRuntime;

/// The payload of an interface: IPoIB or Ethernet.
pub enum Payload {
    /// IP over InfiniBand.
    Ip(Box<Ip>),
    /// Ethernet over the fabric: a VNIC.
    Ethernet(Box<Ethernet>),
}

impl Payload {
    /// The links of the interface: its own and those of its VLANs.
    pub fn fabric_links(&self) -> Vec<&FabricLink> {
        match self {
            Payload::Ip(ip) => ip.links().map(|link| &link.fabric).collect(),
            Payload::Ethernet(ethernet) => ethernet.link.iter().collect(),
        }
    }

    /// The links of the interface, mutable.
    pub fn fabric_links_mut(&mut self) -> Vec<&mut FabricLink> {
        match self {
            Payload::Ip(ip) => ip.links_mut().map(|link| &mut link.fabric).collect(),
            Payload::Ethernet(ethernet) => ethernet.link.iter_mut().collect(),
        }
    }

    /// The allowed MTUs.
    pub fn allowed_mtu(&self) -> RangeInclusive<u32> {
        match self {
            Payload::Ip(ip) => ip.limits.allowed(ip.mode),
            Payload::Ethernet(ethernet) => ethernet.allowed_mtu(),
        }
    }

    /// The MTU with another one in the configuration.
    ///
    /// # Errors
    /// [`InterfaceError::Mtu`]: it is out of range.
    pub fn wanted_mtu(&self, mtu: Option<u32>) -> Result<u32, InterfaceError> {
        match self {
            Payload::Ip(ip) => {
                let mut spec = ip.spec.clone();
                spec.mtu = mtu;
                ip.limits.wanted(&spec, ip.mode)
            }
            Payload::Ethernet(ethernet) => {
                let mut spec = ethernet.spec.clone();
                spec.mtu = mtu;
                wanted_mtu(&spec, *ethernet.allowed_mtu().end())
            }
        }
    }

    /// What is wrong with an MTU that is not allowed, and the nearest allowed one.
    pub fn mtu_fault(&self, mtu: u32) -> (&'static str, u32) {
        let allowed = self.allowed_mtu();
        let (least, most) = (*allowed.start(), *allowed.end());
        match (self, mtu < least) {
            (Payload::Ip(_), true) => ("below the minimum of IPoIB,", least),
            (Payload::Ip(ip), false) => match ip.mode {
                Mode::Datagram => ("above the link MTU", most),
                Mode::Connected => ("above the maximum of connected mode,", most),
            },
            (Payload::Ethernet(_), true) => ("below the minimum of Ethernet,", least),
            (Payload::Ethernet(_), false) => ("above the maximum of the switch or the port,", most),
        }
    }

    /// The alias of the interface.
    pub fn alias(&self, interface: &Interface, port: &str) -> String {
        match self {
            Payload::Ip(ip) => ip.alias(interface, port),
            Payload::Ethernet(ethernet) => ethernet.alias(port),
        }
    }

    /// Updates the settings of the interface's lanes.
    pub fn update_lanes(&mut self, interface: &Interface, port: &PortRuntime) {
        match self {
            Payload::Ip(ip) => ip.update_lanes(interface, port),
            Payload::Ethernet(ethernet) => ethernet.update_lanes(interface, port),
        }
    }

    /// The part of the configuration that both kinds have.
    pub fn config(&self) -> &InterfaceConfig {
        match self {
            Payload::Ip(ip) => &ip.spec.interface,
            Payload::Ethernet(ethernet) => &ethernet.spec.interface,
        }
    }

    /// The part of the configuration that both kinds have, mutable.
    pub fn config_mut(&mut self) -> &mut InterfaceConfig {
        match self {
            Payload::Ip(ip) => &mut ip.spec.interface,
            Payload::Ethernet(ethernet) => &mut ethernet.spec.interface,
        }
    }

    /// Whether this is the interface with this key in the configuration; false for VNICs created by an
    /// Ethernet Manager, and for children adopted in a network namespace without a name, apart from their parents.
    pub fn is_configured_as(&self, key: &InterfaceKey) -> bool {
        let can_be = match self {
            Payload::Ip(ip) => !ip.is_in_unnamed,
            Payload::Ethernet(ethernet) => !ethernet.made_by_manager,
        };
        let config = self.config();
        can_be && config.name == key.name && config.netns == key.netns
    }

    /// Whether another interface is stacked on the interface, so that it may carry frames of other hosts.
    pub fn is_stacked(&self) -> bool {
        match self {
            Payload::Ip(ip) => ip.link.guests.is_stacked(),
            Payload::Ethernet(ethernet) => ethernet.stacked || ethernet.bonded,
        }
    }

    /// The payload of an IPoIB interface.
    pub fn ip(&self) -> Option<&Ip> {
        match self {
            Payload::Ip(ip) => Some(ip),
            Payload::Ethernet(_) => None,
        }
    }

    /// The payload of an IPoIB interface, mutable.
    pub fn ip_mut(&mut self) -> Option<&mut Ip> {
        match self {
            Payload::Ip(ip) => Some(ip),
            Payload::Ethernet(_) => None,
        }
    }

    /// The payload of a VNIC.
    pub fn ethernet(&self) -> Option<&Ethernet> {
        match self {
            Payload::Ethernet(ethernet) => Some(ethernet),
            Payload::Ip(_) => None,
        }
    }

    /// The payload of a VNIC, mutable.
    pub fn ethernet_mut(&mut self) -> Option<&mut Ethernet> {
        match self {
            Payload::Ethernet(ethernet) => Some(ethernet),
            Payload::Ip(_) => None,
        }
    }
}
