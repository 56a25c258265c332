//! Learning of addresses and members, from frames and from other replicas.

use proto::damping::Verdict;
use proto::{Mac, Time};

use super::frame::is_group;
use super::macs::{Heard, Second};
use super::nodes::Origin;
use super::types::{Event, Meta, Place, Update};
use super::{NEAR_AGEING, NEAR_KEPT, NEAR_MAX, VeswPort};
use crate::Lid;
use crate::directory::NodeAddress;
use crate::packet::Refusal;

/// Maximum number of pending updates, without those about places that are kept.
const UPDATES_MAX: usize = 4096;
/// Maximum number of updates per millisecond, after a burst of [`UPDATES_MAX`]. Bounds the cost of an
/// address storm for the other replicas. They get a lost update when the address is seen again.
const UPDATES_PER_MS: u64 = 16;

/// Time in seconds.
pub const fn second(now: Time) -> Second {
    (now.0 / 1000) as Second
}

/// Pending updates for the other replicas, with a rate limit.
pub struct Updates {
    pub list: Vec<Update>,
    room: u64,
    since: Time,
}

impl Default for Updates {
    fn default() -> Updates {
        Updates {
            list: Vec::new(),
            room: UPDATES_MAX as u64,
            since: Time(0),
        }
    }
}

impl Updates {
    /// Adds an update; false if there is no room.
    fn push(&mut self, now: Time, update: Update) -> bool {
        let more = now.since(self.since).saturating_mul(UPDATES_PER_MS);
        self.room = self.room.saturating_add(more).min(UPDATES_MAX as u64);
        self.since = now.max(self.since);
        if self.room == 0 || self.list.len() >= UPDATES_MAX {
            return false;
        }
        self.room -= 1;
        self.list.push(update);
        true
    }

    /// Adds an update about a place that is kept; false if there is no room. A flood must not suppress the update:
    /// replicas that keep different places cannot repair each other for a while, and a replica that does not know
    /// that the owner sends follows another sender. [`Damping`](proto::damping::Damping) limits the number.
    fn push_kept(&mut self, update: Update) -> bool {
        let has_room = self.list.len() < 2 * UPDATES_MAX;
        if has_room {
            self.list.push(update);
        }
        has_room
    }

    /// Adds an update about a place, kept or not.
    fn push_of(&mut self, now: Time, update: Update, is_kept: bool) -> bool {
        match is_kept {
            true => self.push_kept(update),
            false => self.push(now, update),
        }
    }
}

impl VeswPort {
    /// Checks and learns the source LID of a packet. Returns whether it needs no further lookup in this second.
    #[inline]
    pub(super) fn hear_node(&mut self, now: Time, slid: Lid, meta: &Meta) -> Result<bool, Refusal> {
        let (source, is_sibling) = (meta.source(), self.is_sibling(slid));
        let is_source = |former: NodeAddress| former.gid == source.gid;
        let origin = match is_sibling {
            // The list need not contain siblings.
            true if source.gid == self.settings.local.gid => Origin::Known,
            // The packet is accepted, but the next one is checked again: the former GID is valid for 50 ms only.
            true if self.former_local.get(now).is_some_and(is_source) => return Ok(false),
            true => Origin::Forged,
            false => self.check_node(now, slid, source),
        };
        match origin {
            Origin::Known => {}
            Origin::Again(last) => self.republish_node(now, slid, source, last),
            Origin::New => self.learn_node(now, slid, source),
            Origin::Moved(from) => return Ok(self.node_moves(now, slid, from, source)),
            Origin::Forged => {
                // After a change of the GID, multicast of a sibling can loop back before this port knows the new
                // GID. If another host sent the packet, the sibling receives it, too, and reports a duplicate of
                // its LID.
                let reported_by_sibling = is_sibling && meta.multicast;
                if !self.forged_reported && !reported_by_sibling {
                    self.forged_reported = true;
                    let (lid, from) = (slid, source);
                    self.events.push(Event::ForgedLid { lid, from });
                }
                return Err(Refusal::ForgedLid);
            }
        }
        Ok(true)
    }

