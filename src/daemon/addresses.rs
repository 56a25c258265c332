//! The IP addresses of interfaces: what the link is told about them.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::Daemon;
use crate::datapath::Command;
use crate::interface::InterfaceId;
use crate::interface::Place;
use crate::port::PortId;

impl Daemon {
    /// The interfaces through which an interface's addresses are reached: it is one of ours, or the
    /// bridge that ours are ports of. (A bond announces for itself, through its active port.)
    pub(super) fn reached_by(&self, place: Place, ifindex: u32) -> Vec<InterfaceId> {
        self.interfaces.ip_ids(|interface, ip| {
            let is_it = interface.ifindex == ifindex || ip.bridge == Some(ifindex);
            is_it && interface.place == place
        })
    }

    pub(super) fn read_addresses(&mut self, id: InterfaceId) {
        let Some((interface, ip)) = self.interfaces.ip_mut(id) else {
            return;
        };
        let found = interface.inside(&mut self.host.netlink, |interface, netlink| {
            let mut found = BTreeSet::new();
            for ifindex in [Some(interface.ifindex), ip.bridge].into_iter().flatten() {
                let all = netlink.addresses(ifindex)?;
                found.extend(all.iter().filter(|a| a.is_usable()).map(|a| a.ip));
            }
            Ok::<_, rtnl::Error>(found)
        });
        let found = match found {
            Some(Ok(found)) => found,
            Some(Err(e)) => {
                log::warn!("{}: cannot read its addresses: {e}", interface.name);
                return;
            }
            None => return,
        };
        let gone: Vec<IpAddr> = ip.link.addresses.difference(&found).copied().collect();
        gone.into_iter().for_each(|ip| self.address_removed(id, ip));
        found.into_iter().for_each(|ip| self.address_added(id, ip));
    }

    /// What is announced no more must not be announced when the link's address changes, either: it
    /// may be another host's by then.
    pub(super) fn address_removed(&mut self, id: InterfaceId, address: IpAddr) {
        if let Some((interface, ip)) = self.interfaces.ip_mut(id)
            && ip.link.addresses.remove(&address)
        {
            log::debug!("{}: {address} is announced no more", interface.name);
            self.ports[interface.port].tell_first(Command::Withdraw(id.link(), address));
        }
    }

    /// Tells the link about an address, so that peers that knew us under another queue pair find
    /// us again at once.
    pub(super) fn address_added(&mut self, id: InterfaceId, address: IpAddr) {
        if let Some((interface, ip)) = self.interfaces.ip_mut(id)
            && ip.link.addresses.insert(address)
        {
            // One that is down has no link to tell; it tells when it comes up.
            if interface.up {
                log::debug!("{}: announcing {address}", interface.name);
                self.ports[interface.port].tell_first(Command::Announce(id.link(), address));
            }
        }
    }

    pub(super) fn announce_all(&self, at: PortId) {
        let on_port = self.interfaces.ips().filter(|(i, _)| i.port == at);
        on_port.for_each(|(interface, _)| self.announce(interface.id));
    }

    /// Tells the links of an interface about all their addresses, since their own are others now.
    pub(super) fn announce(&self, id: InterfaceId) {
        if let Some((interface, ip)) = self.interfaces.ip(id)
            && interface.up
        {
            let port = &self.ports[interface.port];
            ip.links().for_each(|link| link.announce(port));
        }
    }
}
