//! A virtual port: where frames of its interface go on a virtual Ethernet switch, and which packets are
//! for it.
//!
//! The decisions are those of the kernel's driver (drivers/infiniband/ulp/opa_vnic/opa_vnic_encap.c), with
//! learning beside the manager's tables. Several threads may serve one port with a replica of [`VeswPort`]
//! each; what a replica learns it hands out as [`Update`]s for the others, so that no frame takes a lock.
//!
//! * Forwarding: the manager's table, then groups, then learned addresses, then the LID in a
//!   locally administered address if a member has it, then default ports, then, with learning, all
//!   members. The reference stops at the LID in the address even if no member has it: frames for a
//!   guest with a random MAC would be lost.
//! * The manager's directory or the configuration gives the place of a LID; otherwise the source of
//!   received packets does. Unicast to an unplaced LID goes to the switch's group with that LID in
//!   the header; the owner accepts it, and its answer teaches the place.
//! * Each data thread has a replica of the core; a replica sends what it learns to the others. The
//!   manager's tables are shared and replaced whole, so a lookup meets the old or the new one.
//!   Ageing entries are repeated after a quarter of their time.

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
use proto::{AddressHandle, EventQueue, Gid, Mac, Qpn, Time};

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

/// Things whose changes of place are counted. It is more than the guests of a host that all move at once;
/// what changes beside as many stays where it is until one of them has been still.
const DAMPED_MAX: usize = 4096;
/// Events kept between two drains; more are lost.
const EVENTS_MAX: usize = 64;
/// Addresses behind the interface that are known and told of, its own left out: those that a manager
/// gives a place (kernel opa_vnic_internal.h, `OPA_VNIC_MAX_SMAC_LIMIT`).
const NEAR_MAX: usize = 256;
/// Seconds after which an address behind the interface that was not heard of is forgotten.
const NEAR_AGEING: Second = 300;
/// Seconds for which such an address keeps its place against new ones: those that another replica hears of
/// are told anew after half of it, so that whatever speaks stays.
const NEAR_KEPT: Second = NEAR_AGEING / 2;
/// The control side is told of addresses behind the interface this often at most, in milliseconds.
const NEAR_TOLD_MS: u64 = 1000;
/// Entries that are forgotten at once, so that it takes no time that anybody notices.
const EXPIRED_AT_ONCE: usize = 2048;
/// The Ethernet header and one tag, in bytes.
const FRAME_HEADER_MAX: usize = 18;

/// The source of a frame, which is mostly that of the next.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Last {
    meta: Meta,
    slid: Lid,
    source: Mac,
    at: Second,
}

/// One replica of a virtual port.
pub struct VeswPort {
    settings: Settings,
    switch: Switch,
    /// The interface is up, and so is the fabric.
    up: bool,
    /// The interface's MTU in bytes; the switch's counts where it is smaller.
    mtu: u16,
    flow_hash: FlowHash,
    table: Arc<MacTable>,
    /// Addresses behind other members.
    far: Macs,
    /// Addresses behind the interface, its own left out.
    near: Macs,
    near_changed: bool,
    near_told: Time,
    /// That more addresses are behind the interface than are kept was told.
    told_crowded: bool,
    mac_damping: Damping<Mac, Place>,
    nodes: Nodes,
    node_damping: Damping<Lid, NodeAddress>,
    groups: Groups,
    /// In ascending order. One may have the port's own LID by mistake, or until the port gets another.
    siblings: Vec<Lid>,
    last: Option<Last>,
    last_near: (Mac, Second),
    expired: Second,
    told_forged: bool,
    told_duplicate: bool,
    /// The address of the interface that somebody else was found to have.
    told_own: Option<Mac>,
    updates: Updates,
    events: EventQueue<Event, EVENTS_MAX>,
    counters: Counters,
}

