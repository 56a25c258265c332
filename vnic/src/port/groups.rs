//! Multicast groups: the group of the switch, and those in its MAC table.

use proto::{AddressHandle, Gid, PKey};

use crate::Lid;
use crate::carriage::group_mgid;

struct Group {
    mgid: Gid,
    ah: Option<AddressHandle>,
}

/// Groups by multicast LID.
#[derive(Default)]
pub struct Groups {
    /// In ascending order, as [`Receiver`](crate::packet::Receiver) requires.
    lids: Vec<Lid>,
    /// In the same order.
    groups: Vec<Group>,
    /// Unused address handles, which the caller destroys.
    pub released: Vec<AddressHandle>,
}

impl Groups {
    /// Replaces the groups. Ignores LIDs that are not multicast.
    pub fn set(
        &mut self,
        (pkey, fabric_id, vesw_id): (PKey, u16, u16),
        lids: impl Iterator<Item = Lid>,
    ) {
        let mut lids: Vec<Lid> = lids.filter(|lid| lid.is_multicast()).collect();
        lids.sort_unstable();
        lids.dedup();
        let mut before = std::mem::take(&mut self.groups);
        let of = |lid: &Lid| {
            let mgid = group_mgid(pkey, fabric_id, vesw_id, *lid);
            // On another switch, the same LID is another group.
            let at = self.lids.binary_search(lid).ok();
            let same = at.and_then(|at| before.get_mut(at).filter(|group| group.mgid == mgid));
            let ah = same.and_then(|group| group.ah.take());
            Group { mgid, ah }
        };
        self.groups = lids.iter().map(of).collect();
        self.lids = lids;
        self.released
            .extend(before.into_iter().filter_map(|group| group.ah));
    }

    /// LIDs in ascending order.
    pub fn lids(&self) -> &[Lid] {
        &self.lids
    }

    #[inline]
    pub fn find(&self, lid: Lid) -> Option<u32> {
        self.lids.binary_search(&lid).ok().map(|at| at as u32)
    }

    pub fn mgid(&self, slot: u32) -> Gid {
        self.groups[slot as usize].mgid
    }

    pub fn ah(&self, slot: u32) -> Option<AddressHandle> {
        self.groups[slot as usize].ah
    }

    pub fn set_ah(&mut self, slot: u32, ah: AddressHandle) {
        let old = self.groups[slot as usize].ah.replace(ah);
        self.released.extend(old.filter(|old| *old != ah));
    }

    pub fn release_all(&mut self) {
        let handles = self.groups.iter_mut().filter_map(|group| group.ah.take());
        self.released.extend(handles);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_that_stay_keep_their_handles() {
        let lid = |n: u32| Lid::new(0xf0_0000 + n);
        let mut groups = Groups::default();
        let switch = (PKey::DEFAULT, 1, 2);
        groups.set(switch, [lid(9), lid(2), Lid::new(7), lid(9)].into_iter());
        assert_eq!(groups.lids(), [lid(2), lid(9)]);
        groups.set_ah(0, AddressHandle(20));
        groups.set_ah(1, AddressHandle(90));
        groups.set(switch, [lid(1), lid(9)].into_iter());
        assert_eq!(
            groups.find(lid(9)).and_then(|slot| groups.ah(slot)),
            Some(AddressHandle(90))
        );
        assert_eq!(groups.released, [AddressHandle(20)]);
        // Another switch has other groups, even with equal LIDs.
        groups.set((PKey::DEFAULT, 1, 3), [lid(9)].into_iter());
        assert_eq!(groups.released, [AddressHandle(20), AddressHandle(90)]);
    }
}
