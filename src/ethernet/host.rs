//! The host's use of a VNIC: stacked interfaces and group memberships.

use std::collections::BTreeSet;
use std::net::IpAddr;

use rtnl::{Requests, Stacking};
use vnic::Mac;

use super::Ethernet;
use crate::interface::Interface;

impl Ethernet {
    /// The stacking on the VNIC was read. Guests may send larger frames than the host. Groups of guests and of a
    /// multicast router (`allmulti`) are not known; groups of a bond are announced for the bond.
    pub fn stacking_seen(
        &mut self,
        interface: &mut Interface,
        stacking: &Stacking,
        allmulti: bool,
        netlink: &mut Requests,
    ) {
        self.allmulti = allmulti;
        self.bonded = matches!(stacking, Stacking::Bond(_));
        let stacked = stacking.has_guests();
        if std::mem::replace(&mut self.stacked, stacked) != stacked {
            interface.inside(netlink, |interface, netlink| {
                interface.set_gso_max(netlink, self.gso_max());
            });
        }
    }

    /// Takes the host's memberships on the interface: IP groups, and the group addresses that the interface
    /// receives, for groups of other protocols (`ip maddr add`). True if the MACs changed. The VNIC's manager gets
    /// them; a VNIC with a configured switch needs none.
    pub fn take_groups(&mut self, groups: &BTreeSet<IpAddr>, links: BTreeSet<Mac>) -> bool {
        let multicast = groups.iter().copied().filter(IpAddr::is_multicast);
        let mut macs: BTreeSet<Mac> = multicast.map(ipoib::group_mac).collect();
        macs.extend(links);
        let macs: Vec<Mac> = macs.into_iter().collect();
        let changed = self.host_groups != macs;
        self.host_groups = macs;
        changed
    }
}
