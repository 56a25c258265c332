//! Virtual port: the core that forwards frames between an interface and a virtual Ethernet switch.
//!
//! The decisions are those of the kernel's driver (drivers/infiniband/ulp/opa_vnic/opa_vnic_encap.c), with
//! learning beside the manager's tables.
//!
//! * A destination comes from the manager's table; for groups, then from the switch; then from learned
//!   addresses. After these, a locally administered address leads to the member whose LID it contains, any
//!   other address to a default port. With learning, frames without such a member or port go to all members.
//!   The kernel's driver uses the LID in the address even if no member has it, and so loses frames for a
//!   guest with a random MAC.
//! * The address of a member on the fabric comes from the manager's directory or the configuration;
//!   otherwise the port learns it from received packets. Unicast to a LID without an address goes to the
//!   group of the switch, with that LID in the header. The owner of the LID accepts the packet, and its
//!   answer is learned.
//! * Each data thread has a replica of the core, a [`VeswPort`]. A replica sends what it learns to the
//!   others as [`Update`]s, so no frame takes a lock. It repeats the update of an active entry after a
//!   quarter of the ageing time. Replicas share the manager's tables, which are replaced whole: a lookup
//!   sees the old table or the new one.

mod count;
mod flow;
mod frame;
mod groups;
mod learning;
mod macs;
mod nodes;
mod receive;
mod send;
mod switch;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod types;

use std::sync::Arc;

use proto::damping::{Damping, WhenFull};
use proto::{AddressHandle, EventQueue, Former, Gid, LATE_MS, Mac, Qpn, Time};

use crate::Lid;
use crate::attribute::VeswPortInfo;
use crate::counters::Counters;
use crate::directory::{Directory, NodeAddress};
use crate::mac_table::MacTable;
use flow::FlowHash;
use groups::Groups;
use learning::{Updates, second};
use macs::{Macs, Second};
use nodes::Nodes;
use switch::Switch;
pub use types::{
    Class, Event, Forward, MacInfo, Meta, NodeInfo, Place, Settings, Sizes, Target, Unsent, Update,
};

/// Maximum number of addresses whose moves are counted; more than the guests of a host that all move at
/// once. Further addresses are not followed until one of these has not moved for a while.
const DAMPED_MAX: usize = 4096;
/// Maximum number of pending events; further events are lost.
const EVENTS_MAX: usize = 64;
/// Maximum number of addresses behind the interface, without its own, that are kept and reported. A manager
/// has room for as many (kernel opa_vnic_internal.h, `OPA_VNIC_MAX_SMAC_LIMIT`).
const NEAR_MAX: usize = 256;
/// Seconds without a frame after which an address behind the interface expires.
const NEAR_AGEING: Second = 300;
/// Seconds without a frame after which a new address may replace it. Replicas repeat updates more often, so
/// every active address stays.
const NEAR_KEPT: Second = NEAR_AGEING / 2;
/// Minimum interval between reports of the addresses behind the interface, in milliseconds.
const NEAR_REPORT_MS: u64 = 1000;
/// Maximum number of entries that expire in one call, to bound its time.
const EXPIRED_AT_ONCE: usize = 2048;
/// Bytes of an Ethernet header and one VLAN tag.
const FRAME_HEADER_MAX: usize = 18;

/// Source of the last received frame; often equal for the next frame.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Last {
    meta: Meta,
    slid: Lid,
    source: Mac,
    at: Second,
}

/// A replica of a virtual port.
pub struct VeswPort {
    settings: Settings,
    /// The own address before its last change. Multicast of this port and of its siblings loops back.
    former_local: Former<NodeAddress>,
    switch: Switch,
    /// Interface and fabric are up.
    up: bool,
    /// MTU of the interface in bytes; the switch's MTU applies if it is smaller.
    mtu: u16,
    flow_hash: FlowHash,
    table: Arc<MacTable>,
    /// Addresses behind other members, with their LIDs.
    far: Macs,
    /// Addresses behind the interface, without its own.
    near: Macs,
    near_changed: bool,
    near_reported: Time,
    /// [`Event::Crowded`] was reported.
    crowded_reported: bool,
    mac_damping: Damping<Mac, Place>,
    nodes: Nodes,
    node_damping: Damping<Lid, NodeAddress>,
    groups: Groups,
    /// In ascending order. May contain the port's own LID, by mistake or until the port's LID changes.
    siblings: Vec<Lid>,
    last: Option<Last>,
    last_near: (Mac, Second),
    expired: Second,
    forged_reported: bool,
    duplicate_reported: bool,
    /// The interface address for which [`Event::MacConflict`] was reported.
    conflict_reported: Option<Mac>,
    updates: Updates,
    events: EventQueue<Event, EVENTS_MAX>,
    counters: Counters,
}

