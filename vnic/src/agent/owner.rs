//! Permission to manage an agent: for configured managers only, one at a time.
//!
//! Several managers may share a queue pair: an active one and a standby on one node. The upper half of the
//! transaction id distinguishes them: each manager draws it at its start and uses it in all messages (as
//! the kernel's clients of a port do: drivers/infiniband/core/mad.c, `hi_tid`). An announcement links it to
//! the identity of the manager. GID and queue pair identify a manager without announcements.

use proto::{Gid, Qpn, Time};

use crate::attribute::ManagerInfo;
use crate::carriage::Address;
use crate::mad::Header;

/// Lease of a manager that has announced none, in milliseconds.
const LEASE_MS: u64 = 15_000;
/// Shortest and longest lease, in milliseconds. Announced leases are clamped to this range.
pub const LEASES_MS: std::ops::RangeInclusive<u64> = 1_000..=300_000;
/// Maximum number of remembered announcements. The owner's data is kept separately.
const KNOWN_MAX: usize = 16;
/// Refused senders that are reported; further ones are only counted.
const STRANGERS_MAX: usize = 32;

/// The manager that owns an agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner {
    /// GID of its port.
    pub gid: Gid,
    /// Its queue pair number.
    pub qpn: Qpn,
    /// End of the lease, unless it is renewed.
    pub until: Time,
}

/// Sender of a message: GID, queue pair, and the mark that distinguishes senders of one queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sender {
    gid: Gid,
    qpn: Qpn,
    /// Upper half of its transaction ids.
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

/// The owner and its lease.
#[derive(Clone, Copy)]
struct Held {
    sender: Sender,
    /// Identity of the manager; `None` before its first announcement.
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

    /// Whether the owner sent this announcement. Everyone in the group knows its GID and identity, so an
    /// announcement from another queue pair, or with another mark, neither moves nor ends the ownership. The
    /// owner has another queue pair or mark only after a restart; then its lease is not renewed, and ends.
    fn has_announced(&self, from: Sender, id: u64) -> bool {
        self.sender == from && self.id.is_none_or(|own| own == id)
    }
}

/// Ownership of an agent.
pub struct Ownership {
    managers: Vec<Gid>,
    owner: Option<Held>,
    /// GID and identity of the last owner, if it has announced itself.
    last: Option<(Gid, u64)>,
    /// Ordered by last announcement.
    known: Vec<Known>,
    strangers: Vec<(Gid, Qpn)>,
}

/// Decision about a Set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The sender owns the agent.
    Owner,
    /// The agent has no owner: the sender becomes the owner if the Set succeeds.
    Vacant,
    /// Another manager owns the agent.
    Refused(Owner),
}

/// Effect of an announcement on ownership.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// Nothing to report.
    None,
    /// The owner gave up ownership.
    Released,
    /// The last owner regained ownership.
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

    /// Whether this refused sender must be reported: it was not reported before.
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

    /// Whether `from` is the owner. If neither has announced itself, the mark may be a plain counter; then
    /// the queue pair alone identifies the manager.
    fn is_of(&self, held: &Held, from: Sender) -> bool {
        let same_place = (held.sender.gid, held.sender.qpn) == (from.gid, from.qpn);
        let unmarked = held.id.is_none() && self.known(from).is_none();
        same_place && (held.sender.mark == from.mark || unmarked)
    }

    fn known(&self, from: Sender) -> Option<&Known> {
        self.known.iter().find(|known| known.sender == from)
    }

    /// The sender of a successful Set becomes the owner.
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

    /// Renews the lease if the owner sent this message.
    pub fn heard(&mut self, now: Time, from: Sender) {
        if self.may_set(now, from) == Verdict::Owner
            && let Some(held) = &mut self.owner
        {
            held.until = now.after(held.lease_ms);
        }
    }

    /// Handles the announcement of a manager.
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
                // The owner gives up ownership before its lease ends.
                self.owner = None;
                Change::Released
            }
            // A restarted owner may find nothing to Set. Without this rule, the next manager that sends a
            // Set would take ownership.
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
