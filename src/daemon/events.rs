//! What rtnetlink and the ports announce, and who acts on it.

use control::api::Happening;
use fabric::{Gid, PortEvent};
use rtnl::{Event, Notice};

use super::{Daemon, Payload};
use crate::datapath::now;
use crate::interface::{InterfaceId, Place, Subject};
use crate::port::PortId;

/// After a subnet manager has forgotten what it was asked for, all nodes ask again: within this time, in
/// milliseconds, so that it is not asked all at once.
const REJOIN_SPREAD_MS: u64 = 2_000;

impl Daemon {
    pub(super) fn netlink_event(&mut self, notice: Notice) {
        let place = Place { nsid: notice.nsid };
        match notice.event {
            Event::LinkChanged(link) => {
                match self.interfaces.by_index(place, link.index) {
                    Some(id) => self.link_changed(id, &link),
                    None => self.adoption.candidates.seen(place, &link),
                }
                self.vlan_link_seen(place, &link);
                self.note_stacking(place, Some(&link));
            }
            Event::LinkGone { index, .. } => {
                self.adoption.candidates.gone(place, index);
                // It was deleted, or moved; maybe it has come back since.
                if let Some(id) = self.interfaces.by_index(place, index) {
                    self.reread(id);
                }
                self.note_stacking(place, None);
            }
            Event::AddressAdded(a) => {
                self.adoption.candidates.touched(place, a.ifindex);
                if a.is_usable() {
                    self.reached_by(place, a.ifindex)
                        .into_iter()
                        .for_each(|id| self.address_added(id, a.ip));
                }
            }
            Event::AddressRemoved(a) => {
                for id in self.reached_by(place, a.ifindex) {
                    self.address_removed(id, a.ip);
                    // It may have gone from the port to the bridge, or back.
                    self.pending.addresses.insert(id);
                }
            }
            Event::MulticastAdded { ifindex, .. } | Event::MulticastRemoved { ifindex, .. } => {
                let id = self.interfaces.by_index(place, ifindex);
                let link = id.map(InterfaceId::link);
                self.pending.membership.extend(link);
            }
            Event::MulticastRouting => {
                self.pending.routes.insert(place);
                // Who routes multicast wants every group's frames, which is not announced.
                let there = self.interfaces.ethernet_ids(|i, _| i.place == place);
                self.pending.stacking.extend(there);
            }
            Event::NamespaceGone { nsid } => self.place_gone(Place { nsid: Some(nsid) }),
            Event::Overrun => {
                for id in self.interfaces.ids() {
                    self.reread(id);
                    self.look_for_children(id);
                }
            }
        }
    }

    pub(super) fn port_event(&mut self, at: PortId, event: PortEvent) {
        let attributes = self.ports[at].port.attributes();
        let name = attributes.name;
        if let Some(what) = told(&event, &attributes.state_reason) {
            self.events.push(Subject::Port(name.clone()), what);
            // What has refused groups may be over.
            self.group_sets(at).for_each(|(_, set)| set.hurry());
        }
        match &event {
            PortEvent::Active => {
                log::info!("{name}: port active");
                self.set_carriers(at);
                self.announce_all(at);
            }
            PortEvent::Down(why) => {
                log::warn!("{name}: port down: {why}");
                self.set_carriers(at);
            }
            PortEvent::Removed => {
                let why = attributes.state_reason.unwrap_or_default();
                log::warn!("{name}: port gone, waiting for it to come back: {why}");
                self.set_carriers(at);
            }
            PortEvent::GidChange(gid) => {
                log::info!("{name}: the port's GID is now {gid}");
                self.readdress_links(at, Some(*gid));
                self.renew_aliases_elsewhere(at);
                self.announce_all(at);
            }
            PortEvent::MtuChange(payload) => self.link_mtu_changed(at, *payload),
            PortEvent::PKeyChange(changed) => self.pkeys_changed(at, changed),
            PortEvent::QpnChange(_) => self.qpns_changed(at),
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
                log::info!("{name}: its fabric asks for all groups to be joined again");
                self.group_sets(at)
                    .for_each(|(_, set)| set.rejoin_all(now(), REJOIN_SPREAD_MS));
            }
        }
        self.vnic_port_event(at, &event);
    }
}

impl Daemon {
    /// Queue pairs of a port have other numbers now, and so their links other addresses: peers hear of them.
    fn qpns_changed(&mut self, at: PortId) {
        let port = &self.ports[at];
        let on_port = self.interfaces.iter_mut().filter(|(i, _)| i.port == at);
        for (interface, payload) in on_port {
            for link in payload.fabric_links_mut() {
                if link.read_qpn(&*port.port) {
                    let (name, qpn) = (&interface.name, link.endpoint.qpn);
                    log::info!("{name}: its queue pair is now {qpn}");
                }
            }
        }
        self.readdress_links(at, None);
        self.sync_siblings();
        self.announce_all(at);
    }

    /// The links of a port have other addresses now, since its GID or their queue pairs are others.
    fn readdress_links(&mut self, at: PortId, gid: Option<Gid>) {
        let port = &self.ports[at];
        let on_port = self.interfaces.iter_mut().filter(|(i, _)| i.port == at);
        for (interface, payload) in on_port {
            match payload {
                Payload::Ip(ip) => {
                    ip.readdress(gid);
                    ip.update_lanes(interface, port);
                }
                Payload::Ethernet(ethernet) => ethernet.update_lanes(interface, port),
            }
        }
    }
}

/// What a port's event is to those who watch, if they are told of it: of groups they are told by interface.
/// `reason` is why the port is not active.
fn told(event: &PortEvent, reason: &Option<String>) -> Option<Happening> {
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