    /// Checks the address of a LID. A held LID is at its held address, even if a flood has evicted it.
    #[inline]
    fn check_node(&mut self, now: Time, lid: Lid, source: NodeAddress) -> Origin {
        match self.nodes.check(second(now), lid, source) {
            Origin::New => match self.node_damping.held_at(now, lid) {
                Some(held) if held != source => Origin::Moved(held),
                _ => Origin::New,
            },
            known => known,
        }
    }

    /// Reports another host that sends with this port's LID.
    #[cold]
    pub(super) fn hear_duplicate(&mut self, now: Time, other: NodeAddress) {
        if !self.duplicate_reported {
            self.duplicate_reported = true;
            let lid = self.switch.slid();
            self.events.push(Event::DuplicateLid { lid, other });
            self.updates.push(now, Update::DuplicateReported);
        }
    }

    fn learn_node(&mut self, now: Time, lid: Lid, address: NodeAddress) {
        self.nodes.learn(second(now), lid, address);
        let is_held = self.node_damping.confirm(now, lid);
        self.publish_node(now, lid, address, is_held);
    }

    fn publish_node(&mut self, now: Time, lid: Lid, address: NodeAddress, is_held: bool) {
        let update = Update::Node { lid, address };
        if self.updates.push_of(now, update, is_held) {
            self.nodes.set_published(second(now), lid);
        }
    }

    #[cold]
    fn republish_node(&mut self, now: Time, lid: Lid, address: NodeAddress, last: Option<Second>) {
        let is_held = self.node_damping.confirm(now, lid);
        if is_held || is_repeat_due(now, last, self.ageing_seconds()) {
            self.publish_node(now, lid, address, is_held);
        }
    }

    /// Handles a move of a LID. Returns whether the port follows it.
    #[cold]
    fn node_moves(&mut self, now: Time, lid: Lid, from: NodeAddress, to: NodeAddress) -> bool {
        match self.node_damping.change(now, lid, from, to) {
            Verdict::Follow => {
                self.learn_node(now, lid, to);
                true
            }
            Verdict::Keep => false,
            Verdict::Hold {
                place,
                first,
                again,
            } => {
                self.nodes.learn(second(now), lid, place);
                self.updates.push_kept(Update::NodeKept {
                    lid,
                    address: place,
                    again,
                });
                if first {
                    let (kept, other) = (place, if place == to { from } else { to });
                    self.events.push(Event::LidConflict { lid, kept, other });
                }
                place == to
            }
        }
    }

    /// Handles the source address of a frame from the fabric. Returns true if the address needs no further
    /// lookup in this second.
    #[inline]
    pub(super) fn hear_far(&mut self, now: Time, mac: Mac, lid: Lid) -> bool {
        if is_group(mac) || mac == [0; 6] || mac == self.settings.mac {
            return self.no_source(mac, lid);
        }
        if !self.settings.learning {
            return self.hear_far_without_learning(now, mac, lid);
        }
        match self.far.hear(second(now), mac, lid) {
            Heard::Known => true,
            Heard::Again(last) => {
                self.republish_mac(now, mac, Place::At(lid), last);
                true
            }
            Heard::Elsewhere(from) => self.mac_moves(now, mac, Place::At(from), Place::At(lid)),
            Heard::Unknown => {
                let (near, place) = (self.near.lookup(mac), Place::At(lid));
                if let Some(from) = self.elsewhere(now, mac, near.map(|_| Place::Here), place) {
                    return self.mac_moves(now, mac, from, place);
                }
                let is_held = self.mac_damping.confirm(now, mac);
                self.put(now, mac, place, true);
                self.counters.mac_learned += 1;
                self.publish_mac(now, mac, place, is_held);
                true
            }
        }
    }

    /// The place of an address, if it is another one than `place`; `known` is the place in the tables. A held address
    /// is at its held place, even if a flood has evicted it.
    #[inline]
    fn elsewhere(&self, now: Time, mac: Mac, known: Option<Place>, place: Place) -> Option<Place> {
        let from = known.or_else(|| self.mac_damping.held_at(now, mac));
        from.filter(|from| *from != place)
    }

