//! Doing what a manager or the configuration says of a VNIC.

use std::collections::BTreeMap;
use std::sync::Arc;

use control::api::{Happening, LinkAddress};
use fabric::PKey;
use vnic::Mac;
use vnic::attribute::VeswPortInfo;
use vnic::directory::Directory;
use vnic::mac_table::MacTable;

use crate::daemon::Daemon;
use crate::datapath::{Command, EthernetSibling, LinkId};
use crate::ethernet::{Ethernet, carried_mtu, groups_of_one, static_switch};
use crate::interface::InterfaceId;
use crate::interface::{FabricLink, Interface, InterfaceError};
use crate::port::PortId;

impl Daemon {
    /// Does what a manager or the configuration says. What it is told again it does not do again.
    ///
    /// # Errors
    /// [`InterfaceError`], if there is no endpoint to be had; it is on no switch then.
    pub(crate) fn configure_vnic(
        &mut self,
        id: InterfaceId,
        info: VeswPortInfo,
    ) -> Result<(), InterfaceError> {
        let found = self.interfaces.ethernet_mut(id);
        let Some((interface, ethernet)) = found.filter(|(_, e)| e.info != info) else {
            return Ok(());
        };
        let at = interface.port;
        let done = if ethernet.is_on_switch_of(&info) {
            ethernet.info = info;
            self.update_lanes(id);
            Ok(())
        } else {
            self.change_vnic_switch(id, info)
        };
        self.vnic_reconfigured(at, id);
        done
    }

    /// Takes a VNIC from its switch, and puts it on another one if it is to be on one. The host has no
    /// carrier meanwhile, and other VNICs of the switch hand nothing over before the new lanes are there;
    /// what waits in the queues these drop.
    fn change_vnic_switch(
        &mut self,
        id: InterfaceId,
        info: VeswPortInfo,
    ) -> Result<(), InterfaceError> {
        // One that begins to be served keeps the carrier that it was left with.
        let before = self.interfaces.ethernet(id);
        if before.is_some_and(|(_, ethernet)| ethernet.is_on_switch()) {
            self.set_carrier(id, false);
            self.sync_vnic_siblings();
        }
        self.close_vnic_endpoint(id);
        if let Some((_, ethernet)) = self.interfaces.ethernet_mut(id) {
            ethernet.info = info;
        }
        let opened = self.open_vnic_endpoint(id);
        if let Some((_, ethernet)) = self.interfaces.ethernet_mut(id) {
            ethernet.failed = opened.as_ref().err().map(ToString::to_string);
            if opened.is_err() {
                ethernet.info = VeswPortInfo::default();
            }
        }
        opened
    }

    /// Puts those on the switch of their configuration that could not be put there before.
    pub(in crate::daemon) fn configure_missing_switches(&mut self, at: PortId) {
        let port = self.ports[at].port.attributes();
        let carried = carried_mtu(port.ud_payload_max);
        let missing = self.interfaces.ethernets();
        let missing = missing.filter(|(i, ethernet)| i.port == at && !ethernet.is_on_switch());
        let missing = missing.filter_map(|(interface, ethernet)| {
            let (switch, index) = (ethernet.spec.switch.as_ref()?, ethernet.spec.index);
            let (info, _) = static_switch(switch, port.guid, index, carried);
            Some((interface.id, interface.name.clone(), info))
        });
        for (id, name, info) in missing.collect::<Vec<_>>() {
            match self.configure_vnic(id, info) {
                Ok(()) => log::info!("{name}: on its switch now"),
                Err(e) => log::warn!("{name}: cannot be put on its switch: {e}"),
            }
        }
    }

    fn vnic_reconfigured(&mut self, at: PortId, id: InterfaceId) {
        self.unfollow_pkeys(at);
        self.keep_vnic_mtu(id);
        self.sync_vnic_groups(id);
        self.set_carriers(at);
        self.sync_vnic_siblings();
        self.renew_alias(id);
    }

    /// Gives a VNIC another MAC table of its manager's.
    pub(in crate::daemon) fn set_vnic_table(&mut self, id: InterfaceId, table: Arc<MacTable>) {
        if let Some((_, ethernet)) = self.interfaces.ethernet_mut(id) {
            ethernet.table = table;
            self.tell_ethernet(id, |e| Command::SetTable(id.link(), e.table.clone()));
            self.sync_vnic_groups(id);
        }
    }

    /// Gives a VNIC another directory: where the members of its switch are.
    pub(crate) fn set_vnic_directory(&mut self, id: InterfaceId, directory: Arc<Directory>) {
        if let Some((_, ethernet)) = self.interfaces.ethernet_mut(id) {
            ethernet.directory = directory;
            self.tell_ethernet(id, |e| {
                Command::SetDirectory(id.link(), e.directory.clone())
            });
        }
    }

    /// Sends a command to all data threads of a VNIC.
    fn tell_ethernet(&self, id: InterfaceId, command: impl Fn(&Ethernet) -> Command) {
        if let Some((interface, ethernet)) = self.interfaces.ethernet(id) {
            self.ports[interface.port].tell(|| command(ethernet));
        }
    }

