//! VNICs in service: they come and go, and are found by what they are called.

mod configure;
mod events;
mod groups;
mod link;
mod management;
mod port;
mod show;

use std::sync::Arc;

use control::api::Happening;
use control::config::VnicConfig;

use super::{Daemon, DaemonError, Payload};
use crate::ethernet::{Ethernet, VnicContext, static_switch};
use crate::fdstore;
use crate::interface::InterfaceId;
use crate::interface::{Interface, InterfaceError, TapSources};
use crate::port::PortId;

impl Daemon {
    /// Makes a VNIC on a port. One that no manager configures is on its switch then.
    pub(crate) fn add_vnic(
        &mut self,
        at: PortId,
        spec: &VnicConfig,
    ) -> Result<InterfaceId, DaemonError> {
        let id = self.interfaces.new_id();
        let failed = |source| DaemonError::Device {
            name: spec.name.clone(),
            source,
        };
        let (interface, ethernet) = self.make_vnic(id, at, spec).map_err(failed)?;
        let was_kept = ethernet.carrier_left.is_some();
        self.insert(interface, Payload::Ethernet(Box::new(ethernet)));
        // Where it is comes first: what follows is done there.
        self.reread(id);
        let gid = self.ports[at].port.attributes().gid;
        if let Some(switch) = &spec.switch {
            let attributes = self.ports[at].port.attributes();
            let carried = crate::ethernet::carried_mtu(attributes.ud_payload_max);
            let (info, directory) = static_switch(switch, attributes.guid, spec.index, carried);
            // One that was there before may have the administrator's.
            if self.interfaces.get(id).is_some_and(|i| !i.tap.existed()) {
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
        if let Some((interface, ethernet)) = self.interfaces.ethernet(id) {
            log::info!(
                "{}: serving on {} as VNIC {} {} mtu={} queues={}",
                interface.name,
                self.ports[at].port.attributes().name,
                ethernet.spec.index,
                switch_words(ethernet),
                interface.mtu,
                interface.queues.len()
            );
            let created = Happening::Created {
                qpn: ethernet.qpn(),
                gid,
            };
            self.tell(id, created);
        }
        self.set_carriers(at);
        // What was put off wakes the control loop no more.
        self.tick();
        self.sync_changed_groups();
        if let Some((interface, ethernet)) = self.interfaces.ethernet(id)
            && let Some(why) = self.vnic_misses(interface, ethernet)
        {
            log::info!("{}: no carrier: {why}", interface.name);
        }
        Ok(id)
    }

    /// Takes back one that was made and cannot be served. What a service manager had kept before (`was_kept`)
    /// it keeps for the next start.
    fn undo_vnic(&mut self, id: InterfaceId, was_kept: bool) {
        let Some((interface, payload)) = self.interfaces.both(id) else {
            return;
        };
        let config = payload.config();
        interface.undo(config.persist);
        if !was_kept {
            fdstore::forget(config);
        }
        self.close(id);
    }

    fn make_vnic(
        &mut self,
        id: InterfaceId,
        at: PortId,
        spec: &VnicConfig,
    ) -> Result<(Interface, Ethernet), InterfaceError> {
        let namespace = self.namespace_called(spec.netns.as_deref())?;
        let port = &self.ports[at];
        let mut site = VnicContext {
            port: (at, port.port.attributes()),
            threads: port.threads(),
            tap: TapSources {
                found: None,
                netlink: &mut self.host.netlink,
                inherited: &mut self.host.inherited,
                namespace,
                left: None,
            },
        };
        Ethernet::create(id, spec, &mut site)
    }

    /// The VNIC with this number on a port.
    pub(in crate::daemon) fn vnic_of(
        &self,
        at: PortId,
        index: u8,
    ) -> Option<(&Interface, &Ethernet)> {
        let mut all = self.interfaces.ethernets();
        all.find(|(i, ethernet)| i.port == at && ethernet.spec.index == index)
    }
}

/// Which switch it is on, for the log.
fn switch_words(ethernet: &Ethernet) -> String {
    match ethernet.is_on_switch() {
        true => format!(
            "vesw={} lid={} qpn={} pkey={}",
            ethernet.info.vesw_id,
            ethernet.lid(),
            ethernet.qpn(),
            ethernet.info.pkey
        ),
        false => "of no switch yet".into(),
    }
}
