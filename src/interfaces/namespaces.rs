//! Interfaces in other network namespaces.

mod coalesce;
mod moves;
mod names;

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use control::config::IpoibConfig;
use netdev::netns::{self, Namespace};
use rtnl::{Link, Requests};

use crate::interface::{Interface, InterfaceError, InterfaceId, Place, visit};
use crate::interfaces::{Context, Interfaces, children, vlans};
use crate::ip::Ip;

impl Interfaces {
    /// Sends requests to the kernel in an interface's namespace, as [`Interface::inside`].
    pub fn inside<T>(
        &mut self,
        cx: &mut Context,
        id: InterfaceId,
        ask: impl FnOnce(&mut Interface, &mut Requests) -> T,
    ) -> Option<T> {
        self.get_mut(id)?.inside(&mut cx.host.netlink, ask)
    }

    /// Sends requests to the kernel in a namespace with interfaces of ours. `None` if it has none or cannot
    /// be entered.
    pub fn at_place<T>(
        &mut self,
        cx: &mut Context,
        place: Place,
        ask: impl FnOnce(&mut Requests) -> T,
    ) -> Option<T> {
        if place == Place::HOME {
            return Some(ask(&mut cx.host.netlink));
        }
        // One of them may have moved.
        let mut all = self.iter().filter(|(i, _)| i.place == place);
        let there = all.find_map(|(interface, _)| interface.elsewhere())?;
        visit(&there, ask).ok()
    }

    /// The interfaces by their namespace.
    pub fn by_place(&self, ids: BTreeSet<InterfaceId>) -> BTreeMap<Place, BTreeSet<InterfaceId>> {
        let mut all = BTreeMap::<Place, BTreeSet<InterfaceId>>::new();
        for id in ids {
            if let Some(interface) = self.get(id) {
                all.entry(interface.place).or_default().insert(id);
            }
        }
        all
    }

    /// All links of a namespace with interfaces of ours, by index. `None` if they cannot be read.
    pub fn links_at(&mut self, cx: &mut Context, place: Place) -> Option<Vec<Link>> {
        let links = self.at_place(cx, place, Requests::links)?;
        links
            .inspect_err(|e| log::warn!("cannot read the list of interfaces: {e}"))
            .ok()
    }

    /// Looks for existing TAPs that may be children, and for existing VLAN links, in the namespaces of the IPoIB
    /// interfaces for which `holds` is true.
    pub fn look_around(&mut self, cx: &mut Context, holds: impl Fn(&Interface, &Ip) -> bool) {
        let concerned = self.ips().filter(|(interface, ip)| holds(interface, ip));
        let places: BTreeSet<Place> = concerned.map(|(interface, _)| interface.place).collect();
        for place in places {
            let links = self.links_at(cx, place).unwrap_or_default();
            children::links_listed(self, cx, place, &links);
            for link in &links {
                vlans::link_seen(self, cx, place, link);
            }
        }
    }

    /// The `ip netns` name of an interface's namespace, if it has one.
    pub fn netns_of(&self, id: InterfaceId) -> Option<String> {
        let there = self.get(id)?.elsewhere();
        there.as_ref().and_then(netns::name_of)
    }

    /// The network namespace for a new interface, if it is not the daemon's: the configured one, else the
    /// parent's.
    ///
    /// # Errors
    /// [`InterfaceError::Netns`].
    pub fn namespace_for(
        &self,
        cx: &Context,
        spec: &IpoibConfig,
        parent: Option<InterfaceId>,
    ) -> Result<Option<Namespace>, InterfaceError> {
        if spec.netns.is_some() {
            return self.namespace_called(cx, spec.netns.as_deref());
        }
        let parent = parent.and_then(|parent| self.get(parent));
        Ok(parent.and_then(Interface::elsewhere))
    }

    /// The network namespace of this name, if it is not the daemon's.
    ///
    /// # Errors
    /// [`InterfaceError::Netns`].
    pub fn namespace_called(
        &self,
        cx: &Context,
        name: Option<&str>,
    ) -> Result<Option<Namespace>, InterfaceError> {
        let Some(name) = name else {
            return Ok(None);
        };
        let there = Namespace::named(name).map_err(|e| no_namespace(name, &e))?;
        let id = there.id().map_err(|e| no_namespace(name, &e))?;
        Ok((id != cx.host.home).then_some(there))
    }
}

fn no_namespace(name: &str, e: &io::Error) -> InterfaceError {
    InterfaceError::Netns(match e.kind() {
        io::ErrorKind::NotFound => {
            format!("there is no network namespace {name}; make it: ip netns add {name}")
        }
        _ => format!("cannot open the network namespace {name}: {e}"),
    })
}
