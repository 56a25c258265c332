//! One IP link: an interface's own, or that of a partition that a tag on the interface's frames selects. The
//! latter has the interface's TAP, and follows the interface in all but its partition.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use control::config::SCOPE;
use fabric::{Gid, PKey, Qpn};
use ipoib::{Event, HardwareAddress, Mode, Time};

use super::Guests;
use crate::datapath::{Command, IpSettings, LinkId, Sibling, now};
use crate::interface::{FabricLink, Interface};
use crate::port::PortRuntime;

/// Addresses of hosts with a tag that are announced: more hosts than that answer for themselves when they
/// are asked.
const ADDRESSES_MAX: usize = 1024;

/// What is between the name of an interface and the VLAN id in the name of a VLAN's link.
pub const VLAN: &str = ":vlan";

/// An IP link.
pub struct IpLink {
    /// What every link of the fabric has.
    pub fabric: FabricLink,
    /// The VLAN id of its frames on the TAP; `None`: they have no tag.
    pub vid: Option<u16>,
    /// The 20-byte address.
    pub address: HardwareAddress,
    /// Links of this daemon that it reaches without the wire, as the data threads have them.
    pub siblings: Arc<[Sibling]>,
    /// That hosts behind it have joined more groups than there is room for has been logged.
    pub told_groups_full: bool,
    /// The groups that the host itself has joined, as last read. There is no list of those with a tag: they
    /// are known from reports, as those of guests.
    pub host_groups: BTreeSet<IpAddr>,
    /// What is behind it besides the host. Anybody may be behind a tag.
    pub guests: Guests,
    /// When it was made.
    pub created: Time,
    /// Addresses to be announced when the link's address changes: the host's, or those of hosts that have
    /// the tag and MACs of their own.
    pub addresses: BTreeSet<IpAddr>,
    /// What the data threads have of it, once they have it.
    sent: Option<IpSettings>,
}

impl IpLink {
    /// A link that no data thread has yet.
    pub fn new(fabric: FabricLink, vid: Option<u16>, address: HardwareAddress) -> IpLink {
        // Nobody has the address that peers see us under.
        let mut guests = Guests::new(ipoib::peer_mac(&address));
        guests.set_stacked(now(), vid.is_some());
        IpLink {
            fabric,
            vid,
            address,
            siblings: Arc::default(),
            told_groups_full: false,
            host_groups: BTreeSet::new(),
            guests,
            created: now(),
            addresses: BTreeSet::new(),
            sent: None,
        }
    }

    /// Its id in the data threads.
    pub fn id(&self) -> LinkId {
        self.fabric.id
    }

    /// What the link is called. No interface can have the name of a VLAN's.
    pub fn name(&self, interface: &Interface) -> String {
        match self.vid {
            Some(vid) => format!("{}{VLAN}{vid}", interface.name),
            None => interface.name.clone(),
        }
    }

    /// The broadcast group.
    pub fn broadcast(&self) -> Gid {
        ipoib::broadcast_mgid(self.fabric.pkey, SCOPE)
    }

    /// What tells the link from others of its port: its partition with bit 15 set, its Q_Key.
    pub fn key(&self) -> (u16, u32) {
        let fabric = &self.fabric;
        (fabric.pkey.full().get(), fabric.qkey.get())
    }

    /// The entry of the P_Key table that it uses, while siblings can reach it on the TAP of `interface`.
    pub fn usable_entry(&self, interface: &Interface) -> Option<PKey> {
        let usable = interface.up && (interface.carrier || self.vid.is_some());
        self.fabric.endpoint.pkey.filter(|_| usable)
    }

    /// What its lanes are set to, on an interface whose own lanes are set to `own`.
    pub fn settings(&self, own: &IpSettings) -> IpSettings {
        IpSettings {
            local: self.address,
            stacked: self.guests.is_stacked(),
            routes_multicast: self.guests.is_routing(),
            ..own.clone()
        }
    }

    /// The data threads have lanes with these settings.
    pub(super) fn handed_out(&mut self, settings: IpSettings) {
        self.sent = Some(settings);
    }

    /// Has its lanes be as the link is now, on an interface whose own lanes are set to `own`.
    pub fn update_lanes(&mut self, own: &IpSettings, port: &PortRuntime) {
        let wanted = self.settings(own);
        if self.sent.as_ref() != Some(&wanted) {
            let id = self.id();
            port.tell(|| Command::Ip(id, wanted.clone()));
            self.sent = Some(wanted);
        }
    }

