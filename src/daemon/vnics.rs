//! VNICs in service: they come and go, and are found by what they are called.

mod carrier;
mod configure;
mod events;
mod groups;
mod link;
mod management;
mod port;
mod show;

use std::collections::BTreeMap;
use std::sync::Arc;

use control::api::{ApiError, Happening};
use control::config::VnicConfig;
use fabric::EndpointId;

use super::{Daemon, DaemonError, Names, Place, visit};
use crate::datapath::DeviceId;
use crate::device::{DeviceError, TapSite};
use crate::fdstore;
use crate::port::PortId;
use crate::vnic::{Vnic, VnicSite, static_switch};

/// All of them.
pub(crate) type Vnics = BTreeMap<DeviceId, Vnic>;

impl Daemon {
    /// Makes a VNIC on a port. One that no manager configures is on its switch then.
    pub(crate) fn add_vnic(
        &mut self,
        at: PortId,
        spec: &VnicConfig,
    ) -> Result<DeviceId, DaemonError> {
        let id = DeviceId(self.next_id);
        self.next_id += 1;
        let failed = |source| DaemonError::Device {
            name: spec.name.clone(),
            source,
        };
        let mut vnic = self.make_vnic(id, at, spec).map_err(failed)?;
        let was_kept = vnic.carrier_left.is_some();
        vnic.netns = vnic.namespace.map(|there| Names::read().of(&there));
        // What was announced while it was made is older than what is read now.
        for notice in self.monitor.notices() {
            self.netlink_event(notice);
        }
        self.tick();
        self.sync_changed_groups();
        self.vnics.insert(id, vnic);
        // Where it is comes first: what follows is done there.
        self.reread_vnic(id);
        let gid = self.ports[at].port.attributes().gid;
        if let Some(switch) = &spec.switch {
            let attributes = self.ports[at].port.attributes();
            let carried = crate::vnic::carried_mtu(attributes.ud_payload_max);
            let (info, directory) = static_switch(switch, attributes.guid, spec.index, carried);
            // One that was there before may have the administrator's.
            if self.vnics.get(&id).is_some_and(|v| !v.tap.existed()) {
                self.set_vnic_mac(id, info.base_mac_addr);
            }
            self.set_vnic_directory(id, Arc::new(directory));
            if let Err(e) = self.configure_vnic(id, info) {
                self.undo_vnic(id, was_kept);
                return Err(failed(e));
            }
        } else {
            self.manage_port(at);
        }
        if let Some(vnic) = self.vnics.get(&id) {
            log::info!(
                "{}: serving on {} as VNIC {} {} mtu={} queues={}",
                vnic.name,
                self.ports[at].port.attributes().name,
                vnic.spec.index,
                switch_words(vnic),
                vnic.mtu,
                vnic.queues()
            );
            let created = Happening::Created {
                qpn: vnic.qpn(),
                gid,
            };
            self.watchers.tell(vnic.subject(), created);
        }
        self.set_vnic_carriers(at);
        // What was put off wakes the control loop no more.
        self.tick();
        self.sync_changed_groups();
        if let Some(vnic) = self.vnics.get(&id)
            && let Some(why) = self.vnic_misses(vnic)
        {
            log::info!("{}: no carrier: {why}", vnic.name);
        }
        Ok(id)
    }

    /// Takes back one that was made and cannot be served. What a service manager had kept before (`was_kept`)
    /// it keeps for the next start.
    fn undo_vnic(&mut self, id: DeviceId, was_kept: bool) {
        let Some(vnic) = self.vnics.get(&id) else {
            return;
        };
        vnic.undo();
        if !was_kept {
            fdstore::forget(&vnic.spec.interface);
        }
        self.close_vnic(id);
    }

    fn make_vnic(
        &mut self,
        id: DeviceId,
        at: PortId,
        spec: &VnicConfig,
    ) -> Result<Vnic, DeviceError> {
        let namespace = self.namespace_called(spec.netns.as_deref())?;
        let port = &self.ports[at];
        let mut site = VnicSite {
            port: (at, port.port.attributes()),
            threads: port.threads(),
            tap: TapSite {
                found: None,
                netlink: &mut self.netlink,
                inherited: &mut self.inherited,
                namespace,
                left: None,
            },
        };
        Vnic::create(id, spec, &mut site)
    }

