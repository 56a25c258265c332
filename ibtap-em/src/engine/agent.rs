//! The known state of an agent and its virtual ports.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;

use proto::backoff::doubled;
use proto::{Mac, Qpn, Time};
use vnic::attribute::{NodeInfo, VeswPortInfo};
use vnic::mad::ClassPortInfo;

use super::ASK_ALL_LATER;
use super::claims::PORT_CLAIMS;
use super::request::{CounterKind, List};
use super::tables::{Layout, Page};
use crate::config::PortKey;
use crate::seam::{Endpoint, Inquiry};

/// Unanswered polls in a row after which an agent is away.
const AWAY: u32 = 3;
/// Maximum milliseconds between two polls of an agent that does not answer.
const RARELY: u64 = 300_000;
/// Milliseconds after which no copy of a table message can still arrive: more than the time of its
/// repetitions.
const LATE: u64 = 10_000;
/// Maximum number of addresses read from a port's list: no port may claim more.
const LIST_MAX: usize = PORT_CLAIMS;

/// Identifies an agent: a fabric port of a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct AgentKey {
    pub(super) guid: u64,
    pub(super) port: u8,
}

impl AgentKey {
    /// The key that an agent announces.
    pub(super) fn named(info: &NodeInfo) -> AgentKey {
        AgentKey {
            guid: u64::from_be_bytes(info.guid.0),
            port: info.port,
        }
    }

    pub(super) const fn of(key: PortKey) -> AgentKey {
        AgentKey {
            guid: key.guid,
            port: key.port,
        }
    }

    pub(super) const fn vport(self, index: u8) -> PortKey {
        PortKey {
            guid: self.guid,
            port: self.port,
            index,
        }
    }
}

impl fmt::Display for AgentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#018x}:{}", self.guid, self.port)
    }
}

#[derive(Debug)]
pub(super) struct Agent {
    pub(super) at: Endpoint,
    pub(super) description: String,
    pub(super) incarnation: u64,
    /// Time when it was first seen at this endpoint.
    pub(super) placed: Time,
    /// Former endpoint and incarnation.
    pub(super) before: Option<(Endpoint, u64)>,
    /// An endpoint that announces this agent's identity. The known endpoint is queried first.
    pub(super) elsewhere: Option<Endpoint>,
    /// The agent answered the last request.
    pub(super) answered: bool,
    /// Number of times in a row that it announced itself and then did not answer.
    pub(super) deaf: u32,
    /// It has not answered at its new endpoint yet: only answers count until then.
    pub(super) doubted: bool,
    /// Time when it last answered at its known endpoint although another endpoint claimed its identity.
    pub(super) confirmed: Option<Time>,
    pub(super) payload_max: u16,
    /// New information that its members do not reflect yet.
    pub(super) news: bool,
    /// Time of its last unsolicited announcement.
    pub(super) announced: Option<Time>,
    pub(super) heard: Time,
    /// Unanswered polls in a row.
    pub(super) missed: u32,
    /// The agent did not answer: no requests until the next poll.
    pub(super) silent: bool,
    pub(super) next_poll: Time,
    pub(super) poll_due: bool,
    /// First virtual port of the next NodeInfo query.
    pub(super) page: u8,
    pub(super) class_port: Option<ClassPortInfo>,
    /// The agent refused to send traps to this manager: time of the next attempt.
    pub(super) traps_again: Option<Time>,
    /// Open transaction. There is one at a time, so that the agent processes requests in order.
    pub(super) busy: Option<u32>,
    pub(super) asks: VecDeque<(u8, CounterKind, Inquiry)>,
    pub(super) ports: BTreeMap<u8, Vport>,
}

impl Agent {
    pub(super) fn new(now: Time, at: Endpoint, info: &NodeInfo) -> Agent {
        Agent {
            at,
            description: info.description.clone(),
            incarnation: info.incarnation,
            placed: now,
            before: None,
            elsewhere: None,
            answered: false,
            deaf: 0,
            doubted: false,
            confirmed: None,
            payload_max: info.payload_max,
            news: true,
            announced: None,
            heard: now,
            missed: 0,
            silent: false,
            next_poll: now,
            poll_due: false,
            page: 0,
            class_port: None,
            traps_again: None,
            busy: None,
            asks: VecDeque::new(),
            ports: BTreeMap::new(),
        }
    }

    pub(super) const fn is_away(&self) -> bool {
        self.missed >= AWAY
    }

    /// Whether the agent is away since the last poll.
    pub(super) const fn went_away(&self) -> bool {
        self.missed == AWAY
    }

    /// Whether announcements of this agent no longer cause an immediate query.
    pub(super) const fn is_deaf(&self) -> bool {
        self.deaf >= AWAY
    }