impl VeswPort {
    /// Creates a port that forwards nothing until it is configured. Its tables allocate memory as they
    /// grow.
    #[must_use]
    pub fn new(settings: Settings) -> VeswPort {
        VeswPort {
            former_local: Former::NONE,
            switch: Switch::new(&VeswPortInfo::default()),
            up: false,
            mtu: u16::MAX,
            flow_hash: FlowHash::new(settings.hash_key),
            table: Arc::default(),
            far: Macs::new(settings.mac_limit),
            near: Macs::new(NEAR_MAX),
            near_changed: false,
            near_reported: Time(0),
            crowded_reported: false,
            mac_damping: Damping::new(DAMPED_MAX, WhenFull::Keep).with_confirmation(),
            nodes: Nodes::default(),
            node_damping: Damping::new(DAMPED_MAX, WhenFull::Keep)
                .with_late(LATE_MS)
                .with_confirmation(),
            groups: Groups::default(),
            siblings: Vec::new(),
            last: None,
            last_near: ([0; 6], 0),
            expired: 0,
            forged_reported: false,
            duplicate_reported: false,
            conflict_reported: None,
            updates: Updates::default(),
            events: EventQueue::default(),
            counters: Counters::default(),
            settings,
        }
    }

    /// Applies settings of the manager or the configuration. A change of the switch removes what was
    /// learned on the old one.
    pub fn configure(&mut self, info: &VeswPortInfo) {
        let before = std::mem::replace(&mut self.switch, Switch::new(info));
        let same_switch = before.header().vesw_id == self.switch.header().vesw_id
            && before.fabric_id == self.switch.fabric_id
            && before.header().pkey == self.switch.header().pkey;
        if !same_switch {
            self.forget_switch();
        }
        let own = self.switch.slid();
        if before.slid() != own {
            self.duplicate_reported = false;
            self.far.retain(|lid| lid != own);
        }
        self.regroup();
        self.forget_last();
    }

    /// Replaces the manager's table.
    pub fn set_table(&mut self, table: Arc<MacTable>) {
        self.table = table;
        self.regroup();
    }

    /// Replaces the list of members.
    pub fn set_directory(&mut self, directory: &Directory) {
        self.nodes.set_directory(directory);
        self.forged_reported = false;
        if self.nodes.is_closed() {
            let (nodes, siblings) = (&self.nodes, &self.siblings);
            let is_member = |lid| nodes.knows(lid) || siblings.contains(&lid);
            self.far.retain(is_member);
        }
        self.forget_last();
    }

    /// Sets the siblings: LIDs of this daemon's virtual ports on the same switch, reached without the
    /// fabric.
    pub fn set_siblings(&mut self, siblings: impl IntoIterator<Item = Lid>) {
        self.siblings = siblings.into_iter().collect();
        self.siblings.sort_unstable();
        self.forget_last();
    }

    /// Sets whether interface and fabric are both up.
    pub fn set_up(&mut self, up: bool) {
        self.up = up;
    }

    /// Sets the MTU of the interface, in bytes.
    pub fn set_mtu(&mut self, mtu: u16) {
        self.mtu = mtu;
    }

    /// Sets the interface's own address.
    pub fn set_mac(&mut self, mac: Mac) {
        self.settings.mac = mac;
        self.far.remove(mac);
        self.near_changed |= self.near.remove(mac);
        self.forget_last();
    }

    /// Sets the port's own address on the fabric.
    pub fn set_local(&mut self, now: Time, local: NodeAddress) {
        let former = std::mem::replace(&mut self.settings.local, local);
        if former != local {
            self.former_local.set(now, former);
        }
        self.forget_last();
    }

