//! Owners of a switch's addresses, which several ports may claim.
//!
//! The newest claim wins: a virtual machine has moved there. An address that moves too often stays where it
//! is for a while, because each move is a message to every member. After a restart the order of claims is
//! unknown; therefore the owners of contested addresses are saved.

use std::collections::{BTreeMap, BTreeSet};

use proto::{Mac, Time};

use crate::config::PortKey;

/// Number of moves of an address within [`WINDOW`] after which it stays.
const MOVES: u8 = 5;
/// Milliseconds for which moves are counted, and for which an address then stays.
const WINDOW: u64 = 60_000;
/// Maximum number of addresses of one port; an agent reports 256, and the interface's own.
pub(super) const PORT_CLAIMS: usize = 1024;

/// Maximum number of addresses without owner whose moves are remembered.
const REMEMBERED: usize = 4096;

/// The claims of the ports of one switch.
#[derive(Debug, Default)]
pub(super) struct Claims {
    /// Counter of claims: the highest is the newest.
    order: u64,
    by_mac: BTreeMap<Mac, Claim>,
    by_port: BTreeMap<PortKey, BTreeSet<Mac>>,
    /// Number of addresses in `by_mac` without claimant.
    orphans: usize,
    /// Deadlines of addresses.
    deadlines: BTreeSet<(Time, Mac)>,
    /// Addresses that several ports claim, with their owners.
    contested: BTreeMap<Mac, PortKey>,
    /// `contested` has changed since it was last taken.
    contests_changed: bool,
    /// Owners of contested addresses in the former run, until all ports were found again.
    before: BTreeMap<Mac, PortKey>,
}

#[derive(Debug)]
struct Claim {
    /// Owner; `None` if the address is held and its owner has withdrawn.
    owner: Option<PortKey>,
    /// Last owner.
    last: PortKey,
    claimants: BTreeMap<PortKey, u64>,
    moves: u8,
    /// Start of the count of moves.
    since: Time,
    /// Until this time the address stays with its owner.
    held: Option<Time>,
    reported: bool,
    /// Entry in the deadlines.
    scheduled: Option<Time>,
}

/// Events for the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Alarm {
    /// Two ports claim the address; reported once while that lasts.
    Duplicate {
        mac: Mac,
        from: PortKey,
        to: PortKey,
    },
    /// The address moved too often and is held.
    Damped { mac: Mac, at: PortKey },
}

impl Claims {
    /// Creates the claims of a switch; `before` has the owners of contested addresses in the former run.
    pub(super) fn new(before: BTreeMap<Mac, PortKey>) -> Claims {
        Claims {
            before,
            contests_changed: true,
            ..Claims::default()
        }
    }

    /// All ports were found: from now on a new claim is the newest.
    pub(super) fn all_heard(&mut self) {
        self.before.clear();
    }

    /// Addresses that several ports claim, with their owners; `None` if they have not changed since the last
    /// call.
    pub(super) fn take_contested(&mut self) -> Option<&BTreeMap<Mac, PortKey>> {
        std::mem::take(&mut self.contests_changed).then_some(&self.contested)
    }

    /// Applies the whole list of a port. Returns whether an owner has changed.
    pub(super) fn report(
        &mut self,
        now: Time,
        port: PortKey,
        macs: &BTreeSet<Mac>,
        alarms: &mut Vec<Alarm>,
    ) -> bool {
        // The owner of a multicast or broadcast address would receive packets for all members.
        let ones = macs.iter().copied().filter(|mac| mac[0] & 1 == 0);
        let macs: BTreeSet<Mac> = ones.take(PORT_CLAIMS).collect();
        let before = match macs.is_empty() {
            true => self.by_port.remove(&port),
            false => self.by_port.insert(port, macs.clone()),
        }
        .unwrap_or_default();
        let mut changed = false;
        for mac in before.difference(&macs) {
            changed |= self.withdraw(*mac, port);
        }
        for mac in macs.difference(&before) {
            changed |= self.claim(now, *mac, port, alarms);
        }
        changed
    }

