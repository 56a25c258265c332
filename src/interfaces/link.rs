//! Changes of interfaces: name, up and down, master, MAC, MTU, offload features.

use std::io;

use control::api::{Happening, LinkAddress};
use netdev::ethtool::Features;

use crate::interface::{Change, InterfaceId};
use crate::interfaces::{Context, Interfaces, Payload, children, management};
use crate::port::Ports;

impl Interfaces {
    /// Reads the whole state of an interface that is new or has moved, or after notifications were lost.
    pub fn reread(&mut self, cx: &mut Context, id: InterfaceId) {
        let Some(link) = self.find(cx, id) else {
            return;
        };
        self.link_changed(cx, id, &link);
        if self.ip(id).is_some() {
            cx.pending.stacking.insert(id);
            self.read_addresses(cx, id);
            self.sync_groups(cx, id.link());
        }
    }

    /// Reads the addresses of an IPoIB interface.
    pub fn read_addresses(&mut self, cx: &mut Context, id: InterfaceId) {
        if let Some((interface, ip)) = self.ip_mut(id) {
            let port = &cx.ports[interface.port];
            ip.read_addresses(interface, &mut cx.host.netlink, port);
        }
    }

    /// The kernel announced one of our interfaces.
    pub fn link_changed(&mut self, cx: &mut Context, id: InterfaceId, link: &rtnl::Link) {
        let Some((interface, payload)) = self.both_mut(id) else {
            return;
        };
        let bridge = payload.ip().and_then(|ip| ip.bridge);
        let asked = interface.inside(&mut cx.host.netlink, |_, netlink| {
            // A bridge stays a bridge: read once, not at each change of the link.
            let is_bridge = |m: &u32| bridge == Some(*m) || is_bridge(netlink, *m);
            let above = link.master.filter(|_| payload.ip().is_some());
            (above.filter(is_bridge), Features::read(&link.name))
        });
        // If the namespace cannot be entered, the notification is all that is known.
        let unread = || (bridge, Err(io::ErrorKind::NotFound.into()));
        let (above, features) = asked.unwrap_or_else(unread);
        if let Some(ip) = payload.ip_mut() {
            ip.bridge = above;
        }
        let changes = interface.link_seen(link, &payload.allowed_mtu(), features);
        for change in changes {
            self.changed(cx, id, change);
        }
        if above != bridge {
            self.read_addresses(cx, id);
        }
        if self.get(id).is_some_and(|i| i.up && i.alias_due.is_some()) {
            self.renew_alias(cx, id);
        }
        if self.ethernet(id).is_some() {
            cx.pending.stacking.insert(id);
        }
        cx.pending.membership.insert(id.link());
    }

    fn changed(&mut self, cx: &mut Context, id: InterfaceId, change: Change) {
        let Some((interface, payload)) = self.both_mut(id) else {
            return;
        };
        match change {
            Change::Name(was) => {
                cx.events
                    .push(interface.subject(), Happening::Renamed { was });
                children::parent_renamed(self, cx, id);
                management::sync_agent_of(self, cx, id);
            }
            Change::Up(_) => self.up_changed(cx, id),
            Change::Mtu(mtu) => {
                cx.events
                    .push(interface.subject(), Happening::MtuChanged { mtu });
                if let Payload::Ethernet(ethernet) = payload {
                    ethernet.update_lanes(interface, &cx.ports[interface.port]);
                }
            }
            Change::WrongMtu(mtu) => {
                let (allowed, fault) = (payload.allowed_mtu(), payload.mtu_fault(mtu));
                interface.correct_mtu(mtu, &allowed, fault, &mut cx.host.netlink);
            }
            Change::Mac(mac) => {
                let mac = LinkAddress(mac);
                cx.events
                    .push(interface.subject(), Happening::MacChanged { mac });
                self.update_lanes(&cx.ports, id);
                management::sync_agent_of(self, cx, id);
            }
            Change::Coalesce(_) => self.update_lanes(&cx.ports, id),
        }
    }

    /// Sets an interface's MTU in bytes.
    ///
    /// # Errors
    /// Errors of rtnetlink.
    pub fn set_mtu(
        &mut self,
        cx: &mut Context,
        id: InterfaceId,
        mtu: u32,
    ) -> Result<(), rtnl::Error> {
        let Some((interface, payload)) = self.both_mut(id) else {
            return Ok(());
        };
        let before = interface.mtu;
        interface.set_mtu(mtu, &mut cx.host.netlink, &mut cx.events)?;
        if let Payload::Ethernet(ethernet) = payload
            && interface.mtu != before
        {
            ethernet.update_lanes(interface, &cx.ports[interface.port]);
        }
        Ok(())
    }

    /// As [`Interfaces::set_mtu`], but logs the error.
    pub fn try_mtu(&mut self, cx: &mut Context, id: InterfaceId, mtu: u32) {
        if let Err(e) = self.set_mtu(cx, id, mtu)
            && let Some(interface) = self.get(id)
        {
            log::warn!("{}: cannot set the MTU {mtu}: {e}", interface.name);
        }
    }

    /// Writes an interface's alias again.
    pub fn renew_alias(&mut self, cx: &mut Context, id: InterfaceId) {
        if let Some((interface, payload)) = self.both_mut(id) {
            let port = cx.ports[interface.port].port.attributes().name;
            let alias = payload.alias(interface, &port);
            interface.renew_alias(&alias, &mut cx.host.netlink);
        }
    }

    /// Adds an event about an interface.
    pub fn notify(&self, cx: &mut Context, id: InterfaceId, what: Happening) {
        if let Some(interface) = self.get(id) {
            cx.events.push(interface.subject(), what);
        }
    }

    /// Updates the settings of an interface's lanes.
    pub fn update_lanes(&mut self, ports: &Ports, id: InterfaceId) {
        if let Some((interface, payload)) = self.both_mut(id) {
            payload.update_lanes(interface, &ports[interface.port]);
        }
    }
}

fn is_bridge(netlink: &mut rtnl::Requests, ifindex: u32) -> bool {
    netlink
        .link_by_index(ifindex)
        .is_ok_and(|link| link.kind.as_deref() == Some("bridge"))
}