    /// Handles a source address that must not be learned. Reports the interface's own address.
    #[cold]
    fn no_source(&mut self, mac: Mac, lid: Lid) -> bool {
        if mac == self.settings.mac {
            let (kept, other) = (Place::Here, Place::At(lid));
            if self.conflict_reported != Some(mac) {
                self.conflict_reported = Some(mac);
                self.events.push(Event::MacConflict { mac, kept, other });
                self.updates.push_kept(Update::MacKept {
                    mac,
                    place: kept,
                    again: false,
                });
            }
        }
        true
    }

    /// An address seen at a member is no longer behind the interface, even if its LID is not learned.
    fn hear_far_without_learning(&mut self, now: Time, mac: Mac, lid: Lid) -> bool {
        match self.near.lookup(mac) {
            Some(_) => self.mac_moves(now, mac, Place::Here, Place::At(lid)),
            None => true,
        }
    }

    /// Handles the source address of a frame from the TAP.
    #[inline]
    pub(super) fn hear_near(&mut self, now: Time, mac: Mac) {
        if mac == self.settings.mac || self.last_near == (mac, second(now)) {
            return;
        }
        if is_group(mac) || mac == [0; 6] {
            return;
        }
        let followed = match self.near.hear(second(now), mac, Lid::NONE) {
            Heard::Known | Heard::Elsewhere(_) => true,
            Heard::Again(last) => {
                self.republish_mac(now, mac, Place::Here, last);
                true
            }
            Heard::Unknown => {
                let far = self.far.lookup(mac).map(Place::At);
                match self.elsewhere(now, mac, far, Place::Here) {
                    Some(from) => self.mac_moves(now, mac, from, Place::Here),
                    None => {
                        let is_held = self.mac_damping.confirm(now, mac);
                        match self.put(now, mac, Place::Here, true) {
                            true => self.publish_mac(now, mac, Place::Here, is_held),
                            false => self.refuse_near(now),
                        }
                        true
                    }
                }
            }
        };
        if followed {
            self.last_near = (mac, second(now));
        }
    }

    /// Handles a move of an address. Returns whether the port follows it.
    #[cold]
    fn mac_moves(&mut self, now: Time, mac: Mac, from: Place, to: Place) -> bool {
        match self.mac_damping.change(now, mac, from, to) {
            Verdict::Follow => {
                if !self.put(now, mac, to, true) {
                    self.refuse_near(now);
                }
                self.counters.mac_moved += 1;
                self.publish_mac(now, mac, to, false);
                true
            }
            Verdict::Keep => {
                self.counters.mac_damped += 1;
                false
            }
            Verdict::Hold {
                place,
                first,
                again,
            } => {
                self.counters.mac_damped += 1;
                self.put(now, mac, place, true);
                self.updates
                    .push_kept(Update::MacKept { mac, place, again });
                if first {
                    let (kept, other) = (place, if place == to { from } else { to });
                    self.events.push(Event::MacConflict { mac, kept, other });
                }
                place == to
            }
        }
    }

    /// Sets the location of an address: behind the interface or behind a member, never both. Returns false
    /// if it is behind the interface and there is no room.
    fn put(&mut self, now: Time, mac: Mac, place: Place, ours: bool) -> bool {
        self.forget_last();
        match place {
            Place::At(lid) => {
                self.near_changed |= self.near.remove(mac);
                if self.settings.learning {
                    let gone = self.far.set(second(now), mac, lid, ours);
                    self.counters.mac_evicted += gone.ours as u64;
                }
            }
            Place::Here => {
                self.far.remove(mac);
                if self.near.lookup(mac).is_none() {
                    if !self.has_near_room(second(now)) {
                        return false;
                    }
                    self.near_changed = true;
                }
                self.near.set(second(now), mac, Lid::NONE, ours);
            }
        }
        true
    }