    /// Addresses and the members that have them: the owner, or, if the owner is not a member, the newest
    /// claimant that is one.
    pub(super) fn places<'a>(
        &'a self,
        is_member: impl Fn(&PortKey) -> bool + 'a,
    ) -> impl Iterator<Item = (Mac, PortKey)> + 'a {
        self.by_mac
            .iter()
            .filter_map(move |(mac, claim)| Some((*mac, claim.place(&is_member)?)))
    }

    /// Time of the next [`Claims::advance`].
    pub(super) fn deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|(time, _)| *time)
    }

    /// Releases addresses that were held long enough. Returns whether an owner has changed.
    pub(super) fn advance(&mut self, now: Time) -> bool {
        let mut changed = false;
        while let Some((time, mac)) = self.deadlines.first().copied() {
            if time > now {
                break;
            }
            self.deadlines.pop_first();
            let Some(claim) = self.by_mac.get_mut(&mac) else {
                continue;
            };
            claim.scheduled = None;
            claim.held = None;
            claim.moves = 0;
            claim.since = now;
            changed |= claim.settle();
            if claim.claimants.is_empty() {
                self.orphans -= 1;
                self.by_mac.remove(&mac);
            }
            self.follow(mac);
        }
        changed
    }

    /// Updates everything that depends on a claim.
    fn follow(&mut self, mac: Mac) {
        let claim = self.by_mac.get_mut(&mac);
        let several = claim.as_ref().filter(|claim| claim.claimants.len() > 1);
        let owner = several.and_then(|claim| claim.owner);
        let before = match owner {
            Some(owner) => self.contested.insert(mac, owner),
            None => self.contested.remove(&mac),
        };
        self.contests_changed |= before != owner;
        let Some(claim) = claim else {
            return;
        };
        let deadline = claim.deadline();
        let before = std::mem::replace(&mut claim.scheduled, deadline);
        if before != deadline {
            self.deadlines.extend(deadline.map(|at| (at, mac)));
            if let Some(at) = before {
                self.deadlines.remove(&(at, mac));
            }
        }
    }

    fn claim(&mut self, now: Time, mac: Mac, port: PortKey, alarms: &mut Vec<Alarm>) -> bool {
        let changed = self.note_claim(now, mac, port, alarms);
        self.follow(mac);
        changed
    }

    fn note_claim(&mut self, now: Time, mac: Mac, port: PortKey, alarms: &mut Vec<Alarm>) -> bool {
        self.order += 1;
        let former = self.before.get(&mac).copied();
        let former = former.filter(|former| *former != port);
        let claim = self.by_mac.entry(mac).or_insert_with(|| {
            self.orphans += 1;
            Claim {
                owner: None,
                last: port,
                claimants: BTreeMap::new(),
                moves: 0,
                since: now,
                held: None,
                reported: false,
                scheduled: None,
            }
        });
        self.orphans -= usize::from(claim.claimants.is_empty());
        if let Some(former) = former {
            // The saved owner's claim is newer, whichever arrives first.
            claim.claimants.insert(port, 0);
            claim.report_duplicate(mac, port, former, alarms);
            return claim.settle();
        }
        claim.claimants.insert(port, self.order);
        if claim.held.is_some() {
            return false;
        }
        if claim.last != port {
            claim.count_move(now, mac, port, alarms);
        }
        claim.settle()
    }

    fn withdraw(&mut self, mac: Mac, port: PortKey) -> bool {
        let Some(claim) = self.by_mac.get_mut(&mac) else {
            return false;
        };
        claim.claimants.remove(&port);
        claim.reported &= claim.claimants.len() > 1;
        let changed = claim.owner == Some(port);
        if changed {
            claim.owner = None;
            claim.settle();
        }
        if claim.claimants.is_empty() {
            if self.orphans < REMEMBERED {
                self.orphans += 1;
            } else if let Some(at) = self.by_mac.remove(&mac).and_then(|c| c.scheduled) {
                self.deadlines.remove(&(at, mac));
            }
        }
        self.follow(mac);
        changed
    }
}

impl Claim {
    /// The owner, or, if the owner is not a member, the newest claimant that is one. The owner's claim stays,
    /// because the owner may return. An address that is held without owner is at no member.
    fn place(&self, is_member: impl Fn(&PortKey) -> bool) -> Option<PortKey> {
        let owner = self.owner?;
        if is_member(&owner) {
            return Some(owner);
        }
        let claimants = self.claimants.iter();
        let members = claimants.filter(|(port, _)| is_member(port));
        let newest = members.max_by_key(|(_, order)| **order);
        newest.map(|(port, _)| *port)
    }

    fn deadline(&self) -> Option<Time> {
        let forget = || self.claimants.is_empty().then(|| self.since.after(WINDOW));
        self.held.or_else(forget)
    }

    /// The newest claimant becomes the owner, unless the address is held. Returns whether the owner has
    /// changed.
    fn settle(&mut self) -> bool {
        if self.held.is_some() {
            return false;
        }
        let newest = self.claimants.iter().max_by_key(|(_, order)| **order);
        let owner = newest.map(|(port, _)| *port);
        self.last = owner.unwrap_or(self.last);
        std::mem::replace(&mut self.owner, owner) != owner
    }

    fn count_move(&mut self, now: Time, mac: Mac, to: PortKey, alarms: &mut Vec<Alarm>) {
        if now.since(self.since) >= WINDOW {
            self.since = now;
            self.moves = 0;
        }
        let from = self.last;
        if self.moves >= MOVES {
            self.held = Some(now.after(WINDOW));
            alarms.push(Alarm::Damped { mac, at: from });
            return;
        }
        self.moves += 1;
        self.report_duplicate(mac, from, to, alarms);
    }

    fn report_duplicate(&mut self, mac: Mac, from: PortKey, to: PortKey, alarms: &mut Vec<Alarm>) {
        if self.claimants.len() > 1 && !std::mem::replace(&mut self.reported, true) {
            alarms.push(Alarm::Duplicate { mac, from, to });
        }
    }
}

#[cfg(test)]
mod tests;
