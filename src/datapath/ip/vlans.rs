//! 802.1Q tags that select partitions. Each VLAN has its own lane, which shares the interface's TAP.

use std::collections::{BTreeMap, BTreeSet};

use ipoib::Time;
use netdev::vlan::{self, Tag, VID_MAX};

use super::super::command::{Report, VlanLane};
use super::super::lane::LinkId;
use super::super::stats::IpStats;
use super::super::thread::{DataThread, Io};
use super::receive;
use super::serve::Frame;
use super::transmit::{self, Fate};

/// The VLANs on a lane's TAP.
#[derive(Debug, Default)]
pub(super) struct Trunk {
    /// The lanes by VLAN id.
    lanes: BTreeMap<u16, usize>,
    /// Reported VLAN ids.
    reported: BTreeSet<u16>,
}

impl DataThread {
    pub(in crate::datapath) fn set_vlans(&mut self, id: LinkId, on: bool) {
        let Some((i, lane)) = self.lane(id) else {
            return;
        };
        lane.core.set_vlans(on);
        if on {
            self.ip.trunks.entry(i).or_default().reported.clear();
        } else {
            self.ip.trunks.remove(&i);
        }
    }

    /// Adds the lane of a VLAN. Does nothing without the lane that owns the TAP.
    pub(in crate::datapath) fn add_vlan(&mut self, vlan: VlanLane) {
        let VlanLane { trunk, vid, parts } = vlan;
        let Some((of, lane)) = self.lane(trunk) else {
            return;
        };
        let tap = lane.base.tap.share_tagged(Tag { vid, priority: 0 });
        let mut lane = parts.with_queue(tap, false);
        lane.vlan = Some(vid);
        if let Some(i) = self.add(lane) {
            self.ip.trunks.entry(of).or_default().lanes.insert(vid, i);
        }
    }

    /// Removes a lane from the VLANs of other lanes, and its own VLANs.
    pub(in crate::datapath) fn forget_vlans(&mut self, i: usize) {
        self.ip.trunks.remove(&i);
        for trunk in self.ip.trunks.values_mut() {
            trunk.lanes.retain(|_, lane| *lane != i);
        }
    }

    /// Handles a tagged frame of `len` bytes in the buffer, read from the TAP of lane `i`.
    #[cold]
    pub(in crate::datapath) fn tagged(&mut self, i: usize, now: Time, len: usize) {
        let mut buffer = std::mem::take(&mut self.scratch.buffer);
        match buffer.get_mut(..len).and_then(vlan::take) {
            Some((tag, frame)) => self.untagged(i, now, tag, frame),
            None => self.count_tagged(i, |stats| stats.tx_bad_frame += 1),
        }
        self.scratch.buffer = buffer;
    }

    /// Sends a frame by the lane of its tag. A tag with VLAN id 0 has only a priority: the lane of the TAP
    /// sends the frame.
    fn untagged(&mut self, i: usize, now: Time, tag: Tag, frame: &[u8]) {
        let to = match tag.vid {
            0 => Some(i),
            vid => self
                .ip
                .trunks
                .get(&i)
                .and_then(|t| t.lanes.get(&vid).copied()),
        };
        let Some(to) = to else {
            return self.unserved_vlan(i, tag.vid);
        };
        let Some(lane) = self.ip.lanes.get_mut(to) else {
            return;
        };
        lane.base.priorities.set(tag.priority);
        let Io { fabric, train, .. } = &mut self.io;
        let translated = &mut self.scratch.translated;
        let fate = transmit::frame(lane, &mut **fabric, train, now, frame, translated);
        lane.base.priorities.set(0);
        if fate == Fate::Tagged {
            // A second tag behind a tag with VLAN id 0.
            return self.count_tagged(to, |stats| stats.tx_bad_frame += 1);
        }
        receive::reflect(lane, frame);
        let news = lane.has_news();
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
        if let (Some(lane), Some(trunk)) = (self.ip.lanes.get(i), self.ip.trunks.get_mut(&i))
            && vid <= VID_MAX
            && trunk.reported.insert(vid)
        {
            self.control.report(Report::Vlan(lane.base.id, vid));
        }
    }

    fn count_tagged(&mut self, i: usize, why: impl FnOnce(&mut IpStats)) {
        if let Some(lane) = self.ip.lanes.get_mut(i) {
            why(&mut lane.stats);
            lane.stats.tx_dropped += 1;
        }
    }
}

#[cfg(test)]
mod tests;
