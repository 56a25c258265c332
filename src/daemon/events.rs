//! What rtnetlink and the ports announce, and who acts on it.

use control::api::Happening;
use fabric::{EndpointId, PortEvent};
use rtnl::{Event, Notice};

use super::{Daemon, Place};
use crate::datapath::{Command, DeviceId};
use crate::port::PortId;
use crate::watch::Subject;

impl Daemon {
    pub(super) fn netlink_event(&mut self, notice: Notice) {
        let place = Place { nsid: notice.nsid };
        match notice.event {
            Event::LinkChanged(link) => {
                match self.by_index(place, link.index) {
                    Some(id) => self.link_changed(id, &link),
                    None => match self.vnic_by_index(place, link.index) {
                        Some(id) => self.vnic_link_changed(id, &link),
                        None => self.strangers.seen(place, &link),
                    },
                }
                self.vlan_link_seen(place, &link);
                self.note_stacking(place, Some(&link));
                self.note_vnic_stacking(place, Some(&link));
            }
            Event::LinkGone { index, .. } => {
                self.strangers.gone(place, index);
                if let Some(id) = self.by_index(place, index) {
                    self.left_its_place(id);
                }
                if let Some(id) = self.vnic_by_index(place, index) {
                    self.reread_vnic(id);
                }
                self.note_stacking(place, None);
                self.note_vnic_stacking(place, None);
            }
            Event::AddressAdded(a) => {
                self.strangers.touched(place, a.ifindex);
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
                    self.addresses_changed.insert(id);
                }
            }
            Event::MulticastAdded { ifindex, .. } | Event::MulticastRemoved { ifindex, .. } => {
                let device = self.by_index(place, ifindex);
                let id = device.or_else(|| self.vnic_by_index(place, ifindex));
                self.membership_changed.extend(id);
            }
            Event::MulticastRouting => {
                self.routes_changed.insert(place);
                // Who routes multicast wants every group's frames, which is not announced.
                let there = self.vnics.values().filter(|v| v.place == place);
                self.stacking_changed.extend(there.map(|v| v.id));
            }
            Event::NamespaceGone { nsid } => self.place_gone(Place { nsid: Some(nsid) }),
            Event::Overrun => {
                let ids: Vec<DeviceId> = self.devices.keys().copied().collect();
                for id in ids {
                    self.reread(id);
                    self.look_for_children(id);
                }
                for id in self.vnics.keys().copied().collect::<Vec<_>>() {
                    self.reread_vnic(id);
                }
            }
        }
    }

    /// Reads what is otherwise announced: of a new device, and after announcements were lost.
    pub(super) fn reread(&mut self, id: DeviceId) {
        if let Some(link) = self.find(id) {
            self.link_changed(id, &link);
            self.read_stacking(id);
            self.read_addresses(id);
            self.sync_groups(id);
        }
    }

    pub(super) fn port_event(&mut self, at: PortId, event: PortEvent) {
        let attributes = self.ports[at].port.attributes();
        let name = attributes.name;
        let what = told(&event, &attributes.state_reason);
        self.watchers.tell(Subject::Port(&name), what);
        self.vnic_port_event(at, &event);
        match event {
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
                for (id, (_, device)) in self.devices.iter_mut().filter(|(_, (p, _))| *p == at) {
                    let address = device.address_at(gid);
                    device.address = address;
                    self.ports[at].tell(|| Command::SetLocal(*id, address));
                }
                self.renew_aliases_elsewhere(at);
                self.announce_all(at);
            }
            PortEvent::MtuChange(payload) => self.link_mtu_changed(at, payload),
            PortEvent::PKeyChange(changed) => self.pkeys_changed(at, &changed),
            PortEvent::QpnChange(changed) => self.qpns_changed(at, &changed),
        }
    }
}

impl Daemon {
    /// The queue pairs of these endpoints have other numbers now, and so their devices other addresses:
    /// peers hear of them. What VLANs have, `tend_vlans` follows.
    fn qpns_changed(&mut self, at: PortId, changed: &[EndpointId]) {
        let port = &self.ports[at];
        for (id, (_, device)) in self.devices.iter_mut().filter(|(_, (p, _))| *p == at) {
            let endpoint = device.endpoint.id;
            let qpn = port.port.endpoint_qpn(endpoint);
            if let (true, Some(qpn)) = (changed.contains(&endpoint), qpn) {
                log::info!("{}: its queue pair is now {qpn}", device.name);
                device.endpoint.qpn = qpn;
                device.address = device.address_at(device.address.gid());
                let address = device.address;
                port.tell(|| Command::SetLocal(*id, address));
            }
        }
        self.sync_siblings();
        self.announce_all(at);
    }
}

/// What a port's event is to those who watch. `reason` is why the port is not active.
fn told(event: &PortEvent, reason: &Option<String>) -> Happening {
    match event {
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
    }
}
