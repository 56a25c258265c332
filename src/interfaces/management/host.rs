//! A port's VNICs, as the agent's [`Host`].

use std::collections::BTreeMap;
use std::sync::Arc;

use control::config::VnicConfig;
use vnic::Mac;
use vnic::agent::{Host, NewPort};
use vnic::attribute::VeswPortInfo;
use vnic::counters::Counters;
use vnic::directory::Directory;
use vnic::mac_table::MacTable;

use crate::ethernet::{Ethernet, RecentCounters, lid_of_another, now};
use crate::interface::{Interface, InterfaceId};
use crate::interfaces::{Context, Interfaces, Payload};
use crate::port::PortId;

/// The MAC of an interface for the manager; zeros for none. The ports of an active-backup bond have the bond's MAC, and
/// the manager cannot know which port is active; members learn it.
pub(super) const fn reported_mac(mac: Mac, bonded: bool) -> Mac {
    match bonded {
        true => [0; 6],
        false => mac,
    }
}

pub(super) fn new_port(interface: &Interface, ethernet: &Ethernet) -> NewPort {
    NewPort {
        name: interface.name.clone(),
        qpn: ethernet.qpn(),
        mac: reported_mac(interface.mac, ethernet.bonded),
    }
}

/// A port's VNICs, as the agent's [`Host`].
pub(super) struct PortHost<'d> {
    pub interfaces: &'d mut Interfaces,
    pub cx: &'d mut Context,
    pub at: PortId,
}

impl PortHost<'_> {
    fn vnic(&self, index: u8) -> Option<(&Interface, &Ethernet)> {
        self.interfaces
            .vnic_of(self.at, index)
            .filter(|(_, ethernet)| ethernet.spec.switch.is_none())
    }

    fn id(&self, index: u8) -> Option<InterfaceId> {
        self.vnic(index).map(|(interface, _)| interface.id)
    }

    fn forget_tables(&mut self, id: InterfaceId) {
        self.interfaces.set_vnic_table(self.cx, id, Arc::default());
        self.interfaces
            .set_vnic_directory(&self.cx.ports, id, Arc::default());
    }

    fn recent(&mut self) -> Option<&mut RecentCounters> {
        let management = self.interfaces.managements.get_mut(&self.at);
        management.map(|m| &mut m.recent)
    }

    /// A name for a VNIC that a manager creates: not in use by our interfaces in any namespace, nor by
    /// other interfaces of the host.
    fn free_name(&mut self, index: u8) -> String {
        let netlink = &mut self.cx.host.netlink;
        let mut is_taken = |name: &String| {
            let mut all = self.interfaces.iter();
            let is_its = |payload: &Payload| {
                let ethernet = payload.ethernet();
                ethernet.is_some_and(|ethernet| ethernet.spec.name == *name)
            };
            all.any(|(i, payload)| i.name == *name || is_its(payload))
                || netlink.link_by_name(name).is_ok()
        };
        let numbers = std::iter::once(u32::from(index)).chain(0..);
        let mut names = numbers.map(|n| format!("vnic{n}"));
        names.find(|name| !is_taken(name)).unwrap_or_default()
    }
}

impl Host for PortHost<'_> {
    fn create(&mut self, index: u8) -> Result<NewPort, String> {
        if let Some((vnic, _)) = self.interfaces.vnic_of(self.at, index) {
            return Err(format!(
                "{} has that index, and its switch is configured on this node",
                vnic.name
            ));
        }
        let name = self.free_name(index);
        let port = self.cx.ports[self.at].name.clone();
        let spec = VnicConfig::new(&name, port, index);
        let made = self.interfaces.add_vnic(self.cx, self.at, &spec);
        let id = made.map_err(|e| e.to_string())?;
        let vnic = self.interfaces.ethernet_mut(id);
        let (interface, ethernet) = vnic.ok_or_else(|| format!("{name} was deleted"))?;
        ethernet.made_by_manager = true;
        Ok(new_port(interface, ethernet))
    }

    fn refuse(&self, index: u8, info: &VeswPortInfo) -> Option<String> {
        let all = self.interfaces.ethernets();
        let others = all.filter(|(i, e)| i.port == self.at && e.spec.index != index);
        let configured = others.filter(|(_, e)| e.spec.switch.is_some());
        lid_of_another(configured.map(|(i, e)| (i.name.as_str(), &e.info)), info)
    }

    fn set_mac(&mut self, index: u8, mac: Mac) {
        if let Some(id) = self.id(index) {
            self.interfaces.set_vnic_mac(self.cx, id, mac);
        }
    }

    fn configure(&mut self, index: u8, info: &VeswPortInfo) -> Result<(), String> {
        let Some((interface, ethernet)) = self.vnic(index) else {
            return Err("its interface was deleted".into());
        };
        let (id, name) = (interface.id, interface.name.clone());
        let was = (
            ethernet.info.vesw_id,
            ethernet.info.encap_slid,
            ethernet.info.config_state,
        );
        let configured = self.interfaces.configure_vnic(self.cx, id, info.clone());
        let failed = configured.err().map(|e| e.to_string());
        if failed.is_some() {
            self.forget_tables(id);
        }
        if let Some((_, ethernet)) = self.interfaces.ethernet_mut(id) {
            ethernet.failed.clone_from(&failed);
        }
        if let Some(why) = failed {
            return Err(format!("{name}: {why}"));
        }
        if was != (info.vesw_id, info.encap_slid, info.config_state) {
            let state = info.config_state;
            let (vesw, lid) = (info.vesw_id, info.encap_slid);
            log::info!(
                "{name}: configured by its Ethernet Manager: switch {vesw}, LID {lid}, {state}"
            );
        }
        Ok(())
    }

    fn set_table(&mut self, index: u8, table: Arc<MacTable>) {
        if let Some(id) = self.id(index) {
            self.interfaces.set_vnic_table(self.cx, id, table);
        }
    }

    fn set_directory(&mut self, index: u8, directory: Arc<Directory>) {
        if let Some(id) = self.id(index) {
            self.interfaces
                .set_vnic_directory(&self.cx.ports, id, directory);
        }
    }

    fn delete(&mut self, index: u8) {
        let Some(id) = self.id(index) else {
            return;
        };
        // Without a switch, no endpoint is opened, so this cannot fail.
        let _ = self
            .interfaces
            .configure_vnic(self.cx, id, VeswPortInfo::default());
        self.forget_tables(id);
        if let Some((interface, ethernet)) = self.interfaces.ethernet_mut(id) {
            ethernet.failed = None;
            log::info!(
                "{}: removed from its switch by its Ethernet Manager",
                interface.name
            );
        }
    }

    fn counters(&mut self, index: u8) -> Counters {
        let Some(id) = self.id(index) else {
            return Counters::default();
        };
        let recent = self.recent().and_then(|recent| recent.get(now(), id));
        recent.unwrap_or_else(|| {
            let snapshots = self.cx.ports[self.at].snapshots(false);
            let on_port = self
                .interfaces
                .ethernets()
                .filter(|(i, _)| i.port == self.at);
            let all = on_port.map(|(i, ethernet)| (i.id, ethernet.count(i.id, &snapshots).0));
            let all: BTreeMap<_, _> = all.collect();
            let counters = all.get(&id).copied().unwrap_or_default();
            if let Some(recent) = self.recent() {
                recent.set(now(), all);
            }
            counters
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_of_a_bond_reports_no_mac() {
        let mac = [2, 0, 0, 0, 0, 1];
        assert_eq!(reported_mac(mac, false), mac);
        assert_eq!(reported_mac(mac, true), [0; 6]);
    }
}
