//! Who may manage an agent: those that its configuration names, and of those one at a time.
//!
//! Several managers may be behind one queue pair: an active one and a standby of one node. They are told
//! apart by the upper half of their transaction ids, which each draws at its start and has in all that it
//! sends (the kernel's clients of a port likewise, drivers/infiniband/core/mad.c, `hi_tid`); its
//! announcement says with which identity that goes. What never announced itself is told by its queue pair
//! alone.

use proto::{Gid, Qpn, Time};

use crate::attribute::ManagerInfo;
use crate::carriage::Address;
use crate::mad::Header;

/// The lease of a manager that has not said how long its is, in milliseconds.
const LEASE_MS: u64 = 15_000;
/// A manager's lease is no shorter, and no longer, than these milliseconds, whatever it says.
pub const LEASES_MS: std::ops::RangeInclusive<u64> = 1_000..=300_000;
/// Managers that have announced themselves and are remembered. What the owner said is kept with it.
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

/// Who has sent something: a queue pair, and which of those who share it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sender {
    gid: Gid,
    qpn: Qpn,
    /// The upper half of its transaction ids.
    mark: u32,
}

impl Sender {
    pub const fn of(from: Address, header: &Header) -> Sender {
        Sender {
            gid: from.gid,
            qpn: from.qpn,
            mark: (header.transaction_id.get() >> 32) as u32,
        }
    }
}

/// A manager that has announced itself.
struct Known {
    sender: Sender,
    id: u64,
    lease_ms: u64,
}

/// The one that owns the agent.
#[derive(Clone, Copy)]
struct Held {
    sender: Sender,
    /// Which manager it is, once it has announced itself.
    id: Option<u64>,
    lease_ms: u64,
    until: Time,
}

impl Held {
    const fn owner(&self) -> Owner {
        Owner {
            gid: self.sender.gid,
            qpn: self.sender.qpn,
            until: self.until,
        }
    }

    /// Whether this announcement is its own. It may have another queue pair, since the daemon that it sends
    /// through was restarted, and another mark, since it was restarted itself.
    fn has_announced(&self, from: Sender, id: u64) -> bool {
        match self.id {
            Some(own) => (self.sender.gid, own) == (from.gid, id),
            None => self.sender == from,
        }
    }
}

/// The rules.
pub struct Ownership {
    managers: Vec<Gid>,
    owner: Option<Held>,
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
        if self
            .owner
            .is_some_and(|held| !self.may_manage(held.sender.gid))
        {
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
        self.held(now).map(|held| held.owner())
    }

    fn held(&self, now: Time) -> Option<&Held> {
        self.owner.as_ref().filter(|held| now < held.until)
    }

    pub fn may_set(&self, now: Time, from: Sender) -> Verdict {
        match self.held(now) {
            Some(held) if self.is_of(held, from) => Verdict::Owner,
            Some(held) => Verdict::Refused(held.owner()),
            None => Verdict::Vacant,
        }
    }

    /// Whether the owner sends. Where neither it nor the sender has announced itself, the mark may be
    /// nothing but a count, and one queue pair one manager.
    fn is_of(&self, held: &Held, from: Sender) -> bool {
        let same_place = (held.sender.gid, held.sender.qpn) == (from.gid, from.qpn);
        let unmarked = held.id.is_none() && self.known(from).is_none();
        same_place && (held.sender.mark == from.mark || unmarked)
    }

    fn known(&self, from: Sender) -> Option<&Known> {
        self.known.iter().find(|known| known.sender == from)
    }

    /// A good Set came from it: it owns the agent.
    pub fn take(&mut self, now: Time, from: Sender) {
        if self.may_set(now, from) == Verdict::Owner {
            return self.heard(now, from);
        }
        let known = self.known(from);
        let id = known.map(|known| known.id);
        let lease_ms = known.map_or(LEASE_MS, |known| known.lease_ms);
        self.last = id.map(|id| (from.gid, id));
        self.hold(now, from, id, lease_ms);
    }

    fn hold(&mut self, now: Time, sender: Sender, id: Option<u64>, lease_ms: u64) {
        let until = now.after(lease_ms);
        self.owner = Some(Held {
            sender,
            id,
            lease_ms,
            until,
        });
        self.strangers
            .retain(|stranger| *stranger != (sender.gid, sender.qpn));
    }

    /// It said something: if it is the owner, it goes on being that.
    pub fn heard(&mut self, now: Time, from: Sender) {
        if self.may_set(now, from) == Verdict::Owner
            && let Some(held) = &mut self.owner
        {
            held.until = now.after(held.lease_ms);
        }
    }

    /// A manager announced itself.
    pub fn announced(&mut self, now: Time, from: Sender, info: &ManagerInfo) -> Change {
        let lease_ms = u64::from(info.lease_ms).clamp(*LEASES_MS.start(), *LEASES_MS.end());
        self.remember(from, info.id, lease_ms);
        let place = Some((from.gid, info.id));
        match (self.held(now), info.active) {
            (Some(held), active) if held.has_announced(from, info.id) => {
                self.last = place;
                if active {
                    self.hold(now, from, Some(info.id), lease_ms);
                    return Change::None;
                }
                // It leaves the place to another before its lease is over.
                self.owner = None;
                Change::Released
            }
            // One that was restarted has nothing to set where all is as it left it, and would leave the
            // place to whoever sets something.
            (None, true) if self.last == place => {
                self.hold(now, from, Some(info.id), lease_ms);
                Change::Regained
            }
            _ => Change::None,
        }
    }

    fn remember(&mut self, sender: Sender, id: u64, lease_ms: u64) {
        self.known.retain(|known| {
            known.sender != sender && (known.sender.gid, known.id) != (sender.gid, id)
        });
        if self.known.len() >= KNOWN_MAX {
            self.known.remove(0);
        }
        self.known.push(Known {
            sender,
            id,
            lease_ms,
        });
    }
}