    /// Whether there is room for another address behind the interface. Active addresses stay: if more were
    /// active than fit, they would evict each other for ever, and each eviction would be reported to the
    /// manager.
    fn has_near_room(&self, now: Second) -> bool {
        let kept_until = |heard: Second| heard.saturating_add(NEAR_KEPT);
        let oldest = self.near.oldest();
        !self.near.is_full() || oldest.is_some_and(|heard| kept_until(heard) < now)
    }

    #[cold]
    fn refuse_near(&mut self, now: Time) {
        self.counters.mac_refused += 1;
        if !std::mem::replace(&mut self.crowded_reported, true) {
            self.events.push(Event::Crowded(NEAR_MAX));
            self.updates.push(now, Update::CrowdedReported);
        }
    }

    fn publish_mac(&mut self, now: Time, mac: Mac, place: Place, is_held: bool) {
        let update = Update::Mac { mac, place };
        if self.updates.push_of(now, update, is_held) {
            self.table_of(place).set_published(second(now), mac);
        }
    }

    #[cold]
    fn republish_mac(&mut self, now: Time, mac: Mac, place: Place, last: Option<Second>) {
        let ageing = match place {
            Place::Here => NEAR_AGEING,
            Place::At(_) => self.ageing_seconds(),
        };
        let is_held = self.mac_damping.confirm(now, mac);
        if is_held || is_repeat_due(now, last, ageing) {
            self.publish_mac(now, mac, place, is_held);
        }
    }

    /// Applies an update of another replica. Publishes no update.
    pub fn apply(&mut self, now: Time, update: &Update) {
        match *update {
            Update::Mac { mac, place } => {
                let known = match self.near.lookup(mac) {
                    Some(_) => Some(Place::Here),
                    None => self.far.lookup(mac).map(Place::At),
                };
                let follows = match self.elsewhere(now, mac, known, place) {
                    Some(from) => self.mac_damping.note(now, mac, from, place),
                    None => {
                        self.mac_damping.confirm(now, mac);
                        true
                    }
                };
                if !follows {
                    return;
                }
                if mac != self.settings.mac {
                    self.put(now, mac, place, false);
                }
                // The other replicas have this update.
                self.table_of(place).set_published(second(now), mac);
            }
            Update::MacKept { mac, .. } if mac == self.settings.mac => {
                self.conflict_reported = Some(mac)
            }
            Update::MacKept { mac, place, again } => {
                if self.mac_damping.hold(now, mac, Some(place), again) {
                    self.put(now, mac, place, false);
                }
            }
            Update::Node { lid, address } => self.apply_node(now, lid, address),
            Update::NodeKept {
                lid,
                address,
                again,
            } => {
                let listed_elsewhere =
                    self.nodes.check(second(now), lid, address) == Origin::Forged;
                if !listed_elsewhere && self.node_damping.hold(now, lid, Some(address), again) {
                    self.nodes.learn(second(now), lid, address);
                    self.forget_last();
                }
            }
            Update::DuplicateReported => self.duplicate_reported = true,
            Update::CrowdedReported => self.crowded_reported = true,
        }
    }

    fn apply_node(&mut self, now: Time, lid: Lid, address: NodeAddress) {
        match self.check_node(now, lid, address) {
            Origin::Known | Origin::Again(_) => {
                self.node_damping.confirm(now, lid);
            }
            // The list of the other replica was different.
            Origin::Forged => return,
            Origin::New => {
                self.node_damping.confirm(now, lid);
                self.nodes.learn(second(now), lid, address);
            }
            Origin::Moved(from) => {
                if !self.node_damping.note(now, lid, from, address) {
                    return;
                }
                self.nodes.learn(second(now), lid, address);
            }
        }
        self.nodes.set_published(second(now), lid);
        self.forget_last();
    }
}

/// Whether an update must be repeated, so that other replicas do not expire an entry with this ageing time
/// (in seconds). With 0 (no ageing), updates keep active entries from being evicted first.
fn is_repeat_due(now: Time, last: Option<Second>, ageing: Second) -> bool {
    let every = match ageing {
        0 => NEAR_AGEING / 4,
        ageing => (ageing / 4).max(1),
    };
    last.is_none_or(|last| second(now).saturating_sub(last) >= every)
}
