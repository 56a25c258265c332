//! What the host does with the interfaces of VNICs: stacks others on them, and listens to groups.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;

use netdev::membership;
use rtnl::Stacking;
use vnic::Mac;

use crate::daemon::Daemon;
use crate::interface::InterfaceId;

impl Daemon {
    /// Looks at what is stacked on an interface: guests send more at once than the host is let, and their
    /// groups are not known, as those of a multicast router; those of a bond are announced of the bond.
    pub(in crate::daemon) fn read_vnic_stacking(&mut self, id: InterfaceId) {
        let Some((interface, ethernet)) = self.interfaces.ethernet_mut(id) else {
            return;
        };
        interface.inside(&mut self.host.netlink, |interface, netlink| {
            let ifindex = interface.ifindex;
            let stacking = netlink.stacking(ifindex).unwrap_or(Stacking::None);
            ethernet.bonded = matches!(stacking, Stacking::Bond(_));
            let stacked = stacking.has_guests();
            if std::mem::replace(&mut ethernet.stacked, stacked) != stacked {
                interface.set_gso_max(netlink, ethernet.gso_max());
            }
            let link = netlink.link_by_index(ifindex);
            ethernet.allmulti = link.is_ok_and(|link| link.allmulti > 0);
        });
        self.sync_vnic_groups(id);
    }

    /// Keeps a VNIC's MTU within what its switch and its port carry. It never grows by itself.
    pub(in crate::daemon) fn keep_vnic_mtu(&mut self, id: InterfaceId) {
        let Some((interface, payload)) = self.interfaces.both(id) else {
            return;
        };
        if payload.allowed_mtu().contains(&interface.mtu) {
            return;
        }
        let (wrong, name) = (interface.mtu, &interface.name);
        let (fault, right) = payload.mtu_fault(wrong);
        log::warn!("{name}: the MTU {wrong} is {fault} {right}; set to that");
        self.try_mtu(id, right);
    }

    /// Reads the groups that the host listens to on a VNIC's interface: its manager is told of their MACs, and
    /// those that the manager's table has are attached to.
    pub(in crate::daemon) fn read_vnic_groups(&mut self, id: InterfaceId) {
        let Some((interface, ethernet)) = self.interfaces.ethernet_mut(id) else {
            return;
        };
        if ethernet.spec.switch.is_some() {
            return;
        }
        let listened = interface.inside(&mut self.host.netlink, |i, _| listened(i.ifindex));
        if let Some(Ok(groups)) = listened
            && ethernet.host_groups != groups
        {
            ethernet.host_groups = groups;
            self.sync_vnic_groups(id);
            self.sync_agent_of(id);
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
