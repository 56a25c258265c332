//! All interfaces in service.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use control::config::{InterfaceConfig, InterfaceKey};
use ipoib::Mode;

use crate::datapath::LinkId;
use crate::ethernet::Ethernet;
use crate::interface::InterfaceId;
use crate::interface::{FabricLink, Interface, Place};
use crate::ip::Ip;

/// What an interface carries.
pub enum Payload {
    /// IP over InfiniBand.
    Ip(Box<Ip>),
    /// Ethernet over the fabric: a VNIC.
    Ethernet(Box<Ethernet>),
}

/// All interfaces, by id.
#[derive(Default)]
pub struct Interfaces {
    all: BTreeMap<InterfaceId, (Interface, Payload)>,
    next: u32,
}

impl Interfaces {
    /// An id that no interface had before; nor has any link the id of its own.
    pub fn new_id(&mut self) -> InterfaceId {
        let id = InterfaceId::new(self.next);
        self.next += 1;
        id
    }

    /// An id that no link had before.
    pub fn new_link_id(&mut self) -> LinkId {
        self.new_id().link()
    }

    /// Adds an interface.
    pub fn add(&mut self, interface: Interface, payload: Payload) {
        self.all.insert(interface.id, (interface, payload));
    }

    /// Takes an interface out of service.
    pub fn remove(&mut self, id: InterfaceId) -> Option<(Interface, Payload)> {
        self.all.remove(&id)
    }

    /// Whether an interface is in service.
    pub fn has(&self, id: InterfaceId) -> bool {
        self.all.contains_key(&id)
    }

    /// An interface.
    pub fn get(&self, id: InterfaceId) -> Option<&Interface> {
        self.all.get(&id).map(|(interface, _)| interface)
    }

    /// An interface, to be changed.
    pub fn get_mut(&mut self, id: InterfaceId) -> Option<&mut Interface> {
        self.all.get_mut(&id).map(|(interface, _)| interface)
    }

    /// An interface and what it carries.
    pub fn both(&self, id: InterfaceId) -> Option<(&Interface, &Payload)> {
        self.all
            .get(&id)
            .map(|(interface, payload)| (interface, payload))
    }

    /// An interface and what it carries, to be changed.
    pub fn both_mut(&mut self, id: InterfaceId) -> Option<(&mut Interface, &mut Payload)> {
        let found = self.all.get_mut(&id);
        found.map(|(interface, payload)| (interface, payload))
    }

    /// An interface that carries IP.
    pub fn ip(&self, id: InterfaceId) -> Option<(&Interface, &Ip)> {
        let (interface, payload) = self.all.get(&id)?;
        Some((interface, payload.ip()?))
    }

    /// An interface that carries IP, to be changed.
    pub fn ip_mut(&mut self, id: InterfaceId) -> Option<(&mut Interface, &mut Ip)> {
        let (interface, payload) = self.all.get_mut(&id)?;
        Some((interface, payload.ip_mut()?))
    }

    /// A VNIC.
    pub fn ethernet(&self, id: InterfaceId) -> Option<(&Interface, &Ethernet)> {
        let (interface, payload) = self.all.get(&id)?;
        Some((interface, payload.ethernet()?))
    }

    /// A VNIC, to be changed.
    pub fn ethernet_mut(&mut self, id: InterfaceId) -> Option<(&mut Interface, &mut Ethernet)> {
        let (interface, payload) = self.all.get_mut(&id)?;
        Some((interface, payload.ethernet_mut()?))
    }

    /// All interfaces.
    pub fn iter(&self) -> impl Iterator<Item = (&Interface, &Payload)> {
        self.all
            .values()
            .map(|(interface, payload)| (interface, payload))
    }

    /// All interfaces, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&mut Interface, &mut Payload)> {
        let all = self.all.values_mut();
        all.map(|(interface, payload)| (interface, payload))
    }

    /// Those that carry IP.
    pub fn ips(&self) -> impl Iterator<Item = (&Interface, &Ip)> {
        self.iter()
            .filter_map(|(i, payload)| Some((i, payload.ip()?)))
    }

    /// Those that carry IP, to be changed.
    pub fn ips_mut(&mut self) -> impl Iterator<Item = (&mut Interface, &mut Ip)> {
        let all = self.iter_mut();
        all.filter_map(|(i, payload)| Some((i, payload.ip_mut()?)))
    }

    /// VNICs.
    pub fn ethernets(&self) -> impl Iterator<Item = (&Interface, &Ethernet)> {
        let all = self.iter();
        all.filter_map(|(i, payload)| Some((i, payload.ethernet()?)))
    }

    /// VNICs, to be changed.
    pub fn ethernets_mut(&mut self) -> impl Iterator<Item = (&mut Interface, &mut Ethernet)> {
        let all = self.iter_mut();
        all.filter_map(|(i, payload)| Some((i, payload.ethernet_mut()?)))
    }

    /// The ids of all, which may be used while interfaces come and go.
    pub fn ids(&self) -> Vec<InterfaceId> {
        self.all.keys().copied().collect()
    }

    /// The ids of those that carry IP and for which this holds.
    pub fn ip_ids(&self, holds: impl Fn(&Interface, &Ip) -> bool) -> Vec<InterfaceId> {
        let all = self.ips().filter(|(interface, ip)| holds(interface, ip));
        all.map(|(interface, _)| interface.id).collect()
    }

    /// The ids of VNICs for which this holds.
    pub fn ethernet_ids(&self, holds: impl Fn(&Interface, &Ethernet) -> bool) -> Vec<InterfaceId> {
        let all = self.ethernets();
        let all = all.filter(|(interface, ethernet)| holds(interface, ethernet));
        all.map(|(interface, _)| interface.id).collect()
    }

    /// The interface that has this link.
    pub fn by_link(&self, id: LinkId) -> Option<InterfaceId> {
        let own = InterfaceId::new(id.0);
        if self.has(own) {
            return Some(own);
        }
        let has_it = |ip: &Ip| ip.vlans.values().any(|link| link.id() == id);
        let mut all = self.ips();
        all.find(|(_, ip)| has_it(ip)).map(|(i, _)| i.id)
    }

    /// The interface that has this link, and what the interface carries.
    pub fn with_link(&self, id: LinkId) -> Option<(&Interface, &Payload)> {
        self.both(self.by_link(id)?)
    }

    /// The interface that has this IP link, to be changed.
    pub fn with_link_mut(&mut self, id: LinkId) -> Option<(&mut Interface, &mut Ip)> {
        self.ip_mut(self.by_link(id)?)
    }

    /// The interface with this index at this place.
    pub fn by_index(&self, place: Place, ifindex: u32) -> Option<InterfaceId> {
        let mut all = self.all.values();
        all.find(|(i, _)| i.ifindex == ifindex && i.place == place)
            .map(|(interface, _)| interface.id)
    }
}

