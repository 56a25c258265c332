//! Events of rtnetlink and of the ports.

use control::api::Happening;
use fabric::{Gid, PortEvent};
use rtnl::{Event, Notice};

use crate::datapath::now;
use crate::interface::{InterfaceId, Place, Subject};
use crate::interfaces::{Context, Interfaces, Payload, vlans};
use crate::port::{PortId, Ports};

/// After ClientReregister, all nodes join their groups again. Each starts within this time in milliseconds,
/// to spread the load on the subnet manager.
const REJOIN_SPREAD_MS: u64 = 2_000;

impl Interfaces {
    /// Follows a notification of the kernel.
    pub fn netlink_event(&mut self, cx: &mut Context, notice: Notice) {
        let place = Place { nsid: notice.nsid };
        match notice.event {
            Event::LinkChanged(link) => {
                match self.by_index(place, link.index) {
                    Some(id) => self.link_changed(cx, id, &link),
                    None => cx.adoption.candidates.seen(place, &link),
                }
                vlans::link_seen(self, cx, place, &link);
                self.note_stacking(cx, place, Some(&link));
            }
            Event::LinkGone { index, .. } => {
                cx.adoption.candidates.gone(place, index);
                // Deleted or moved; it may be back by now.
                if let Some(id) = self.by_index(place, index) {
                    self.reread(cx, id);
                }
                self.note_stacking(cx, place, None);
            }
            Event::AddressAdded(a) => {
                cx.adoption.candidates.touched(place, a.ifindex);
                let unique = self.ips_mut().filter(|_| a.is_unique());
                let here = unique.filter(|(i, _)| i.place == place);
                for (interface, ip) in here.filter(|(i, ip)| ip.announces_for(i, a.ifindex)) {
                    let port = &cx.ports[interface.port];
                    ip.address_added(interface, &mut cx.host.netlink, port, a.ip);
                }
            }
            Event::AddressRemoved(a) => {
                let here = self.ips_mut().filter(|(i, _)| i.place == place);
                for (interface, ip) in here.filter(|(i, ip)| ip.announces_for(i, a.ifindex)) {
                    ip.address_removed(interface, &cx.ports[interface.port], a.ip);
                    // The address may have moved between the port of a bridge and the bridge.
                    cx.pending.addresses.insert(interface.id);
                }
            }
            Event::MulticastAdded { ifindex, .. } | Event::MulticastRemoved { ifindex, .. } => {
                let id = self.by_index(place, ifindex);
                let link = id.map(InterfaceId::link);
                cx.pending.membership.extend(link);
            }
            Event::MulticastRouting => {
                cx.pending.routes.insert(place);
                // A multicast router needs the frames of all groups, and the kernel does not announce that.
                let there = self.ethernet_ids(|i, _| i.place == place);
                cx.pending.stacking.extend(there);
            }
            Event::NamespaceGone { nsid } if place == Place::HOME => {
                self.place_gone(cx, Place { nsid: Some(nsid) });
            }
            // A number in the table of another namespace.
            Event::NamespaceGone { .. } => {}
            Event::Overrun => {
                for id in self.ids() {
                    self.reread(cx, id);
                }
                self.look_around(cx, |_, _| true);
            }
        }
    }

    /// Follows an event of a port.
    pub fn port_event(&mut self, cx: &mut Context, at: PortId, event: PortEvent) {
        let attributes = cx.ports[at].port.attributes();
        let name = attributes.name;
        if let Some(what) = happening(&event, &attributes.state_reason) {
            cx.events.push(Subject::Port(name.clone()), what);
            // The cause of refusals may be gone.
            self.group_sets(at).for_each(|(_, set)| set.retry_now());
        }
        match &event {
            PortEvent::Active => {
                log::info!("{name}: port active");
                cx.ports[at].store_sockets();
                // A subnet administrator forgets the groups of a port that is down.
                if cx.ports[at].port.subnet().is_some() {
                    self.group_sets(at)
                        .for_each(|(_, set)| set.port_returned(now()));
                }
                self.set_carriers(cx, at);
                self.announce_all(cx, at);
            }
            PortEvent::Down(why) => {
                log::warn!("{name}: port down: {why}");
                self.set_carriers(cx, at);
            }
            PortEvent::Removed => {
                let why = attributes.state_reason.unwrap_or_default();
                log::warn!("{name}: port gone; ibtapd waits for its return: {why}");
                cx.ports[at].forget_sockets();
                self.set_carriers(cx, at);
            }
            PortEvent::GidChange(gid) => {
                log::info!("{name}: the port's GID is now {gid}");
                if cx.ports[at].allow.is_some() {
                    self.send_allowed(cx, at);
                }
                self.readdress_links(&cx.ports, at, Some(*gid));
                self.renew_aliases_elsewhere(cx, at);
                self.announce_all(cx, at);
            }
            PortEvent::MtuChange(_) => {
                for id in self.ip_ids(|interface, _| interface.port == at) {
                    self.follow_link_mtu(cx, id);
                }
            }
            PortEvent::PKeyChange(changed) => self.pkeys_changed(cx, at, changed),
            PortEvent::QpnChange(_) => self.qpns_changed(cx, at),
            PortEvent::Group {
                endpoint,
                mgid,
                joined,
            } => {
                let set = self.group_sets(at).find(|(id, _)| id == endpoint);
                if let Some((_, set)) = set {
                    set.answer(*mgid, joined.clone());
                }
            }
            PortEvent::ClientReregister => {
                log::info!(
                    "{name}: the subnet manager asks to join all groups again (client reregister)"
                );
                self.group_sets(at)
                    .for_each(|(_, set)| set.rejoin_all(now(), REJOIN_SPREAD_MS));
            }
        }
        self.vnic_port_event(cx, at, &event);
        // The subnet administrator knows no membership of another GID. Announcements wait for the answer to a join, but
        // not for a join: all groups are joined in this turn. The client reregister that follows is part of this.
        if matches!(event, PortEvent::GidChange(_)) && cx.ports[at].port.subnet().is_some() {
            self.group_sets(at)
                .for_each(|(_, set)| set.rejoin_all(now(), 0));
        }
    }

