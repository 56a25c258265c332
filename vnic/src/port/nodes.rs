//! Members of the switch and their addresses on the fabric: from the list of the manager or the
//! configuration, and learned from packets.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use proto::lru::{Lru, Place, Placed};
use proto::{AddressHandle, Gid, Qpn};

use super::macs::Second;
use super::types::NodeInfo;
use crate::Lid;
use crate::directory::{Directory, NodeAddress};

/// Maximum number of learned members.
const LEARNED_MAX: usize = 16_384;
/// An unknown queue pair.
const NO_QPN: Qpn = Qpn::new(0);

struct Node {
    lid: Lid,
    address: NodeAddress,
    /// The list contains the member.
    listed: bool,
    /// The list contains the member's queue pair number, too.
    pinned: bool,
    /// The address was learned and expires: the member is in the order of use.
    ages: bool,
    heard: Second,
    /// When the last update for the other replicas was published.
    published: Option<Second>,
    place: Place,
    ah: Option<AddressHandle>,
    live: bool,
}

impl Placed for Node {
    fn place(&mut self) -> &mut Place {
        &mut self.place
    }
}

/// Result of the check of a packet's source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// The LID is at this address.
    Known,
    /// As `Known`, and first seen in this second. The time is that of the last update for the other
    /// replicas.
    Again(Option<Second>),
    /// The address of the LID is unknown.
    New,
    /// The LID was at this other address and may have moved.
    Moved(NodeAddress),
    /// The LID is at another address, or no member has it.
    Forged,
}

/// Members by LID.
#[derive(Default)]
pub struct Nodes {
    slots: Vec<Node>,
    free: Vec<u32>,
    by_lid: HashMap<u32, u32, RandomState>,
    order: Lru,
    ageing: usize,
    closed: bool,
    /// Unused address handles, which the caller destroys.
    pub released: Vec<AddressHandle>,
}

impl Nodes {
    /// Whether a member has this LID.
    pub fn knows(&self, lid: Lid) -> bool {
        self.by_lid.contains_key(&lid.get())
    }

    /// Whether only the listed members are members.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Slot of a LID; `None` also if its queue pair number is unknown.
    #[inline]
    pub fn reachable(&self, lid: Lid) -> Option<u32> {
        let slot = *self.by_lid.get(&lid.get())?;
        (self.slots[slot as usize].address.qpn != NO_QPN).then_some(slot)
    }

    pub fn address(&self, slot: u32) -> NodeAddress {
        self.slots[slot as usize].address
    }

    /// Address of a LID; its queue pair number may be 0 (unknown).
    pub fn find(&self, lid: Lid) -> Option<NodeAddress> {
        self.by_lid.get(&lid.get()).map(|slot| self.address(*slot))
    }

    pub fn ah(&self, slot: u32) -> Option<AddressHandle> {
        self.slots[slot as usize].ah
    }

    pub fn set_ah(&mut self, slot: u32, ah: AddressHandle) {
        let old = self.slots[slot as usize].ah.replace(ah);
        self.released.extend(old.filter(|old| *old != ah));
    }

    pub fn release_all(&mut self) {
        let handles = self.slots.iter_mut().filter_map(|node| node.ah.take());
        self.released.extend(handles);
    }

    /// Checks a packet from `source` with the source LID `lid`. On InfiniBand, the fabric does not know the GID of each
    /// sender: it is unspecified then. Nothing is learned from such a packet.
    #[inline]
    pub fn check(&mut self, second: Second, lid: Lid, mut source: NodeAddress) -> Origin {
        let known = self.by_lid.get(&lid.get()).copied();
        if source.gid == Gid::UNSPECIFIED {
            let address = known.map(|slot| self.address(slot));
            match address.filter(|address| address.qpn == source.qpn) {
                Some(address) => source = address,
                None if self.closed => return Origin::Forged,
                None => return Origin::Known,
            }
        }
        let Some(slot) = known else {
            return match self.closed {
                true => Origin::Forged,
                false => Origin::New,
            };
        };
        let node = &mut self.slots[slot as usize];
        if node.address == source {
            if !node.ages || node.heard == second {
                return Origin::Known;
            }
            node.heard = second;
            let published = node.published;
            self.order.touch(&mut self.slots, slot);
            return Origin::Again(published);
        }
        let same_port = node.address.gid == source.gid;
        if self.closed && (node.pinned || !same_port) {
            return Origin::Forged;
        }
        match same_port && node.address.qpn == NO_QPN {
            true => Origin::New,
            false => Origin::Moved(node.address),
        }
    }

