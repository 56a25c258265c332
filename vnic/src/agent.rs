//! Agent of a fabric port (VEMA, the VNIC Ethernet Management Agent): handles requests of managers, sends
//! traps and announcements (kernel drivers/infiniband/ulp/opa_vnic/opa_vnic_vema.c).
//!
//! The [`Host`] owns the interfaces; the agent calls it while it handles a request. The daemon reports
//! changes of the interfaces to the agent. The agent keeps all settings of the manager in memory. A restart
//! loses them; the manager detects this by the digests, which are then 0.
//!
//! One agent answers for all managed virtual ports of a fabric port, on a separate queue pair. Data threads
//! pass its datagrams to the control thread, which answers. MADs of up to 2048 bytes travel in fragments. A
//! manager sends through the daemon of its node (`Manage`, `SendManagement`), as a fabric manager uses the
//! adapter of its host. Agents and managers announce themselves to a multicast group. Of several managers,
//! the one with the highest priority is active. An agent accepts Sets only from the manager that configured
//! it, until the lease of that manager ends. Settings remain when the manager is gone, and learning
//! continues beside the manager's tables.

mod announce;
mod counts;
mod directory;
mod event;
mod handovers;
mod host;
mod link;
mod mac_list;
mod owner;
pub(crate) mod random;
mod refusals;
mod requests;
mod trap;
mod validate;
mod vport;

use std::collections::{BTreeMap, VecDeque};

use proto::{EventQueue, Gid, Guid, LogLimiter, Qpn, Time, TokenBucket};

use crate::attribute::{NodeInfo, VeswPortInfo, WantedPort};
use crate::carriage::Address;
use crate::directory::NodeAddress;
use crate::mad::{self, ClassPortInfo, Header, Mad, attribute, method};

pub use counts::AgentCounts;
pub use event::Event;
pub use host::{Host, MTU_MIN, NewPort, mtu_limit};
pub use mac_list::list_digest;
pub use owner::{LEASES_MS, Owner};
pub use validate::Invalid;

use announce::Announcements;
use handovers::Handovers;
use owner::{Change, Ownership, Sender};
use random::Random;
use refusals::Refusals;
use vport::Vport;

/// Maximum number of pending events; further events are lost.
const EVENTS_MAX: usize = 64;
/// Maximum number of pending traps: three for each possible virtual port.
const OUTBOX_MAX: usize = 3 * 256;

/// Configuration of an agent.
#[derive(Clone, Debug)]
pub struct Config {
    /// GUID of the fabric port.
    pub guid: Guid,
    /// Random number, drawn at each start.
    pub incarnation: u64,
    /// Number of the fabric port on its node, from 1.
    pub port: u8,
    /// Largest UD payload, in bytes.
    pub payload_max: u16,
    /// Description of the node, for display.
    pub description: String,
    /// GIDs of the permitted managers; empty: all managers.
    pub managers: Vec<Gid>,
    /// Managers may create virtual ports that the node does not configure.
    pub may_create: bool,
    /// Seed for the times of announcements; must differ between nodes.
    pub seed: u64,
}

/// Destination of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Destination {
    /// The multicast group of managers and agents.
    Group,
    /// One manager or agent.
    Node(NodeAddress),
}

/// A datagram to send, of up to [`mad::MAD_MAX`] bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// Destination.
    pub to: Destination,
    /// Contents.
    pub mad: Vec<u8>,
}

/// The agent of one fabric port.
pub struct Agent {
    config: Config,
    vports: BTreeMap<u8, Vport>,
    class: ClassPortInfo,
    ownership: Ownership,
    announcements: Announcements,
    /// GID and queue pair of the agent itself.
    own: Option<NodeAddress>,
    random: Random,
    fabric_up: bool,
    /// Transaction id of the next trap or announcement, from 1.
    next_tid: u64,
    outbox: VecDeque<Transmit>,
    events: EventQueue<Event, EVENTS_MAX>,
    refusals: Refusals,
    /// Limit of Sets.
    sets: TokenBucket,
    sets_limited: LogLimiter,
    handovers: Handovers,
    counts: AgentCounts,
}