    /// Closes a VNIC whose TAP is gone, or is to go.
    pub(crate) fn forget_vnic(&mut self, id: DeviceId) {
        let Some(vnic) = self.vnics.get(&id) else {
            return;
        };
        log::info!("{}: out of service, its endpoint is closed", vnic.name);
        fdstore::forget(&vnic.spec.interface);
        let at = vnic.at;
        self.close_vnic(id);
        self.sync_vnic_siblings();
        self.unfollow_pkeys(at);
        self.vnic_gone(at);
    }

    /// Closes a VNIC. Its TAP stays if it is persistent or a service manager keeps its queues.
    pub(in crate::daemon) fn close_vnic(&mut self, id: DeviceId) {
        self.close_vnic_endpoint(id);
        self.tell_vnic(id, Happening::Gone);
        self.vnics.remove(&id);
    }

    /// Tells those who watch about a VNIC.
    pub(in crate::daemon) fn tell_vnic(&mut self, id: DeviceId, what: Happening) {
        if let Some(vnic) = self.vnics.get(&id) {
            self.watchers.tell(vnic.subject(), what);
        }
    }

    /// The VNIC whose interface has this index at this place.
    pub(in crate::daemon) fn vnic_by_index(&self, place: Place, ifindex: u32) -> Option<DeviceId> {
        let mut all = self.vnics.values();
        all.find(|v| v.ifindex == ifindex && v.place == place)
            .map(|v| v.id)
    }

    /// The VNIC with this number on a port.
    pub(in crate::daemon) fn vnic_of(&self, at: PortId, index: u8) -> Option<&Vnic> {
        let mut all = self.vnics.values();
        all.find(|v| v.at == at && v.spec.index == index)
    }

    /// The name of the VNIC with this endpoint on a port.
    pub(crate) fn vnic_with_endpoint(&self, at: PortId, endpoint: EndpointId) -> Option<String> {
        let has_it = |v: &&Vnic| v.at == at && v.endpoint.is_some_and(|e| e.id == endpoint);
        self.vnics.values().find(has_it).map(|v| v.name.clone())
    }

    /// The VNICs on a port.
    pub(crate) fn vnics_on(&self, at: PortId) -> Vec<DeviceId> {
        let on_port = self.vnics.values().filter(|v| v.at == at);
        on_port.map(|v| v.id).collect()
    }

    /// Asks the kernel in the namespace where a VNIC's interface is, as [`Daemon::inside`] does.
    pub(crate) fn inside_vnic<T>(
        &mut self,
        id: DeviceId,
        ask: impl FnOnce(&mut Vnic, &mut rtnl::Requests) -> T,
    ) -> Option<T> {
        let vnic = self.vnics.get_mut(&id)?;
        if vnic.place == Place::HOME {
            return Some(ask(vnic, &mut self.netlink));
        }
        let there = vnic.tap.namespace().ok()?;
        if there.id().ok() != vnic.namespace {
            return None;
        }
        let answer = visit(&there, |netlink| ask(vnic, netlink));
        answer
            .inspect_err(|e| log::debug!("{}: its network namespace: {e}", vnic.name))
            .ok()
    }

    /// The VNIC whose interface is called so now, as [`Daemon::named`] finds devices.
    ///
    /// # Errors
    /// [`ApiError::NoSuchInterface`], and [`ApiError::Refused`] where several have that name.
    pub(crate) fn vnic_named(&self, name: &str) -> Result<&Vnic, ApiError> {
        let (place, wanted) = match name.rsplit_once('/') {
            Some((place, wanted)) => (Some(place), wanted),
            None => (None, name),
        };
        let called = self.vnics.values().filter(|v| v.name == wanted);
        let mut called: Vec<&Vnic> = called.collect();
        if let Some(place) = place {
            let names = Names::read();
            called.retain(|v| names.of(&v.namespace.unwrap_or(self.home)) == place);
        } else if called.len() > 1
            && let Some(home) = called.iter().find(|v| v.namespace.is_none())
        {
            return Ok(home);
        }
        match called[..] {
            [one] => Ok(one),
            [] => Err(ApiError::NoSuchInterface {
                interface: name.to_owned(),
            }),
            [..] => Err(ApiError::Refused {
                message: format!(
                    "several interfaces are called {name}: say NAMESPACE/{name}, as ip netns calls it"
                ),
            }),
        }
    }
}

/// Which switch it is on, for the log.
fn switch_words(vnic: &Vnic) -> String {
    match vnic.is_on_switch() {
        true => format!(
            "vesw={} lid={} qpn={} pkey={}",
            vnic.info.vesw_id,
            vnic.lid(),
            vnic.qpn(),
            vnic.info.pkey
        ),
        false => "of no switch yet".into(),
    }
}
