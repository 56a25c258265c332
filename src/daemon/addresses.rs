//! The IP addresses of interfaces: what the link is told about them.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::{Daemon, Place};
use crate::datapath::{Command, DeviceId};
use crate::port::PortId;

impl Daemon {
    /// The devices through which an interface's addresses are reached: it is one of ours, or the
    /// bridge that ours are ports of. (A bond announces for itself, through its active port.)
    pub(super) fn reached_by(&self, place: Place, ifindex: u32) -> Vec<DeviceId> {
        self.devices
            .iter()
            .filter(|(_, (_, d))| d.place == place)
            .filter(|(_, (_, d))| d.ifindex == ifindex || d.bridge == Some(ifindex))
            .map(|(id, _)| *id)
            .collect()
    }

    pub(super) fn read_addresses(&mut self, id: DeviceId) {
        let found = self.inside(id, |device, netlink| {
            let mut found = BTreeSet::new();
            for ifindex in [Some(device.ifindex), device.bridge].into_iter().flatten() {
                let all = netlink.addresses(ifindex)?;
                found.extend(all.iter().filter(|a| a.is_usable()).map(|a| a.ip));
            }
            Ok::<_, rtnl::Error>(found)
        });
        let Some((_, device)) = self.devices.get(&id) else {
            return;
        };
        let found = match found {
            Some(Ok(found)) => found,
            Some(Err(e)) => {
                log::warn!("{}: cannot read its addresses: {e}", device.name);
                return;
            }
            None => return,
        };
        let gone: Vec<IpAddr> = device.addresses.difference(&found).copied().collect();
        gone.into_iter().for_each(|ip| self.address_removed(id, ip));
        found.into_iter().for_each(|ip| self.address_added(id, ip));
    }

    /// What is announced no more must not be announced when the link's address changes, either: it
    /// may be another host's by then.
    pub(super) fn address_removed(&mut self, id: DeviceId, ip: IpAddr) {
        if let Some((at, device)) = self.devices.get_mut(&id)
            && device.addresses.remove(&ip)
        {
            log::debug!("{}: {ip} is announced no more", device.name);
            self.ports[*at].tell_first(Command::Withdraw(id, ip));
        }
    }

    /// Tells the link about an address, so that peers that knew us under another queue pair find
    /// us again at once.
    pub(super) fn address_added(&mut self, id: DeviceId, ip: IpAddr) {
        if let Some((at, device)) = self.devices.get_mut(&id)
            && device.addresses.insert(ip)
        {
            // One that is down has no link to tell; it tells when it comes up.
            if device.up {
                log::debug!("{}: announcing {ip}", device.name);
                self.ports[*at].tell_first(Command::Announce(id, ip));
            }
        }
    }

    pub(super) fn announce_all(&self, at: PortId) {
        let on_port = self.devices.iter().filter(|(_, (p, _))| *p == at);
        on_port.for_each(|(id, _)| self.announce(*id));
    }

    /// Tells the link about all addresses of a device, since its own address is another one now.
    pub(super) fn announce(&self, id: DeviceId) {
        if let Some((at, device)) = self.devices.get(&id)
            && device.up
        {
            for ip in &device.addresses {
                self.ports[*at].tell_first(Command::Announce(id, *ip));
            }
        }
    }
}
