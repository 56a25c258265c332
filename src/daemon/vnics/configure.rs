//! Doing what a manager or the configuration says of a VNIC.

use std::collections::BTreeMap;
use std::sync::Arc;

use control::api::{Happening, LinkAddress};
use fabric::{PKey, UdInit};
use vnic::Mac;
use vnic::attribute::VeswPortInfo;
use vnic::directory::Directory;
use vnic::table::MacTable;

use crate::daemon::Daemon;
use crate::datapath::{DeviceId, EthernetCommand, EthernetSibling};
use crate::device::DeviceError;
use crate::port::PortId;
use crate::vnic::{Vnic, carried_mtu, static_switch};

impl Daemon {
    /// Does what a manager or the configuration says. What it is told again it does not do again.
    ///
    /// # Errors
    /// [`DeviceError`], if there is no endpoint to be had; it is on no switch then.
    pub(crate) fn configure_vnic(
        &mut self,
        id: DeviceId,
        info: VeswPortInfo,
    ) -> Result<(), DeviceError> {
        let Some(vnic) = self.vnics.get_mut(&id).filter(|v| v.info != info) else {
            return Ok(());
        };
        let at = vnic.at;
        let done = if vnic.is_on_switch_of(&info) {
            vnic.info = info;
            self.tell_vnic_info(id);
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
    fn change_vnic_switch(&mut self, id: DeviceId, info: VeswPortInfo) -> Result<(), DeviceError> {
        // One that begins to be served keeps the carrier that it was left with.
        if self.vnics.get(&id).is_some_and(Vnic::is_on_switch) {
            self.set_vnic_carrier(id, false);
            self.sync_vnic_siblings();
        }
        self.close_vnic_endpoint(id);
        if let Some(vnic) = self.vnics.get_mut(&id) {
            vnic.info = info;
        }
        let opened = self.open_vnic_endpoint(id);
        if let Some(vnic) = self.vnics.get_mut(&id) {
            vnic.failed = opened.as_ref().err().map(ToString::to_string);
            if opened.is_err() {
                vnic.info = VeswPortInfo::default();
            }
        }
        opened
    }

    /// Puts those on the switch of their configuration that could not be put there before.
    pub(in crate::daemon) fn configure_missing_switches(&mut self, at: PortId) {
        let port = self.ports[at].port.attributes();
        let carried = carried_mtu(port.ud_payload_max);
        let missing = self.vnics.values();
        let missing = missing.filter(|v| v.at == at && !v.is_on_switch());
        let missing = missing.filter_map(|v| {
            let (info, _) =
                static_switch(v.spec.switch.as_ref()?, port.guid, v.spec.index, carried);
            Some((v.id, v.name.clone(), info))
        });
        for (id, name, info) in missing.collect::<Vec<_>>() {
            match self.configure_vnic(id, info) {
                Ok(()) => log::info!("{name}: on its switch now"),
                Err(e) => log::warn!("{name}: cannot be put on its switch: {e}"),
            }
        }
    }

    fn vnic_reconfigured(&mut self, at: PortId, id: DeviceId) {
        self.unfollow_pkeys(at);
        self.keep_vnic_mtu(id);
        self.sync_vnic_groups(id);
        self.set_vnic_carriers(at);
        self.sync_vnic_siblings();
        self.renew_vnic_alias(id);
    }

    /// Gives a VNIC another MAC table of its manager's.
    pub(in crate::daemon) fn set_vnic_table(&mut self, id: DeviceId, table: Arc<MacTable>) {
        let Some(vnic) = self.vnics.get_mut(&id) else {
            return;
        };
        vnic.table = table;
        let port = &self.ports[vnic.at];
        port.tell(|| vnic.command(EthernetCommand::SetTable(vnic.table.clone())));
        self.sync_vnic_groups(id);
    }

    /// Tells a VNIC where the members of its switch are.
    pub(crate) fn set_vnic_directory(&mut self, id: DeviceId, directory: Arc<Directory>) {
        let Some(vnic) = self.vnics.get_mut(&id) else {
            return;
        };
        vnic.directory = directory;
        let port = &self.ports[vnic.at];
        port.tell(|| vnic.command(EthernetCommand::SetDirectory(vnic.directory.clone())));
    }

    fn tell_vnic_info(&self, id: DeviceId) {
        if let Some(vnic) = self.vnics.get(&id) {
            let info = || EthernetCommand::Configure(Box::new(vnic.info.clone()));
            self.ports[vnic.at].tell(|| vnic.command(info()));
        }
    }

    /// Makes the UD endpoint of a VNIC that is on a switch, and hands its lanes out.
    fn open_vnic_endpoint(&mut self, id: DeviceId) -> Result<(), DeviceError> {
        let Some(vnic) = self.vnics.get(&id).filter(|v| v.is_on_switch()) else {
            return Ok(());
        };
        let (at, pkey) = (vnic.at, vnic.info.pkey);
        self.follow_pkeys(at, Some(pkey))
            .map_err(DeviceError::Pkeys)?;
        let Some(vnic) = self.vnics.get_mut(&id) else {
            return Ok(());
        };
        let port = &mut self.ports[at];
        let attributes = port.port.attributes();
        // The same in every run, so that what peers know of it outlives a restart.
        let qpn = ipoib::local_qpn(attributes.gid, PKey::DEFAULT, &vnic.identity());
        let endpoint = port.port.create_ud(UdInit {
            pkey,
            qkey: vnic.qkey(),
            qpn: Some(qpn),
        })?;
        vnic.endpoint = Some(endpoint);
        vnic.hand_out(endpoint.id, &attributes, &port.mailboxes());
        Ok(())
    }

    /// Ends the UD endpoint of a VNIC, and its lanes; what they have counted stays.
    pub(in crate::daemon) fn close_vnic_endpoint(&mut self, id: DeviceId) {
        let Some(vnic) = self.vnics.get_mut(&id) else {
            return;
        };
        let Some(endpoint) = vnic.endpoint.take() else {
            return;
        };
        let port = &mut self.ports[vnic.at];
        for mgid in std::mem::take(&mut vnic.joined) {
            let left = Happening::GroupLeft { mgid };
            self.watchers.tell(vnic.subject(), left);
        }
        vnic.refused.clear();
        // Cores that begin anew know of nobody behind it, and tell only of changes.
        vnic.guests.clear();
        vnic.siblings = Arc::default();
        for part in port.remove_lanes(id) {
            vnic.tally.note(&part);
        }
        vnic.tally.retire();
        if let Err(e) = port.port.destroy_ud(endpoint.id) {
            log::warn!("{}: cannot close its endpoint: {e}", vnic.name);
        }
    }

    /// Gives a VNIC's interface the MAC that its manager or the configuration has chosen.
    pub(crate) fn set_vnic_mac(&mut self, id: DeviceId, mac: Mac) {
        // The kernel's interfaces take no address of zeros, which one without a switch would have.
        if mac == [0; 6] || self.vnics.get(&id).is_none_or(|v| v.mac == mac) {
            return;
        }
        let set = self.inside_vnic(id, |vnic, netlink| netlink.set_mac(vnic.ifindex, mac));
        let Some(vnic) = self.vnics.get_mut(&id) else {
            return;
        };
        match set {
            Some(Ok(())) => {
                vnic.mac = mac;
                let port = &self.ports[vnic.at];
                port.tell(|| vnic.command(EthernetCommand::SetMac(mac)));
                let mac = LinkAddress(mac);
                self.tell_vnic(id, Happening::MacChanged { mac });
            }
            Some(Err(e)) => log::warn!("{}: cannot set the MAC address: {e}", vnic.name),
            None => log::warn!("{}: cannot set the MAC address where it is", vnic.name),
        }
    }

    /// Writes a VNIC's alias again, where it is ours.
    pub(in crate::daemon) fn renew_vnic_alias(&mut self, id: DeviceId) {
        let Some(vnic) = self.vnics.get(&id) else {
            return;
        };
        let port = self.ports[vnic.at].port.attributes().name;
        self.inside_vnic(id, |vnic, netlink| {
            let link = netlink.link_by_index(vnic.ifindex);
            let set = link.and_then(|link| vnic.set_alias(netlink, &port, &link));
            if let Err(e) = set {
                log::warn!("{}: cannot set the alias: {e}", vnic.name);
            }
        });
    }

    /// Tells the data threads which VNICs of a switch reach each other without the wire, where that has
    /// changed.
    pub(in crate::daemon) fn sync_vnic_siblings(&mut self) {
        let mut switches: BTreeMap<_, Vec<(PKey, EthernetSibling)>> = BTreeMap::new();
        for vnic in self.vnics.values().filter(|v| v.forwards()) {
            if let Some(entry) = vnic.endpoint.and_then(|e| e.pkey) {
                let sibling = EthernetSibling {
                    device: vnic.id,
                    lid: vnic.lid(),
                };
                let members = switches.entry(switch_of(vnic)).or_default();
                members.push((entry, sibling));
            }
        }
        for vnic in self.vnics.values_mut() {
            let members = switches.get(&switch_of(vnic));
            let siblings = siblings_of(vnic.id, members.map_or(&[][..], Vec::as_slice));
            if *vnic.siblings != *siblings {
                vnic.siblings = siblings.into();
                let port = &self.ports[vnic.at];
                port.tell(|| vnic.command(EthernetCommand::SetSiblings(vnic.siblings.clone())));
            }
        }
    }
}

/// A switch of a port: its partition with bit 15 set, its fabric, its id.
fn switch_of(vnic: &Vnic) -> (PortId, u16, u16, u16) {
    let info = &vnic.info;
    let pkey = info.pkey.full().get();
    (vnic.at, pkey, info.fabric_id, info.vesw_id)
}

/// The others that a member may talk to; none for who is no member. Two limited members of a partition
/// may not (IBA vol. 1, 10.9.3).
fn siblings_of(id: DeviceId, members: &[(PKey, EthernetSibling)]) -> Vec<EthernetSibling> {
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
                device: DeviceId(device),
                lid: Lid::new(device),
            };
            (PKey::new(entry), sibling)
        };
        let names = |id, members: &[_]| -> Vec<u32> {
            let siblings = siblings_of(DeviceId(id), members);
            siblings.iter().map(|s| s.device.0).collect()
        };
        let members = [member(1, 0x8001), member(2, 0x0001), member(3, 0x0001)];
        assert_eq!(names(1, &members), [2, 3]);
        assert_eq!(names(2, &members), [1]);
        assert!(names(4, &members).is_empty(), "one that is down is none");
    }
}
