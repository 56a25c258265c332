//! From the TAP to the fabric.

use proto::{Mac, Time};

use super::frame::{Frame, is_local, is_tagged};
use super::types::{Class, Forward, Sizes, Target, Unsent};
use super::{VeswPort, count};
use crate::Lid;

impl VeswPort {
    /// Decides on a frame that the host sent: from the destination address on, tags included, as the TAP
    /// gives it, which may be a large send.
    #[inline]
    pub fn from_tap(&mut self, now: Time, frame: &[u8]) -> Forward {
        match self.way(now, frame) {
            Ok(forward) => forward,
            Err(why) => {
                self.count_unsent(why, Sizes::one(frame.len()));
                Forward::Dropped
            }
        }
    }

    #[inline]
    fn way(&mut self, now: Time, bytes: &[u8]) -> Result<Forward, Unsent> {
        let frame = Frame::parse(bytes).ok_or(Unsent::BadFrame)?;
        self.hear_near(now, frame.source);
        if !self.is_forwarding() {
            return Err(Unsent::State);
        }
        let entropy = self.flow_hash.entropy(&frame.flow);
        let dlid = self.dlid(&frame, entropy)?;
        let class = Class {
            group: frame.is_group(),
            tagged: is_tagged(bytes),
            sibling: self.is_sibling(dlid),
        };
        if class.sibling {
            return Ok(Forward::Sibling { lid: dlid, class });
        }
        let to = self.target(dlid).ok_or(Unsent::Refused)?;
        let prefix = self.switch.prefix(&frame, dlid, entropy);
        Ok(Forward::Fabric { prefix, to, class })
    }

    /// The destination LID (kernel opa_vnic_encap.c, `opa_vnic_get_dlid`), with learning between its
    /// steps. Without learning the steps are the driver's, which takes any locally administered address
    /// for one that a LID was made into.
    #[inline]
    fn dlid(&mut self, frame: &Frame, entropy: u8) -> Result<Lid, Unsent> {
        let mac = frame.destination;
        let lid = if let Some(lid) = self.table.lookup(mac) {
            lid
        } else if frame.is_group() {
            self.switch.multicast
        } else if let Some(lid) = self.far.lookup(mac) {
            lid
        } else {
            self.unknown(mac, entropy)
        };
        let can_be = lid.is_unicast() || lid.is_multicast();
        // Nothing is sent back to where it came from.
        if !can_be || lid == self.switch.slid() {
            return Err(Unsent::NoDestination);
        }
        Ok(lid)
    }

    /// The LID for an address that nobody has said anything about.
    fn unknown(&mut self, mac: Mac, entropy: u8) -> Lid {
        let [_, _, _, low, middle, high] = mac;
        let lid = match is_local(mac) {
            true => Lid::new(u32::from_le_bytes([low, middle, high, 0])),
            false => self.switch.default_ports.lid(entropy),
        };
        if !self.settings.learning {
            return lid;
        }
        let is_there = match is_local(mac) {
            true => self.nodes.knows(lid) || self.is_sibling(lid),
            false => lid != Lid::NONE,
        };
        if is_there && lid != self.switch.slid() {
            return lid;
        }
        self.counters.tx_flooded += u64::from(self.switch.multicast != Lid::NONE);
        self.switch.multicast
    }

    /// Whether a port of this daemon has a LID. The own one is no destination before this is asked.
    #[inline]
    pub(super) fn is_sibling(&self, lid: Lid) -> bool {
        !self.siblings.is_empty() && self.siblings.binary_search(&lid).is_ok()
    }

    /// Where packets to a LID go: to the group of all while it is not known where it is. All others drop
    /// them there.
    #[inline]
    fn target(&self, dlid: Lid) -> Option<Target> {
        let found = if dlid.is_multicast() {
            self.groups.find(dlid).map(Target::Group)
        } else {
            self.nodes.reachable(dlid).map(Target::Node)
        };
        found.or_else(|| self.groups.find(self.switch.multicast).map(Target::Group))
    }

    /// Counts a frame of [`VeswPort::from_tap`] that was sent, as the frames that it became.
    #[inline]
    pub fn count_sent(&mut self, class: Class, sizes: Sizes) {
        count::sent(&mut self.counters, class, sizes);
    }

    /// Counts a frame of [`VeswPort::from_tap`] that was not sent after all.
    pub fn count_unsent(&mut self, why: Unsent, sizes: Sizes) {
        count::unsent(&mut self.counters, why, sizes);
    }
}
