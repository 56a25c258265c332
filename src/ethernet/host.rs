//! The host's use of a VNIC: stacked interfaces and group memberships.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;

use netdev::membership;
use rtnl::{Requests, Stacking};
use vnic::Mac;

use super::Ethernet;
use crate::interface::Interface;

impl Ethernet {
    /// Reads which interface is stacked on the VNIC. Guests may send larger frames than the host. Groups of
    /// guests and of a multicast router are not known; groups of a bond are announced for the bond.
    pub fn read_stacking(&mut self, interface: &mut Interface, netlink: &mut Requests) {
        interface.inside(netlink, |interface, netlink| {
            let ifindex = interface.ifindex;
            let stacking = netlink.stacking(ifindex).unwrap_or(Stacking::None);
            self.bonded = matches!(stacking, Stacking::Bond(_));
            let stacked = stacking.has_guests();
            if std::mem::replace(&mut self.stacked, stacked) != stacked {
                interface.set_gso_max(netlink, self.gso_max());
            }
            let link = netlink.link_by_index(ifindex);
            self.allmulti = link.is_ok_and(|link| link.allmulti > 0);
        });
    }

    /// Reads the host's memberships on the interface; true if they changed. The VNIC's manager gets their
    /// MACs. A VNIC with a configured switch needs none.
    pub fn read_groups(&mut self, interface: &mut Interface, netlink: &mut Requests) -> bool {
        if self.spec.switch.is_some() {
            return false;
        }
        match interface.inside(netlink, |i, _| listened(i.ifindex)) {
            Some(Ok(groups)) if self.host_groups != groups => {
                self.host_groups = groups;
                true
            }
            _ => false,
        }
    }
}

/// The MACs of the groups of an interface in the calling thread's network namespace, in ascending order: of
/// IP groups, and of others (`ip maddr add`).
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
