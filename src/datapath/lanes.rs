//! The lanes of one data thread. Each thread has a lane of every link.
//!
//! The cost of a round depends on the lanes used in it, not on the number of lanes: a port may have a
//! hundred links of which one is busy. Deadlines are in an ordered set, links and endpoints in maps, and a
//! pausing thread mutes only the TAPs with data. A core's tables grow with their contents: an idle interface
//! takes about 5 KiB in each thread and no time.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

use fabric::{EndpointId, Qpn, Worker};
use foldhash::fast::RandomState;
use ipoib::Time;

use super::lane::{LinkId, Served};
use super::train::OpenTrain;

/// Lanes by place, link, endpoint and queue pair number. A lane keeps its place.
pub struct Lanes<L> {
    slots: Vec<Option<Slot<L>>>,
    by_link: HashMap<LinkId, usize, RandomState>,
    by_endpoint: HashMap<EndpointId, usize, RandomState>,
    by_qpn: HashMap<Qpn, usize, RandomState>,
    /// Places of lanes used since [`Lanes::settle`]: only these may have work or a changed deadline.
    used: Vec<usize>,
    /// The deadlines of the cores, as of [`Lanes::settle`].
    due: BTreeSet<(Time, usize)>,
}

struct Slot<L> {
    lane: L,
    /// The key in [`Lanes::by_qpn`].
    qpn: Option<Qpn>,
    /// The lane is in [`Lanes::used`].
    used: bool,
    /// The key in [`Lanes::due`].
    due: Option<Time>,
}

impl<L> Default for Lanes<L> {
    fn default() -> Lanes<L> {
        Lanes {
            slots: Vec::new(),
            by_link: HashMap::default(),
            by_endpoint: HashMap::default(),
            by_qpn: HashMap::default(),
            used: Vec::new(),
            due: BTreeSet::new(),
        }
    }
}

impl<L: Served> Lanes<L> {
    /// Adds a lane at the first free place, and returns the place.
    pub fn insert(&mut self, lane: L) -> usize {
        let free = self.slots.iter().position(Option::is_none);
        let at = free.unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        let qpn = lane.qpn();
        self.by_link.insert(lane.base().id, at);
        self.by_endpoint.insert(lane.base().endpoint, at);
        self.by_qpn.extend(qpn.map(|qpn| (qpn, at)));
        self.slots[at] = Some(Slot {
            lane,
            qpn,
            used: true,
            due: None,
        });
        self.used.push(at);
        at
    }

    /// Removes a lane.
    pub fn remove(&mut self, at: usize) -> Option<L> {
        let slot = self.slots.get_mut(at)?.take()?;
        self.by_link.remove(&slot.lane.base().id);
        forget(&mut self.by_endpoint, Some(slot.lane.base().endpoint), at);
        forget(&mut self.by_qpn, slot.qpn, at);
        self.used.retain(|used| *used != at);
        if let Some(due) = slot.due {
            self.due.remove(&(due, at));
        }
        Some(slot.lane)
    }

    /// Updates the queue pair number of a lane from its core.
    pub fn readdress(&mut self, at: usize) {
        if let Some(Some(slot)) = self.slots.get_mut(at) {
            let qpn = slot.lane.qpn();
            let before = std::mem::replace(&mut slot.qpn, qpn);
            forget(&mut self.by_qpn, before, at);
            self.by_qpn.extend(qpn.map(|qpn| (qpn, at)));
        }
    }

    /// The lane at a place. Does not mark it as used.
    pub fn get(&self, at: usize) -> Option<&L> {
        self.slots.get(at)?.as_ref().map(|slot| &slot.lane)
    }

    /// The lane at a place, marked as used.
    #[inline]
    pub fn get_mut(&mut self, at: usize) -> Option<&mut L> {
        let slot = self.slots.get_mut(at)?.as_mut()?;
        if !slot.used {
            slot.used = true;
            self.used.push(at);
        }
        Some(&mut slot.lane)
    }