    /// Enables or disables learning. Disabling removes all learned addresses.
    pub fn set_learning(&mut self, learning: bool) {
        self.settings.learning = learning;
        if !learning {
            self.far.clear();
        }
        self.forget_last();
    }

    /// Sets the ageing time of learned addresses, in milliseconds; 0: no ageing.
    pub fn set_ageing(&mut self, milliseconds: u64) {
        self.settings.ageing_ms = milliseconds;
    }

    /// Settings of the port.
    #[must_use]
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Whether the port forwards.
    #[inline]
    #[must_use]
    pub const fn is_forwarding(&self) -> bool {
        self.up && self.switch.forwards
    }

    /// Source LID of all packets.
    #[must_use]
    pub fn slid(&self) -> Lid {
        self.switch.slid()
    }

    /// Largest payload of a frame in bytes: the smaller MTU of interface and switch.
    #[inline]
    #[must_use]
    pub fn mtu(&self) -> u16 {
        self.mtu.min(self.switch.eth_mtu)
    }

    /// Longest frame in bytes: the MTU plus Ethernet header and one VLAN tag.
    #[inline]
    #[must_use]
    pub fn frame_max(&self) -> usize {
        usize::from(self.mtu()) + FRAME_HEADER_MAX
    }

    /// Multicast LIDs of the groups that the port must join, in ascending order.
    #[must_use]
    pub fn joined(&self) -> &[Lid] {
        self.groups.lids()
    }

    /// GID and queue pair number of a target.
    #[must_use]
    pub fn address(&self, to: Target) -> (Gid, Qpn) {
        match to {
            Target::Group(slot) => (self.groups.mgid(slot), Qpn::MULTICAST),
            Target::Node(slot) => {
                let NodeAddress { gid, qpn } = self.nodes.address(slot);
                (gid, qpn)
            }
        }
    }

    /// Address of a LID, if known; the queue pair number may be 0.
    #[must_use]
    pub fn find(&self, lid: Lid) -> Option<NodeAddress> {
        self.nodes.find(lid)
    }

    /// Address handle of a target, from [`VeswPort::set_ah`].
    #[inline]
    #[must_use]
    pub fn ah(&self, to: Target) -> Option<AddressHandle> {
        match to {
            Target::Group(slot) => self.groups.ah(slot),
            Target::Node(slot) => self.nodes.ah(slot),
        }
    }

    /// Sets the address handle of a target. [`VeswPort::pop_released_ah`] returns the handle when the
    /// target's address changes or the target gets another handle.
    pub fn set_ah(&mut self, to: Target, ah: AddressHandle) {
        match to {
            Target::Group(slot) => self.groups.set_ah(slot, ah),
            Target::Node(slot) => self.nodes.set_ah(slot, ah),
        }
    }

    /// Returns an unused address handle, which the caller destroys.
    pub fn pop_released_ah(&mut self) -> Option<AddressHandle> {
        let node = self.nodes.released.pop();
        node.or_else(|| self.groups.released.pop())
    }

    /// Releases all address handles to [`VeswPort::pop_released_ah`].
    pub fn release_all(&mut self) {
        self.nodes.release_all();
        self.groups.release_all();
    }

    /// Whether [`VeswPort::drain_updates`] returns updates.
    #[inline]
    #[must_use]
    pub fn has_updates(&self) -> bool {
        !self.updates.list.is_empty()
    }

    /// Returns the updates for the other replicas, in order.
    pub fn drain_updates(&mut self) -> impl Iterator<Item = Update> {
        self.updates.list.drain(..)
    }