    /// The interfaces of a port announce the addresses of the host.
    fn announce_all(&mut self, cx: &mut Context, at: PortId) {
        let (netlink, port) = (&mut cx.host.netlink, &cx.ports[at]);
        let on_port = self.ips_mut().filter(|(i, _)| i.port == at);
        on_port.for_each(|(interface, ip)| ip.announce(interface, netlink, port));
    }

    /// Follows the size of UD payloads, which the port and the broadcast group limit. In datagram mode the
    /// interface's MTU follows (kernel ipoib_multicast.c, `ipoib_mcast_join_finish`).
    pub fn follow_link_mtu(&mut self, cx: &mut Context, id: InterfaceId) {
        if let Some((interface, ip)) = self.ip_mut(id)
            && let Some(mtu) = ip.follow_link_mtu(interface, &cx.ports[interface.port])
        {
            self.try_mtu(cx, id, mtu);
        }
    }

    /// Queue pair numbers of a port changed, and with them the links' addresses. The links announce them to
    /// peers.
    fn qpns_changed(&mut self, cx: &mut Context, at: PortId) {
        let port = &cx.ports[at];
        let on_port = self.iter_mut().filter(|(i, _)| i.port == at);
        for (interface, payload) in on_port {
            if let Payload::Ip(ip) = payload {
                ip.port_reopened(port);
            }
            for link in payload.fabric_links_mut() {
                if link.read_qpn(&*port.port) {
                    let (name, qpn) = (&interface.name, link.endpoint.qpn);
                    log::info!("{name}: the queue pair number is now {qpn}");
                }
            }
        }
        self.readdress_links(&cx.ports, at, None);
        self.sync_siblings(&cx.ports);
        self.announce_all(cx, at);
    }

    /// The addresses of a port's links changed, because its GID or queue pair numbers changed. The links announce
    /// the hosts behind them.
    fn readdress_links(&mut self, ports: &Ports, at: PortId, gid: Option<Gid>) {
        let port = &ports[at];
        let on_port = self.iter_mut().filter(|(i, _)| i.port == at);
        for (interface, payload) in on_port {
            if let Payload::Ip(ip) = payload {
                ip.readdress(gid);
            }
            payload.update_lanes(interface, port);
            if let Payload::Ip(ip) = payload {
                ip.announce_guests(interface, port);
            }
        }
    }
}

/// The event for monitoring clients, if they get one; group events are reported for interfaces instead.
/// `reason`: why the port is not active.
fn happening(event: &PortEvent, reason: &Option<String>) -> Option<Happening> {
    Some(match event {
        PortEvent::Active => Happening::PortActive,
        PortEvent::Down(reason) => Happening::PortDown {
            reason: reason.clone(),
        },
        PortEvent::Removed => Happening::PortGone {
            reason: reason.clone(),
        },
        PortEvent::GidChange(gid) => Happening::GidChanged { gid: *gid },
        PortEvent::MtuChange(link_mtu) => Happening::LinkMtuChanged {
            link_mtu: *link_mtu,
        },
        PortEvent::PKeyChange(_) => Happening::PkeysChanged,
        PortEvent::QpnChange(_) => Happening::QpnsChanged,
        PortEvent::Group { .. } | PortEvent::ClientReregister => return None,
    })
}
