//! Requests of groups to a port. Answers are logged and reported as events.

use std::collections::BTreeSet;

use control::api::Happening;
use fabric::{FabricError, Gid, Joined};
use log::Level;
use proto::Time;

use super::{GroupSet, News};
use crate::interface::{Events, Interface};

/// Changes of an endpoint's groups.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Changes {
    /// Groups that the endpoint has joined.
    pub joined: Vec<Gid>,
    /// Groups that it has left.
    pub left: Vec<Gid>,
}

impl Changes {
    /// Adds an event for each joined or left group.
    pub fn push(&self, events: &mut Events, interface: &Interface) {
        let left = self
            .left
            .iter()
            .map(|mgid| Happening::GroupLeft { mgid: *mgid });
        let joined = self.joined.iter();
        let joined = joined.map(|mgid| Happening::GroupJoined { mgid: *mgid });
        for what in left.chain(joined) {
            events.push(interface.subject(), what);
        }
    }

    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.joined.is_empty() && self.left.is_empty()
    }
}

/// Sets the wanted groups, as [`GroupSet::want`], and sends the requests, as [`change`].
pub fn follow(
    set: &mut GroupSet,
    now: Time,
    name: &str,
    (required, groups): (Option<Gid>, BTreeSet<Gid>),
    ask: impl FnMut(&[Gid], &[Gid]) -> Result<Vec<Joined>, FabricError>,
) -> Changes {
    if let Some(group) = set.want(required, groups) {
        log::warn!(
            "{name}: multicast join failed for {group}: the limit of {} multicast groups is reached",
            set.most()
        );
    }
    change(set, now, name, ask)
}

/// Handles late answers and sends the requests of one turn. `ask` is
/// [`Port::change_groups`](fabric::Port::change_groups) for the set's endpoint; `name` is for the log.
pub fn change(
    set: &mut GroupSet,
    now: Time,
    name: &str,
    mut ask: impl FnMut(&[Gid], &[Gid]) -> Result<Vec<Joined>, FabricError>,
) -> Changes {
    let mut changes = Changes::default();
    take_late(set, now, name, &mut changes);
    let attached = set.leaves().filter(|group| set.joined.contains_key(*group));
    for group in attached {
        log::debug!("{name}: leaving {group}");
        changes.left.push(*group);
    }
    let (joins, leaves) = set.requests(now);
    if joins.is_empty() && leaves.is_empty() {
        return changes;
    }
    let answers = ask(&joins, &leaves).unwrap_or_else(|e| {
        if joins.is_empty() {
            log::warn!("{name}: cannot leave multicast groups: {e}");
        }
        vec![Joined::Refused(e.to_string()); joins.len()]
    });
    for (group, answer) in joins.into_iter().zip(answers) {
        take(set, now, name, group, answer, &mut changes);
    }
    changes
}

/// Handles late answers ([`GroupSet::answer`]).
pub(super) fn take_late(set: &mut GroupSet, now: Time, name: &str, changes: &mut Changes) {
    for (group, answer) in std::mem::take(&mut set.late) {
        take(set, now, name, group, answer, changes);
    }
}

fn take(
    set: &mut GroupSet,
    now: Time,
    name: &str,
    group: Gid,
    answer: Joined,
    changes: &mut Changes,
) {
    let why = match &answer {
        Joined::Refused(why) => why.clone(),
        _ => String::new(),
    };
    match set.outcome(now, group, answer) {
        None => {}
        Some(News::Refused { first, attached }) => {
            // The first line has the reason; thousands may follow.
            let level = if first { Level::Warn } else { Level::Debug };
            log::log!(level, "{name}: multicast join failed for {group}: {why}");
            if attached {
                changes.left.push(group);
            }
        }
        Some(news) => {
            log::debug!("{name}: joined {group}");
            changes.joined.push(group);
            if news == News::Recovered {
                log::info!("{name}: joined the multicast groups that had failed");
            }
        }
    }
}
