//! The multicast groups of one endpoint: the wanted ones, the fabric's answers, and the retries of refused
//! ones.
//!
//! A [`GroupSet`] has no port and no clock. The owner sets the wanted groups ([`GroupSet::want`]), and
//! [`change`] sends the requests to a port. A software fabric answers at once. A subnet administrator may
//! answer later or take a group back: [`GroupSet::answer`] stores such an answer for the next [`change`].

mod requests;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use fabric::{Capabilities, Gid, GroupParameters, Joined};
use proto::Time;
use vnic::Random;

pub use requests::{Changes, change, follow};

/// The longest first pause before a refused group is requested again, in milliseconds.
const PAUSE_MS: u64 = 1_000;
/// The longest pause, in milliseconds.
const PAUSE_MAX_MS: u64 = 16_000;
/// Maximum number of groups to join, and to leave, in one turn of the control loop. The kernel searches a list of all
/// groups for each: thousands in one turn would leave the control socket without answers for seconds.
const TURN: usize = 64;

/// The limits of a set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Maximum number of groups.
    pub groups: usize,
    /// Maximum number of unanswered requests.
    pub requests: usize,
}

impl Bounds {
    /// The limits of a port for one endpoint.
    pub fn of(port: &Capabilities) -> Bounds {
        Bounds {
            groups: port.groups_max,
            requests: port.group_requests,
        }
    }
}

/// The state of a wanted group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum State<'a> {
    /// Not requested yet.
    Wanted,
    /// Requested, not answered yet.
    Pending,
    /// The endpoint is attached to it.
    Joined(&'a GroupParameters),
    /// Refused for this reason; requested again later.
    Refused(&'a str),
}

/// A change by an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum News {
    /// The endpoint was attached to the group.
    Joined,
    /// As `Joined`, and no refused group is left.
    Recovered,
    /// The group was refused.
    Refused {
        /// The first refusal since all groups were joined.
        first: bool,
        /// The endpoint was attached until now: the fabric took the group back.
        attached: bool,
    },
}

/// A set of groups, see the module.
#[derive(Debug)]
pub struct GroupSet {
    bounds: Bounds,
    random: Random,
    required: Option<Gid>,
    wanted: BTreeSet<Gid>,
    /// A group did not fit into `wanted`.
    full: bool,
    /// To be requested as soon as the limit of requests allows. Joined groups among these are joined again.
    fresh: BTreeSet<Gid>,
    /// Requested, not answered yet.
    pending: BTreeSet<Gid>,
    /// The groups that the endpoint is attached to.
    joined: BTreeMap<Gid, GroupParameters>,
    /// Refused and not joined since, with the reason.
    refused: BTreeMap<Gid, String>,
    /// Requested or joined, no longer wanted.
    leaving: BTreeSet<Gid>,
    /// Late answers, in order.
    late: Vec<(Gid, Joined)>,
    /// When refused groups are requested again.
    again: Option<Time>,
    pause: u64,
    /// When all joined groups are joined again, and unanswered requests are repeated.
    rejoin: Option<Time>,
    /// The required group counts as missing until its next answer.
    unconfirmed: bool,
}