    /// Whether [`VeswPort::poll_event`] returns an event.
    #[inline]
    #[must_use]
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Returns the next event, in order.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop()
    }

    /// Counters of this replica.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The manager's table.
    #[must_use]
    pub const fn table(&self) -> &Arc<MacTable> {
        &self.table
    }

    /// Learned addresses: first those behind the interface, then those behind other members; otherwise in
    /// no particular order.
    pub fn learned(&self, now: Time) -> impl Iterator<Item = MacInfo> {
        let all = self.near.iter().chain(self.far.iter());
        all.map(move |(mac, lid, heard)| MacInfo {
            mac,
            place: match lid {
                Lid::NONE => Place::Here,
                lid => Place::At(lid),
            },
            age: second(now).saturating_sub(heard),
        })
    }

    /// Known members, in no particular order.
    pub fn nodes(&self) -> impl Iterator<Item = NodeInfo> {
        self.nodes.iter()
    }

    /// Addresses behind the interface, without its own, in ascending order.
    #[must_use]
    pub fn local_macs(&self) -> Vec<Mac> {
        let mut macs: Vec<Mac> = self.near.iter().map(|(mac, ..)| mac).collect();
        macs.sort_unstable();
        macs
    }

    /// Time of the next call of [`VeswPort::handle_timeout`].
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        let age = self.ageing_seconds();
        let far = self.far.oldest().map(|heard| heard.saturating_add(age));
        let node = self.nodes.oldest().map(|heard| heard.saturating_add(age));
        let learned = [far, node].into_iter().flatten().filter(|_| age > 0);
        let near = self
            .near
            .oldest()
            .map(|heard| heard.saturating_add(NEAR_AGEING));
        // Entries expire at most once a second.
        let next = learned.chain(near).min();
        let ages = next.map(|due| Time(1000 * u64::from(due.max(self.expired) + 1)));
        [ages, self.near_report_due()].into_iter().flatten().min()
    }

    /// Removes expired entries and reports changed addresses behind the interface.
    pub fn handle_timeout(&mut self, now: Time) {
        if second(now) > self.expired {
            self.expire(second(now));
        }
        if self.near_report_due().is_some_and(|due| due <= now) {
            self.near_changed = false;
            self.near_reported = now;
            let macs = self.local_macs();
            self.events.push(Event::LocalMacs(macs));
        }
    }

    /// Time of the next report of the addresses behind the interface, if they changed.
    fn near_report_due(&self) -> Option<Time> {
        let reports = self.near_changed && self.settings.reports;
        reports.then(|| self.near_reported.after(NEAR_REPORT_MS))
    }

    fn expire(&mut self, at: Second) {
        let age = self.ageing_seconds();
        let mut gone = 0;
        if let Some(until) = too_old(at, age) {
            let macs = self.far.expire(until, EXPIRED_AT_ONCE);
            self.counters.mac_aged += macs.ours as u64;
            gone = macs.all.max(self.nodes.expire(until, EXPIRED_AT_ONCE));
        }
        if let Some(until) = too_old(at, NEAR_AGEING) {
            let near = self.near.expire(until, EXPIRED_AT_ONCE).all;
            self.near_changed |= near > 0;
            gone = gone.max(near);
        }
        if gone > 0 {
            self.forget_last();
        }
        // The next call removes the rest.
        if gone < EXPIRED_AT_ONCE {
            self.expired = at;
        }
    }

    fn ageing_seconds(&self) -> Second {
        u32::try_from(self.settings.ageing_ms.div_ceil(1000)).unwrap_or(u32::MAX)
    }

    fn table_of(&mut self, place: Place) -> &mut Macs {
        match place {
            Place::Here => &mut self.near,
            Place::At(_) => &mut self.far,
        }
    }

    /// Rebuilds the groups of the switch and its table.
    fn regroup(&mut self) {
        let header = self.switch.header();
        let switch = (header.pkey, self.switch.fabric_id, header.vesw_id);
        let named = self.table.destinations().map(|(_, lid)| lid);
        let lids = named.chain([self.switch.multicast]);
        self.groups.set(switch, lids);
    }

    fn forget_switch(&mut self) {
        self.far.clear();
        self.nodes.forget_learned();
        self.mac_damping.clear();
        self.node_damping.clear();
    }

    /// Forces a lookup of the next frame's source.
    fn forget_last(&mut self) {
        self.last = None;
        self.last_near = ([0; 6], 0);
    }
}

/// Entries last seen in this second or before expire at `now`; `None` if `age` is 0 (no ageing).
fn too_old(now: Second, age: Second) -> Option<Second> {
    now.checked_sub(age.checked_add(1)?).filter(|_| age > 0)
}