impl Agent {
    /// Creates an agent without virtual ports; the fabric port is down. The agent announces itself within
    /// half a second.
    #[must_use]
    pub fn new(now: Time, config: Config) -> Agent {
        let mut random = Random::new(config.seed);
        let mut announcements = Announcements::default();
        announcements.begin(now, &mut random);
        Agent {
            ownership: Ownership::new(config.managers.clone()),
            config,
            vports: BTreeMap::new(),
            class: ClassPortInfo::default(),
            announcements,
            own: None,
            random,
            fabric_up: false,
            next_tid: 1,
            outbox: VecDeque::new(),
            events: EventQueue::default(),
            refusals: Refusals::default(),
            sets: TokenBucket::default(),
            sets_limited: LogLimiter::new(60_000),
            handovers: Handovers::default(),
            counts: AgentCounts::default(),
        }
    }

    /// Handles a datagram. Returns the answer, which goes to `from`.
    pub fn handle(
        &mut self,
        now: Time,
        from: Address,
        bytes: &[u8],
        host: &mut dyn Host,
    ) -> Option<Vec<u8>> {
        let Ok(mad) = Mad::parse(bytes) else {
            self.counts.malformed += 1;
            return None;
        };
        match mad.header.method {
            method::GET | method::SET => self.counts.requests += 1,
            method::SEND if mad.header.attribute_id.get() == attribute::MANAGER_INFO => {
                self.hear_manager(now, from, &mad);
                return None;
            }
            _ => return None,
        }
        if !from.by_group {
            return self.answer(now, from, &mad, host);
        }
        let asked = (mad.header.method, mad.header.attribute_id.get());
        if asked == (method::GET, attribute::NODE_INFO) && self.is_manager(from) {
            self.announcements.asked(now, &mut self.random);
        } else {
            self.counts.to_all += 1;
        }
        None
    }

    /// Returns the next trap or announcement that is due.
    pub fn poll_transmit(&mut self, now: Time) -> Option<Transmit> {
        self.send_late_traps(now);
        if let Some(transmit) = self.outbox.pop_front() {
            return Some(transmit);
        }
        if !self.announcements.due(now) {
            return None;
        }
        self.counts.announcements += 1;
        let header = Header::new(method::SEND, attribute::NODE_INFO, 0, self.tid());
        Some(Transmit {
            to: Destination::Group,
            mad: mad::write(&header, &self.node_info(0)),
        })
    }

