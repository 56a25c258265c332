//! All interfaces in service, and the operations on several of them or on both kinds.

mod carrier;
pub mod children;
mod context;
mod events;
mod groups;
mod guests;
mod link;
pub mod management;
mod namespaces;
mod neighbours;
mod payload;
mod pkeys;
mod service;
mod settings;
mod siblings;
#[cfg(test)]
mod tests;
pub mod vlans;
mod vnics;

use std::collections::BTreeMap;

use crate::datapath::LinkId;
use crate::ethernet::{Ethernet, Management};
use crate::interface::{Interface, InterfaceId, Place};
use crate::ip::Ip;
use crate::port::PortId;

pub use context::{Context, DaemonError};
pub use payload::Payload;

/// All interfaces in service, by id.
#[derive(Default)]
pub struct Interfaces {
    all: BTreeMap<InterfaceId, (Interface, Payload)>,
    /// The management of VNICs, for ports with managed VNICs or with clients that manage.
    managements: BTreeMap<PortId, Management>,
    next: u32,
}

impl Interfaces {
    /// Returns a new id, which no interface and no link has had.
    pub fn new_id(&mut self) -> InterfaceId {
        let id = InterfaceId::new(self.next);
        self.next += 1;
        id
    }

    /// Returns a new id for a link.
    pub fn new_link_id(&mut self) -> LinkId {
        self.new_id().link()
    }

    /// Adds an interface.
    pub fn add(&mut self, interface: Interface, payload: Payload) {
        self.all.insert(interface.id, (interface, payload));
    }

    /// Removes an interface.
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

    /// An interface, mutable.
    pub fn get_mut(&mut self, id: InterfaceId) -> Option<&mut Interface> {
        self.all.get_mut(&id).map(|(interface, _)| interface)
    }

    /// The management of a port's VNICs.
    pub fn management(&self, at: PortId) -> Option<&Management> {
        self.managements.get(&at)
    }

    /// The management of a port's VNICs, mutable.
    pub fn management_mut(&mut self, at: PortId) -> Option<&mut Management> {
        self.managements.get_mut(&at)
    }

    /// An interface and its payload.
    pub fn both(&self, id: InterfaceId) -> Option<(&Interface, &Payload)> {
        self.all
            .get(&id)
            .map(|(interface, payload)| (interface, payload))
    }

    /// An interface and its payload, mutable.
    pub fn both_mut(&mut self, id: InterfaceId) -> Option<(&mut Interface, &mut Payload)> {
        let found = self.all.get_mut(&id);
        found.map(|(interface, payload)| (interface, payload))
    }

    /// An IPoIB interface.
    pub fn ip(&self, id: InterfaceId) -> Option<(&Interface, &Ip)> {
        let (interface, payload) = self.all.get(&id)?;
        Some((interface, payload.ip()?))
    }

    /// An IPoIB interface, mutable.
    pub fn ip_mut(&mut self, id: InterfaceId) -> Option<(&mut Interface, &mut Ip)> {
        let (interface, payload) = self.all.get_mut(&id)?;
        Some((interface, payload.ip_mut()?))
    }

    /// A VNIC.
    pub fn ethernet(&self, id: InterfaceId) -> Option<(&Interface, &Ethernet)> {
        let (interface, payload) = self.all.get(&id)?;
        Some((interface, payload.ethernet()?))
    }

    /// A VNIC, mutable.
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

    /// All interfaces, mutable.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&mut Interface, &mut Payload)> {
        let all = self.all.values_mut();
        all.map(|(interface, payload)| (interface, payload))
    }

    /// All IPoIB interfaces.
    pub fn ips(&self) -> impl Iterator<Item = (&Interface, &Ip)> {
        self.iter()
            .filter_map(|(i, payload)| Some((i, payload.ip()?)))
    }

    /// All IPoIB interfaces, mutable.
    pub fn ips_mut(&mut self) -> impl Iterator<Item = (&mut Interface, &mut Ip)> {
        let all = self.iter_mut();
        all.filter_map(|(i, payload)| Some((i, payload.ip_mut()?)))
    }

    /// All VNICs.
    pub fn ethernets(&self) -> impl Iterator<Item = (&Interface, &Ethernet)> {
        let all = self.iter();
        all.filter_map(|(i, payload)| Some((i, payload.ethernet()?)))
    }

    /// All VNICs, mutable.
    pub fn ethernets_mut(&mut self) -> impl Iterator<Item = (&mut Interface, &mut Ethernet)> {
        let all = self.iter_mut();
        all.filter_map(|(i, payload)| Some((i, payload.ethernet_mut()?)))
    }

    /// The ids of all interfaces. The caller may add and remove interfaces while it uses the list.
    pub fn ids(&self) -> Vec<InterfaceId> {
        self.all.keys().copied().collect()
    }

    /// The ids of the IPoIB interfaces for which `holds` is true.
    pub fn ip_ids(&self, holds: impl Fn(&Interface, &Ip) -> bool) -> Vec<InterfaceId> {
        let all = self.ips().filter(|(interface, ip)| holds(interface, ip));
        all.map(|(interface, _)| interface.id).collect()
    }

    /// The ids of the VNICs for which `holds` is true.
    pub fn ethernet_ids(&self, holds: impl Fn(&Interface, &Ethernet) -> bool) -> Vec<InterfaceId> {
        let all = self.ethernets();
        let all = all.filter(|(interface, ethernet)| holds(interface, ethernet));
        all.map(|(interface, _)| interface.id).collect()
    }

    /// The interface of a link.
    pub fn by_link(&self, id: LinkId) -> Option<InterfaceId> {
        let own = InterfaceId::new(id.0);
        if self.has(own) {
            return Some(own);
        }
        let has_it = |ip: &Ip| ip.vlans.values().any(|link| link.id() == id);
        let mut all = self.ips();
        all.find(|(_, ip)| has_it(ip)).map(|(i, _)| i.id)
    }

    /// The interface of a link, and its payload.
    pub fn with_link(&self, id: LinkId) -> Option<(&Interface, &Payload)> {
        self.both(self.by_link(id)?)
    }

    /// The interface of an IP link, mutable.
    pub fn with_link_mut(&mut self, id: LinkId) -> Option<(&mut Interface, &mut Ip)> {
        self.ip_mut(self.by_link(id)?)
    }

    /// The interface with this index in this namespace.
    pub fn by_index(&self, place: Place, ifindex: u32) -> Option<InterfaceId> {
        let mut all = self.all.values();
        all.find(|(i, _)| i.ifindex == ifindex && i.place == place)
            .map(|(interface, _)| interface.id)
    }
}
