//! Adds, finds and removes VNICs.

mod configure;
mod port;

use std::sync::Arc;

use control::api::Happening;
use control::config::VnicConfig;

use crate::ethernet::{Ethernet, VnicContext, configured_switch};
use crate::fdstore;
use crate::interface::{Interface, InterfaceError, InterfaceId, TapSources};
use crate::interfaces::{Context, DaemonError, Interfaces, Payload, management};
use crate::port::PortId;

impl Interfaces {
    /// Creates a VNIC on a port. A VNIC without a manager is put on its configured switch.
    pub fn add_vnic(
        &mut self,
        cx: &mut Context,
        at: PortId,
        spec: &VnicConfig,
    ) -> Result<InterfaceId, DaemonError> {
        let id = self.new_id();
        let failed = |source| DaemonError::Interface {
            name: spec.name.clone(),
            source,
        };
        let (interface, ethernet) = self.make_vnic(cx, id, at, spec).map_err(failed)?;
        let was_kept = interface.carrier_left.is_some();
        self.insert(cx, interface, Payload::Ethernet(Box::new(ethernet)));
        // The namespace is needed first: requests go there.
        self.reread(cx, id);
        let port = cx.ports[at].port.attributes();
        if let Some(switch) = &spec.switch {
            let (info, directory) = configured_switch(switch, spec.index, &port);
            // An existing TAP may have a MAC set by the administrator.
            if self.get(id).is_some_and(|i| !i.tap.existed()) {
                self.set_vnic_mac(cx, id, info.base_mac_addr);
            }
            self.set_vnic_directory(&cx.ports, id, Arc::new(directory));
            if let Err(e) = self.configure_vnic(cx, id, info) {
                self.undo_vnic(cx, id, was_kept);
                return Err(failed(e));
            }
        } else {
            management::manage_port(self, cx, at);
        }
        if let Some((interface, ethernet)) = self.ethernet(id) {
            log::info!(
                "{}: serving on {} as VNIC {} {} mtu={} queues={}",
                interface.name,
                port.name,
                ethernet.spec.index,
                switch_words(ethernet),
                interface.mtu,
                interface.queues.len()
            );
            let created = Happening::Created {
                qpn: ethernet.qpn(),
                gid: port.gid,
            };
            self.notify(cx, id, created);
        }
        self.set_carriers(cx, at);
        // The notifications handled by `insert` do not wake the control loop again.
        self.tick(cx);
        self.sync_changed_groups(cx);
        if let Some((interface, ethernet)) = self.ethernet(id)
            && let Some(why) = self.vnic_no_carrier(&cx.ports, interface, ethernet)
        {
            log::info!("{}: no carrier: {why}", interface.name);
        }
        Ok(id)
    }

    /// Removes a VNIC that cannot be served. A service manager that had kept its queues before (`was_kept`)
    /// keeps them for the next start.
    fn undo_vnic(&mut self, cx: &mut Context, id: InterfaceId, was_kept: bool) {
        let Some((interface, payload)) = self.both(id) else {
            return;
        };
        let config = payload.config();
        interface.undo(config.persist);
        let label = fdstore::label(config);
        self.close(cx, id);
        if !was_kept {
            self.remove_stored(&label);
        }
    }

    fn make_vnic(
        &mut self,
        cx: &mut Context,
        id: InterfaceId,
        at: PortId,
        spec: &VnicConfig,
    ) -> Result<(Interface, Ethernet), InterfaceError> {
        let namespace = self.namespace_called(cx, spec.netns.as_deref())?;
        let port = &cx.ports[at];
        let mut site = VnicContext {
            port: (at, port.port.attributes()),
            threads: port.threads(),
            tap: TapSources {
                found: None,
                netlink: &mut cx.host.netlink,
                inherited: &mut cx.host.inherited,
                patience: &mut cx.host.patience,
                namespace,
                left: None,
            },
        };
        Ethernet::create(id, spec, &mut site)
    }

    /// The VNIC with this index on a port.
    pub fn vnic_of(&self, at: PortId, index: u8) -> Option<(&Interface, &Ethernet)> {
        let mut all = self.ethernets();
        all.find(|(i, ethernet)| i.port == at && ethernet.spec.index == index)
    }
}

/// The switch of a VNIC, for the log.
fn switch_words(ethernet: &Ethernet) -> String {
    match ethernet.is_on_switch() {
        true => format!(
            "vesw={} lid={} qpn={} pkey={}",
            ethernet.info.vesw_id,
            ethernet.lid(),
            ethernet.qpn(),
            ethernet.info.pkey
        ),
        false => "without a switch yet".into(),
    }
}
