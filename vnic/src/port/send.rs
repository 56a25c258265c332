//! Transmit path: from the TAP to the fabric.

use proto::{Mac, Time};

use super::frame::{Frame, is_local, is_tagged};
use super::types::{Class, Forward, Sizes, Target, Unsent};
use super::{VeswPort, count};
use crate::Lid;

impl VeswPort {
    /// Decides about a frame from the TAP, from the destination address on, including tags. The frame may
    /// be a large send.
    #[inline]
    pub fn from_tap(&mut self, now: Time, frame: &[u8]) -> Forward {
        match self.decide(now, frame) {
            Ok(forward) => forward,
            Err(why) => {
                self.count_unsent(why, Sizes::one(frame.len()));
                Forward::Dropped
            }
        }
    }

    #[inline]
    fn decide(&mut self, now: Time, bytes: &[u8]) -> Result<Forward, Unsent> {
        let frame = Frame::parse(bytes).ok_or(Unsent::BadFrame)?;
        self.hear_near(now, frame.source);
        if !self.is_forwarding() {
            return Err(Unsent::State);
        }
        let entropy = self.flow_hash.entropy(&frame.flow);
        let dlid = self.dlid(now, &frame, entropy)?;
        let class = Class {
            group: frame.is_group(),
            tagged: is_tagged(bytes),
            sibling: self.is_sibling(dlid),
        };
        if class.sibling {
            return Ok(Forward::Sibling { lid: dlid, class });
        }
        let to = self.target(now, dlid).ok_or(Unsent::Refused)?;
        let prefix = self.switch.prefix(&frame, dlid, entropy);
        Ok(Forward::Fabric { prefix, to, class })
    }

    /// Destination LID (kernel opa_vnic_encap.c, `opa_vnic_get_dlid`), with learned addresses. Without
    /// learning, the steps are the driver's: it assumes that every locally administered address contains a
    /// LID.
    #[inline]
    fn dlid(&mut self, now: Time, frame: &Frame, entropy: u8) -> Result<Lid, Unsent> {
        let mac = frame.destination;
        // A host behind this port has moved if a member sends from its address. The manager does not know it yet.
        let has_moved = |lid: Lid| lid == self.switch.slid() && self.far.lookup(mac).is_some();
        let listed = self.table.lookup(mac).filter(|lid| !has_moved(*lid));
        let lid = if let Some(lid) = listed {
            lid
        } else if frame.is_group() {
            self.switch.multicast
        } else if let Some(lid) = self.far.lookup(mac)
            && !self.mac_damping.is_silent(now, mac)
        {
            lid
        } else {
            self.unknown(mac, entropy)
        };
        let can_be = lid.is_unicast() || lid.is_multicast();
        // A frame does not go back to its source.
        if !can_be || lid == self.switch.slid() {
            return Err(Unsent::NoDestination);
        }
        Ok(lid)
    }

    /// LID for an address that is neither in the table nor learned.
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

    /// Whether a sibling has a LID. Callers exclude the port's own LID before.
    #[inline]
    pub(super) fn is_sibling(&self, lid: Lid) -> bool {
        !self.siblings.is_empty() && self.siblings.binary_search(&lid).is_ok()
    }

    /// Target of packets to a LID. While its address is unknown or doubtful, they go to the group of all members; the
    /// others drop them. Without this, two members that have wrong addresses of each other would stay silent.
    #[inline]
    fn target(&self, now: Time, dlid: Lid) -> Option<Target> {
        let found = if dlid.is_multicast() {
            self.groups.find(dlid).map(Target::Group)
        } else if self.node_damping.is_silent(now, dlid) {
            None
        } else {
            self.nodes.reachable(dlid).map(Target::Node)
        };
        found.or_else(|| self.groups.find(self.switch.multicast).map(Target::Group))
    }

    /// Counts a sent frame of [`VeswPort::from_tap`], as its segments.
    #[inline]
    pub fn count_sent(&mut self, class: Class, sizes: Sizes) {
        count::sent(&mut self.counters, class, sizes);
    }

    /// Counts a frame of [`VeswPort::from_tap`] that was not sent.
    pub fn count_unsent(&mut self, why: Unsent, sizes: Sizes) {
        count::unsent(&mut self.counters, why, sizes);
    }
}
