//! Follows the interfaces stacked on an interface and the host's multicast routes, and learns from the
//! cores' events which groups hosts behind the interface join.

use std::net::IpAddr;

use control::api::LinkAddress;
use ipoib::Event;
use netdev::mroute::MulticastRoutes;
use rtnl::{Requests, Stacking};

use super::Ip;
use crate::datapath::{Command, LinkId, now};
use crate::interface::{Interface, Pending};
use crate::port::PortRuntime;

/// Maximum number of addresses with remembered conflicts.
const CONFLICTS_MAX: usize = 1024;

impl Ip {
    /// A core of the link `id` reports an event. True if monitoring or pinging clients may need the event.
    pub fn event(
        &mut self,
        interface: &Interface,
        id: LinkId,
        event: &Event,
        pending: &mut Pending,
    ) -> bool {
        log::trace!("{}: {event:?}", interface.name);
        let Some(link) = self.link_mut(id) else {
            return false;
        };
        if link.event(event) {
            pending.membership.insert(id);
        }
        let is_vlan = link.vid.is_some();
        if let Event::GroupLeft { group, .. } = event {
            pending.maybe_own.remove(&(id, *group));
        }
        if let Event::GroupJoined { mac, group } = *event {
            match is_vlan {
                true => self.group_reported(interface, id, group, pending),
                false => self.group_joined(interface, mac, group, pending),
            }
            return false;
        }
        if !is_vlan {
            self.log_event(interface, event);
        }
        !is_vlan
    }

    fn log_event(&mut self, interface: &Interface, event: &Event) {
        let name = &interface.name;
        let mac = LinkAddress;
        match *event {
            Event::AddressConflict { ip, one, other }
                if self.conflicts.len() < CONFLICTS_MAX && self.conflicts.insert(ip) =>
            {
                log::warn!(
                    "{name}: {} and {} both claim {ip}; give one of them another address",
                    mac(one),
                    mac(other)
                );
            }
            Event::SuspiciousClaim {
                address,
                ip,
                pinned,
                refused,
            } if self.suspicious_claims.take(now()).is_some() => {
                let claim = format!("qpn {} gid {} claims {ip}", address.qpn(), address.gid());
                let why = match pinned {
                    true => "the key neighbours has another host for the address",
                    false => "another live host has the address",
                };
                let action = if refused { "refused" } else { "followed" };
                log::warn!("{name}: {claim}, {action}: {why}; ibtap stats counts such claims");
            }
            Event::MacClash { guest, peer } => log::info!(
                "{name}: the guest {} has the MAC that represented a peer; the peer now has the MAC {}",
                mac(guest),
                mac(peer)
            ),
            Event::SignedNd if !std::mem::replace(&mut self.logged_signed, true) => log::warn!(
                "{name}: signed neighbour discovery (SEND) passes unchanged, because a change would break \
                 the signature; this link cannot resolve its senders"
            ),
            _ => {}
        }
    }

    /// A membership report passed. The kernel lists the host's own groups and announces when the host
    /// leaves one. Reports with the host's MAC may also come from others, such as a bridge above.
    fn group_joined(
        &mut self,
        interface: &Interface,
        mac: [u8; 6],
        group: IpAddr,
        pending: &mut Pending,
    ) {
        let id = self.link.id();
        if mac != interface.mac || self.link.guests.is_member(group) {
            self.group_reported(interface, id, group, pending);
        } else if !self.link.host_groups.contains(&group) {
            pending.maybe_own.insert((id, group));
        }
    }

    /// A host behind the link `id` reported a group.
    pub fn group_reported(
        &mut self,
        interface: &Interface,
        id: LinkId,
        group: IpAddr,
        pending: &mut Pending,
    ) {
        let Some(link) = self.link_mut(id) else {
            return;
        };
        let turned_away = link.guests.turned_away();
        if link.guests.joined(now(), group) {
            let name = link.name(interface);
            log::debug!("{name}: a host behind it joined {group}");
            pending.membership.insert(id);
        } else if turned_away == 0 && link.guests.turned_away() != 0 {
            // The first group that does not fit is logged when the groups are read.
            pending.membership.insert(id);
        }
    }

    /// The stacking on the interface was read.
    pub fn stacking_seen(
        &mut self,
        interface: &mut Interface,
        stacking: &Stacking,
        netlink: &mut Requests,
        port: &PortRuntime,
    ) {
        let stacked = stacking.has_guests();
        if stacked == self.link.guests.is_stacked() {
            return;
        }
        let own = interface.inside(netlink, |interface, netlink| {
            interface.set_gso_max(netlink, self.gso_max_stacked(stacked));
            let own = stacked.then(|| netlink.addresses(interface.ifindex).ok());
            own.flatten().unwrap_or_default()
        });
        log::info!("{}: {}", interface.name, describe(stacking));
        self.link.guests.set_stacked(now(), stacked);
        // Without this, packets for the host would wait until the host answers a request for its addresses.
        for address in own.unwrap_or_default() {
            port.send(|| Command::HostHas(self.link.id(), address.ip));
        }
        self.update_lanes(interface, port);
    }

    /// The host's multicast routes through the interface were read.
    pub fn routes_seen(
        &mut self,
        interface: &Interface,
        found: MulticastRoutes,
        port: &PortRuntime,
        pending: &mut Pending,
    ) {
        let was_routing = self.link.guests.is_routing();
        if !self.link.guests.set_routes(found.routes, found.groups) {
            return;
        }
        pending.membership.insert(self.link.id());
        if found.routes == was_routing {
            return;
        }
        self.update_lanes(interface, port);
        let name = &interface.name;
        if !found.routes {
            log::info!("{name}: the host no longer routes multicast here");
        } else if port.port.capabilities().multicast {
            log::warn!(
                "{name}: the host routes multicast; groups with a route here and groups that hosts report \
                 on the link are received, others are not: a fabric has no promiscuous multicast"
            );
        } else {
            log::info!("{name}: the host routes multicast; all groups are received");
        }
    }
}

fn describe(stacking: &Stacking) -> String {
    match stacking {
        Stacking::None | Stacking::Bond(_) => "ibtapd no longer learns guests".into(),
        Stacking::Bridge(name) => {
            format!("ibtapd learns guests: the interface is a port of {name}")
        }
        Stacking::Macvlan(name) | Stacking::Other(name) => {
            format!("ibtapd learns guests: {name} is stacked on the interface")
        }
        Stacking::Promiscuous => "ibtapd learns guests: the interface is promiscuous".into(),
    }
}
