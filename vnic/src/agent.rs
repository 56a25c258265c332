//! The agent of a fabric port (VEMA, the VNIC Ethernet Management Agent): what managers ask and set, and
//! what it tells them (kernel drivers/infiniband/ulp/opa_vnic/opa_vnic_vema.c).
//!
//! The interfaces themselves belong to the [`Host`], which the agent calls while it handles a request.
//! What happens to the interfaces is told to it. It keeps everything that a manager has set; a restart
//! forgets it, and the manager sees that by the digests, which are 0 then.
//!
//! The agent answers for all managed ports of a fabric port, on a separate queue pair. Data threads
//! deliver its datagrams, the control thread answers. MADs of up to 2048 bytes travel in fragments.
//! The manager sends through its node's daemon (`Manage`, `SendManagement`), as a fabric manager
//! uses its host's adapter. Agents and managers announce themselves to a group; of several managers
//! the one with the highest priority is active. An agent accepts the manager that configured it for
//! its lease. Settings stay when the manager is gone, and learning continues beside its tables.

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

use proto::{EventQueue, Gid, Guid, Qpn, Time};

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

/// Events that wait to be fetched; what comes when there are so many is left out.
const EVENTS_MAX: usize = 64;
/// Traps that wait to be fetched: three for each virtual port that there may be.
const OUTBOX_MAX: usize = 3 * 256;

/// What an agent is.
#[derive(Clone, Debug)]
pub struct Config {
    /// The fabric port's GUID.
    pub guid: Guid,
    /// Drawn anew at each start.
    pub incarnation: u64,
    /// The number of the fabric port on its node, from 1.
    pub port: u8,
    /// Bytes of the largest UD payload.
    pub payload_max: u16,
    /// What people call the node.
    pub description: String,
    /// Whose management is heeded, by the GID that it comes from; empty: anybody's.
    pub managers: Vec<Gid>,
    /// Managers may make virtual ports that nobody on the node has named.
    pub may_create: bool,
    /// For the times of announcements, which are not to be those of other nodes.
    pub seed: u64,
}

/// Where something is to go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Destination {
    /// The group of managers and agents.
    Group,
    /// One of them.
    Node(NodeAddress),
}

/// A datagram to send, of up to [`mad::MAD_MAX`] bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// Where to.
    pub to: Destination,
    /// Its bytes.
    pub mad: Vec<u8>,
}

/// The agent of one fabric port.
pub struct Agent {
    config: Config,
    vports: BTreeMap<u8, Vport>,
    class: ClassPortInfo,
    ownership: Ownership,
    announcements: Announcements,
    random: Random,
    fabric_up: bool,
    /// Of traps and announcements, from 1.
    next_tid: u64,
    outbox: VecDeque<Transmit>,
    events: EventQueue<Event, EVENTS_MAX>,
    refusals: Refusals,
    handovers: Handovers,
    counts: AgentCounts,
}

impl Agent {
    /// An agent without virtual ports, whose fabric port is down. It announces itself soon.
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
            random,
            fabric_up: false,
            next_tid: 1,
            outbox: VecDeque::new(),
            events: EventQueue::default(),
            refusals: Refusals::default(),
            handovers: Handovers::default(),
            counts: AgentCounts::default(),
        }
    }

    /// Takes a datagram; gives the answer, which goes to where it came from.
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
            return Some(self.answer(now, from, &mad, host));
        }
        let asked = (mad.header.method, mad.header.attribute_id.get());
        if asked == (method::GET, attribute::NODE_INFO) && self.is_manager(from) {
            self.announcements.asked(now, &mut self.random);
        } else {
            self.counts.to_all += 1;
        }
        None
    }

    /// The next datagram to send by itself, if one is due.
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

    /// When [`Agent::poll_transmit`] has something, if nothing else happens before.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        if !self.outbox.is_empty() {
            return Some(Time(0));
        }
        let due = [self.announcements.next(), self.late_traps_due()];
        due.into_iter().flatten().min()
    }

    /// The next thing that people may want to know.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop()
    }

    /// What it has counted.
    #[must_use]
    pub const fn counts(&self) -> AgentCounts {
        self.counts
    }

    /// Who manages it.
    #[must_use]
    pub fn owner(&self, now: Time) -> Option<Owner> {
        self.ownership.owner(now)
    }

    /// Its virtual ports, as a manager sees them.
    pub fn ports(&self) -> impl Iterator<Item = (u8, &str, &VeswPortInfo)> {
        let all = self.vports.iter();
        all.map(|(index, vport)| (*index, vport.name.as_str(), &vport.info))
    }

    /// One of them.
    #[must_use]
    pub fn port(&self, index: u8) -> Option<&VeswPortInfo> {
        self.vports.get(&index).map(|vport| &vport.info)
    }

    /// What it says of itself, with the virtual ports from this index on, as many as fit.
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

    /// Others may manage it now. Who no longer may, does not any more.
    pub fn set_managers(&mut self, managers: Vec<Gid>) {
        self.ownership.set_managers(managers);
    }

    /// Managers may now make virtual ports, or no longer.
    pub fn set_may_create(&mut self, may: bool) {
        self.config.may_create = may;
    }

    /// A UD payload may now have so many bytes.
    pub fn set_payload_max(&mut self, now: Time, payload_max: u16) {
        if self.config.payload_max != payload_max {
            self.config.payload_max = payload_max;
            self.announcements.changed(now, &mut self.random);
        }
    }

    /// A virtual port that an administrator has named; one that there is already stays as it is. False if
    /// there are too many ([`mad::NODE_PORTS_MAX`]).
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

    /// A virtual port is no more.
    pub fn remove_port(&mut self, now: Time, index: u8) {
        if self.vports.remove(&index).is_some() {
            self.announcements.changed(now, &mut self.random);
        }
    }

    /// A virtual port has another queue pair.
    pub fn set_qpn(&mut self, now: Time, index: u8, qpn: Qpn) {
        if let Some(vport) = self.vports.get_mut(&index)
            && vport.qpn != qpn
        {
            vport.qpn = qpn;
            self.announcements.changed(now, &mut self.random);
        }
    }

    /// A virtual port's interface has another name.
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

    fn tell(&mut self, event: Event) {
        self.events.push(event);
    }

    fn tell_handover(&mut self, now: Time, event: Event) {
        if self.handovers.is_news(now) {
            self.tell(event);
        }
    }

    /// Whether it may manage; counts it if not, and tells once.
    fn is_manager(&mut self, from: Address) -> bool {
        if self.ownership.may_manage(from.gid) {
            return true;
        }
        self.counts.not_manager += 1;
        if self.ownership.is_new(from) {
            self.tell(Event::NotManager { gid: from.gid });
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
                    Change::Released => self.tell_handover(now, Event::Released { gid }),
                    Change::Regained => self.tell_handover(now, Event::Owned { gid }),
                }
            }
            Err(_) => self.counts.malformed += 1,
        }
    }
}

#[cfg(test)]
mod tests;