impl VeswPort {
    /// A port that forwards nothing before it is configured. Its tables take memory for what is in them.
    #[must_use]
    pub fn new(settings: Settings) -> VeswPort {
        VeswPort {
            switch: Switch::new(&VeswPortInfo::default()),
            up: false,
            mtu: u16::MAX,
            flow_hash: FlowHash::new(settings.hash_key),
            table: Arc::default(),
            far: Macs::new(settings.mac_limit),
            near: Macs::new(NEAR_MAX),
            near_changed: false,
            near_told: Time(0),
            told_crowded: false,
            mac_damping: Damping::new(DAMPED_MAX, WhenFull::Keep),
            nodes: Nodes::default(),
            node_damping: Damping::new(DAMPED_MAX, WhenFull::Keep),
            groups: Groups::default(),
            siblings: Vec::new(),
            last: None,
            last_near: ([0; 6], 0),
            expired: 0,
            told_forged: false,
            told_duplicate: false,
            told_own: None,
            updates: Updates::default(),
            events: EventQueue::default(),
            counters: Counters::default(),
            settings,
        }
    }

    /// Does from now on what a manager or the configuration says. What was learned on another switch is
    /// forgotten.
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
            self.told_duplicate = false;
            self.far.retain(|lid| lid != own);
        }
        self.regroup();
        self.forget_last();
    }

    /// Uses another table of the manager's.
    pub fn set_table(&mut self, table: Arc<MacTable>) {
        self.table = table;
        self.regroup();
    }

    /// Uses another list of the members.
    pub fn set_directory(&mut self, directory: &Directory) {
        self.nodes.set_directory(directory);
        self.told_forged = false;
        if self.nodes.is_closed() {
            let (nodes, siblings) = (&self.nodes, &self.siblings);
            let is_member = |lid| nodes.knows(lid) || siblings.contains(&lid);
            self.far.retain(is_member);
        }
        self.forget_last();
    }

    /// Says which LIDs on the same switch are virtual ports of this daemon, reached without the fabric.
    pub fn set_siblings(&mut self, siblings: impl IntoIterator<Item = Lid>) {
        self.siblings = siblings.into_iter().collect();
        self.siblings.sort_unstable();
        self.forget_last();
    }

    /// The interface is up and the fabric is, or one of them is not any more.
    pub fn set_up(&mut self, up: bool) {
        self.up = up;
    }

    /// The interface's MTU changed, in bytes.
    pub fn set_mtu(&mut self, mtu: u16) {
        self.mtu = mtu;
    }

    /// The interface's own address changed.
    pub fn set_mac(&mut self, mac: Mac) {
        self.settings.mac = mac;
        self.far.remove(mac);
        self.near_changed |= self.near.remove(mac);
        self.forget_last();
    }

    /// The port's GID or the queue pair changed.
    pub fn set_local(&mut self, local: NodeAddress) {
        self.settings.local = local;
        self.forget_last();
    }

    /// Learns from now on, or no more: then what was learned is forgotten.
    pub fn set_learning(&mut self, learning: bool) {
        self.settings.learning = learning;
        if !learning {
            self.far.clear();
        }
        self.forget_last();
    }

    /// Forgets addresses after another time, in milliseconds; 0: never.
    pub fn set_ageing(&mut self, milliseconds: u64) {
        self.settings.ageing_ms = milliseconds;
    }

    /// What the port is.
    #[must_use]
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Whether frames pass.
    #[inline]
    #[must_use]
    pub const fn is_forwarding(&self) -> bool {
        self.up && self.switch.forwards
    }

    /// The source LID of all packets.
    #[must_use]
    pub fn slid(&self) -> Lid {
        self.switch.slid()
    }

    /// The largest payload of a frame in bytes: the interface's MTU, or the switch's if that is smaller.
    #[inline]
    #[must_use]
    pub fn mtu(&self) -> u16 {
        self.mtu.min(self.switch.eth_mtu)
    }

    /// The longest frame in bytes: the MTU, an Ethernet header and one tag.
    #[inline]
    #[must_use]
    pub fn frame_max(&self) -> usize {
        usize::from(self.mtu()) + FRAME_HEADER_MAX
    }

    /// The multicast LIDs whose groups the port is to be a member of, in ascending order.
    #[must_use]
    pub fn joined(&self) -> &[Lid] {
        self.groups.lids()
    }

    /// Where a target is: a GID, and the queue pair there.
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

    /// Where a LID is, as far as that is known: its queue pair may be 0.
    #[must_use]
    pub fn find(&self, lid: Lid) -> Option<NodeAddress> {
        self.nodes.find(lid)
    }

    /// The address handle that [`VeswPort::set_ah`] gave to a target.
    #[inline]
    #[must_use]
    pub fn ah(&self, to: Target) -> Option<AddressHandle> {
        match to {
            Target::Group(slot) => self.groups.ah(slot),
            Target::Node(slot) => self.nodes.ah(slot),
        }
    }

    /// Keeps an address handle for a target. It comes back through [`VeswPort::pop_released_ah`] when the
    /// target is another place, or is given a new handle.
    pub fn set_ah(&mut self, to: Target, ah: AddressHandle) {
        match to {
            Target::Group(slot) => self.groups.set_ah(slot, ah),
            Target::Node(slot) => self.nodes.set_ah(slot, ah),
        }
    }

    /// An address handle that is no longer named, to be ended by the caller.
    pub fn pop_released_ah(&mut self) -> Option<AddressHandle> {
        let node = self.nodes.released.pop();
        node.or_else(|| self.groups.released.pop())
    }

    /// Gives up all address handles, for [`VeswPort::pop_released_ah`].
    pub fn release_all(&mut self) {
        self.nodes.release_all();
        self.groups.release_all();
    }

    /// Whether [`VeswPort::drain_updates`] has something.
    #[inline]
    #[must_use]
    pub fn has_updates(&self) -> bool {
        !self.updates.list.is_empty()
    }

    /// News for the other replicas, in order.
    pub fn drain_updates(&mut self) -> impl Iterator<Item = Update> {
        self.updates.list.drain(..)
    }

    /// Whether [`VeswPort::poll_event`] has something.
    #[inline]
    #[must_use]
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// The next event, in order.
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

    /// Addresses that were learned: behind the interface, then behind other members; otherwise in no
    /// order.
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

    /// The members that are known, in no order.
    pub fn nodes(&self) -> impl Iterator<Item = NodeInfo> {
        self.nodes.iter()
    }

    /// Addresses behind the interface other than its own, in ascending order.
    #[must_use]
    pub fn local_macs(&self) -> Vec<Mac> {
        let mut macs: Vec<Mac> = self.near.iter().map(|(mac, ..)| mac).collect();
        macs.sort_unstable();
        macs
    }

    /// When [`VeswPort::handle_timeout`] should be called next.
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
        // Once a second at most, whatever is due.
        let next = learned.chain(near).min();
        let ages = next.map(|due| Time(1000 * u64::from(due.max(self.expired) + 1)));
        let tells =
            (self.near_changed && self.settings.tells).then(|| self.near_told.after(NEAR_TOLD_MS));
        [ages, tells].into_iter().flatten().min()
    }

    /// Lets time pass.
    pub fn handle_timeout(&mut self, now: Time) {
        if second(now) > self.expired {
            self.expire(second(now));
        }
        if self.near_changed && self.settings.tells && now >= self.near_told.after(NEAR_TOLD_MS) {
            self.near_changed = false;
            self.near_told = now;
            let macs = self.local_macs();
            self.events.push(Event::LocalMacs(macs));
        }
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
        // The rest goes at the next call.
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

    /// The groups that the switch and the table name.
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

    /// The next frame's source is looked at anew.
    fn forget_last(&mut self) {
        self.last = None;
        self.last_near = ([0; 6], 0);
    }
}

/// The second until which what was heard of last is forgotten now; 0 seconds mean never.
fn too_old(now: Second, age: Second) -> Option<Second> {
    now.checked_sub(age.checked_add(1)?).filter(|_| age > 0)
}
