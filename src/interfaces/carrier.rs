//! The carrier and the administrative state of interfaces.

use std::collections::BTreeSet;
use std::time::Duration;

use control::api::Happening;

use crate::datapath::now;
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

    /// Whether the fabric's answer decides the carrier of an IPoIB interface.
    pub fn ip_awaits_carrier(&self, ports: &Ports, interface: &Interface, ip: &Ip) -> bool {
        let parent = ip.parent.and_then(|id| self.get(id));
        ip.awaits_carrier(&ports[interface.port].port.attributes(), parent)
    }

    /// Whether an answer decides the carrier of an interface.
    fn awaits_carrier(&self, ports: &Ports, interface: &Interface, payload: &Payload) -> bool {
        match payload {
            Payload::Ip(ip) => self.ip_awaits_carrier(ports, interface, ip),
            Payload::Ethernet(ethernet) => {
                ethernet.awaits_carrier(&ports[interface.port].port.attributes())
            }
        }
    }

    /// Sets the carrier of all interfaces of a port.
    pub fn set_carriers(&mut self, cx: &mut Context, at: PortId) {
        let on_port = self.iter().filter(|(i, _)| i.port == at);
        let mut changed = false;
        for id in on_port.map(|(i, _)| i.id).collect::<Vec<_>>() {
            changed |= self.decide_carrier(cx, id);
        }
        if changed {
            self.sync_siblings(&cx.ports);
        }
    }

    /// Sets the carrier of one interface, unless that of a former daemon stays until an answer; true if it changed.
    pub fn decide_carrier(&mut self, cx: &mut Context, id: InterfaceId) -> bool {
        let Some((interface, payload)) = self.both(id) else {
            return false;
        };
        if interface.has_left_carrier() && self.awaits_carrier(&cx.ports, interface, payload) {
            return false;
        }
        let on = self.no_carrier(&cx.ports, interface, payload).is_none();
        self.set_carrier(cx, id, on)
    }

    /// Sets an interface's carrier; true if it changed. The siblings of a VNIC must follow a change.
    pub fn set_carrier(&mut self, cx: &mut Context, id: InterfaceId, on: bool) -> bool {
        let Some((interface, payload)) = self.both_mut(id) else {
            return false;
        };
        // The former daemon may have left the carrier on or off.
        if interface.carrier == on && interface.carrier_left.is_none() {
            return false;
        }
        if !interface.set_carrier(on) {
            return false;
        }
        let what = match on {
            true => Happening::CarrierOn,
            false => Happening::CarrierOff,
        };
        cx.events.push(interface.subject(), what);
        if let (Payload::Ip(ip), false) = (payload, on) {
            ip.postpone_announcements(&cx.ports[interface.port]);
        }
        self.vnic_state_changed(cx, id);
        true
    }

    /// Time until [`Interfaces::tick_carriers`] is due.
    pub fn next_carrier_tick(&self) -> Option<Duration> {
        let now = now();
        let all = self.iter().filter_map(|(i, _)| i.carrier_left);
        all.map(|until| Duration::from_millis(until.since(now)))
            .min()
    }

    /// Decides the carrier of interfaces for which the answer has not come in time.
    pub fn tick_carriers(&mut self, cx: &mut Context) {
        let now = now();
        let is_due = |i: &Interface| i.carrier_left.is_some_and(|until| until <= now);
        let due = self.iter().filter(|(i, _)| is_due(i));
        let due: BTreeSet<PortId> = due.map(|(i, _)| i.port).collect();
        due.into_iter().for_each(|at| self.set_carriers(cx, at));
    }

    /// An interface was set up or down. The carrier of children follows their parent.
    pub fn up_changed(&mut self, cx: &mut Context, id: InterfaceId) {
        let Some((interface, payload)) = self.both_mut(id) else {
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
                let netlink = &mut cx.host.netlink;
                ip.up_changed(interface, netlink, &cx.ports[at], &mut cx.pending);
                self.set_carriers(cx, at);
            }
            Payload::Ethernet(_) => {
                self.vnic_state_changed(cx, id);
                self.sync_siblings(&cx.ports);
            }
        }
    }
}
