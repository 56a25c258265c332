//! The IP addresses that an interface announces.

use std::collections::BTreeSet;
use std::net::IpAddr;

use rtnl::Requests;

use super::Ip;
use crate::datapath::Command;
use crate::interface::Interface;
use crate::port::PortRuntime;

impl Ip {
    /// Whether the addresses of this interface index are announced on the interface: it is the interface's
    /// or that of the bridge above it. (A bond announces its addresses itself, through its active port.)
    pub fn announces_for(&self, interface: &Interface, ifindex: u32) -> bool {
        interface.ifindex == ifindex || self.bridge == Some(ifindex)
    }

    /// Whether the host is an IPv6 router on the interface. Announcements must say so: otherwise hosts delete their
    /// default route (RFC 4861, section 7.2.5). Packets of a bridge's port come from the bridge, so the
    /// setting of the bridge counts. The setting is read for each announcement, because it changes unnoticed.
    fn is_router(&self, interface: &mut Interface, netlink: &mut Requests) -> bool {
        let ifindex = self.bridge.unwrap_or(interface.ifindex);
        let read = interface.inside(netlink, |_, netlink| netlink.forwards_ipv6(ifindex));
        match read {
            Some(Ok(forwards)) => forwards,
            Some(Err(e)) => {
                log::debug!("{}: {e}", interface.name);
                false
            }
            None => false,
        }
    }

    /// Reads the addresses of the interface and of the bridge above it. The link follows.
    pub fn read_addresses(
        &mut self,
        interface: &mut Interface,
        netlink: &mut Requests,
        port: &PortRuntime,
    ) {
        let bridge = self.bridge;
        let found = interface.inside(netlink, |interface, netlink| {
            let mut found = BTreeSet::new();
            for ifindex in [Some(interface.ifindex), bridge].into_iter().flatten() {
                let all = netlink.addresses(ifindex)?;
                found.extend(all.iter().filter(|a| a.is_unique()).map(|a| a.ip));
            }
            Ok::<_, rtnl::Error>(found)
        });
        let found = match found {
            Some(Ok(found)) => found,
            Some(Err(e)) => {
                log::warn!("{}: cannot read the IP addresses: {e}", interface.name);
                return;
            }
            None => return,
        };
        let gone: Vec<IpAddr> = self.addresses.difference(&found).copied().collect();
        gone.into_iter()
            .for_each(|ip| self.address_removed(interface, port, ip));
        found
            .into_iter()
            .for_each(|ip| self.address_added(interface, netlink, port, ip));
    }

    /// An address was removed. The link must not announce it again, even if the link's own address changes:
    /// another host may have it then.
    pub fn address_removed(&mut self, interface: &Interface, port: &PortRuntime, address: IpAddr) {
        if self.addresses.remove(&address) {
            log::debug!("{}: no longer announces {address}", interface.name);
            port.send_first(Command::Withdraw(self.link.id(), address));
        }
    }

    /// An address was added. The link announces it, so that peers learn the link's address for it at once.
    /// An interface that is down announces its addresses when it comes up.
    pub fn address_added(
        &mut self,
        interface: &mut Interface,
        netlink: &mut Requests,
        port: &PortRuntime,
        address: IpAddr,
    ) {
        if self.addresses.insert(address) && interface.up {
            log::debug!("{}: announces {address}", interface.name);
            let router = address.is_ipv6() && self.is_router(interface, netlink);
            port.send_first(Command::Announce(self.link.id(), address, router));
        }
    }

    /// The interface's own link announces all addresses of the host.
    pub fn announce(&self, interface: &mut Interface, netlink: &mut Requests, port: &PortRuntime) {
        if interface.up {
            let router = self.is_router(interface, netlink);
            for address in &self.addresses {
                port.send_first(Command::Announce(self.link.id(), *address, router));
            }
        }
    }

    /// All links announce the hosts behind the interface, because the links' own addresses changed. Call this only after
    /// such a change: other announcements inform nobody. The host knows its own addresses, but not whether a host behind
    /// the interface has moved while the interface heard nothing.
    pub fn announce_guests(&self, interface: &Interface, port: &PortRuntime) {
        if interface.up && interface.carrier {
            let since = interface.usable_since;
            for link in self.links() {
                port.send_first(Command::AnnounceGuests(link.id(), since));
            }
        }
    }

    /// The links do not announce the hosts behind the interface while it has no carrier: such a host may move to a peer
    /// meanwhile.
    pub fn postpone_announcements(&self, port: &PortRuntime) {
        for link in self.links() {
            port.send(|| Command::PostponeAnnouncements(link.id()));
        }
    }
}
