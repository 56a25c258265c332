//! The multicast groups of one endpoint: which are wanted, which of them the fabric has given, and when one
//! that it refused is asked for again.
//!
//! A [`GroupSet`] has no port and no clock. Its holder says what it wants ([`GroupSet::want`]), and
//! [`change`] has a port follow. An answer may come with the request, as on a software fabric, or later, or
//! be taken back, as from a subnet administrator: then it waits ([`GroupSet::answer`]) for [`change`].

mod requests;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use fabric::{Capabilities, Gid, GroupParameters, Joined};
use proto::Time;
use vnic::Random;

pub use requests::{Changes, change, follow};

/// Until a group that was refused is asked for again, in milliseconds: the longest first pause.
const PAUSE_MS: u64 = 1_333;
/// The longest pause.
const PAUSE_MAX_MS: u64 = 30_000;

/// What a set may ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Groups in all.
    pub groups: usize,
    /// Groups whose answer has not come yet.
    pub requests: usize,
}

impl Bounds {
    /// What a port takes from one endpoint.
    pub fn of(port: &Capabilities) -> Bounds {
        Bounds {
            groups: port.groups_max,
            requests: port.group_requests,
        }
    }
}

/// What is known of a group that is wanted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum State<'a> {
    /// It is to be asked for.
    Wanted,
    /// It was asked for, and the answer has not come yet.
    Pending,
    /// The endpoint is attached to it.
    Joined(&'a GroupParameters),
    /// It was refused with this reason, and is asked for again later.
    Refused(&'a str),
}

/// What an answer changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum News {
    /// The endpoint is attached to the group now, and was not before.
    Joined,
    /// As `Joined`; besides, no group is refused any more.
    Recovered,
    /// The group is refused. `first`: no other group was since all were joined. `attached`: the endpoint was
    /// attached to the group until now.
    Refused {
        /// The first since all were joined.
        first: bool,
        /// The fabric took it back.
        attached: bool,
    },
}

/// See the module.
#[derive(Debug)]
pub struct GroupSet {
    bounds: Bounds,
    random: Random,
    required: Option<Gid>,
    wanted: BTreeSet<Gid>,
    /// Some group had no room among them.
    full: bool,
    /// To be asked for as soon as there is room among the requests. Some may be joined: they are asked for
    /// once more.
    fresh: BTreeSet<Gid>,
    /// Asked for, and not answered yet.
    pending: BTreeSet<Gid>,
    /// The groups that the endpoint is attached to.
    joined: BTreeMap<Gid, GroupParameters>,
    /// What was refused and has not been joined since, and why.
    refused: BTreeMap<Gid, String>,
    /// Asked for or joined, and no longer wanted.
    leaving: BTreeSet<Gid>,
    /// Answers that came late, in their order.
    late: Vec<(Gid, Joined)>,
    /// When those are asked for again that are refused.
    again: Option<Time>,
    pause: u64,
    /// When all that is joined is asked for once more, if it is.
    rejoin: Option<Time>,
}

impl GroupSet {
    /// No group yet. What is tried again is tried at times that the seed shifts.
    pub fn new(bounds: Bounds, seed: u64) -> GroupSet {
        GroupSet {
            bounds,
            random: Random::new(seed),
            required: None,
            wanted: BTreeSet::new(),
            full: false,
            fresh: BTreeSet::new(),
            pending: BTreeSet::new(),
            joined: BTreeMap::new(),
            refused: BTreeMap::new(),
            leaving: BTreeSet::new(),
            late: Vec::new(),
            again: None,
            pause: 0,
            rejoin: None,
        }
    }

    /// Wants these groups from now on, and no others. Without `required`, which is one of them then, there is
    /// no link: an IP link's broadcast group, the group of a VNIC's switch. Gives a group that has no room, once
    /// until all have some.
    pub fn want(
        &mut self,
        required: Option<Gid>,
        groups: impl IntoIterator<Item = Gid>,
    ) -> Option<Gid> {
        let mut wanted: BTreeSet<Gid> = required.into_iter().collect();
        let mut left_out = None;
        for group in groups {
            if wanted.len() < self.bounds.groups {
                wanted.insert(group);
            } else if !wanted.contains(&group) {
                left_out = Some(group);
                break;
            }
        }
        for group in self.wanted.difference(&wanted) {
            self.refused.remove(group);
            match self.pending.contains(group) || self.joined.contains_key(group) {
                true => self.leaving.insert(*group),
                false => self.fresh.remove(group),
            };
        }
        self.forget_times();
        for group in wanted.difference(&self.wanted) {
            // One that was not left yet is as it was.
            if !self.leaving.remove(group) {
                self.fresh.insert(*group);
            }
        }
        (self.required, self.wanted) = (required, wanted);
        let was_full = std::mem::replace(&mut self.full, left_out.is_some());
        left_out.filter(|_| !was_full)
    }

    /// What the port is to be asked for now, and what is to be left. The groups that are left are forgotten,
    /// those that are asked for wait for [`GroupSet::outcome`].
    pub fn requests(&mut self, now: Time) -> (Vec<Gid>, Vec<Gid>) {
        let leaves: Vec<Gid> = std::mem::take(&mut self.leaving).into_iter().collect();
        for group in &leaves {
            self.pending.remove(group);
            self.joined.remove(group);
            self.fresh.remove(group);
        }
        if self.rejoin.is_some_and(|at| at <= now) {
            self.rejoin = None;
            self.fresh.extend(self.joined.keys());
        }
        if self.again.is_some_and(|at| at <= now) {
            self.again = None;
            self.fresh.extend(self.refused.keys());
        }
        let room = self.bounds.requests.saturating_sub(self.pending.len());
        if room == 0 || self.fresh.is_empty() {
            return (Vec::new(), leaves);
        }
        // What there is no link without comes first.
        let first = self.required.and_then(|group| self.fresh.take(&group));
        let mut joins: Vec<Gid> = first.into_iter().collect();
        while joins.len() < room
            && let Some(group) = self.fresh.pop_first()
        {
            joins.push(group);
        }
        joins.retain(|group| self.pending.insert(*group));
        (joins, leaves)
    }