    /// Tells the link about all its addresses, since its own address is another one now.
    pub fn announce(&self, port: &PortRuntime) {
        for address in &self.addresses {
            port.tell_first(Command::Announce(self.id(), *address));
        }
    }

    /// A core of the link has news of groups or guests. True if the link's groups may be others. Who has
    /// joined one is found out elsewhere.
    pub fn event(&mut self, event: &Event) -> bool {
        let now = now();
        match *event {
            Event::GroupLeft { group, .. } => {
                self.guests.left(now, group);
                false
            }
            Event::GroupSeen { group } => self.guests.seen(now, group),
            Event::GuestLearned { ip, weak, .. } => {
                if self.vid.is_some() && !weak && self.addresses.len() < ADDRESSES_MAX {
                    self.addresses.insert(ip);
                }
                self.guests.guest_learned(now, ip, weak)
            }
            Event::GuestForgotten { ip } => {
                if self.vid.is_some() {
                    self.addresses.remove(&ip);
                }
                self.guests.guest_forgotten(ip)
            }
            _ => false,
        }
    }

    /// The groups to be attached to on the TAP of `interface`, up to `most` of them, and which of them the
    /// link cannot do without; none unless the interface is up, and the partition is there (kernel
    /// ipoib_multicast.c, `ipoib_mcast_attach`: ENXIO). True if there are more than it may have.
    pub fn wanted_groups(
        &self,
        interface: &Interface,
        most: usize,
    ) -> ((Option<Gid>, BTreeSet<Gid>), bool) {
        if !interface.up || self.fabric.endpoint.pkey.is_none() {
            return Default::default();
        }
        let (wanted, too_many) = self.all_groups(most);
        ((Some(self.broadcast()), wanted), too_many)
    }

    /// The broadcast group, the all-hosts groups that nobody reports (RFC 1112, RFC 4861), what the host has
    /// joined, and what hosts behind the interface have, up to `most`. True if there are more.
    fn all_groups(&self, most: usize) -> (BTreeSet<Gid>, bool) {
        let mgid = |ip| ipoib::mgid(ip, self.fabric.pkey, SCOPE);
        let own = self.host_groups.iter().chain(&ALL_HOSTS).copied();
        let mut wanted: BTreeSet<Gid> = own.filter_map(mgid).collect();
        wanted.insert(self.broadcast());
        for group in self.guests.groups().filter_map(mgid) {
            if wanted.len() >= most && !wanted.contains(&group) {
                return (wanted, true);
            }
            wanted.insert(group);
        }
        (wanted, self.guests.turned_away() != 0)
    }
}

/// Hosts behind an interface may ask for any number of groups; of those that a port may be attached to
/// they get no more than this together with its own host, whose groups come first, so that those
/// always find room.
pub fn groups_with_guests_max(of_port: usize) -> usize {
    of_port / 4 * 3
}

/// 224.0.0.1 and ff02::1.
const ALL_HOSTS: [IpAddr; 2] = [
    IpAddr::V4(std::net::Ipv4Addr::new(224, 0, 0, 1)),
    IpAddr::V6(std::net::Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1)),
];

/// The flag of an address that says that its owner accepts reliable connections (RFC 4755, section
/// 3.1).
const FLAG_RC: u8 = 0x80;

/// The 20-byte address of a link, which says that it accepts connections only while it is in
/// connected mode and peers may ask for some.
pub fn hardware_address(mode: Mode, offers: bool, qpn: Qpn, gid: Gid) -> HardwareAddress {
    let flags = match mode {
        Mode::Connected if offers => FLAG_RC,
        _ => 0,
    };
    HardwareAddress::new(flags, qpn, gid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c106_the_address_offers_connections_only_where_there_are_some() {
        let gid: Gid = "fe80::1".parse().unwrap();
        let first = |mode, offers| {
            let address = hardware_address(mode, offers, Qpn::new(0x4a), gid);
            assert_eq!((address.qpn(), address.gid()), (Qpn::new(0x4a), gid));
            address.0[0]
        };
        assert_eq!(first(Mode::Connected, true), 0x80);
        assert_eq!(first(Mode::Connected, false), 0);
        assert_eq!(first(Mode::Datagram, true), 0);
    }
}
