//! Receive path: from the fabric to the TAP.

use proto::{Mac, Time};

use super::frame::{is_group, is_tagged};
use super::learning::second;
use super::types::{Meta, Sizes};
use super::{Last, VeswPort, count};
use crate::Lid;
use crate::packet::{self, Arrival, Decoded, Profile, Receiver, Refusal, Strictness};

impl VeswPort {
    /// Receives a datagram. Returns the frame in it, for the TAP.
    ///
    /// # Errors
    /// Reason why the packet was dropped; already counted.
    #[inline]
    pub fn from_fabric<'p>(
        &mut self,
        now: Time,
        meta: &Meta,
        packet: &'p [u8],
    ) -> Result<&'p [u8], Refusal> {
        let decoded = match packet::decode(packet, Profile::Wire0, Strictness::Strict) {
            Ok(decoded) => decoded,
            Err(why) => return self.refuse(why, None),
        };
        let frame = decoded.frame;
        let settled = match self.take(now, meta, &decoded) {
            Ok(settled) => settled,
            Err(why) => return self.refuse(why, Some(frame.len())),
        };
        let Some((destination, source)) = addresses(frame) else {
            return self.refuse(Refusal::Runt, Some(frame.len()));
        };
        self.learn(now, meta, decoded.header.slid, source, settled);
        let (group, tagged) = (is_group(destination), is_tagged(frame));
        count::delivered(&mut self.counters, group, tagged, Sizes::one(frame.len()));
        Ok(frame)
    }

    #[cold]
    fn refuse<T>(&mut self, why: Refusal, frame_len: Option<usize>) -> Result<T, Refusal> {
        count::refused(&mut self.counters, why, frame_len);
        Err(why)
    }

    /// Checks a packet and learns its source LID. Returns whether the LID needs no further lookup in this second.
    #[inline]
    fn take(&mut self, now: Time, meta: &Meta, decoded: &Decoded<'_>) -> Result<bool, Refusal> {
        let (slid, source) = (decoded.header.slid, meta.source());
        if slid == self.switch.slid()
            && source != self.settings.local
            && self.former_local.get(now) != Some(source)
        {
            self.hear_duplicate(now, source);
            return Err(Refusal::ForgedLid);
        }
        let common = self.switch.header();
        let receiver = Receiver {
            lid: common.slid,
            groups: self.groups.lids(),
            pkey: common.pkey,
            vesw_id: common.vesw_id,
            forwarding: self.is_forwarding(),
            eth_mtu: self.mtu(),
        };
        let arrival = match meta.multicast {
            true => Arrival::Group,
            false => Arrival::Addressed,
        };
        packet::admit(decoded, &receiver, arrival)?;
        let is_same =
            |last: Last| last.slid == slid && last.meta == *meta && last.at == second(now);
        if self.last.is_some_and(is_same) {
            return Ok(true);
        }
        self.hear_node(now, slid, meta)
    }

    /// Learns the source of a frame, unless it equals the source of the frame before.
    #[inline]
    fn learn(&mut self, now: Time, meta: &Meta, slid: Lid, source: Mac, settled: bool) {
        let this = Last {
            meta: *meta,
            slid,
            source,
            at: second(now),
        };
        if self.last != Some(this) {
            self.last = None;
            if self.hear_far(now, source, slid) && settled {
                self.last = Some(this);
            }
        }
    }

    /// Receives a frame of a sibling on the same switch, without segmentation; `sizes` are those of the
    /// segments. Returns false if the frame was dropped and counted.
    #[inline]
    pub fn from_sibling(&mut self, now: Time, slid: Lid, frame: &[u8], sizes: Sizes) -> bool {
        let Some((destination, source)) = addresses(frame) else {
            count::refused(&mut self.counters, Refusal::Runt, Some(frame.len()));
            return false;
        };
        let longest = sizes.full.max(sizes.last);
        let why = if !self.is_forwarding() {
            Some(Refusal::DropState)
        } else if longest > self.frame_max() {
            Some(Refusal::Oversize)
        } else {
            None
        };
        if let Some(why) = why {
            for _ in 0..sizes.count {
                count::refused(&mut self.counters, why, Some(longest));
            }
            return false;
        }
        let meta = Meta {
            src_gid: self.settings.local.gid,
            src_qpn: self.settings.local.qpn,
            multicast: false,
        };
        self.learn(now, &meta, slid, source, true);
        let (group, tagged) = (is_group(destination), is_tagged(frame));
        count::delivered(&mut self.counters, group, tagged, sizes);
        true
    }

    /// Counts frames that the TAP did not accept.
    pub fn count_not_taken(&mut self, frames: u64) {
        count::not_taken(&mut self.counters, frames);
    }
}

/// Destination and source address of a frame.
#[inline]
fn addresses(frame: &[u8]) -> Option<(Mac, Mac)> {
    let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5] = *frame.first_chunk::<12>()?;
    Some(([d0, d1, d2, d3, d4, d5], [s0, s1, s2, s3, s4, s5]))
}
