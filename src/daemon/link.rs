//! What is done with interfaces: they are renamed, set up and down, enslaved, get another MAC,
//! another MTU, other offload features. The daemon follows.

use std::io;

use control::api::{Happening, LinkAddress};
use netdev::ethtool::Features;

use super::{Daemon, Payload};
use crate::interface::Change;
use crate::interface::InterfaceId;

impl Daemon {
    /// Reads what is otherwise announced: of a new interface, of one that has left its place, and after
    /// announcements were lost.
    pub(super) fn reread(&mut self, id: InterfaceId) {
        let Some(link) = self.find(id) else {
            return;
        };
        self.link_changed(id, &link);
        if self.interfaces.ip(id).is_some() {
            self.read_stacking(id);
            self.read_addresses(id);
            self.sync_groups(id.link());
        }
    }

    /// What an interface is like now.
    pub(super) fn link_changed(&mut self, id: InterfaceId, link: &rtnl::Link) {
        let Some((interface, payload)) = self.interfaces.both_mut(id) else {
            return;
        };
        let bridge = payload.ip().and_then(|ip| ip.bridge);
        let asked = interface.inside(&mut self.host.netlink, |_, netlink| {
            // What was a bridge is one still: asked for once, and not at each change of the link.
            let is_bridge = |m: &u32| bridge == Some(*m) || is_bridge(netlink, *m);
            let above = link.master.filter(|_| payload.ip().is_some());
            (above.filter(is_bridge), Features::read(&link.name))
        });
        // Where the daemon cannot go, what was told is followed at least.
        let unread = || (bridge, Err(io::ErrorKind::NotFound.into()));
        let (above, features) = asked.unwrap_or_else(unread);
        if let Some(ip) = payload.ip_mut() {
            ip.bridge = above;
        }
        let changes = interface.link_seen(link, &payload.allowed_mtu(), features);
        for change in changes {
            self.changed(id, change);
        }
        if above != bridge {
            self.read_addresses(id);
        }
        if self.interfaces.ethernet(id).is_some() {
            self.pending.stacking.insert(id);
        }
        self.pending.membership.insert(id.link());
    }

    /// Something of an interface became another.
    fn changed(&mut self, id: InterfaceId, change: Change) {
        match change {
            Change::Name(was) => {
                self.tell(id, Happening::Renamed { was });
                self.parent_renamed(id);
            }
            Change::Up(_) => self.up_changed(id),
            Change::Mtu(_) => self.mtu_changed(id),
            Change::WrongMtu(mtu) => self.correct_mtu(id, mtu),
            Change::Mac(mac) => {
                self.update_lanes(id);
                let mac = LinkAddress(mac);
                self.tell(id, Happening::MacChanged { mac });
                self.sync_agent_of(id);
            }
            Change::Coalesce(_) => self.update_lanes(id),
        }
    }

    /// Writes an interface's alias again, where it is ours.
    pub(super) fn renew_alias(&mut self, id: InterfaceId) {
        let Some((interface, payload)) = self.interfaces.both_mut(id) else {
            return;
        };
        let port = self.ports[interface.port].port.attributes().name;
        let alias = payload.alias(interface, &port);
        interface.inside(&mut self.host.netlink, |interface, netlink| {
            let link = netlink.link_by_index(interface.ifindex);
            let set = link.and_then(|link| interface.write_alias(netlink, &link, &alias));
            if let Err(e) = set {
                log::warn!("{}: cannot set the alias: {e}", interface.name);
            }
        });
    }

    /// Adds an event about an interface.
    pub(crate) fn tell(&mut self, id: InterfaceId, what: Happening) {
        if let Some(interface) = self.interfaces.get(id) {
            self.events.push(interface.subject(), what);
        }
    }

    /// Has the lanes of an interface be as the interface is now.
    pub(crate) fn update_lanes(&mut self, id: InterfaceId) {
        let Some((interface, payload)) = self.interfaces.both_mut(id) else {
            return;
        };
        let port = &self.ports[interface.port];
        match payload {
            Payload::Ip(ip) => ip.update_lanes(interface, port),
            Payload::Ethernet(ethernet) => ethernet.update_lanes(interface, port),
        }
    }
}

fn is_bridge(netlink: &mut rtnl::Requests, ifindex: u32) -> bool {
    netlink
        .link_by_index(ifindex)
        .is_ok_and(|link| link.kind.as_deref() == Some("bridge"))
}
