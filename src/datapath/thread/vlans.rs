//! 802.1Q tags that select partitions: a frame with one is another lane's, which writes to the same
//! TAP.

use std::collections::{BTreeMap, BTreeSet};

use ipoib::Time;
use netdev::vlan::{self, Tag, VID_MAX};

use super::super::command::{DeviceId, Report, VlanLane};
use super::super::lane::Lane;
use super::super::receive;
use super::super::transmit::{self, Fate};
use super::{DataThread, Frame};

/// What a tag on a lane's TAP selects.
#[derive(Debug, Default)]
pub(super) struct Trunk {
    /// The lanes by VLAN id.
    lanes: BTreeMap<u16, usize>,
    /// VLAN ids that were reported.
    told: BTreeSet<u16>,
}

impl DataThread {
    pub(super) fn set_vlans(&mut self, id: DeviceId, on: bool) {
        let Some((i, lane)) = self.lane(id) else {
            return;
        };
        lane.core.set_vlans(on);
        if on {
            self.trunks.entry(i).or_default().told.clear();
        } else {
            self.trunks.remove(&i);
        }
    }

    /// Takes a partition on. Without the lane whose TAP it is, there is nothing to serve.
    pub(super) fn add_vlan(&mut self, vlan: VlanLane) {
        let VlanLane { trunk, vid, id, .. } = vlan;
        let Some((of, lane)) = self.lane(trunk) else {
            return;
        };
        let tag = Tag { vid, priority: 0 };
        let lane = Lane {
            id,
            endpoint: vlan.endpoint,
            qkey: vlan.qkey,
            tap: lane.tap.share_tagged(tag),
            reads: false,
            core: vlan.core,
            link_mtu: vlan.link_mtu,
            coalesce: vlan.coalesce,
            reflect: vlan.reflect,
            uso: vlan.uso,
            vlan: Some(vid),
            priorities: Default::default(),
            stats: Default::default(),
        };
        if let Some(i) = self.add(lane) {
            self.trunks.entry(of).or_default().lanes.insert(vid, i);
        }
    }

    /// A lane goes: no tag selects it any more, and none on its TAP anything else.
    pub(super) fn forget_vlans(&mut self, i: usize) {
        self.trunks.remove(&i);
        for trunk in self.trunks.values_mut() {
            trunk.lanes.retain(|_, lane| *lane != i);
        }
    }

    /// A frame of `len` bytes in the buffer, read from the TAP of lane `i`, has a tag.
    #[cold]
    pub(super) fn tagged(&mut self, i: usize, now: Time, len: usize) {
        let mut buffer = std::mem::take(&mut self.buffer);
        match buffer.get_mut(..len).and_then(vlan::take) {
            Some((tag, frame)) => self.untagged(i, now, tag, frame),
            None => self.count_tagged(i, |stats| stats.tx_bad_frame += 1),
        }
        self.buffer = buffer;
    }

    /// Sends a frame by the lane that its tag selects; without a VLAN id it is the TAP's own, and has
    /// a priority only.
    fn untagged(&mut self, i: usize, now: Time, tag: Tag, frame: &[u8]) {
        let to = match tag.vid {
            0 => Some(i),
            vid => self.trunks.get(&i).and_then(|t| t.lanes.get(&vid).copied()),
        };
        let Some(to) = to else {
            return self.unserved_vlan(i, tag.vid);
        };
        let Some(lane) = self.lanes.get_mut(to) else {
            return;
        };
        lane.priorities.set(tag.priority);
        let fate = transmit::frame(
            lane,
            &mut *self.fabric,
            &mut self.train,
            now,
            frame,
            &mut self.translated,
        );
        lane.priorities.set(0);
        if fate == Fate::Tagged {
            // A tag behind one without a VLAN id.
            return self.count_tagged(to, |stats| stats.tx_bad_frame += 1);
        }
        receive::reflect(lane, frame);
        let news = lane.core.has_updates() || lane.core.has_events();
        let fate = match fate {
            Fate::Sibling(handover) => self.hand_over(to, now, &handover, Frame::Untagged(frame)),
            fate => fate,
        };
        if fate != Fate::Sent {
            self.after_unsent(to, now);
        } else if news {
            self.service(to, now);
        }
    }

    fn unserved_vlan(&mut self, i: usize, vid: u16) {
        self.count_tagged(i, |stats| stats.tx_vlan_unserved += 1);
        if let (Some(lane), Some(trunk)) = (self.lanes.get(i), self.trunks.get_mut(&i))
            && vid <= VID_MAX
            && trunk.told.insert(vid)
        {
            let report = Report::Vlan(lane.id, vid);
            self.report(report);
        }
    }

    fn count_tagged(&mut self, i: usize, why: impl FnOnce(&mut super::super::stats::LaneStats)) {
        if let Some(lane) = self.lanes.get_mut(i) {
            why(&mut lane.stats);
            lane.stats.tx_dropped += 1;
        }
    }
}
