//! What is done with the interfaces of VNICs: they are renamed, moved, set up and down, get another MAC or
//! MTU. The daemon follows.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;

use control::api::{Happening, LinkAddress};
use netdev::ethtool::Features;
use netdev::membership;
use rtnl::Stacking;
use vnic::Mac;

use crate::daemon::place::{Found, locate};
use crate::daemon::{Daemon, Names, Place};
use crate::datapath::{DeviceId, EthernetCommand};
use crate::vnic::{Vnic, mtu_of};

impl Daemon {
    /// Reads what is otherwise announced: of a new VNIC, of one that has left its place, and after
    /// announcements were lost.
    pub(in crate::daemon) fn reread_vnic(&mut self, id: DeviceId) {
        let Some(vnic) = self.vnics.get(&id) else {
            return;
        };
        match locate(&vnic.tap, &mut self.netlink, self.home) {
            Found::There(place, there, link) => {
                self.vnic_settles(id, place, (place != Place::HOME).then_some(there));
                if let Some(vnic) = self.vnics.get_mut(&id) {
                    vnic.ifindex = link.index;
                }
                self.vnic_link_changed(id, &link);
            }
            Found::Closed(place, there, e) => {
                self.vnic_settles(id, place, Some(there));
                if let Some(vnic) = self.vnics.get(&id) {
                    log::warn!(
                        "{}: its packets are carried on, but its network namespace cannot be entered \
                         ({e}; that takes CAP_SYS_ADMIN): what `ip` changes there is not followed",
                        vnic.name
                    );
                }
            }
            Found::Gone => self.forget_vnic(id),
            Found::Unknown(e) => {
                log::warn!("{}: cannot find out where the interface is: {e}", vnic.name)
            }
        }
    }

    /// Notes where a VNIC's interface is, and says so if that is news.
    fn vnic_settles(
        &mut self,
        id: DeviceId,
        place: Place,
        there: Option<netdev::netns::NamespaceId>,
    ) {
        let Some(vnic) = self.vnics.get_mut(&id) else {
            return;
        };
        vnic.place = place;
        if std::mem::replace(&mut vnic.namespace, there) == there {
            return;
        }
        let called = there.map(|there| Names::read().of(&there));
        let was = std::mem::replace(&mut vnic.netns, called);
        let name = &vnic.name;
        match &vnic.netns {
            None => log::info!("{name}: moved back to the daemon's network namespace"),
            Some(there) => log::info!("{name}: moved to the network namespace {there}"),
        }
        self.tell_vnic(id, Happening::Moved { was });
    }

    /// What a VNIC's interface is like now.
    pub(in crate::daemon) fn vnic_link_changed(&mut self, id: DeviceId, link: &rtnl::Link) {
        self.stacking_changed.insert(id);
        let asked = self.inside_vnic(id, |_, _| Features::read(&link.name));
        let Some(vnic) = self.vnics.get_mut(&id) else {
            return;
        };
        if vnic.name != link.name {
            let was = std::mem::replace(&mut vnic.name, link.name.clone());
            self.watchers
                .tell(vnic.subject(), Happening::Renamed { was });
        }
        if std::mem::replace(&mut vnic.up, link.up) != link.up {
            log::info!("{}: {}", vnic.name, if link.up { "up" } else { "down" });
            let what = match link.up {
                true => Happening::Up,
                false => Happening::Down,
            };
            self.watchers.tell(vnic.subject(), what);
            self.vnic_state_changed(id);
            self.sync_vnic_siblings();
        }
        self.vnic_mtu_seen(id, link.mtu);
        if let Some(mac) = link.address {
            self.vnic_mac_seen(id, mac);
        }
        self.vnic_features_seen(id, asked);
        self.membership_changed.insert(id);
    }

    /// A link that is none of a VNIC's changed, or went: it may be stacked on one, or no longer.
    pub(in crate::daemon) fn note_vnic_stacking(
        &mut self,
        place: Place,
        link: Option<&rtnl::Link>,
    ) {
        let concerned = |v: &&Vnic| match link {
            // What is stacked on a bond is stacked on its ports.
            Some(link) => {
                link.link == Some(v.ifindex)
                    || matches!(link.kind.as_deref(), Some("bond" | "team"))
            }
            None => v.stacked || v.bonded,
        };
        let there = self.vnics.values().filter(|v| v.place == place);
        let concerned = there.filter(concerned).map(|v| v.id);
        self.stacking_changed.extend(concerned);
    }

    /// Looks at what is stacked on an interface: guests send more at once than the host is let, and their
    /// groups are not known, as those of a multicast router; those of a bond are announced of the bond.
    pub(in crate::daemon) fn read_vnic_stacking(&mut self, id: DeviceId) {
        self.inside_vnic(id, |vnic, netlink| {
            let stacking = netlink.stacking(vnic.ifindex).unwrap_or(Stacking::None);
            vnic.bonded = matches!(stacking, Stacking::Bond(_));
            let stacked = stacking.has_guests();
            if std::mem::replace(&mut vnic.stacked, stacked) != stacked {
                vnic.set_gso_max(netlink);
            }
            let link = netlink.link_by_index(vnic.ifindex);
            vnic.allmulti = link.is_ok_and(|link| link.allmulti > 0);
        });
        self.sync_vnic_groups(id);
    }

    fn vnic_mac_seen(&mut self, id: DeviceId, mac: Mac) {
        let Some(vnic) = self.vnics.get_mut(&id).filter(|v| v.mac != mac) else {
            return;
        };
        vnic.mac = mac;
        let port = &self.ports[vnic.at];
        port.tell(|| vnic.command(EthernetCommand::SetMac(mac)));
        let mac = LinkAddress(mac);
        self.tell_vnic(id, Happening::MacChanged { mac });
        self.management_macs_changed(id);
    }