    /// Sets the learned address of a member.
    pub fn learn(&mut self, second: Second, lid: Lid, address: NodeAddress) {
        let slot = match self.by_lid.get(&lid.get()) {
            Some(slot) => *slot,
            None => {
                while self.ageing >= LEARNED_MAX {
                    self.forget_oldest();
                }
                self.new_slot(lid, address)
            }
        };
        self.set_address(slot, address);
        let node = &mut self.slots[slot as usize];
        node.heard = second;
        node.published = None;
        // An incomplete list may also be outdated: received packets take precedence.
        node.pinned = false;
        if !node.ages {
            node.ages = true;
            self.ageing += 1;
            self.order.push(&mut self.slots, slot);
        } else {
            self.order.touch(&mut self.slots, slot);
        }
    }

    /// Sets when the last update of a member was published.
    pub fn set_published(&mut self, second: Second, lid: Lid) {
        if let Some(slot) = self.by_lid.get(&lid.get()) {
            self.slots[*slot as usize].published = Some(second);
        }
    }

    /// Replaces the list.
    pub fn set_directory(&mut self, directory: &Directory) {
        self.closed = directory.closed;
        let live = self.slots.iter().enumerate().filter(|(_, node)| node.live);
        let unlisted = live.filter(|(_, node)| !directory.nodes.contains_key(&node.lid));
        let unlisted: Vec<u32> = unlisted.map(|(slot, _)| slot as u32).collect();
        for slot in unlisted {
            self.unlist(slot);
        }
        for (lid, address) in &directory.nodes {
            self.list(*lid, *address);
        }
    }

    /// Removes a member from the list. Its learned address stays if the list is incomplete.
    fn unlist(&mut self, slot: u32) {
        let node = &mut self.slots[slot as usize];
        node.listed = false;
        node.pinned = false;
        if self.closed || !node.ages {
            self.forget(slot);
        }
    }

    fn list(&mut self, lid: Lid, address: NodeAddress) {
        let known = self.by_lid.get(&lid.get()).copied();
        let slot = known.unwrap_or_else(|| self.new_slot(lid, address));
        let pinned = address.qpn != NO_QPN;
        let node = &mut self.slots[slot as usize];
        node.listed = true;
        node.pinned = pinned;
        let keeps_learned = !pinned && node.address.gid == address.gid;
        if !keeps_learned {
            self.stop_ageing(slot);
            self.set_address(slot, address);
        }
    }

    /// When the least recently seen member was last seen.
    pub fn oldest(&self) -> Option<Second> {
        let slot = self.order.oldest()?;
        Some(self.slots[slot as usize].heard)
    }

    /// Removes the learned addresses of up to `most` members that were last seen in second `until` or
    /// before. Returns their number.
    pub fn expire(&mut self, until: Second, most: usize) -> usize {
        let mut count = 0;
        while count < most && self.oldest().is_some_and(|heard| heard <= until) {
            self.forget_oldest();
            count += 1;
        }
        count
    }