    /// Pause until the next poll; it grows while the agent does not answer.
    pub(super) fn pause(&self, interval: u64) -> u64 {
        let double = |time: u64, times: u32| time << times.saturating_sub(AWAY).min(16);
        // All agents announce themselves within that time; an agent that does is neither away nor forgotten.
        let deaf = match self.is_deaf() {
            true => double(ASK_ALL_LATER, self.deaf),
            false => 0,
        };
        let pause = deaf.max(double(interval, self.missed));
        interval.max(RARELY.min(pause))
    }

    /// A request was not answered.
    pub(super) fn miss(&mut self) {
        self.deaf = self.deaf.saturating_add(u32::from(self.missed == 0));
        self.missed = self.missed.saturating_add(1);
        self.answered = false;
        self.silent = true;
    }

    /// The agent lost its state, or may have lost it.
    pub(super) fn forget(&mut self) {
        self.news = true;
        self.class_port = None;
        self.traps_again = None;
        for vport in self.ports.values_mut() {
            vport.forget();
        }
    }

    /// All state is read again.
    pub(super) fn audit(&mut self, now: Time) {
        self.poll_due = true;
        self.news = true;
        self.page = 0;
        self.class_port = None;
        for vport in self.ports.values_mut() {
            vport.info_due = true;
            vport.directory_due = true;
            // A late copy of a message may have arrived between two others; its digest was overwritten.
            if vport.written.is_some_and(|at| now.since(at) >= LATE) {
                vport.written = None;
                vport.forget_table();
            }
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Vport {
    /// Name of the interface; `None` if the node has not announced this port.
    pub(super) interface: Option<String>,
    /// `None` if the agent has not reported a queue pair.
    pub(super) qpn: Option<Qpn>,
    /// The switch, by the configuration.
    pub(super) switch: Option<u16>,
    pub(super) info: Option<VeswPortInfo>,
    pub(super) info_due: bool,
    /// Digest of the agent's directory; 0: the agent has none.
    pub(super) directory: Option<u32>,
    pub(super) directory_due: bool,
    /// Digest of the directory being sent, and the number of entries that the agent has of it.
    pub(super) directory_sent: (u32, u16),
    /// The agent's table, if known.
    pub(super) layout: Option<Layout>,
    /// The table being read: digest, content so far, and next place.
    pub(super) reading: Option<(u32, Layout, u16)>,
    /// The pages left to send of a table, and the checksum of its content.
    pub(super) plan: Option<(u32, VecDeque<Page>)>,
    /// Time when a table message was last sent, unless the table was read back since.
    pub(super) written: Option<Time>,
    pub(super) unicast: MacList,
    pub(super) multicast: MacList,
    /// The engine's `settings` when the assignment was made.
    pub(super) assigned: u64,
    /// Reason why the port cannot be set up, one sentence.
    pub(super) refused: Option<String>,
    pub(super) failures: u32,
    /// Time of the next attempt.
    pub(super) again: Option<Time>,
}

impl Vport {
    fn forget(&mut self) {
        *self = Vport {
            interface: self.interface.take(),
            qpn: self.qpn,
            switch: self.switch,
            ..Vport::default()
        };
    }

    /// Whether the agent has created the port.
    pub(super) fn exists(&self) -> bool {
        // A port that does not exist has a link status of 0 (kernel opa_vnic_vema.c, `vema_get_pod_values`).
        self.info
            .as_ref()
            .is_some_and(|info| info.eth_link_status != 0)
    }

    /// Puts the port on a switch, or on none: then its lists are not needed.
    pub(super) fn assign(&mut self, switch: Option<u16>) {
        self.switch = switch;
        self.refused = None;
        self.again = None;
        if switch.is_none() {
            self.unicast = MacList::default();
            self.multicast = MacList::default();
        }
    }

    pub(super) fn list(&mut self, which: List) -> &mut MacList {
        match which {
            List::Unicast => &mut self.unicast,
            List::Multicast => &mut self.multicast,
        }
    }

    /// The list to read next, and the first entry.
    pub(super) fn list_to_read(&self) -> Option<(List, u16)> {
        let info = self.info.as_ref().filter(|_| self.exists())?;
        let unicast = self.unicast.next(info.uc_macs_gen_count);
        let multicast = self.multicast.next(info.mc_macs_gen_count);
        unicast
            .map(|start| (List::Unicast, start))
            .or_else(|| multicast.map(|start| (List::Multicast, start)))
    }

    /// Whether all reported lists were read.
    pub(super) fn is_read(&self) -> bool {
        self.info.is_some() && self.list_to_read().is_none()
    }

    pub(super) fn set_info(&mut self, info: VeswPortInfo) {
        let digest = |info: &VeswPortInfo| info.mac_tbl_digest;
        if self.info.as_ref().map(digest) != Some(info.mac_tbl_digest) {
            self.forget_table();
        }
        if info.eth_link_status == 0 {
            self.directory = Some(0);
        }
        self.info = Some(info);
        self.info_due = false;
    }

    /// The agent's table is unknown and has to be read.
    pub(super) fn forget_table(&mut self) {
        self.layout = None;
        self.plan = None;
        self.reading = None;
    }

    /// It is unknown whether the last request was executed.
    pub(super) fn doubt(&mut self) {
        self.forget_table();
        self.directory = None;
        self.directory_due = true;
        self.directory_sent = (0, 0);
        self.info_due = true;
    }

    /// Schedules another attempt after a second, doubled each time, at most `most` milliseconds.
    pub(super) fn back_off(&mut self, now: Time, most: u64) {
        let pause = doubled(1000, self.failures.min(6), most);
        self.failures += 1;
        self.again = Some(now.after(pause));
        self.info_due = true;
        self.directory_due = true;
        self.directory_sent = (0, 0);
        self.reading = None;
        self.plan = None;
    }
}

/// A list of addresses, read in pages.
#[derive(Debug, Default)]
pub(super) struct MacList {
    /// The last complete list.
    pub(super) macs: Arc<BTreeSet<Mac>>,
    /// Generation of the complete list.
    generation: Option<u16>,
    /// Generation and addresses of the part read so far.
    part: Option<(u16, Vec<Mac>)>,
    /// The list has changed, whatever its generation.
    pub(super) due: bool,
}

impl MacList {
    /// First entry to read next, if the list has to be read.
    fn next(&self, generation: u16) -> Option<u16> {
        match &self.part {
            Some((_, macs)) => u16::try_from(macs.len()).ok(),
            None => (self.due || self.generation != Some(generation)).then_some(0),
        }
    }

    /// Processes a page. If the generation has changed, reading starts again. Returns whether the list is
    /// complete.
    pub(super) fn page(&mut self, asked: u16, page: &vnic::mad::MacList) -> bool {
        let (generation, mut macs) = match self.part.take() {
            Some((generation, macs)) if asked != 0 => (generation, macs),
            _ => (page.gen_count, Vec::new()),
        };
        if generation != page.gen_count {
            self.part = Some((page.gen_count, Vec::new()));
            return false;
        }
        macs.extend(&page.macs);
        macs.truncate(LIST_MAX);
        if !page.macs.is_empty() && macs.len() < usize::from(page.total).min(LIST_MAX) {
            self.part = Some((generation, macs));
            return false;
        }
        let unicast_or_group = macs.into_iter().filter(|mac| *mac != [0; 6]);
        self.macs = Arc::new(unicast_or_group.collect());
        self.generation = Some(generation);
        self.due = false;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(start: u16, count: u8, total: u16, gen_count: u16) -> vnic::mad::MacList {
        let macs = (0..count).map(|n| [2, 0, 0, 0, start as u8, n]).collect();
        vnic::mad::MacList {
            start,
            total,
            gen_count,
            macs,
        }
    }

    // E08
    #[test]
    fn e08_pages_begin_anew_when_the_generation_changes() {
        let mut list = MacList::default();
        assert_eq!(list.next(7), Some(0));
        assert!(!list.page(0, &page(0, 100, 250, 7)));
        assert_eq!(list.next(7), Some(100));
        assert!(!list.page(100, &page(100, 100, 250, 7)));
        // The list has changed meanwhile.
        assert!(!list.page(200, &page(200, 50, 249, 8)));
        assert_eq!(list.next(8), Some(0));
        assert!(!list.page(0, &page(0, 200, 249, 8)));
        assert!(list.page(200, &page(200, 49, 249, 8)));
        assert_eq!(list.macs.len(), 249);
        assert_eq!(list.next(8), None);
        assert_eq!(list.next(9), Some(0));
    }

    #[test]
    fn a_list_that_promises_more_than_it_has_ends() {
        let mut list = MacList::default();
        assert!(!list.page(0, &page(0, 1, 1000, 1)));
        assert!(list.page(1, &page(1, 0, 1000, 1)));
        assert_eq!(list.macs.len(), 1);
        let mut list = MacList::default();
        let mut pages = 0;
        while let Some(start) = list.next(1) {
            let _ = list.page(start, &page(start, 200, u16::MAX, 1));
            pages += 1;
        }
        assert!(pages <= LIST_MAX / 200 + 1, "{pages}");
    }
}
