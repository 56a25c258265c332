//! The groups of hosts behind an interface, and the querier that keeps them up to date.
//!
//! A host reports a group when it joins, then in answers to queries. Without a querier on the segment there
//! would be no more reports of a group, and bridges with snooping would not forward it (RFC 4541, section
//! 2.1). Timers and defaults are those of RFC 3376, section 8, and RFC 3810, section 9, which are equal.

mod query;

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use proto::{Mac, Time};
use query::Query;

/// Time between general queries.
const QUERY_INTERVAL_MS: u64 = 125_000;
/// Time between the first general queries: a quarter.
const STARTUP_INTERVAL_MS: u64 = 31_250;
/// General queries at the start: the robustness variable.
const STARTUP_QUERIES: u8 = 2;
/// Robustness variable times query interval, plus the response time.
const MEMBERSHIP_MS: u64 = 260_000;
/// Time between queries for a group that was left, and the response time.
const LAST_MEMBER_INTERVAL_MS: u64 = 1000;
/// Queries for a group that was left: the robustness variable.
const LAST_MEMBER_QUERIES: u8 = 2;

struct Member {
    expires: Time,
    /// The group was left: number of remaining queries, and the time of the next.
    leaving: Option<(u8, Time)>,
}

/// The groups behind an interface, and the due queries. Sans-IO: input is reports, output is Ethernet
/// frames for the TAP.
pub struct Snooper {
    mac: Mac,
    max: usize,
    members: BTreeMap<IpAddr, Member>,
    querying: bool,
    /// Time of the next general query, and the number of following early ones.
    general: Time,
    startup: u8,
    queries: VecDeque<Query>,
    /// No membership expires before this time.
    earliest: Option<Time>,
    refused: u64,
}

impl Snooper {
    /// Creates an empty state without queries. `mac` is the source MAC of queries; at most `max` groups are
    /// kept.
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

    /// Starts or stops queries. At the start the first general query is due immediately.
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

    /// Notes that a host joined `group` or is still a member. True if the group is new. A full table
    /// refuses and counts new groups: a storm of them must not evict groups in use.
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

    /// Notes that a host left `group`. A query for remaining members follows; without an answer within two
    /// seconds the group is removed.
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

    /// The groups with members.
    pub fn groups(&self) -> impl Iterator<Item = IpAddr> {
        self.members.keys().copied()
    }

    /// Whether `group` has a member.
    pub fn is_member(&self, group: IpAddr) -> bool {
        self.members.contains_key(&group)
    }

    /// The time for the next [`Snooper::handle_timeout`] and [`Snooper::poll_query`].
    pub fn next_deadline(&self) -> Option<Time> {
        if !self.queries.is_empty() {
            return Some(Time(0));
        }
        let general = self.querying.then_some(self.general);
        general.into_iter().chain(self.earliest).min()
    }

    /// Handles timers that are due. True if a group lost its last member.
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

    /// Writes the next due query, an Ethernet frame for the TAP, to `out`, and replaces its contents. False
    /// if none is due.
    pub fn poll_query(&mut self, out: &mut Vec<u8>) -> bool {
        let Some(query) = self.queries.pop_front() else {
            return false;
        };
        query.write(self.mac, out);
        true
    }

    /// Number of groups refused because the table was full.
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

    /// Queues a query. Each group has at most one in the queue, so the queue is not longer than the table.
    fn ask(&mut self, query: Query) {
        if !self.queries.contains(&query) {
            self.queries.push_back(query);
        }
    }
}

impl Member {
    /// The time of the next action for the group.
    fn next(&self) -> Time {
        match self.leaving {
            Some((1.., at)) => self.expires.min(at),
            _ => self.expires,
        }
    }

    /// Whether a query for the group is due; if so, notes it as sent.
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
