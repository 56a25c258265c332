//! Which groups hosts behind an interface are members of, and the querier that keeps this true.
//!
//! Reports are sent once when a host joins and then in answer to a query. Without a querier on the
//! segment nobody would hear again of a group, and no bridge with snooping would forward it
//! (RFC 4541, section 2.1). The timers and defaults are those of RFC 3376, section 8, and RFC 3810,
//! section 9, which agree.

mod query;

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use proto::{Mac, Time};
use query::Query;

/// Between two general queries.
const QUERY_INTERVAL_MS: u64 = 125_000;
/// The same for the first ones: a quarter.
const STARTUP_INTERVAL_MS: u64 = 31_250;
/// General queries at the start: the robustness variable.
const STARTUP_QUERIES: u8 = 2;
/// Robustness times the query interval, and the time to answer.
const MEMBERSHIP_MS: u64 = 260_000;
/// Between two queries for a group that was left, and the time to answer one.
const LAST_MEMBER_INTERVAL_MS: u64 = 1000;
/// Queries for a group that was left: the robustness variable.
const LAST_MEMBER_QUERIES: u8 = 2;

struct Member {
    expires: Time,
    /// It was left, and this many queries for it are still due, the next at this time.
    leaving: Option<(u8, Time)>,
}

/// The groups behind one interface, and the queries that are due. Sans-IO: it is told what was
/// reported and gives out Ethernet frames for the TAP.
pub struct Snooper {
    mac: Mac,
    max: usize,
    members: BTreeMap<IpAddr, Member>,
    querying: bool,
    /// The next general query, and how many more after it come early.
    general: Time,
    startup: u8,
    queries: VecDeque<Query>,
    /// No member's time comes before this one.
    earliest: Option<Time>,
    refused: u64,
}

impl Snooper {
    /// No groups, no queries. `mac` is the Ethernet address that queries come from; at most `max`
    /// groups are kept.
    pub fn new(mac: Mac, max: usize) -> Snooper {
        Snooper {
            mac,
            max,
            members: BTreeMap::new(),
            querying: false,
            general: Time(0),
            startup: 0,
            queries: VecDeque::new(),
            earliest: None,
            refused: 0,
        }
    }

    /// The Ethernet address that queries come from.
    pub fn set_mac(&mut self, mac: Mac) {
        self.mac = mac;
    }

    /// Starts or stops asking. When it starts, the first general query is due at once.
    pub fn set_querying(&mut self, now: Time, on: bool) {
        if on == self.querying {
            return;
        }
        self.querying = on;
        self.queries.clear();
        self.startup = STARTUP_QUERIES;
        if on {
            self.ask_everybody(now);
        }
    }

    /// A host joined `group` or is a member still. True if the group is new. When the table is full
    /// a new group is refused and counted: a storm of them must not push out what is in use.
    pub fn joined(&mut self, now: Time, group: IpAddr) -> bool {
        let expires = now.after(MEMBERSHIP_MS);
        let member = Member {
            expires,
            leaving: None,
        };
        if let Some(known) = self.members.get_mut(&group) {
            *known = member;
            return false;
        }
        if self.members.len() >= self.max {
            self.refused += 1;
            return false;
        }
        self.members.insert(group, member);
        self.wake_at(expires);
        true
    }

    /// A host left `group`. Other hosts are asked whether they are members still; without an answer
    /// for two seconds the group is gone.
    pub fn left(&mut self, now: Time, group: IpAddr) {
        let querying = self.querying;
        let Some(member) = self.members.get_mut(&group) else {
            return;
        };
        if member.leaving.is_some() {
            return;
        }
        let wait = LAST_MEMBER_INTERVAL_MS * u64::from(LAST_MEMBER_QUERIES);
        member.expires = member.expires.min(now.after(wait));
        let next = now.after(LAST_MEMBER_INTERVAL_MS);
        member.leaving = Some((LAST_MEMBER_QUERIES - 1, next));
        self.wake_at(next);
        if querying {
            self.ask(Query::Specific(group));
        }
    }

    /// The groups that hosts are members of.
    pub fn groups(&self) -> impl Iterator<Item = IpAddr> {
        self.members.keys().copied()
    }

    /// Whether a host is a member of `group`.
    pub fn is_member(&self, group: IpAddr) -> bool {
        self.members.contains_key(&group)
    }

    /// When [`Snooper::handle_timeout`] and then [`Snooper::poll_query`] should be called next.
    pub fn next_deadline(&self) -> Option<Time> {
        if !self.queries.is_empty() {
            return Some(Time(0));
        }
        let general = self.querying.then_some(self.general);
        general.into_iter().chain(self.earliest).min()
    }

    /// Lets time pass. True if a group has no members any more.
    pub fn handle_timeout(&mut self, now: Time) -> bool {
        if self.querying && self.general <= now {
            self.ask_everybody(now);
        }
        if self.earliest.is_none_or(|at| now < at) {
            return false;
        }
        let before = self.members.len();
        self.members.retain(|_, m| now < m.expires);
        let members = &self.members;
        self.queries
            .retain(|q| !matches!(q, Query::Specific(group) if !members.contains_key(group)));
        let due: Vec<IpAddr> = self
            .members
            .iter_mut()
            .filter_map(|(group, m)| m.next_query_due(now).then_some(*group))
            .collect();
        if self.querying {
            for group in due {
                self.ask(Query::Specific(group));
            }
        }
        self.earliest = self.members.values().map(Member::next).min();
        self.members.len() < before
    }

    /// Writes the next query, an Ethernet frame for the TAP, to `out`, whose content is replaced.
    /// False if none is due.
    pub fn poll_query(&mut self, _now: Time, out: &mut Vec<u8>) -> bool {
        let Some(query) = self.queries.pop_front() else {
            return false;
        };
        query.write(self.mac, out);
        true
    }

    /// Groups that the full table had no room for, in all.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    fn wake_at(&mut self, at: Time) {
        self.earliest = Some(self.earliest.map_or(at, |e| e.min(at)));
    }

    fn ask_everybody(&mut self, now: Time) {
        self.startup = self.startup.saturating_sub(1);
        let interval = if self.startup > 0 {
            STARTUP_INTERVAL_MS
        } else {
            QUERY_INTERVAL_MS
        };
        self.general = now.after(interval);
        self.ask(Query::GeneralV4);
        self.ask(Query::GeneralV6);
    }

    /// Queues a query. Each group has at most one at a time, so that the queue is no longer than
    /// the table.
    fn ask(&mut self, query: Query) {
        if !self.queries.contains(&query) {
            self.queries.push_back(query);
        }
    }
}

impl Member {
    /// When something is to be done about it.
    fn next(&self) -> Time {
        match self.leaving {
            Some((1.., at)) => self.expires.min(at),
            _ => self.expires,
        }
    }

    /// Whether a query for the group is due; if so it counts as sent.
    fn next_query_due(&mut self, now: Time) -> bool {
        match &mut self.leaving {
            Some((left @ 1.., at)) if *at <= now => {
                *left -= 1;
                *at = now.after(LAST_MEMBER_INTERVAL_MS);
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests;
