//! Which port of a switch has an address, where several may say that they do.
//!
//! The newest claim wins, since that is where a virtual machine went. An address that goes to and fro
//! stays where it is for a while: each move is a message to every member.

use std::collections::{BTreeMap, BTreeSet};

use vnic::{Mac, Time};

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
        self.by_mac.values().filter_map(Claim::deadline).min()
    }

    /// Lets go of addresses that stayed long enough. Returns whether an owner has changed.
    pub(super) fn advance(&mut self, now: Time) -> bool {
        let mut changed = false;
        let orphans = &mut self.orphans;
        self.by_mac.retain(|_, claim| {
            if claim.deadline().is_none_or(|until| until > now) {
                return true;
            }
            claim.held = None;
            claim.moves = 0;
            claim.since = now;
            changed |= claim.settle();
            let orphan = claim.claimants.is_empty();
            *orphans -= usize::from(orphan);
            !orphan
        });
        changed
    }

    fn claim(&mut self, now: Time, mac: Mac, port: PortKey, alarms: &mut Vec<Alarm>) -> bool {
        self.order += 1;
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
            }
        });
        self.orphans -= usize::from(claim.claimants.is_empty());
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
            } else {
                self.by_mac.remove(&mac);
            }
        }
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
        if self.claimants.len() > 1 && !std::mem::replace(&mut self.told, true) {
            alarms.push(Alarm::Duplicate { mac, from, to });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: Mac = [2, 0, 0, 0, 0, 9];

    fn port(index: u8) -> PortKey {
        PortKey {
            guid: 1,
            port: 1,
            index,
        }
    }

    fn owner(claims: &Claims) -> Option<PortKey> {
        claims
            .owners()
            .find(|(mac, _)| *mac == MAC)
            .map(|(_, port)| port)
    }

    #[test]
    fn the_newest_claim_wins_and_is_told_of_once() {
        let (mut claims, mut alarms) = (Claims::default(), Vec::new());
        let macs = BTreeSet::from([MAC]);
        assert!(claims.report(Time(0), port(1), &macs, &mut alarms));
        assert!(claims.report(Time(1), port(2), &macs, &mut alarms));
        assert_eq!(owner(&claims), Some(port(2)));
        // The same list again is no new claim.
        assert!(!claims.report(Time(2), port(1), &macs, &mut alarms));
        assert_eq!(owner(&claims), Some(port(2)));
        assert_eq!(
            alarms,
            [Alarm::Duplicate {
                mac: MAC,
                from: port(1),
                to: port(2)
            }]
        );
        // It goes back to who still has it.
        assert!(claims.report(Time(3), port(2), &BTreeSet::new(), &mut alarms));
        assert_eq!(owner(&claims), Some(port(1)));
        assert!(claims.report(Time(4), port(1), &BTreeSet::new(), &mut alarms));
        assert_eq!(owner(&claims), None);
        let _ = claims.advance(claims.deadline().unwrap());
        assert!(claims.by_mac.is_empty() && claims.by_port.is_empty());
        assert_eq!(claims.orphans, 0);
    }

    /// Two ports take an address from each other again and again. `gap`: for a moment nobody has it.
    fn to_and_fro(gap: bool) {
        let (mut claims, mut alarms) = (Claims::default(), Vec::new());
        let (has, none) = (BTreeSet::from([MAC]), BTreeSet::new());
        let mut moves = 0;
        let _ = claims.report(Time(0), port(0), &has, &mut alarms);
        for n in 1..40_u64 {
            let (to, from) = (port((n % 2) as u8), port((1 - n % 2) as u8));
            let before = claims.by_mac[&MAC].last;
            let mut steps = [(to, &has), (from, &none)];
            if gap {
                steps.reverse();
            }
            for (port, macs) in steps {
                let _ = claims.report(Time(n * 10), port, macs, &mut alarms);
            }
            moves += u8::from(owner(&claims).is_some_and(|now| now != before));
        }
        assert_eq!(moves, MOVES, "{gap}");
        let damped = |a: &&Alarm| matches!(a, Alarm::Damped { .. });
        assert_eq!(alarms.iter().filter(damped).count(), 1, "{alarms:?}");
        // It is not where it stayed, and nobody is told that it is elsewhere.
        assert_eq!(owner(&claims), None);
        let until = claims.deadline().unwrap();
        assert!(!claims.advance(Time(until.0 - 1)));
        assert!(claims.advance(until));
        assert_eq!(claims.deadline(), None);
        assert_eq!(owner(&claims), Some(port(1)));
    }

    #[test]
    fn an_address_that_goes_to_and_fro_stays_for_a_while() {
        to_and_fro(false);
        to_and_fro(true);
    }

    #[test]
    fn nobody_claims_a_groups_address_or_everybodys() {
        let (mut claims, mut alarms) = (Claims::default(), Vec::new());
        let macs = BTreeSet::from([
            [0xff; 6],
            [0x33, 0x33, 0, 0, 0, 1],
            [1, 0, 0x5e, 0, 0, 1],
            MAC,
        ]);
        assert!(claims.report(Time(0), port(1), &macs, &mut alarms));
        assert_eq!(claims.owners().count(), 1);
        assert_eq!(owner(&claims), Some(port(1)));
    }

    #[test]
    fn a_port_claims_so_many_addresses_and_no_more() {
        let (mut claims, mut alarms) = (Claims::default(), Vec::new());
        let many = (0..5000_u16).map(|n| {
            let [a, b] = n.to_be_bytes();
            [2, 0, 0, 0, a, b]
        });
        let _ = claims.report(Time(0), port(1), &many.collect(), &mut alarms);
        assert_eq!(claims.owners().count(), PORT_CLAIMS);
    }
}
