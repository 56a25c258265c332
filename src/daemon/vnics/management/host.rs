//! A port's VNICs, as its agent has them.

use std::sync::Arc;

use control::config::VnicConfig;
use vnic::Mac;
use vnic::agent::{Host, NewPort};
use vnic::attribute::VeswPortInfo;
use vnic::counters::Counters;
use vnic::directory::Directory;
use vnic::mac_table::MacTable;

use crate::daemon::{Daemon, Payload};
use crate::ethernet::{Ethernet, RecentCounters, lid_of_another, now};
use crate::interface::Interface;
use crate::interface::InterfaceId;
use crate::port::PortId;

pub(super) fn new_port(interface: &Interface, ethernet: &Ethernet) -> NewPort {
    NewPort {
        name: interface.name.clone(),
        qpn: ethernet.qpn(),
        mac: interface.mac,
    }
}

/// A port's VNICs, as its agent has them.
pub(super) struct PortHost<'d> {
    pub daemon: &'d mut Daemon,
    pub at: PortId,
}

impl PortHost<'_> {
    fn vnic(&self, index: u8) -> Option<(&Interface, &Ethernet)> {
        self.daemon
            .vnic_of(self.at, index)
            .filter(|(_, ethernet)| ethernet.spec.switch.is_none())
    }

    fn id(&self, index: u8) -> Option<InterfaceId> {
        self.vnic(index).map(|(interface, _)| interface.id)
    }

    fn forget_tables(&mut self, id: InterfaceId) {
        self.daemon.set_vnic_table(id, Arc::default());
        self.daemon.set_vnic_directory(id, Arc::default());
    }

    fn recent(&mut self) -> Option<&mut RecentCounters> {
        let management = self.daemon.ports[self.at].management.as_mut();
        management.map(|m| &mut m.recent)
    }

    /// The name of a VNIC that a manager makes: one that neither an interface of ours has, wherever that
    /// is, nor any other of the host.
    fn free_name(&mut self, index: u8) -> String {
        let daemon = &mut *self.daemon;
        let mut is_taken = |name: &String| {
            let mut all = daemon.interfaces.iter();
            let is_its = |payload: &Payload| {
                let ethernet = payload.ethernet();
                ethernet.is_some_and(|ethernet| ethernet.spec.name == *name)
            };
            all.any(|(i, payload)| i.name == *name || is_its(payload))
                || daemon.host.netlink.link_by_name(name).is_ok()
        };
        let numbers = std::iter::once(u32::from(index)).chain(0..);
        let mut names = numbers.map(|n| format!("vnic{n}"));
        names.find(|name| !is_taken(name)).unwrap_or_default()
    }
}

impl Host for PortHost<'_> {
    fn create(&mut self, index: u8) -> Result<NewPort, String> {
        if let Some((vnic, _)) = self.daemon.vnic_of(self.at, index) {
            return Err(format!(
                "{} has that index, and its switch is configured here",
                vnic.name
            ));
        }
        let name = self.free_name(index);
        let port = self.daemon.ports[self.at].name.clone();
        let spec = VnicConfig::new(&name, port, index);
        let made = self.daemon.add_vnic(self.at, &spec);
        let id = made.map_err(|e| e.to_string())?;
        let vnic = self.daemon.interfaces.ethernet_mut(id);
        let (interface, ethernet) = vnic.ok_or_else(|| format!("{name} is gone already"))?;
        ethernet.made_by_manager = true;
        Ok(new_port(interface, ethernet))
    }

    fn refuse(&self, index: u8, info: &VeswPortInfo) -> Option<String> {
        let all = self.daemon.interfaces.ethernets();
        let others = all.filter(|(i, e)| i.port == self.at && e.spec.index != index);
        let configured = others.filter(|(_, e)| e.spec.switch.is_some());
        lid_of_another(configured.map(|(i, e)| (i.name.as_str(), &e.info)), info)
    }

    fn set_mac(&mut self, index: u8, mac: Mac) {
        if let Some(id) = self.id(index) {
            self.daemon.set_vnic_mac(id, mac);
        }
    }

    fn configure(&mut self, index: u8, info: &VeswPortInfo) -> Result<(), String> {
        let Some((interface, ethernet)) = self.vnic(index) else {
            return Err("its interface is gone".into());
        };
        let (id, name) = (interface.id, interface.name.clone());
        let was = (
            ethernet.info.vesw_id,
            ethernet.info.encap_slid,
            ethernet.info.config_state,
        );
        let configured = self.daemon.configure_vnic(id, info.clone());
        let failed = configured.err().map(|e| e.to_string());
        if failed.is_some() {
            self.forget_tables(id);
        }
        if let Some((_, ethernet)) = self.daemon.interfaces.ethernet_mut(id) {
            ethernet.failed.clone_from(&failed);
        }
        if let Some(why) = failed {
            return Err(format!("{name}: {why}"));
        }
        if was != (info.vesw_id, info.encap_slid, info.config_state) {
            let state = info.config_state;
            let (vesw, lid) = (info.vesw_id, info.encap_slid);
            log::info!("{name}: its Ethernet Manager says: switch {vesw}, LID {lid}, {state}");
        }
        Ok(())
    }

    fn set_table(&mut self, index: u8, table: Arc<MacTable>) {
        if let Some(id) = self.id(index) {
            self.daemon.set_vnic_table(id, table);
        }
    }

    fn set_directory(&mut self, index: u8, directory: Arc<Directory>) {
        if let Some(id) = self.id(index) {
            self.daemon.set_vnic_directory(id, directory);
        }
    }

    fn delete(&mut self, index: u8) {
        let Some(id) = self.id(index) else {
            return;
        };
        // Without a switch there is no endpoint to fail to be made.
        let _ = self.daemon.configure_vnic(id, VeswPortInfo::default());
        self.forget_tables(id);
        if let Some((interface, ethernet)) = self.daemon.interfaces.ethernet_mut(id) {
            ethernet.failed = None;
            log::info!(
                "{}: its Ethernet Manager takes it off its switch",
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
            let all = self.daemon.vnic_counters_on(self.at);
            let counters = all.get(&id).copied().unwrap_or_default();
            if let Some(recent) = self.recent() {
                recent.set(now(), all);
            }
            counters
        })
    }
}