    fn vnic_features_seen(&mut self, id: DeviceId, features: Option<io::Result<Features>>) {
        let (Some(Ok(features)), Some(vnic)) = (features, self.vnics.get_mut(&id)) else {
            return;
        };
        if features.gro != vnic.coalesce {
            vnic.coalesce = features.gro;
            let port = &self.ports[vnic.at];
            port.tell(|| vnic.command(EthernetCommand::SetCoalesce(features.gro)));
        }
    }

    /// The interface's MTU was seen to be `mtu`: the administrator's, which a TAP takes whatever it is.
    /// What its switch or its port does not carry is put right.
    fn vnic_mtu_seen(&mut self, id: DeviceId, mtu: u32) {
        let Some(vnic) = self.vnics.get_mut(&id) else {
            return;
        };
        if vnic.mtu != mtu {
            vnic.mtu = mtu;
            self.vnic_mtu_changed(id);
        }
        self.keep_vnic_mtu(id);
    }

    /// Keeps a VNIC's MTU within what its switch and its port carry. It never grows by itself.
    pub(in crate::daemon) fn keep_vnic_mtu(&mut self, id: DeviceId) {
        let Some(vnic) = self.vnics.get(&id) else {
            return;
        };
        let allowed = vnic.allowed_mtu();
        if allowed.contains(&vnic.mtu) {
            return;
        }
        let right = vnic.mtu.clamp(*allowed.start(), *allowed.end());
        let (fault, name) = (vnic.mtu, &vnic.name);
        let limit = match fault < right {
            true => "under Ethernet's",
            false => "over the switch's or the port's",
        };
        log::warn!("{name}: the MTU {fault} is {limit} {right}; set to that");
        self.set_vnic_mtu(id, right);
    }

    /// Gives a VNIC another MTU in bytes.
    pub(crate) fn set_vnic_mtu(&mut self, id: DeviceId, mtu: u32) {
        let set = self.inside_vnic(id, |vnic, netlink| {
            if vnic.mtu == mtu {
                return Ok(false);
            }
            netlink.set_mtu(vnic.ifindex, mtu)?;
            vnic.mtu = mtu;
            Ok::<_, rtnl::Error>(true)
        });
        let Some(vnic) = self.vnics.get(&id) else {
            return;
        };
        match set {
            Some(Ok(true)) => self.vnic_mtu_changed(id),
            Some(Ok(false)) => {}
            Some(Err(e)) => log::warn!("{}: cannot set the MTU {mtu}: {e}", vnic.name),
            None => log::warn!("{}: cannot set the MTU {mtu} where it is", vnic.name),
        }
    }

    fn vnic_mtu_changed(&mut self, id: DeviceId) {
        if let Some(vnic) = self.vnics.get(&id) {
            let mtu = vnic.mtu;
            let port = &self.ports[vnic.at];
            port.tell(|| vnic.command(EthernetCommand::SetMtu(mtu_of(mtu))));
            self.tell_vnic(id, Happening::MtuChanged { mtu });
        }
    }

    /// Reads the groups that the host listens to on a VNIC's interface: its manager is told of their MACs, and
    /// those that the manager's table has are attached to.
    pub(in crate::daemon) fn read_vnic_groups(&mut self, id: DeviceId) {
        if self.vnics.get(&id).is_none_or(|v| v.spec.switch.is_some()) {
            return;
        }
        let listened = self.inside_vnic(id, |vnic, _| listened(vnic.ifindex));
        let (Some(Ok(groups)), Some(vnic)) = (listened, self.vnics.get_mut(&id)) else {
            return;
        };
        if vnic.groups != groups {
            vnic.groups = groups;
            self.sync_vnic_groups(id);
            self.management_groups_changed(id);
        }
    }
}

/// The MACs of groups that are listened to on an interface of the calling thread's network namespace, in
/// ascending order: of IP groups, and of others (`ip maddr add`).
fn listened(ifindex: u32) -> io::Result<Vec<Mac>> {
    let groups = membership::read(ifindex)?.into_iter();
    let mut macs: BTreeSet<Mac> = groups.filter_map(group_mac).collect();
    macs.extend(membership::read_link(ifindex)?);
    Ok(macs.into_iter().collect())
}

/// The Ethernet address of an IP group (RFC 1112, section 6.4; RFC 2464, section 7).
fn group_mac(group: IpAddr) -> Option<Mac> {
    match group {
        IpAddr::V4(group) if group.is_multicast() => {
            let [_, b, c, d] = group.octets();
            Some([0x01, 0x00, 0x5e, b & 0x7f, c, d])
        }
        IpAddr::V6(group) if group.is_multicast() => {
            let [.., a, b, c, d] = group.octets();
            Some([0x33, 0x33, a, b, c, d])
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_their_macs() {
        let mac = |ip: &str| group_mac(ip.parse().unwrap());
        assert_eq!(mac("224.0.0.1"), Some([0x01, 0, 0x5e, 0, 0, 1]));
        assert_eq!(mac("239.129.2.3"), Some([0x01, 0, 0x5e, 1, 2, 3]));
        assert_eq!(mac("ff02::1"), Some([0x33, 0x33, 0, 0, 0, 1]));
        assert_eq!(
            mac("ff02::1:ff12:3456"),
            Some([0x33, 0x33, 0xff, 0x12, 0x34, 0x56])
        );
        assert_eq!(mac("192.0.2.1"), None);
    }
}
