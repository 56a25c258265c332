//! An IP link: an interface's own, or that of a VLAN that selects a partition. A VLAN's link shares the
//! interface's TAP and follows the interface in all settings but the partition.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use control::config::SCOPE;
use fabric::{Gid, PKey, Qpn};
use ipoib::{Event, HardwareAddress, Mode, Time};

use super::{ENCAPSULATION, Guests};
use crate::datapath::{Command, IpSettings, LinkId, Sibling, now};
use crate::interface::{FabricLink, Interface};
use crate::port::PortRuntime;

/// The separator between interface name and VLAN id in the name of a VLAN's link.
pub const VLAN: &str = ":vlan";

/// An IP link.
pub struct IpLink {
    /// The part that every link has.
    pub fabric: FabricLink,
    /// The VLAN id of its frames on the TAP; `None`: untagged.
    pub vid: Option<u16>,
    /// The 20-byte address.
    pub address: HardwareAddress,
    /// The siblings, as sent to the data threads.
    pub siblings: Arc<[Sibling]>,
    /// The warning about too many groups of hosts behind it was logged.
    pub logged_groups_full: bool,
    /// The host's memberships as read last. Empty for a VLAN, whose memberships are known only from
    /// reports, as those of guests.
    pub host_groups: BTreeSet<IpAddr>,
    /// Hosts behind the interface. All hosts of a VLAN count as such.
    pub guests: Guests,
    /// The time of creation.
    pub created: Time,
    /// The settings as sent last; `None` before the link has lanes.
    sent: Option<IpSettings>,
}

impl IpLink {
    /// A link without lanes.
    pub fn new(fabric: FabricLink, vid: Option<u16>, address: HardwareAddress) -> IpLink {
        // No host has the MAC under which peers see us.
        let mut guests = Guests::new(ipoib::peer_mac(&address));
        guests.set_stacked(now(), vid.is_some());
        IpLink {
            fabric,
            vid,
            address,
            siblings: Arc::default(),
            logged_groups_full: false,
            host_groups: BTreeSet::new(),
            guests,
            created: now(),
            sent: None,
        }
    }

    /// Its id in the data threads.
    pub fn id(&self) -> LinkId {
        self.fabric.id
    }

    /// The name. No interface can have the name of a VLAN's link.
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

    /// The identity of the partition's link on a port: partition with bit 15 set, Q_Key.
    pub fn key(&self) -> (u16, u32) {
        let fabric = &self.fabric;
        (fabric.pkey.full().get(), fabric.qkey.get())
    }

    /// The link's P_Key table entry, if siblings can reach the link on the TAP of `interface`.
    pub fn usable_entry(&self, interface: &Interface) -> Option<PKey> {
        let usable = interface.up && (interface.carrier || self.vid.is_some());
        self.fabric.endpoint.pkey.filter(|_| usable)
    }

    /// The largest IP packet in bytes that the broadcast group allows.
    pub fn group_mtu(&self) -> u32 {
        let payload = self.fabric.parameters.and_then(|group| group.mtu);
        payload.map_or(u32::MAX, |max| max.saturating_sub(ENCAPSULATION))
    }

    /// The settings of the link's lanes. `own` are those of the interface's own link.
    pub fn settings(&self, own: &IpSettings) -> IpSettings {
        IpSettings {
            local: self.address,
            link_mtu: own.link_mtu.min(self.group_mtu() as usize),
            stacked: self.guests.is_stacked(),
            routes_multicast: self.guests.is_routing(),
            // The addresses are those of the own link's partition.
            pins: own.pins.clone().filter(|_| self.vid.is_none()),
            ..own.clone()
        }
    }

    /// Notes that the data threads have lanes with these settings.
    pub(super) fn handed_out(&mut self, settings: IpSettings) {
        self.sent = Some(settings);
    }

    /// Updates the settings of the link's lanes. `own` are those of the interface's own link.
    pub fn update_lanes(&mut self, own: &IpSettings, port: &PortRuntime) {
        let wanted = self.settings(own);
        if self.sent.as_ref() != Some(&wanted) {
            let id = self.id();
            port.send(|| Command::Ip(id, wanted.clone()));
            self.sent = Some(wanted);
        }
    }

    /// A core of the link reports an event of groups or guests. True if the link's groups may change. The
    /// caller handles [`Event::GroupJoined`].
    pub fn event(&mut self, event: &Event) -> bool {
        let now = now();
        match *event {
            Event::GroupLeft { group, .. } => {
                self.guests.left(now, group);
                false
            }
            Event::GroupSeen { group } => self.guests.seen(now, group),
            Event::GuestLearned { ip, weak, .. } => self.guests.guest_learned(now, ip, weak),
            Event::GuestForgotten { ip } => self.guests.guest_forgotten(ip),
            _ => false,
        }
    }

    /// The groups to join, at most `most`, and the required one; none unless interface and partition are up
    /// (kernel ipoib_multicast.c, `ipoib_mcast_attach`: ENXIO). True if there are more.
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

    /// The broadcast group, the all-hosts groups, which no host reports (RFC 1112, RFC 4861), the host's
    /// groups, and those of hosts behind the interface, up to `most`. True if there are more.
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

/// Maximum number of groups of an interface while hosts behind it request some: three quarters of the
/// port's. The host's groups come first, so that those always fit.
pub fn groups_with_guests_max(of_port: usize) -> usize {
    of_port / 4 * 3
}

/// 224.0.0.1 and ff02::1.
const ALL_HOSTS: [IpAddr; 2] = [
    IpAddr::V4(std::net::Ipv4Addr::new(224, 0, 0, 1)),
    IpAddr::V6(std::net::Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1)),
];

/// The flag of an address whose owner accepts reliable connections (RFC 4755, section 3.1).
const FLAG_RC: u8 = 0x80;

/// The 20-byte address of a link. It offers connections only in connected mode, and only if peers may
/// request some.
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
