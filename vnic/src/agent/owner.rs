//! Who may manage an agent: those that its configuration names, and of those one at a time.

use fabric::{Gid, Qpn};

use crate::Time;
use crate::attribute::ManagerInfo;
use crate::carriage::Address;

/// The lease of a manager that has not said how long its is, in milliseconds.
const LEASE_MS: u64 = 15_000;
/// A lease is no shorter, and no longer, than these.
const LEASES_MS: std::ops::RangeInclusive<u64> = 1_000..=300_000;
/// Managers whose leases are remembered.
const KNOWN_MAX: usize = 16;
/// Strangers that are told of. Who comes after them is only counted.
const STRANGERS_MAX: usize = 32;

/// The manager that an agent holds to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner {
    /// Its port.
    pub gid: Gid,
    /// Its queue pair.
    pub qpn: Qpn,
    /// Until when, if it says nothing more.
    pub until: Time,
}

/// A manager that has announced itself.
struct Known {
    gid: Gid,
    qpn: Qpn,
    id: u64,
    lease_ms: u64,
}

/// The rules.
pub struct Ownership {
    managers: Vec<Gid>,
    owner: Option<Owner>,
    /// Where the last owner was, and which manager, if it has announced itself.
    last: Option<(Gid, u64)>,
    /// In the order of their last announcements.
    known: Vec<Known>,
    strangers: Vec<(Gid, Qpn)>,
}

/// What becomes of a Set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The owner's.
    Owner,
    /// There is no owner: it becomes one if the Set is good.
    Vacant,
    /// Another one owns it.
    Refused(Owner),
}

/// What an announcement changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// Nothing that people may want to know.
    None,
    /// The owner leaves its place.
    Released,
    /// The last owner is back.
    Regained,
}

impl Ownership {
    pub const fn new(managers: Vec<Gid>) -> Ownership {
        Ownership {
            managers,
            owner: None,
            last: None,
            known: Vec::new(),
            strangers: Vec::new(),
        }
    }

    pub fn set_managers(&mut self, managers: Vec<Gid>) {
        self.managers = managers;
        self.strangers.clear();
        if self.owner.is_some_and(|owner| !self.may_manage(owner.gid)) {
            self.owner = None;
        }
    }

    pub fn may_manage(&self, gid: Gid) -> bool {
        self.managers.is_empty() || self.managers.contains(&gid)
    }

    /// Whether a stranger was not told of yet.
    pub fn is_new(&mut self, from: Address) -> bool {
        let stranger = (from.gid, from.qpn);
        if self.strangers.contains(&stranger) || self.strangers.len() >= STRANGERS_MAX {
            return false;
        }
        self.strangers.push(stranger);
        true
    }

    pub fn owner(&self, now: Time) -> Option<Owner> {
        self.owner.filter(|owner| now < owner.until)
    }

    pub fn may_set(&self, now: Time, from: Address) -> Verdict {
        match self.owner(now) {
            Some(owner) if (owner.gid, owner.qpn) == (from.gid, from.qpn) => Verdict::Owner,
            Some(owner) => Verdict::Refused(owner),
            None => Verdict::Vacant,
        }
    }

    /// A good Set came from it: it owns the agent.
    pub fn take(&mut self, now: Time, from: Address) {
        let (gid, qpn) = (from.gid, from.qpn);
        let until = now.after(self.lease(gid, qpn));
        self.owner = Some(Owner { gid, qpn, until });
        let known = self.known.iter().find(|k| (k.gid, k.qpn) == (gid, qpn));
        self.last = known.map(|known| (gid, known.id));
        self.strangers.retain(|stranger| *stranger != (gid, qpn));
    }

    /// It said something: if it is the owner, it goes on being that.
    pub fn heard(&mut self, now: Time, from: Address) {
        if self.may_set(now, from) == Verdict::Owner {
            self.take(now, from);
        }
    }

    /// A manager announced itself.
    pub fn announced(&mut self, now: Time, from: Address, info: &ManagerInfo) -> Change {
        self.follow(now, from, info.id);
        self.known
            .retain(|known| (known.gid, known.qpn) != (from.gid, from.qpn));
        if self.known.len() >= KNOWN_MAX {
            self.known.remove(0);
        }
        self.known.push(Known {
            gid: from.gid,
            qpn: from.qpn,
            id: info.id,
            lease_ms: u64::from(info.lease_ms).clamp(*LEASES_MS.start(), *LEASES_MS.end()),
        });
        match (self.may_set(now, from), info.active) {
            (Verdict::Owner, true) => self.take(now, from),
            (Verdict::Owner, false) => {
                // It leaves the place to another before its lease is over.
                self.owner = None;
                return Change::Released;
            }
            // One that was restarted has nothing to set where all is as it left it, and would leave the
            // place to whoever sets something.
            (Verdict::Vacant, true) if self.last == Some((from.gid, info.id)) => {
                self.take(now, from);
                return Change::Regained;
            }
            _ => {}
        }
        Change::None
    }

    /// The owner may have another queue pair, since the daemon that it sends through was restarted.
    fn follow(&mut self, now: Time, from: Address, id: u64) {
        let Some(owner) = self.owner(now) else {
            return;
        };
        let was = |known: &&Known| (known.gid, known.qpn) == (owner.gid, owner.qpn);
        let known = self.known.iter().find(was);
        if owner.gid == from.gid && known.is_some_and(|known| known.id == id) {
            self.take(now, from);
        }
    }

    fn lease(&self, gid: Gid, qpn: Qpn) -> u64 {
        let known = self.known.iter().find(|k| (k.gid, k.qpn) == (gid, qpn));
        known.map_or(LEASE_MS, |known| known.lease_ms)
    }
}