    /// The answer to a request for a group, or what becomes of one that is joined. Answers about other
    /// groups, which were left meanwhile, change nothing.
    pub fn outcome(&mut self, now: Time, group: Gid, joined: Joined) -> Option<News> {
        let asked = self.pending.contains(&group);
        let attached = self.joined.contains_key(&group);
        if !(asked || attached) {
            return None;
        }
        match joined {
            Joined::Pending => None,
            Joined::Now(parameters) => {
                self.pending.remove(&group);
                self.joined.insert(group, parameters);
                let was_refused = self.refused.remove(&group).is_some();
                self.forget_times();
                match was_refused && self.refused.is_empty() {
                    true => Some(News::Recovered),
                    false => (!attached).then_some(News::Joined),
                }
            }
            Joined::Refused(why) => {
                self.pending.remove(&group);
                self.joined.remove(&group);
                self.leaving.remove(&group);
                if !self.wanted.contains(&group) {
                    self.fresh.remove(&group);
                    let first = false;
                    return attached.then_some(News::Refused { first, attached });
                }
                let first = self.refused.is_empty();
                self.refused.insert(group, why);
                if self.again.is_none() {
                    self.again = Some(now.after(self.draw_pause()));
                }
                Some(News::Refused { first, attached })
            }
        }
    }

    /// What has no groups any more needs no time.
    fn forget_times(&mut self) {
        if self.refused.is_empty() {
            (self.again, self.pause) = (None, 0);
        }
    }

    /// The next pause: longer than the one before, and between three quarters of its length and all of it.
    fn draw_pause(&mut self) -> u64 {
        self.pause = match self.pause {
            0 => PAUSE_MS,
            pause => (pause * 2).min(PAUSE_MAX_MS),
        };
        self.pause - self.random.below(self.pause / 4 + 1)
    }

    /// The fabric has forgotten what it was asked for: asks once more for all groups, at some time within
    /// `spread` milliseconds. The endpoint stays attached meanwhile.
    pub fn rejoin_all(&mut self, now: Time, spread: u64) {
        let at = now.after(self.random.below(spread.saturating_add(1)));
        if !self.joined.is_empty() {
            self.rejoin = Some(self.rejoin.map_or(at, |before| before.min(at)));
        }
        self.again = self.again.map(|again| again.min(at));
    }

    /// What has refused groups may be over: asks for them again at once.
    pub fn hurry(&mut self) {
        self.again = self.again.map(|_| Time(0));
    }

    /// The endpoint is gone, and with it all groups. Gives those that it was attached to.
    pub fn clear(&mut self) -> Vec<Gid> {
        let joined = std::mem::take(&mut self.joined);
        let random = std::mem::replace(&mut self.random, Random::new(0));
        *self = GroupSet {
            random,
            ..GroupSet::new(self.bounds, 0)
        };
        joined.into_keys().collect()
    }

    /// The fabric has answered late, or takes a group back: [`change`] takes the answer.
    pub fn answer(&mut self, group: Gid, joined: Joined) {
        self.late.push((group, joined));
    }

    /// When [`change`] has something to do that it does not have now.
    pub fn next(&self) -> Option<Time> {
        if !self.late.is_empty() {
            return Some(Time(0));
        }
        self.again.into_iter().chain(self.rejoin).min()
    }

    /// What is known of a group; `None` if it is not wanted.
    pub fn state(&self, group: Gid) -> Option<State<'_>> {
        if !self.wanted.contains(&group) {
            return None;
        }
        Some(if let Some(parameters) = self.joined.get(&group) {
            State::Joined(parameters)
        } else if let Some(why) = self.refused.get(&group) {
            State::Refused(why)
        } else if self.pending.contains(&group) {
            State::Pending
        } else {
            State::Wanted
        })
    }

    /// What the fabric says of the group that there is no link without.
    ///
    /// # Errors
    /// Why it is not joined, in words.
    pub fn required(&self) -> Result<&GroupParameters, &str> {
        match self.required.and_then(|group| self.state(group)) {
            Some(State::Joined(parameters)) => Ok(parameters),
            Some(State::Refused(why)) => Err(why),
            Some(State::Pending) => Err("the fabric has not answered yet"),
            Some(State::Wanted) => Err("the fabric is to be asked yet"),
            None => Err("no group is wanted"),
        }
    }

    /// Why there is no link; `None` if there is one, or none is wanted.
    pub fn misses(&self) -> Option<&str> {
        self.required.and_then(|_| self.required().err())
    }

    /// The groups that the endpoint is attached to.
    pub fn attached(&self) -> impl Iterator<Item = Gid> {
        self.joined.keys().copied()
    }

    /// Groups that a set has at most.
    pub fn most(&self) -> usize {
        self.bounds.groups
    }

    /// Whether the endpoint is attached to a group.
    pub fn is_attached(&self, group: Gid) -> bool {
        self.joined.contains_key(&group)
    }
}
