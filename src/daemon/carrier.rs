//! Whether an interface can be used: its carrier, and what setting it up and down means (kernel
//! drivers/infiniband/ulp/ipoib/ipoib_main.c, `ipoib_open` and `ipoib_stop`).

use control::api::Happening;
use fabric::{PortAttributes, PortState};

use super::{Daemon, Payload};
use crate::datapath::Command;
use crate::interface::Interface;
use crate::interface::InterfaceId;
use crate::ip::{Ip, IpLink};
use crate::port::PortId;

/// Without its broadcast group an IP link reaches nobody.
pub(super) fn no_broadcast_group(why: &str) -> String {
    format!("it cannot join its broadcast group, and tries again: {why}")
}

impl Daemon {
    /// Why an interface has no carrier, for people; `None` if it has one.
    pub(crate) fn no_carrier(&self, interface: &Interface, payload: &Payload) -> Option<String> {
        match payload {
            Payload::Ip(ip) => self.ip_misses(interface, ip),
            Payload::Ethernet(ethernet) => self.vnic_misses(interface, ethernet),
        }
    }

    /// The same for one that carries IP. The port, the partition, the parent and the
    /// broadcast group decide.
    pub(crate) fn ip_misses(&self, interface: &Interface, ip: &Ip) -> Option<String> {
        let port = self.ports[interface.port].port.attributes();
        if let Some(why) = port_misses(&port) {
            return Some(why);
        }
        if ip.link.fabric.endpoint.pkey.is_none() {
            return Some(format!(
                "the P_Key {} is not in the P_Key table of {}",
                ip.spec.pkey, port.name
            ));
        }
        let parent = ip.parent.and_then(|id| self.interfaces.get(id));
        if let Some(parent) = parent.filter(|parent| !parent.up) {
            return Some(format!("its parent {} is down", parent.name));
        }
        ip.link.fabric.groups.misses().map(no_broadcast_group)
    }

    /// Gives the interfaces of a port their carrier, or takes it.
    pub(super) fn set_carriers(&mut self, at: PortId) {
        let on_port = self.interfaces.iter().filter(|(i, _)| i.port == at);
        let on_port = on_port.filter(|(interface, payload)| match payload {
            Payload::Ip(_) => true,
            Payload::Ethernet(ethernet) => !self.keeps_left_carrier(interface, ethernet),
        });
        let wanted = on_port.map(|(i, payload)| (i.id, self.no_carrier(i, payload).is_none()));
        let mut changed = false;
        for (id, on) in wanted.collect::<Vec<_>>() {
            changed |= self.set_carrier(id, on);
        }
        if changed {
            self.sync_vnic_siblings();
        }
    }

    /// Gives an interface its carrier, or takes it; whether that is a change. The siblings of a VNIC are to
    /// hear of it.
    pub(super) fn set_carrier(&mut self, id: InterfaceId, on: bool) -> bool {
        let Some((interface, payload)) = self.interfaces.both_mut(id) else {
            return false;
        };
        // What a former daemon left may be either.
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
        self.tell(id, what);
        self.vnic_state_changed(id);
        true
    }

    /// An interface was set up, or down.
    pub(super) fn up_changed(&mut self, id: InterfaceId) {
        let Some((interface, payload)) = self.interfaces.both(id) else {
            return;
        };
        let up = interface.up;
        log::info!("{}: {}", interface.name, if up { "up" } else { "down" });
        let what = match up {
            true => Happening::Up,
            false => Happening::Down,
        };
        self.events.push(interface.subject(), what);
        match payload {
            Payload::Ip(_) => self.ip_up_changed(id),
            Payload::Ethernet(_) => {
                self.vnic_state_changed(id);
                self.sync_vnic_siblings();
            }
        }
    }

    /// One that is down leaves all groups, the broadcast group too, and forgets neighbours, paths and
    /// connections. A parent takes its children's carrier with it.
    fn ip_up_changed(&mut self, id: InterfaceId) {
        let Some((interface, ip)) = self.interfaces.ip(id) else {
            return;
        };
        let port = &self.ports[interface.port];
        if !interface.up {
            for address in &ip.link.addresses {
                port.tell_first(Command::Withdraw(id.link(), *address));
            }
            for link in ip.links() {
                port.tell(|| Command::Flush(link.id()));
            }
        }
        let links = ip.links().map(IpLink::id);
        self.pending.membership.extend(links);
        self.announce(id);
        self.set_carriers(interface.port);
    }
}

/// Why interfaces on a port have no carrier that is not active.
pub(super) fn port_misses(port: &PortAttributes) -> Option<String> {
    let why = || port.state_reason.clone();
    let is_down = port.state != PortState::Active;
    is_down.then(|| why().unwrap_or_else(|| "its port is down".into()))
}