    /// Makes the UD endpoint of a VNIC that is on a switch, and hands its lanes out.
    fn open_vnic_endpoint(&mut self, id: InterfaceId) -> Result<(), InterfaceError> {
        let found = self.interfaces.ethernet(id);
        let Some((interface, ethernet)) = found.filter(|(_, e)| e.is_on_switch()) else {
            return Ok(());
        };
        let (at, pkey) = (interface.port, ethernet.info.pkey);
        self.follow_pkeys(at, Some(pkey))
            .map_err(InterfaceError::Pkeys)?;
        let Some((interface, ethernet)) = self.interfaces.ethernet_mut(id) else {
            return Ok(());
        };
        let port = &mut self.ports[at];
        let attributes = port.port.attributes();
        // The same in every run, so that what peers know of it outlives a restart.
        let qpn = ipoib::local_qpn(attributes.gid, PKey::DEFAULT, &ethernet.identity());
        let bounds = groups_of_one(&port.port.capabilities());
        let keys = (pkey, ethernet.qkey());
        let link = FabricLink::open(id.link(), keys, Some(qpn), bounds, &mut *port.port)?;
        ethernet.hand_out(interface, &link, &attributes, &port.mailboxes());
        ethernet.link = Some(link);
        Ok(())
    }

    /// Ends the UD endpoint of a VNIC, and its lanes; what they have counted stays.
    pub(in crate::daemon) fn close_vnic_endpoint(&mut self, id: InterfaceId) {
        let Some((interface, ethernet)) = self.interfaces.ethernet_mut(id) else {
            return;
        };
        let Some(mut link) = ethernet.link.take() else {
            return;
        };
        for mgid in link.groups.clear() {
            let left = Happening::GroupLeft { mgid };
            self.events.push(interface.subject(), left);
        }
        // Cores that begin anew know of nobody behind it, and tell only of changes.
        ethernet.guests.clear();
        ethernet.siblings = Arc::default();
        let port = &mut self.ports[interface.port];
        for part in link.close(&interface.name, port) {
            ethernet.counted.note(&part);
        }
        ethernet.counted.retire();
    }

    /// Gives a VNIC's interface the MAC that its manager or the configuration has chosen.
    pub(crate) fn set_vnic_mac(&mut self, id: InterfaceId, mac: Mac) {
        // The kernel's interfaces take no address of zeros, which one without a switch would have.
        let found = self.interfaces.get_mut(id).filter(|i| i.mac != mac);
        let Some(interface) = found.filter(|_| mac != [0; 6]) else {
            return;
        };
        let set = interface.inside(&mut self.host.netlink, |interface, netlink| {
            netlink.set_mac(interface.ifindex, mac)
        });
        match set {
            Some(Ok(())) => {
                interface.mac = mac;
                self.update_lanes(id);
                let mac = LinkAddress(mac);
                self.tell(id, Happening::MacChanged { mac });
            }
            Some(Err(e)) => log::warn!("{}: cannot set the MAC address: {e}", interface.name),
            None => log::warn!("{}: cannot set the MAC address where it is", interface.name),
        }
    }

    /// Tells the data threads which VNICs of a switch reach each other without the wire, where that has
    /// changed.
    pub(in crate::daemon) fn sync_vnic_siblings(&mut self) {
        let mut switches: BTreeMap<_, Vec<(PKey, EthernetSibling)>> = BTreeMap::new();
        let all = self.interfaces.ethernets();
        for (interface, ethernet) in all.filter(|(i, ethernet)| ethernet.forwards(i)) {
            if let Some(entry) = ethernet.entry() {
                let sibling = EthernetSibling {
                    device: interface.id.link(),
                    lid: ethernet.lid(),
                };
                let switch = switch_of(interface, ethernet);
                let members = switches.entry(switch).or_default();
                members.push((entry, sibling));
            }
        }
        for (interface, ethernet) in self.interfaces.ethernets_mut() {
            let members = switches.get(&switch_of(interface, ethernet));
            let id = interface.id.link();
            let siblings = siblings_of(id, members.map_or(&[][..], Vec::as_slice));
            if *ethernet.siblings != *siblings {
                ethernet.siblings = siblings.into();
                let siblings = &ethernet.siblings;
                let command = || Command::SetEthernetSiblings(id, siblings.clone());
                self.ports[interface.port].tell(command);
            }
        }
    }
}

/// A switch of a port: its partition with bit 15 set, its fabric, its id.
fn switch_of(interface: &Interface, ethernet: &Ethernet) -> (PortId, u16, u16, u16) {
    let info = &ethernet.info;
    let pkey = info.pkey.full().get();
    (interface.port, pkey, info.fabric_id, info.vesw_id)
}

/// The others that a member may talk to; none for who is no member. Two limited members of a partition
/// may not (IBA vol. 1, 10.9.3).
fn siblings_of(id: LinkId, members: &[(PKey, EthernetSibling)]) -> Vec<EthernetSibling> {
    let Some((own, _)) = members.iter().find(|(_, m)| m.device == id) else {
        return Vec::new();
    };
    let others = members.iter().filter(|(_, m)| m.device != id);
    others
        .filter(|(entry, _)| entry.matches(*own))
        .map(|(_, sibling)| *sibling)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use vnic::Lid;

    #[test]
    fn siblings_are_the_other_members_that_the_partition_lets_talk() {
        let member = |device, entry| {
            let sibling = EthernetSibling {
                device: LinkId(device),
                lid: Lid::new(device),
            };
            (PKey::new(entry), sibling)
        };
        let names = |id, members: &[_]| -> Vec<u32> {
            let siblings = siblings_of(LinkId(id), members);
            siblings.iter().map(|s| s.device.0).collect()
        };
        let members = [member(1, 0x8001), member(2, 0x0001), member(3, 0x0001)];
        assert_eq!(names(1, &members), [2, 3]);
        assert_eq!(names(2, &members), [1]);
        assert!(names(4, &members).is_empty(), "one that is down is none");
    }
}
