//! The carrier and the administrative state of interfaces.

use control::api::Happening;

use crate::ethernet::Ethernet;
use crate::interface::{Interface, InterfaceId};
use crate::interfaces::{Context, Interfaces, Payload};
use crate::ip::Ip;
use crate::port::{PortId, Ports};

impl Interfaces {
    /// Why an interface has no carrier, for users; `None` if it has one.
    fn no_carrier(
        &self,
        ports: &Ports,
        interface: &Interface,
        payload: &Payload,
    ) -> Option<String> {
        match payload {
            Payload::Ip(ip) => self.ip_no_carrier(ports, interface, ip),
            Payload::Ethernet(ethernet) => self.vnic_no_carrier(ports, interface, ethernet),
        }
    }

    /// Why an IPoIB interface has no carrier.
    pub fn ip_no_carrier(&self, ports: &Ports, interface: &Interface, ip: &Ip) -> Option<String> {
        let parent = ip.parent.and_then(|id| self.get(id));
        ip.no_carrier(&ports[interface.port].port.attributes(), parent)
    }

    /// Why a VNIC has no carrier.
    pub fn vnic_no_carrier(
        &self,
        ports: &Ports,
        interface: &Interface,
        ethernet: &Ethernet,
    ) -> Option<String> {
        let management = self.management(interface.port);
        ethernet.no_carrier(&ports[interface.port].port.attributes(), management)
    }

    /// Sets the carrier of all interfaces of a port.
    pub fn set_carriers(&mut self, cx: &mut Context, at: PortId) {
        let state = cx.ports[at].port.attributes().state;
        let on_port = self.iter().filter(|(i, _)| i.port == at);
        let on_port = on_port.filter(|(_, payload)| {
            let ethernet = payload.ethernet();
            ethernet.is_none_or(|ethernet| !ethernet.keeps_left_carrier(state))
        });
        let wanted =
            on_port.map(|(i, payload)| (i.id, self.no_carrier(&cx.ports, i, payload).is_none()));
        let mut changed = false;
        for (id, on) in wanted.collect::<Vec<_>>() {
            changed |= self.set_carrier(cx, id, on);
        }
        if changed {
            self.sync_siblings(&cx.ports);
        }
    }

    /// Sets an interface's carrier; true if it changed. The siblings of a VNIC must follow a change.
    pub fn set_carrier(&mut self, cx: &mut Context, id: InterfaceId, on: bool) -> bool {
        let Some((interface, payload)) = self.both_mut(id) else {
            return false;
        };
        // The former daemon may have left the carrier on or off.
        let ethernet = payload.ethernet_mut();
        let left = ethernet.is_some_and(|ethernet| ethernet.carrier_left.take().is_some());
        if interface.carrier == on && !left {
            return false;
        }
        interface.set_carrier(on);
        let what = match interface.carrier {
            true => Happening::CarrierOn,
            false => Happening::CarrierOff,
        };
        cx.events.push(interface.subject(), what);
        self.vnic_state_changed(cx, id);
        true
    }

    /// An interface was set up or down. The carrier of children follows their parent.
    pub fn up_changed(&mut self, cx: &mut Context, id: InterfaceId) {
        let Some((interface, payload)) = self.both(id) else {
            return;
        };
        let (word, what) = match interface.up {
            true => ("up", Happening::Up),
            false => ("down", Happening::Down),
        };
        log::info!("{}: {word}", interface.name);
        cx.events.push(interface.subject(), what);
        match payload {
            Payload::Ip(ip) => {
                let at = interface.port;
                ip.up_changed(interface, &cx.ports[at], &mut cx.pending);
                self.set_carriers(cx, at);
            }
            Payload::Ethernet(_) => {
                self.vnic_state_changed(cx, id);
                self.sync_siblings(&cx.ports);
            }
        }
    }
}
