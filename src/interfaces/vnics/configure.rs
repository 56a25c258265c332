//! Settings of VNICs that a manager or the configuration makes.

use std::sync::Arc;

use vnic::Mac;
use vnic::attribute::VeswPortInfo;
use vnic::directory::Directory;
use vnic::mac_table::MacTable;

use crate::ethernet::configured_switch;
use crate::interface::{InterfaceError, InterfaceId};
use crate::interfaces::{Context, Interfaces};
use crate::port::{PortId, Ports};

impl Interfaces {
    /// Applies the settings of a manager or of the configuration. No change if they are the same.
    ///
    /// # Errors
    /// [`InterfaceError`] if no endpoint can be opened; the VNIC is on no switch then.
    pub fn configure_vnic(
        &mut self,
        cx: &mut Context,
        id: InterfaceId,
        info: VeswPortInfo,
    ) -> Result<(), InterfaceError> {
        let found = self.ethernet_mut(id);
        let Some((interface, ethernet)) = found.filter(|(_, e)| e.info != info) else {
            return Ok(());
        };
        let at = interface.port;
        let done = if ethernet.is_on_switch_of(&info) {
            ethernet.info = info;
            self.update_lanes(&cx.ports, id);
            Ok(())
        } else {
            self.change_vnic_switch(cx, id, info)
        };
        self.vnic_reconfigured(cx, at, id);
        done
    }

    /// Takes a VNIC off its switch and puts it on the new one, if any. Meanwhile, the interface has no
    /// carrier, other VNICs of the switch hand nothing over, and the new lanes drop the frames that wait in
    /// the queues.
    fn change_vnic_switch(
        &mut self,
        cx: &mut Context,
        id: InterfaceId,
        info: VeswPortInfo,
    ) -> Result<(), InterfaceError> {
        // A VNIC whose service begins keeps its former carrier.
        let before = self.ethernet(id);
        if before.is_some_and(|(_, ethernet)| ethernet.is_on_switch()) {
            self.set_carrier(cx, id, false);
            self.sync_siblings(&cx.ports);
        }
        self.close_vnic_endpoint(cx, id);
        if let Some((_, ethernet)) = self.ethernet_mut(id) {
            ethernet.info = info;
        }
        let opened = self.open_vnic_endpoint(cx, id);
        if let Some((_, ethernet)) = self.ethernet_mut(id) {
            ethernet.failed = opened.as_ref().err().map(ToString::to_string);
            if opened.is_err() {
                ethernet.info = VeswPortInfo::default();
            }
        }
        opened
    }

    /// Retries VNICs that could not be put on their configured switch.
    pub fn configure_missing_switches(&mut self, cx: &mut Context, at: PortId) {
        let port = cx.ports[at].port.attributes();
        let missing = self.ethernets();
        let missing = missing.filter(|(i, ethernet)| i.port == at && !ethernet.is_on_switch());
        let missing = missing.filter_map(|(interface, ethernet)| {
            let switch = ethernet.spec.switch.as_ref()?;
            let (info, _) = configured_switch(switch, ethernet.spec.index, &port);
            Some((interface.id, interface.name.clone(), info))
        });
        for (id, name, info) in missing.collect::<Vec<_>>() {
            match self.configure_vnic(cx, id, info) {
                Ok(()) => log::info!("{name}: joined its switch"),
                Err(e) => log::warn!("{name}: cannot join its switch: {e}"),
            }
        }
    }

    fn vnic_reconfigured(&mut self, cx: &mut Context, at: PortId, id: InterfaceId) {
        self.unfollow_pkeys(cx, at);
        self.keep_vnic_mtu(cx, id);
        self.sync_vnic_groups(cx, id);
        self.set_carriers(cx, at);
        self.sync_siblings(&cx.ports);
        self.renew_alias(cx, id);
    }

    /// Sets a VNIC's MAC table.
    pub fn set_vnic_table(&mut self, cx: &mut Context, id: InterfaceId, table: Arc<MacTable>) {
        if let Some((interface, ethernet)) = self.ethernet_mut(id) {
            ethernet.set_table(interface, table, &cx.ports[interface.port]);
            self.sync_vnic_groups(cx, id);
        }
    }

    /// Sets a VNIC's directory: the addresses of its switch's members.
    pub fn set_vnic_directory(
        &mut self,
        ports: &Ports,
        id: InterfaceId,
        directory: Arc<Directory>,
    ) {
        if let Some((interface, ethernet)) = self.ethernet_mut(id) {
            ethernet.set_directory(interface, directory, &ports[interface.port]);
        }
    }

    /// Sets the MAC of a VNIC's interface.
    pub fn set_vnic_mac(&mut self, cx: &mut Context, id: InterfaceId, mac: Mac) {
        if let Some((interface, payload)) = self.both_mut(id)
            && interface.set_mac(mac, &mut cx.host.netlink, &mut cx.events)
        {
            payload.update_lanes(interface, &cx.ports[interface.port]);
        }
    }

    /// Opens the endpoint of a VNIC that is on a switch.
    fn open_vnic_endpoint(
        &mut self,
        cx: &mut Context,
        id: InterfaceId,
    ) -> Result<(), InterfaceError> {
        let found = self.ethernet(id);
        let Some((interface, ethernet)) = found.filter(|(_, e)| e.is_on_switch()) else {
            return Ok(());
        };
        let (at, pkey) = (interface.port, ethernet.info.pkey);
        self.follow_pkeys(cx, at, Some(pkey))
            .map_err(InterfaceError::Pkeys)?;
        if let Some((interface, ethernet)) = self.ethernet_mut(id) {
            ethernet.open_endpoint(interface, &mut cx.ports[at])?;
        }
        Ok(())
    }

    /// Closes the endpoint of a VNIC.
    pub fn close_vnic_endpoint(&mut self, cx: &mut Context, id: InterfaceId) {
        if let Some((interface, ethernet)) = self.ethernet_mut(id) {
            ethernet.close_endpoint(interface, &mut cx.ports[interface.port], &mut cx.events);
        }
    }
}