impl GroupSet {
    /// Creates an empty set. `seed` varies the times of retries.
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
            unconfirmed: false,
        }
    }

    /// Sets the wanted groups. A link requires `required`, one of them: the broadcast group of an IP link,
    /// the group of a VNIC's switch. Returns a group that does not fit, only once until all fit again.
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
            // A group that was not left yet keeps its state.
            if !self.leaving.remove(group) {
                self.fresh.insert(*group);
            }
        }
        self.unconfirmed &= self.required == required;
        (self.required, self.wanted) = (required, wanted);
        let was_full = std::mem::replace(&mut self.full, left_out.is_some());
        left_out.filter(|_| !was_full)
    }

    /// The groups to join and to leave in this turn. Groups to leave are forgotten; groups to join wait for
    /// [`GroupSet::outcome`].
    pub fn requests(&mut self, now: Time) -> (Vec<Gid>, Vec<Gid>) {
        let leaves: Vec<Gid> = self.leaves().copied().collect();
        for group in &leaves {
            self.leaving.remove(group);
            self.pending.remove(group);
            self.joined.remove(group);
            self.fresh.remove(group);
        }
        let mut joins = Vec::new();
        if self.rejoin.is_some_and(|at| at <= now) {
            self.rejoin = None;
            let kept = |group: &&Gid| !self.leaving.contains(*group);
            // The fabric may have lost these requests, and answers none of them then. A request that is still
            // open does not change.
            joins.extend(self.pending.iter().filter(kept));
            let others = self.joined.keys().filter(kept);
            let others = others.filter(|group| !self.pending.contains(*group));
            self.fresh.extend(others);
        }
        if self.again.is_some_and(|at| at <= now) {
            self.again = None;
            self.fresh.extend(self.refused.keys());
        }
        let room = self.room().min(TURN);
        // The required group comes first.
        let first = self.required.filter(|_| room > 0);
        let mut new: Vec<Gid> = first
            .and_then(|g| self.fresh.take(&g))
            .into_iter()
            .collect();
        while new.len() < room
            && let Some(group) = self.fresh.pop_first()
        {
            new.push(group);
        }
        joins.extend(new.into_iter().filter(|group| self.pending.insert(*group)));
        joins.sort_by_key(|group| Some(*group) != self.required);
        (joins, leaves)
    }

    /// Handles an answer for a group, or the loss of a joined group. Answers for other groups, which were
    /// left meanwhile, change nothing.
    pub fn outcome(&mut self, now: Time, group: Gid, joined: Joined) -> Option<News> {
        let asked = self.pending.contains(&group);
        let attached = self.joined.contains_key(&group);
        if !(asked || attached) {
            return None;
        }
        if self.required == Some(group) && joined != Joined::Pending {
            self.unconfirmed = false;
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

    /// Without refused groups, nothing is retried.
    fn forget_times(&mut self) {
        if self.refused.is_empty() {
            (self.again, self.pause) = (None, 0);
        }
    }

    /// Draws the next pause: three quarters to all of twice the pause before, in milliseconds.
    fn draw_pause(&mut self) -> u64 {
        self.pause = match self.pause {
            0 => PAUSE_MS,
            pause => (pause * 2).min(PAUSE_MAX_MS),
        };
        self.pause - self.random.below(self.pause / 4 + 1)
    }

    /// The fabric has lost the memberships, and perhaps the unanswered requests: requests all these groups again,
    /// at a random time within `spread` milliseconds. The endpoint stays attached meanwhile.
    pub fn rejoin_all(&mut self, now: Time, spread: u64) {
        let at = now.after(self.random.below(spread.saturating_add(1)));
        if !(self.joined.is_empty() && self.pending.is_empty()) {
            self.rejoin = Some(self.rejoin.map_or(at, |before| before.min(at)));
        }
        self.again = self.again.map(|again| again.min(at));
    }

    /// The port was down, and the fabric has forgotten the memberships: joins all groups again. Until the
    /// answer for the required group, the group is missing (kernel ipoib_multicast.c,
    /// `ipoib_mcast_dev_flush`, `ipoib_mcast_carrier_on_task`).
    pub fn port_returned(&mut self, now: Time) {
        self.rejoin_all(now, 0);
        self.unconfirmed = self.required.is_some_and(|group| self.is_attached(group));
    }

    /// The cause of refusals may be gone: requests refused groups again at once.
    pub fn retry_now(&mut self) {
        self.again = self.again.map(|_| Time(0));
    }

    /// The endpoint is gone, with all groups. Returns the groups that it was attached to.
    pub fn clear(&mut self) -> Vec<Gid> {
        let joined = std::mem::take(&mut self.joined);
        let random = std::mem::replace(&mut self.random, Random::new(0));
        *self = GroupSet {
            random,
            ..GroupSet::new(self.bounds, 0)
        };
        joined.into_keys().collect()
    }

    /// Stores a late answer, or the loss of a group, for [`change`].
    pub fn answer(&mut self, group: Gid, joined: Joined) {
        self.late.push((group, joined));
    }

    /// The groups to leave in this turn.
    fn leaves(&self) -> impl Iterator<Item = &Gid> {
        self.leaving.iter().take(TURN)
    }

    /// How many more requests may wait for an answer.
    fn room(&self) -> usize {
        self.bounds.requests.saturating_sub(self.pending.len())
    }

    /// When [`change`] is due again.
    pub fn next(&self) -> Option<Time> {
        let can_join = !self.fresh.is_empty() && self.room() > 0;
        if can_join || !self.leaving.is_empty() || !self.late.is_empty() {
            return Some(Time(0));
        }
        self.again.into_iter().chain(self.rejoin).min()
    }

    /// The state of a group; `None` if it is not wanted.
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

    /// The parameters of the required group.
    ///
    /// # Errors
    /// Why it is not joined, for users.
    pub fn required(&self) -> Result<&GroupParameters, &str> {
        match self.required.and_then(|group| self.state(group)) {
            Some(State::Joined(parameters)) => Ok(parameters),
            Some(State::Refused(why)) => Err(why),
            Some(State::Pending) => Err("the fabric has not answered yet"),
            Some(State::Wanted) => Err("it was not requested yet"),
            None => Err("no group is wanted"),
        }
    }

    /// Why the required group is missing; `None` if it is joined, or none is required.
    pub fn missing(&self) -> Option<&str> {
        if self.unconfirmed {
            return Some("the port was down, and the fabric has not answered since");
        }
        self.required.and_then(|_| self.required().err())
    }

    /// Whether the fabric has not answered yet for the required group, neither joined nor refused it.
    pub fn is_awaited(&self) -> bool {
        let state = self.required.and_then(|group| self.state(group));
        matches!(state, Some(State::Wanted | State::Pending))
    }

    /// The groups that the endpoint is attached to.
    pub fn attached(&self) -> impl Iterator<Item = Gid> {
        self.joined.keys().copied()
    }

    /// Maximum number of groups.
    pub fn most(&self) -> usize {
        self.bounds.groups
    }

    /// Whether the endpoint is attached to a group.
    pub fn is_attached(&self, group: Gid) -> bool {
        self.joined.contains_key(&group)
    }
}
