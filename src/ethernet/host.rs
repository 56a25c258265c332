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
    let groups = groups.filter(IpAddr::is_multicast);
    let mut macs: BTreeSet<Mac> = groups.map(ipoib::group_mac).collect();
    macs.extend(membership::read_link(ifindex)?);
    Ok(macs.into_iter().collect())
}