    /// Members, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = NodeInfo> {
        let live = self.slots.iter().filter(|node| node.live);
        live.map(|node| NodeInfo {
            lid: node.lid,
            address: node.address,
            listed: node.listed,
        })
    }

    /// Removes all learned addresses.
    pub fn forget_learned(&mut self) {
        while self.order.oldest().is_some() {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let Some(slot) = self.order.oldest() else {
            return;
        };
        let node = &self.slots[slot as usize];
        if !node.listed {
            return self.forget(slot);
        }
        let address = NodeAddress {
            qpn: NO_QPN,
            ..node.address
        };
        self.stop_ageing(slot);
        self.set_address(slot, address);
    }

    fn forget(&mut self, slot: u32) {
        self.stop_ageing(slot);
        let node = &mut self.slots[slot as usize];
        self.released.extend(node.ah.take());
        node.live = false;
        self.by_lid.remove(&node.lid.get());
        self.free.push(slot);
        self.shrink();
    }

    /// Frees the memory of a large table that has become empty.
    fn shrink(&mut self) {
        if self.by_lid.is_empty() && self.slots.len() > 1024 {
            *self = Nodes {
                closed: self.closed,
                released: std::mem::take(&mut self.released),
                ..Nodes::default()
            };
        }
    }

    fn stop_ageing(&mut self, slot: u32) {
        let node = &mut self.slots[slot as usize];
        if node.ages {
            node.ages = false;
            self.ageing -= 1;
            self.order.remove(&mut self.slots, slot);
        }
    }

    fn set_address(&mut self, slot: u32, address: NodeAddress) {
        let node = &mut self.slots[slot as usize];
        if node.address != address {
            node.address = address;
            self.released.extend(node.ah.take());
        }
    }

    fn new_slot(&mut self, lid: Lid, address: NodeAddress) -> u32 {
        let node = Node {
            lid,
            address,
            listed: false,
            pinned: false,
            ages: false,
            heard: 0,
            published: None,
            place: Place::default(),
            ah: None,
            live: true,
        };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = node;
                slot
            }
            None => {
                self.slots.push(node);
                (self.slots.len() - 1) as u32
            }
        };
        self.by_lid.insert(lid.get(), slot);
        slot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(node: u8, qpn: u32) -> NodeAddress {
        let mut gid = [0; 16];
        (gid[0], gid[15]) = (0xfe, node);
        NodeAddress {
            gid: Gid(gid),
            qpn: Qpn::new(qpn),
        }
    }

    fn directory(closed: bool, nodes: &[(u32, NodeAddress)]) -> Directory {
        Directory {
            nodes: nodes.iter().map(|(l, a)| (Lid::new(*l), *a)).collect(),
            closed,
        }
    }

    fn listed(closed: bool, nodes: &[(u32, NodeAddress)]) -> Nodes {
        let mut table = Nodes::default();
        table.set_directory(&directory(closed, nodes));
        table
    }

    #[test]
    fn a_complete_list_excludes_all_others() {
        let mut t = listed(true, &[(7, address(7, 0x70)), (8, address(8, 0))]);
        let mut check = |lid, from| t.check(1, Lid::new(lid), from);
        assert_eq!(check(7, address(7, 0x70)), Origin::Known);
        assert_eq!(check(7, address(7, 0x71)), Origin::Forged);
        assert_eq!(check(7, address(9, 0x70)), Origin::Forged);
        assert_eq!(check(9, address(9, 0x90)), Origin::Forged);
        assert_eq!(check(8, address(7, 0x80)), Origin::Forged);
        // An unlisted queue pair number is learned, but only from the member's port.
        assert_eq!(check(8, address(8, 0x80)), Origin::New);
        t.learn(1, Lid::new(8), address(8, 0x80));
        let mut check = |lid, from| t.check(1, Lid::new(lid), from);
        assert_eq!(check(8, address(8, 0x80)), Origin::Known);
        assert_eq!(check(8, address(8, 0x81)), Origin::Moved(address(8, 0x80)));
        assert_eq!(check(8, address(7, 0x80)), Origin::Forged);
    }

    #[test]
    fn with_an_incomplete_list_senders_are_learned_and_expire() {
        let mut t = listed(false, &[(7, address(7, 0))]);
        assert_eq!(t.check(1, Lid::new(9), address(9, 1)), Origin::New);
        t.learn(1, Lid::new(9), address(9, 1));
        t.learn(2, Lid::new(7), address(7, 5));
        assert!(t.reachable(Lid::new(7)).is_some());
        let slot = t.reachable(Lid::new(9)).unwrap();
        t.set_ah(slot, AddressHandle(3));
        assert_eq!(t.check(3, Lid::new(9), address(9, 1)), Origin::Again(None));
        assert_eq!(t.expire(2, usize::MAX), 1);
        // The listed member stays, with an unknown queue pair number.
        assert_eq!(t.reachable(Lid::new(7)), None);
        assert_eq!(t.find(Lid::new(7)), Some(address(7, 0)));
        assert_eq!(t.expire(3, usize::MAX), 1);
        assert!(!t.knows(Lid::new(9)));
        assert_eq!(t.released.pop(), Some(AddressHandle(3)));
    }

    #[test]
    fn a_sender_without_a_gid_is_not_learned() {
        let nameless = |qpn| NodeAddress {
            gid: Gid::UNSPECIFIED,
            qpn: Qpn::new(qpn),
        };
        let mut t = listed(false, &[]);
        t.learn(1, Lid::new(7), address(7, 0x70));
        let mut check = |second, lid, from| t.check(second, Lid::new(lid), from);
        assert_eq!(check(1, 7, nameless(0x70)), Origin::Known);
        assert_eq!(check(2, 7, nameless(0x70)), Origin::Again(None));
        assert_eq!(check(3, 7, nameless(0x71)), Origin::Known);
        assert_eq!(check(3, 9, nameless(0x90)), Origin::Known);
        assert_eq!(t.find(Lid::new(7)), Some(address(7, 0x70)));
        assert!(!t.knows(Lid::new(9)));

        let mut t = listed(true, &[(7, address(7, 0x70))]);
        let mut check = |lid, from| t.check(1, Lid::new(lid), from);
        assert_eq!(check(7, nameless(0x70)), Origin::Known);
        assert_eq!(check(7, nameless(0x71)), Origin::Forged);
        assert_eq!(check(9, nameless(0x90)), Origin::Forged);
    }

    #[test]
    fn a_new_list_keeps_what_it_does_not_contradict() {
        let mut t = listed(
            true,
            &[(7, address(7, 0)), (8, address(8, 8)), (9, address(9, 9))],
        );
        t.learn(1, Lid::new(7), address(7, 0x77));
        for (lid, ah) in [(7, 1), (8, 2), (9, 3)] {
            let slot = t.reachable(Lid::new(lid)).unwrap();
            t.set_ah(slot, AddressHandle(ah));
        }
        t.set_directory(&directory(
            true,
            &[(7, address(7, 0)), (8, address(8, 0x88))],
        ));
        assert_eq!(t.find(Lid::new(7)), Some(address(7, 0x77)));
        assert_eq!(t.find(Lid::new(8)), Some(address(8, 0x88)));
        assert_eq!(t.find(Lid::new(9)), None);
        let mut released: Vec<u32> = t.released.iter().map(|ah| ah.0).collect();
        released.sort_unstable();
        assert_eq!(released, [2, 3]);
        // A member that leaves an incomplete list keeps its learned address.
        t.set_directory(&directory(false, &[]));
        assert_eq!(t.iter().count(), 1);
        assert_eq!(t.find(Lid::new(7)), Some(address(7, 0x77)));
    }

    #[test]
    fn forged_lids_stay_within_the_memory_bound() {
        let mut t = listed(false, &[(7, address(7, 7))]);
        for n in 100..100_000 {
            t.learn(n, Lid::new(n), address(1, n));
        }
        assert_eq!(t.iter().count(), LEARNED_MAX + 1);
        assert!(t.knows(Lid::new(7)) && t.knows(Lid::new(99_999)));
        assert_eq!(t.slots.len(), LEARNED_MAX + 1);
    }
}