    /// Two lanes at different places, marked as used.
    pub fn two(&mut self, one: usize, other: usize) -> Option<(&mut L, &mut L)> {
        for at in [one, other] {
            self.get_mut(at)?;
        }
        let [one, other] = self.slots.get_disjoint_mut([one, other]).ok()?;
        Some((&mut one.as_mut()?.lane, &mut other.as_mut()?.lane))
    }

    /// The place of a link's lane.
    pub fn of_link(&self, id: LinkId) -> Option<usize> {
        self.by_link.get(&id).copied()
    }

    /// The place of an endpoint's lane.
    #[inline]
    pub fn of_endpoint(&self, endpoint: EndpointId) -> Option<usize> {
        self.by_endpoint.get(&endpoint).copied()
    }

    /// The place of the lane with a queue pair number.
    #[inline]
    pub fn of_qpn(&self, qpn: Qpn) -> Option<usize> {
        self.by_qpn.get(&qpn).copied()
    }

    /// All lanes with their places.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &L)> {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(|(at, slot)| Some((at, &slot.as_ref()?.lane)))
    }

    /// The places of all lanes.
    pub fn places(&self) -> Vec<usize> {
        self.iter().map(|(at, _)| at).collect()
    }

    /// The place of the `n`th lane used since [`Lanes::settle`]. The list may grow while a caller iterates.
    pub fn used(&self, n: usize) -> Option<usize> {
        self.used.get(n).copied()
    }

    /// The place of a lane whose deadline has passed. Returns each lane once between two calls of
    /// [`Lanes::settle`].
    pub fn pop_due(&mut self, now: Time) -> Option<usize> {
        let (due, at) = *self.due.first().filter(|(due, _)| *due <= now)?;
        self.due.remove(&(due, at));
        if let Some(Some(slot)) = self.slots.get_mut(at) {
            slot.due = None;
        }
        Some(at)
    }

    /// Destroys released address handles of the used lanes. A lane whose frames were all sent is not
    /// serviced, but the frames may have displaced groups and members from the core's tables.
    pub fn release_ahs(&mut self, fabric: &mut dyn Worker, train: &mut OpenTrain) {
        for at in &self.used {
            if let Some(Some(slot)) = self.slots.get_mut(*at) {
                slot.lane.release_ahs(fabric, train);
            }
        }
    }

    /// Updates the deadlines of the used lanes; returns the first deadline of all lanes.
    pub fn settle(&mut self) -> Option<Time> {
        for at in self.used.drain(..) {
            let Some(Some(slot)) = self.slots.get_mut(at) else {
                continue;
            };
            slot.used = false;
            let due = slot.lane.next_deadline();
            if due == slot.due {
                continue;
            }
            if let Some(before) = std::mem::replace(&mut slot.due, due) {
                self.due.remove(&(before, at));
            }
            self.due.extend(due.map(|due| (due, at)));
        }
        self.due.first().map(|(due, _)| *due)
    }
}