    /// Time of the next trap or announcement; `None` if none is pending.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        if !self.outbox.is_empty() {
            return Some(Time(0));
        }
        let due = [self.announcements.next(), self.late_traps_due()];
        due.into_iter().flatten().min()
    }

    /// Returns the next event for the log.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop()
    }

    /// Counters of the agent.
    #[must_use]
    pub const fn counts(&self) -> AgentCounts {
        self.counts
    }

    /// The manager that owns the agent.
    #[must_use]
    pub fn owner(&self, now: Time) -> Option<Owner> {
        self.ownership.owner(now)
    }

    /// Index, interface name and settings of each virtual port.
    pub fn ports(&self) -> impl Iterator<Item = (u8, &str, &VeswPortInfo)> {
        let all = self.vports.iter();
        all.map(|(index, vport)| (*index, vport.name.as_str(), &vport.info))
    }

    /// Settings of one virtual port.
    #[must_use]
    pub fn port(&self, index: u8) -> Option<&VeswPortInfo> {
        self.vports.get(&index).map(|vport| &vport.info)
    }

    /// NodeInfo with the virtual ports from index `first` on, as many as fit.
    #[must_use]
    pub fn node_info(&self, first: u8) -> NodeInfo {
        let wanted = |(index, vport): (&u8, &Vport)| WantedPort {
            index: *index,
            name: vport.name.clone(),
            qpn: vport.qpn,
        };
        let from = || self.vports.range(first..);
        let next = from().nth(mad::NODE_PORTS_PAGE);
        NodeInfo {
            guid: self.config.guid,
            incarnation: self.config.incarnation,
            port: self.config.port,
            payload_max: self.config.payload_max,
            description: self.config.description.clone(),
            first,
            next: next.map_or(0, |(index, _)| *index),
            ports: from().take(mad::NODE_PORTS_PAGE).map(wanted).collect(),
        }
    }

    /// Sets the GIDs of the permitted managers; empty: all managers. An owner without permission loses
    /// ownership.
    pub fn set_managers(&mut self, managers: Vec<Gid>) {
        self.ownership.set_managers(managers);
    }

    /// Allows or forbids managers to create virtual ports.
    pub fn set_may_create(&mut self, may: bool) {
        self.config.may_create = may;
    }

    /// Sets the largest UD payload, in bytes.
    pub fn set_payload_max(&mut self, now: Time, payload_max: u16) {
        if self.config.payload_max != payload_max {
            self.config.payload_max = payload_max;
            self.announcements.changed(now, &mut self.random);
        }
    }

    /// Sets GID and queue pair of the agent. Managers wait for an answer of the former address until the agent announces
    /// itself at the new one.
    pub fn set_address(&mut self, now: Time, own: NodeAddress) {
        let before = self.own.replace(own);
        if before.is_some_and(|before| before != own) {
            self.announcements.changed(now, &mut self.random);
        }
    }

    /// Adds a configured virtual port; an existing one stays unchanged. Returns false if the agent already
    /// has [`mad::NODE_PORTS_MAX`] virtual ports.
    pub fn add_port(&mut self, now: Time, index: u8, port: NewPort) -> bool {
        if self.vports.contains_key(&index) {
            return true;
        }
        if self.vports.len() >= mad::NODE_PORTS_MAX {
            return false;
        }
        self.vports.insert(index, Vport::new(port));
        self.announcements.changed(now, &mut self.random);
        true
    }

    /// Removes a virtual port.
    pub fn remove_port(&mut self, now: Time, index: u8) {
        if self.vports.remove(&index).is_some() {
            self.announcements.changed(now, &mut self.random);
        }
    }

    /// Sets the queue pair number of a virtual port.
    pub fn set_qpn(&mut self, now: Time, index: u8, qpn: Qpn) {
        if let Some(vport) = self.vports.get_mut(&index)
            && vport.qpn != qpn
        {
            vport.qpn = qpn;
            self.announcements.changed(now, &mut self.random);
        }
    }

    /// Sets the interface name of a virtual port.
    pub fn set_name(&mut self, now: Time, index: u8, name: &str) {
        if let Some(vport) = self.vports.get_mut(&index)
            && vport.name != name
        {
            name.clone_into(&mut vport.name);
            self.announcements.changed(now, &mut self.random);
        }
    }

    fn tid(&mut self) -> u64 {
        let tid = self.next_tid;
        self.next_tid = tid.wrapping_add(1).max(1);
        tid
    }

    fn report(&mut self, event: Event) {
        self.events.push(event);
    }

    fn report_handover(&mut self, now: Time, event: Event) {
        if self.handovers.should_report(now) {
            self.report(event);
        }
    }

    /// Whether the sender may manage. Counts a sender without permission, and reports it once.
    fn is_manager(&mut self, from: Address) -> bool {
        if self.ownership.may_manage(from.gid) {
            return true;
        }
        self.counts.not_manager += 1;
        if self.ownership.is_new(from) {
            self.report(Event::NotManager { gid: from.gid });
        }
        false
    }

    fn hear_manager(&mut self, now: Time, from: Address, mad: &Mad<'_>) {
        if !self.is_manager(from) {
            return;
        }
        match mad.attribute::<crate::attribute::ManagerInfo>() {
            Ok(info) => {
                let gid = from.gid;
                let sender = Sender::of(from, &mad.header);
                match self.ownership.announced(now, sender, &info) {
                    Change::None => {}
                    Change::Released => self.report_handover(now, Event::Released { gid }),
                    Change::Regained => self.report_handover(now, Event::Owned { gid }),
                }
            }
            Err(_) => self.counts.malformed += 1,
        }
    }
}

#[cfg(test)]
mod tests;
