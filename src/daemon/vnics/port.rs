//! What happens to ports, and what it means for their VNICs.

use control::api::Happening;
use fabric::{EndpointId, PortEvent, PortState};

use crate::daemon::Daemon;
use crate::datapath::{DeviceId, EthernetCommand};
use crate::port::PortId;
use crate::vnic::{Management, Vnic, carried_mtu, mtu_of};

impl Daemon {
    /// A port has news.
    pub(in crate::daemon) fn vnic_port_event(&mut self, at: PortId, event: &PortEvent) {
        self.hurry_vnic_groups(at);
        match event {
            PortEvent::Active => {
                self.open_missing_management(at);
                self.configure_missing_switches(at);
                self.set_vnic_carriers(at);
            }
            PortEvent::Down(_) | PortEvent::Removed => self.set_vnic_carriers(at),
            PortEvent::GidChange(_) => self.vnics_moved(at, None),
            PortEvent::QpnChange(changed) => self.vnics_moved(at, Some(changed)),
            PortEvent::MtuChange(payload) => self.vnic_payload_changed(at, *payload),
            // Told by `vnic_pkeys_changed`, which our own changes of the table come to, too.
            PortEvent::PKeyChange(_) => {}
        }
        self.management_port_event(at, event);
    }

    /// Why a VNIC has no carrier, for people; `None` if it has one.
    pub(in crate::daemon) fn vnic_misses(&self, vnic: &Vnic) -> Option<String> {
        let port = self.ports[vnic.at].port.attributes();
        if port.state != PortState::Active {
            let why = port.state_reason.clone();
            return Some(why.unwrap_or_else(|| "its port is down".into()));
        }
        if !vnic.is_on_switch() {
            return Some(match (vnic.spec.switch.is_some(), &vnic.failed) {
                (false, Some(why)) => {
                    format!("what its Ethernet Manager wants cannot be done: {why}")
                }
                (false, None) => self.waits_for_manager(vnic.at),
                (true, Some(why)) => format!(
                    "it cannot be put on its switch, and is tried again after its port was down: {why}"
                ),
                (true, None) => "it is on no switch yet".into(),
            });
        }
        if vnic.endpoint.is_none_or(|e| e.pkey.is_none()) {
            return Some(format!(
                "the P_Key {} is not in the P_Key table of {}",
                vnic.info.pkey, port.name
            ));
        }
        let state = control::api::VnicState::from(vnic.info.config_state);
        if !vnic.is_to_forward() {
            return Some(format!("its Ethernet Manager has it in the state {state}"));
        }
        let why = vnic.misses_group()?;
        Some(format!(
            "it cannot join the multicast group of its switch, and tries again: {why}"
        ))
    }

    fn waits_for_manager(&self, at: PortId) -> String {
        let waits = "it waits for an Ethernet Manager to say on which switch it is";
        let management = self.ports[at].management.as_ref();
        match management.and_then(Management::misses_group) {
            Some(why) => {
                format!("{waits}, and cannot join the multicast group of management: {why}")
            }
            None => waits.into(),
        }
    }

    /// A VNIC forwards now, or no longer: it is up or down, has a carrier or none.
    pub(in crate::daemon) fn vnic_state_changed(&mut self, id: DeviceId) {
        if let Some(vnic) = self.vnics.get(&id) {
            let up = vnic.up && vnic.carrier;
            self.ports[vnic.at].tell(|| vnic.command(EthernetCommand::SetUp(up)));
        }
        self.sync_vnic_groups(id);
        self.management_link_changed(id);
    }

    /// The port's GID is another one, or the queue pairs of these endpoints are.
    fn vnics_moved(&mut self, at: PortId, changed: Option<&[EndpointId]>) {
        let port = &self.ports[at];
        let gid = port.port.attributes().gid;
        for vnic in self.vnics.values_mut().filter(|v| v.at == at) {
            let Some(endpoint) = &mut vnic.endpoint else {
                continue;
            };
            if let Some(qpn) = port.port.endpoint_qpn(endpoint.id) {
                endpoint.qpn = qpn;
            }
            if changed.is_some_and(|changed| changed.contains(&endpoint.id)) {
                log::info!("{}: its queue pair is now {}", vnic.name, endpoint.qpn);
            }
            let local = vnic.address_at(gid);
            port.tell(|| vnic.command(EthernetCommand::SetLocal(local)));
        }
    }

    /// The port's packets are of another size.
    fn vnic_payload_changed(&mut self, at: PortId, payload: u32) {
        for id in self.vnics_on(at) {
            let Some(vnic) = self.vnics.get_mut(&id) else {
                continue;
            };
            let most = *vnic.allowed_mtu().end();
            let had_most = vnic.mtu == most;
            vnic.carried_mtu = carried_mtu(payload);
            let port = &self.ports[at];
            port.tell(|| vnic.command(EthernetCommand::SetPayloadMax(payload as usize)));
            let (name, asked) = (vnic.name.clone(), vnic.spec.mtu);
            if vnic.spec.switch.is_some() {
                // Nobody else says what the switch's is.
                vnic.info.eth_mtu = mtu_of(vnic.carried_mtu);
                let info = || EthernetCommand::Configure(Box::new(vnic.info.clone()));
                port.tell(|| vnic.command(info()));
                let most = *vnic.allowed_mtu().end();
                // One that had all follows, others are only kept within.
                let mtu = match asked {
                    Some(asked) => asked.min(most),
                    None if had_most => most,
                    None => vnic.mtu.min(most),
                };
                log::info!("{name}: the largest MTU is now {most}, the MTU {mtu}");
                self.set_vnic_mtu(id, mtu);
            } else {
                self.keep_vnic_mtu(id);
            }
        }
    }

    /// The entries of these endpoints in a port's P_Key table are others now.
    pub(in crate::daemon) fn vnic_pkeys_changed(&mut self, at: PortId, changed: &[EndpointId]) {
        let port = &self.ports[at];
        let mut concerned = Vec::new();
        for vnic in self.vnics.values_mut().filter(|v| v.at == at) {
            let Some(endpoint) = &mut vnic.endpoint else {
                continue;
            };
            if !changed.contains(&endpoint.id) {
                continue;
            }
            let before = endpoint.pkey;
            endpoint.pkey = port.port.endpoint_pkey(endpoint.id);
            concerned.push(vnic.id);
            let (name, pkey) = (&vnic.name, vnic.info.pkey);
            let what = match endpoint.pkey {
                Some(entry) => {
                    log::info!("{name}: uses the P_Key table's entry {entry}");
                    Happening::PkeyAssigned { pkey: entry }
                }
                None if before.is_some() => {
                    log::warn!("{name}: waits for the P_Key {pkey}, which left the port's table");
                    Happening::PkeyMissing { pkey }
                }
                None => continue,
            };
            self.watchers.tell(vnic.subject(), what);
        }
        for id in concerned {
            self.sync_vnic_groups(id);
        }
        self.set_vnic_carriers(at);
        self.sync_vnic_siblings();
    }
}