/// Removes a key of the lane at this place. Another lane may have the key now.
fn forget<K: Eq + Hash>(index: &mut HashMap<K, usize, RandomState>, key: Option<K>, at: usize) {
    if let Some(key) = key.filter(|key| index.get(key) == Some(&at)) {
        index.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use super::super::ip::IpLane;
    use super::super::testing::{address, lane_of};
    use super::*;

    fn lanes(count: u32) -> Lanes<IpLane> {
        let mut lanes = Lanes::default();
        for n in 0..count {
            assert_eq!(lanes.insert(lane_of(n, 0).0), n as usize);
        }
        lanes
    }

    fn used(lanes: &Lanes<IpLane>) -> Vec<usize> {
        (0..).map_while(|n| lanes.used(n)).collect()
    }

    #[test]
    fn a_lane_is_found_by_each_key_until_its_removal_and_its_place_is_reused() {
        let mut lanes = lanes(3);
        let names = |lanes: &Lanes<IpLane>, n: u32| {
            let lane = lane_of(n, 0).0;
            [
                lanes.of_link(lane.base.id),
                lanes.of_endpoint(lane.base.endpoint),
                lanes.of_qpn(lane.core.local().qpn()),
            ]
        };
        for n in 0..3 {
            assert_eq!(names(&lanes, n), [Some(n as usize); 3]);
        }
        assert_eq!(
            lanes.remove(1).map(|l| l.base.id),
            Some(lane_of(1, 0).0.base.id)
        );
        assert!(lanes.remove(1).is_none() && lanes.get_mut(1).is_none());
        assert_eq!(names(&lanes, 1), [None; 3]);
        assert_eq!(lanes.insert(lane_of(7, 0).0), 1);
        assert_eq!(names(&lanes, 7), [Some(1); 3]);
        assert_eq!(lanes.places(), [0, 1, 2]);
    }

    #[test]
    fn another_queue_pair_number_finds_the_lane_and_the_former_does_not() {
        let mut lanes = lanes(2);
        let former = lanes.get(0).unwrap().core.local().qpn();
        lanes
            .get_mut(0)
            .unwrap()
            .core
            .set_local(Time(0), address(0x77));
        lanes.readdress(0);
        assert_eq!(lanes.of_qpn(Qpn::new(0x77)), Some(0));
        assert_eq!(lanes.of_qpn(former), None);
        lanes.remove(0);
        assert_eq!(lanes.of_qpn(Qpn::new(0x77)), None);
    }

    #[test]
    fn a_lane_that_is_removed_late_leaves_endpoint_and_number_to_the_next_one() {
        let mut lanes = lanes(1);
        let mut next = lane_of(1, 0).0;
        let former = lanes.get(0).unwrap();
        next.base.endpoint = former.base.endpoint;
        next.core.set_local(Time(0), former.core.local());
        let (endpoint, qpn) = (next.base.endpoint, next.core.local().qpn());
        assert_eq!(lanes.insert(next), 1);
        lanes.remove(0);
        assert_eq!(lanes.of_endpoint(endpoint), Some(1));
        assert_eq!(lanes.of_qpn(qpn), Some(1));
    }

    #[test]
    fn two_lanes_are_lent_at_once_and_one_is_not_lent_twice() {
        let mut lanes = lanes(2);
        lanes.settle();
        let (one, other) = lanes.two(1, 0).unwrap();
        assert_ne!(one.base.id, other.base.id);
        assert_eq!(used(&lanes), [1, 0]);
        assert!(lanes.two(0, 0).is_none() && lanes.two(0, 2).is_none());
    }

    #[test]
    fn only_used_lanes_update_their_deadlines() {
        let mut lanes = lanes(100);
        assert_eq!(lanes.settle(), None, "idle lanes have no deadline");
        assert!(used(&lanes).is_empty());
        let announce = |lanes: &mut Lanes<IpLane>, at| {
            let lane = lanes.get_mut(at).unwrap();
            lane.core.announce([10, 0, 0, 1].into(), false);
            while lane.core.poll_transmit(Time(500)).is_some() {}
        };
        announce(&mut lanes, 40);
        assert_eq!(used(&lanes), [40]);
        assert_eq!(
            lanes.settle(),
            Some(Time(1500)),
            "the announcement is repeated"
        );
        assert!(lanes.pop_due(Time(1499)).is_none());
        assert_eq!(lanes.pop_due(Time(1500)), Some(40));
        assert!(lanes.pop_due(Time(1500)).is_none(), "once in a round");
        lanes.get_mut(40);
        assert_eq!(
            lanes.settle(),
            Some(Time(1500)),
            "the timer was not handled"
        );
        lanes.remove(40);
        assert_eq!(lanes.settle(), None);
        assert!(lanes.pop_due(Time(9999)).is_none());
    }
}