impl Payload {
    /// Its links of the fabric: its own, and those of its VLANs.
    pub fn fabric_links(&self) -> Vec<&FabricLink> {
        match self {
            Payload::Ip(ip) => ip.links().map(|link| &link.fabric).collect(),
            Payload::Ethernet(ethernet) => ethernet.link.iter().collect(),
        }
    }

    /// The same, to be changed.
    pub fn fabric_links_mut(&mut self) -> Vec<&mut FabricLink> {
        match self {
            Payload::Ip(ip) => ip.links_mut().map(|link| &mut link.fabric).collect(),
            Payload::Ethernet(ethernet) => ethernet.link.iter_mut().collect(),
        }
    }

    /// The MTUs that the interface may have.
    pub fn allowed_mtu(&self) -> RangeInclusive<u32> {
        match self {
            Payload::Ip(ip) => ip.limits.allowed(ip.mode),
            Payload::Ethernet(ethernet) => ethernet.allowed_mtu(),
        }
    }

    /// What is wrong with an MTU that the interface may not have, and which one is right.
    pub fn mtu_fault(&self, mtu: u32) -> (&'static str, u32) {
        let allowed = self.allowed_mtu();
        let (least, most) = (*allowed.start(), *allowed.end());
        match (self, mtu < least) {
            (Payload::Ip(_), true) => ("under IPoIB's", least),
            (Payload::Ip(ip), false) => match ip.mode {
                Mode::Datagram => ("over the link's", most),
                Mode::Connected => ("over connected mode's", most),
            },
            (Payload::Ethernet(_), true) => ("under Ethernet's", least),
            (Payload::Ethernet(_), false) => ("over the switch's or the port's", most),
        }
    }

    /// What the alias says that the interface is, on this port.
    pub fn alias(&self, interface: &Interface, port: &str) -> String {
        match self {
            Payload::Ip(ip) => ip.alias(interface, port),
            Payload::Ethernet(ethernet) => ethernet.alias(port),
        }
    }

    /// What the configuration says that both kinds have.
    pub fn config(&self) -> &InterfaceConfig {
        match self {
            Payload::Ip(ip) => &ip.spec.interface,
            Payload::Ethernet(ethernet) => &ethernet.spec.interface,
        }
    }

    /// The same, to be changed.
    pub fn config_mut(&mut self) -> &mut InterfaceConfig {
        match self {
            Payload::Ip(ip) => &mut ip.spec.interface,
            Payload::Ethernet(ethernet) => &mut ethernet.spec.interface,
        }
    }

    /// Whether the configuration calls the interface so. It knows none that an Ethernet Manager made.
    pub fn is_configured_as(&self, key: &InterfaceKey) -> bool {
        let by_manager = self.ethernet().is_some_and(|e| e.made_by_manager);
        let config = self.config();
        !by_manager && config.name == key.name && config.netns == key.netns
    }

    /// Whether frames of others than the host pass, or may, as something is stacked on the interface.
    pub fn is_stacked(&self) -> bool {
        match self {
            Payload::Ip(ip) => ip.link.guests.is_stacked(),
            Payload::Ethernet(ethernet) => ethernet.stacked || ethernet.bonded,
        }
    }

    /// IP, if it is that.
    pub fn ip(&self) -> Option<&Ip> {
        match self {
            Payload::Ip(ip) => Some(ip),
            Payload::Ethernet(_) => None,
        }
    }

    /// IP, if it is that.
    pub fn ip_mut(&mut self) -> Option<&mut Ip> {
        match self {
            Payload::Ip(ip) => Some(ip),
            Payload::Ethernet(_) => None,
        }
    }

    /// Ethernet, if it is that.
    pub fn ethernet(&self) -> Option<&Ethernet> {
        match self {
            Payload::Ethernet(ethernet) => Some(ethernet),
            Payload::Ip(_) => None,
        }
    }

    /// Ethernet, if it is that.
    pub fn ethernet_mut(&mut self) -> Option<&mut Ethernet> {
        match self {
            Payload::Ethernet(ethernet) => Some(ethernet),
            Payload::Ip(_) => None,
        }
    }
}
