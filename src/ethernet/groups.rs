//! The fabric's groups that a VNIC joins.

use std::collections::BTreeSet;

use fabric::{Capabilities, Gid};
use vnic::carriage::group_mgid;
use vnic::mac_table::MacTable;
use vnic::{Lid, Mac};

use super::Ethernet;
use crate::interface::Interface;
use crate::interface::groups::Bounds;

/// The broadcast address.
const BROADCAST: Mac = [0xff; 6];

/// Maximum number of groups of one VNIC: its switch's, and those in the manager's table.
const GROUPS_MAX: usize = 256;

/// The limits of a VNIC's endpoint on a port.
pub fn groups_of_one(port: &Capabilities) -> Bounds {
    let bounds = Bounds::of(port);
    Bounds {
        groups: bounds.groups.min(GROUPS_MAX),
        ..bounds
    }
}

impl Ethernet {
    /// The group of its switch.
    pub fn group(&self) -> Option<Gid> {
        self.is_on_switch()
            .then(|| self.mgid(self.info.u_mcast_dlid))
            .filter(|_| self.info.u_mcast_dlid.is_multicast())
    }

    fn mgid(&self, lid: Lid) -> Gid {
        let info = &self.info;
        group_mgid(info.pkey, info.fabric_id, info.vesw_id, lid)
    }

    /// The groups to join: the switch's, and those of the manager's table that a host on this side listens
    /// to. None while the VNIC is down or does not forward. The first of the pair is the switch's.
    pub fn wanted_groups(&self, interface: &Interface) -> (Option<Gid>, BTreeSet<Gid>) {
        if !(self.entry().is_some() && interface.up && self.is_to_forward()) {
            return Default::default();
        }
        let of_others = self.stacked || self.bonded || self.allmulti;
        let named = heard(&self.table, &self.host_groups, of_others);
        let group = self.group();
        let named = named.into_iter().map(|lid| self.mgid(lid));
        (group, offered(group, named))
    }
}

/// The group of the switch and those of the table, one more than fit: `GroupSet::want` leaves that one out, and
/// the limit is logged.
fn offered(group: Option<Gid>, named: impl Iterator<Item = Gid>) -> BTreeSet<Gid> {
    // The switch's group counts once.
    let others = named.filter(|named| Some(*named) != group);
    let all = group.into_iter().chain(others);
    all.take(GROUPS_MAX + 1).collect()
}

/// The multicast LIDs of a table whose frames the host needs: those of `groups`, which is in ascending
/// order, or all if the interface also carries frames for other hosts, whose groups are not known.
fn heard(table: &MacTable, groups: &[Mac], of_others: bool) -> BTreeSet<Lid> {
    let listens = |mac: &Mac| of_others || *mac == BROADCAST || groups.binary_search(mac).is_ok();
    let named = table.destinations().filter(|(_, lid)| lid.is_multicast());
    let heard = named.filter(|(mac, _)| listens(mac));
    heard.map(|(_, lid)| lid).collect()
}

#[cfg(test)]
mod tests {
    use vnic::mac_table::MacEntry;

    use super::*;
    use crate::interface::groups::GroupSet;

    fn group(n: u8) -> Mac {
        [0x01, 0x00, 0x5e, 1, 2, n]
    }

    fn table(entries: &[(Mac, u32)]) -> MacTable {
        let entry = |(mac, lid): &(Mac, u32)| MacEntry {
            mac: *mac,
            mask: [0; 6],
            dlid_sd: lid << 8,
        };
        let entries: Vec<MacEntry> = entries.iter().map(entry).collect();
        MacTable::default().update(0, &entries, 1).unwrap()
    }

    fn gid(n: u16) -> Gid {
        let mut raw = [0xff; 16];
        raw[14..].copy_from_slice(&n.to_be_bytes());
        Gid(raw)
    }

    #[test]
    fn the_group_beyond_the_limit_is_noticed() {
        let bounds = Bounds {
            groups: GROUPS_MAX,
            requests: 1,
        };
        let mut set = GroupSet::new(bounds, 1);
        // The table also names the group of the switch.
        let first = Some(gid(5));
        let fit = offered(first, (0..256).map(gid));
        assert_eq!((fit.len(), set.want(first, fit)), (GROUPS_MAX, None));
        let more = offered(first, (0..257).map(gid));
        assert_eq!(set.want(first, more), Some(gid(256)));
    }

    #[test]
    fn a_group_of_the_table_is_attached_to_if_the_host_or_somebody_behind_it_listens() {
        let table = table(&[
            (group(1), 0xf0_0101),
            (group(2), 0xf0_0102),
            // Two groups may share a LID. The last but one is unicast.
            (group(3), 0xf0_0102),
            ([0x52, 0x54, 0, 0, 0, 1], 5),
            (BROADCAST, 0xf0_01ff),
        ]);
        let lids = |groups: &[Mac], of_others| -> Vec<u32> {
            let lids = heard(&table, groups, of_others).into_iter();
            lids.map(Lid::get).collect()
        };
        assert_eq!(lids(&[], false), [0xf0_01ff]);
        assert_eq!(lids(&[group(1), group(9)], false), [0xf0_0101, 0xf0_01ff]);
        assert_eq!(lids(&[group(3)], false), [0xf0_0102, 0xf0_01ff]);
        assert_eq!(lids(&[], true), [0xf0_0101, 0xf0_0102, 0xf0_01ff]);
    }
}
