//! Which port of a switch has an address, where several may say that they do.
//!
//! The newest claim wins, since that is where a virtual machine went. An address that goes to and fro
//! stays where it is for a while: each move is a message to every member. Which claim is the newest is not
//! known after a restart, so that who has an address that several claim is remembered.

use std::collections::{BTreeMap, BTreeSet};

use proto::{Mac, Time};

use crate::config::PortKey;

/// Moves of an address within [`WINDOW`] after which it stays.
const MOVES: u8 = 5;
/// Milliseconds in which moves are counted, and for which an address stays then.
const WINDOW: u64 = 60_000;
/// Addresses that one port may claim; an agent reports 256, and the interface's own.
pub(super) const PORT_CLAIMS: usize = 1024;

/// Addresses that nobody has any longer, of which it is remembered how often they moved.
const REMEMBERED: usize = 4096;

/// The claims of the ports of one switch.
#[derive(Debug, Default)]
pub(super) struct Claims {
    /// Counts claims: the highest is the newest.
    order: u64,
    by_mac: BTreeMap<Mac, Claim>,
    by_port: BTreeMap<PortKey, BTreeSet<Mac>>,
    /// Those of `by_mac` that nobody has.
    orphans: usize,
    /// When which has something to do.
    deadlines: BTreeSet<(Time, Mac)>,
    /// Addresses that several ports claim, and who has them.
    contested: BTreeMap<Mac, PortKey>,
    /// They are others since they were taken.
    contests_changed: bool,
    /// Who had contested addresses before this run, until all ports were heard of again.
    before: BTreeMap<Mac, PortKey>,
}

#[derive(Debug)]
struct Claim {
    /// Who has it; nobody while it moves too often, and is not where it was.
    owner: Option<PortKey>,
    /// Who had it last.
    last: PortKey,
    claimants: BTreeMap<PortKey, u64>,
    moves: u8,
    /// When counting of moves began.
    since: Time,
    /// Until when it stays with its owner.
    held: Option<Time>,
    told: bool,
    /// Its entry of the deadlines.
    scheduled: Option<Time>,
}

/// What administrators are to know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Alarm {
    /// Two ports say that they have it; told once while that is so.
    Duplicate {
        mac: Mac,
        from: PortKey,
        to: PortKey,
    },
    /// It went to and fro too often, and stays.
    Damped { mac: Mac, at: PortKey },
}

impl Claims {
    /// Those of a switch; `before` is who had addresses that several claimed, in the run before this.
    pub(super) fn new(before: BTreeMap<Mac, PortKey>) -> Claims {
        Claims {
            before,
            contests_changed: true,
            ..Claims::default()
        }
    }

    /// All ports were heard of: who claims an address from now on is the newest.
    pub(super) fn all_heard(&mut self) {
        self.before.clear();
    }

    /// Addresses that several ports claim, and who has them, if they are others than when this was asked
    /// last.
    pub(super) fn take_contested(&mut self) -> Option<&BTreeMap<Mac, PortKey>> {
        std::mem::take(&mut self.contests_changed).then_some(&self.contested)
    }

    /// A port's whole list. Returns whether an owner has changed.
    pub(super) fn report(
        &mut self,
        now: Time,
        port: PortKey,
        macs: &BTreeSet<Mac>,
        alarms: &mut Vec<Alarm>,
    ) -> bool {
        // Whoever had a group's address, or everybody's, would have what is for all.
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

    /// Who has an address.
    pub(super) fn owners(&self) -> impl Iterator<Item = (Mac, PortKey)> + '_ {
        self.by_mac
            .iter()
            .filter_map(|(mac, claim)| Some((*mac, claim.owner?)))
    }

    /// When [`Claims::advance`] has something to do.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|(time, _)| *time)
    }

    /// Lets go of addresses that stayed long enough. Returns whether an owner has changed.
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

    /// Keeps what follows from a claim.
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
                told: false,
                scheduled: None,
            }
        });
        self.orphans -= usize::from(claim.claimants.is_empty());
        if let Some(former) = former {
            // It is older than that of who has it, whichever is heard first.
            claim.claimants.insert(port, 0);
            claim.tell_of(mac, port, former, alarms);
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
        claim.told &= claim.claimants.len() > 1;
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
    fn deadline(&self) -> Option<Time> {
        let forget = || self.claimants.is_empty().then(|| self.since.after(WINDOW));
        self.held.or_else(forget)
    }

    /// It belongs to the newest claimant, unless it has to stay. Returns whether the owner has changed.
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
        self.tell_of(mac, from, to, alarms);
    }

    fn tell_of(&mut self, mac: Mac, from: PortKey, to: PortKey, alarms: &mut Vec<Alarm>) {
        if self.claimants.len() > 1 && !std::mem::replace(&mut self.told, true) {
            alarms.push(Alarm::Duplicate { mac, from, to });
        }
    }
}

#[cfg(test)]
mod tests;
