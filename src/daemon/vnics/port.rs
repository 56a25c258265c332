//! What happens to ports, and what it means for their VNICs.

use std::collections::BTreeSet;
use std::time::Duration;

use fabric::{PortEvent, PortState};

use crate::daemon::Daemon;
use crate::daemon::carrier::port_misses;
use crate::ethernet::{Ethernet, Management, carried_mtu, mtu_of, now};
use crate::interface::Interface;
use crate::interface::InterfaceId;
use crate::port::PortId;

impl Daemon {
    /// A port has news.
    pub(in crate::daemon) fn vnic_port_event(&mut self, at: PortId, event: &PortEvent) {
        match event {
            PortEvent::Active => {
                self.open_missing_management(at);
                self.configure_missing_switches(at);
            }
            PortEvent::MtuChange(payload) => self.vnic_payload_changed(at, *payload),
            // Those of all endpoints alike.
            PortEvent::Group { .. } | PortEvent::ClientReregister => return,
            // The same for all interfaces of the port.
            _ => {}
        }
        self.sync_agent(at);
    }

    /// Why a VNIC has no carrier, for people; `None` if it has one.
    pub(in crate::daemon) fn vnic_misses(
        &self,
        interface: &Interface,
        ethernet: &Ethernet,
    ) -> Option<String> {
        let port = self.ports[interface.port].port.attributes();
        if let Some(why) = port_misses(&port) {
            return Some(why);
        }
        if !ethernet.is_on_switch() {
            return Some(match (ethernet.spec.switch.is_some(), &ethernet.failed) {
                (false, Some(why)) => {
                    format!("what its Ethernet Manager wants cannot be done: {why}")
                }
                (false, None) => self.waits_for_manager(interface.port),
                (true, Some(why)) => format!(
                    "it cannot be put on its switch, and is tried again after its port was down: {why}"
                ),
                (true, None) => "it is on no switch yet".into(),
            });
        }
        if ethernet.entry().is_none() {
            return Some(format!(
                "the P_Key {} is not in the P_Key table of {}",
                ethernet.info.pkey, port.name
            ));
        }
        let state = ethernet.info.config_state;
        if !ethernet.is_to_forward() {
            return Some(format!("its Ethernet Manager has it in the state {state}"));
        }
        let why = ethernet.misses_group()?;
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
    pub(in crate::daemon) fn vnic_state_changed(&mut self, id: InterfaceId) {
        if self.interfaces.ethernet(id).is_none() {
            return;
        }
        self.update_lanes(id);
        self.sync_vnic_groups(id);
        self.sync_agent_of(id);
    }

    /// Whether a VNIC that an Ethernet Manager has yet to configure stays as a former daemon left it, so
    /// that a restart does not show.
    pub(in crate::daemon) fn keeps_left_carrier(
        &self,
        interface: &Interface,
        ethernet: &Ethernet,
    ) -> bool {
        let is_in_time = ethernet.carrier_left.is_some_and(|until| now() < until);
        // It says which switch, and then that it forwards.
        let is_managed = ethernet.spec.switch.is_none();
        let waits = is_managed && !ethernet.is_to_forward() && ethernet.failed.is_none();
        let state = self.ports[interface.port].port.attributes().state;
        is_in_time && waits && state == PortState::Active
    }

    /// How long until [`Daemon::tick_vnic_carriers`] has something to do.
    pub(in crate::daemon) fn next_vnic_carrier_tick(&self) -> Option<Duration> {
        let now = now();
        let all = self.interfaces.ethernets();
        let all = all.filter_map(|(_, ethernet)| ethernet.carrier_left);
        all.map(|until| Duration::from_millis(until.since(now)))
            .min()
    }

    /// Takes the carrier that was left from those that no manager has configured in time.
    pub(in crate::daemon) fn tick_vnic_carriers(&mut self) {
        let now = now();
        let is_due = |e: &Ethernet| e.carrier_left.is_some_and(|until| until <= now);
        let all = self.interfaces.ethernets();
        let due = all.filter(|(_, ethernet)| is_due(ethernet));
        let due: BTreeSet<PortId> = due.map(|(interface, _)| interface.port).collect();
        due.into_iter().for_each(|at| self.set_carriers(at));
    }

    /// The port's packets are of another size.
    fn vnic_payload_changed(&mut self, at: PortId, payload: u32) {
        for id in self.interfaces.ethernet_ids(|i, _| i.port == at) {
            let Some((interface, ethernet)) = self.interfaces.ethernet_mut(id) else {
                continue;
            };
            let most = *ethernet.allowed_mtu().end();
            let had_most = interface.mtu == most;
            ethernet.carried_mtu = carried_mtu(payload);
            let (name, asked) = (&interface.name, ethernet.spec.mtu);
            let is_static = ethernet.spec.switch.is_some();
            if is_static {
                // Nobody else says what the switch's is.
                ethernet.info.eth_mtu = mtu_of(ethernet.carried_mtu);
            }
            ethernet.update_lanes(interface, &self.ports[at]);
            if is_static {
                let most = *ethernet.allowed_mtu().end();
                // One that had all follows, others are only kept within.
                let mtu = match asked {
                    Some(asked) => asked.min(most),
                    None if had_most => most,
                    None => interface.mtu.min(most),
                };
                log::info!("{name}: the largest MTU is now {most}, the MTU {mtu}");
                self.try_mtu(id, mtu);
            } else {
                self.keep_vnic_mtu(id);
            }
        }
    }
}
