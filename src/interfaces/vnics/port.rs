//! Events of ports and data threads for VNICs, and their timers.

use fabric::{EndpointId, PortEvent};
use vnic::port::Event;

use crate::datapath::LinkId;
use crate::interface::InterfaceId;
use crate::interfaces::{Context, Interfaces, management};
use crate::port::PortId;

impl Interfaces {
    /// VNICs follow an event of their port.
    pub fn vnic_port_event(&mut self, cx: &mut Context, at: PortId, event: &PortEvent) {
        match event {
            PortEvent::Active => {
                management::open_missing_management(self, cx, at);
                self.configure_missing_switches(cx, at);
            }
            PortEvent::MtuChange(_) => {
                for id in self.ethernet_ids(|i, _| i.port == at) {
                    self.follow_vnic_payload(cx, id);
                }
            }
            // Handled for all endpoints together.
            PortEvent::Group { .. } | PortEvent::ClientReregister => return,
            // Handled for all interfaces of the port together.
            _ => {}
        }
        management::sync_agent(self, cx, at);
    }

    /// Joins and leaves groups, until a VNIC has the groups of its switch.
    pub fn sync_vnic_groups(&mut self, cx: &mut Context, id: InterfaceId) {
        if let Some((interface, ethernet)) = self.ethernet_mut(id) {
            let at = interface.port;
            let changed = ethernet.sync_groups(interface, &mut cx.ports[at], &mut cx.events);
            self.follow_vnic_payload(cx, id);
            if changed {
                self.set_carriers(cx, at);
            }
        }
    }

    /// The data threads report an event of a VNIC.
    pub fn vnic_event(&mut self, cx: &mut Context, link: LinkId, from: EndpointId, event: Event) {
        if let Some(id) = self.by_link(link)
            && let Some((interface, ethernet)) = self.ethernet_mut(id)
            && ethernet.event(interface, from, event)
        {
            management::sync_agent_of(self, cx, id);
        }
    }

    /// Limits a VNIC's MTU to what its switch and its port carry. The MTU never grows by itself.
    pub fn keep_vnic_mtu(&mut self, cx: &mut Context, id: InterfaceId) {
        let Some((interface, payload)) = self.both(id) else {
            return;
        };
        if payload.allowed_mtu().contains(&interface.mtu) {
            return;
        }
        let wrong = interface.mtu;
        let (fault, right) = payload.mtu_fault(wrong);
        let set = self.set_mtu(cx, id, right);
        if let Some(interface) = self.get(id) {
            interface.log_corrected_mtu(wrong, (fault, right), set);
        }
    }

    /// The state of a VNIC changed: up or down, carrier on or off.
    pub fn vnic_state_changed(&mut self, cx: &mut Context, id: InterfaceId) {
        if self.ethernet(id).is_none() {
            return;
        }
        self.update_lanes(&cx.ports, id);
        self.sync_vnic_groups(cx, id);
        management::sync_agent_of(self, cx, id);
    }

    /// Follows the size of UD payloads, which the port and the group of the switch limit.
    fn follow_vnic_payload(&mut self, cx: &mut Context, id: InterfaceId) {
        if let Some((interface, ethernet)) = self.ethernet_mut(id)
            && let Some(mtu) = ethernet.follow_payload(interface, &cx.ports[interface.port])
        {
            self.try_mtu(cx, id, mtu);
        }
    }
}
