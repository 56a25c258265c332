//! TAPs that somebody makes beside an interface: `ip tuntap add dev ib0.8001 mode tap` is a child of
//! `ib0`, as the kernel's `ip link add ... type ipoib` would make one. The daemon takes them over.
//!
//! The kernel announces the TAP while `ip` still holds it, and says nothing when it lets go: those are
//! tried again for a while, from the control loop.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use control::config::IpoibConfig;
use netdev::tap::is_held as is_tap_held;

use super::super::service::no_parent;
use super::super::{Daemon, DaemonError};
use super::judge::Verdict;
use crate::interface::InterfaceId;
use crate::interface::{InterfaceError, Place, UnservedTap};

/// How long a TAP that somebody holds is tried again, and how often at last.
const HELD_PATIENCE: Duration = Duration::from_secs(2);
const RETRY_MAX: Duration = Duration::from_millis(50);
/// After the first time; `ip` lets go within this as a rule.
const RETRY_FIRST: Duration = Duration::from_millis(1);

/// How long nothing may happen to one in another network namespace before it is taken over. It is away
/// from there for a moment then, and whoever has made it has more commands to give as a rule.
const QUIET: Duration = Duration::from_millis(100);

/// Why one is left alone that may be had later.
const HELD: &str = "another program holds it";

/// Interfaces that are remembered as left alone; beyond that one is told of again.
const LEFT_ALONE_MAX: usize = 4096;

/// Interfaces that are none of ours, by place and index.
#[derive(Debug, Default)]
pub(in crate::daemon) struct ChildCandidates {
    /// To be looked at.
    candidates: BTreeMap<(Place, u32), Candidate>,
    /// Looked at and left alone, under this name and for this reason, so that each is logged once.
    left_alone: BTreeMap<(Place, u32), (String, String)>,
}

#[derive(Debug)]
struct Candidate {
    next: Instant,
    pause: Duration,
    /// Held until then, it is left alone.
    end: Instant,
}

impl ChildCandidates {
    /// An interface that is none of ours was seen.
    pub(in crate::daemon) fn seen(&mut self, place: Place, link: &rtnl::Link) {
        let told = self.left_alone.get(&(place, link.index));
        // What was in the way may be gone: another child of the partition, or its holder, which the
        // kernel tells of one that is up.
        let news = |name: &str, why: &str| name != link.name || why != HELD || !is_tap_held(link);
        if told.is_none_or(|(name, why)| news(name, why)) {
            self.consider(place, link);
        }
    }

    /// The same for one that may be a child now although it was left alone.
    fn consider(&mut self, place: Place, link: &rtnl::Link) {
        if !link.tun.is_some_and(|tun| tun.tap) {
            return;
        }
        let now = Instant::now();
        let key = (place, link.index);
        self.candidates.entry(key).or_insert(Candidate {
            next: now,
            pause: RETRY_FIRST,
            end: now + HELD_PATIENCE,
        });
        self.touched(place, link.index);
    }

    /// Somebody is at work on an interface.
    pub(in crate::daemon) fn touched(&mut self, place: Place, index: u32) {
        if place != Place::HOME
            && let Some(candidate) = self.candidates.get_mut(&(place, index))
        {
            candidate.next = (Instant::now() + QUIET).min(candidate.end - RETRY_MAX);
        }
    }

    /// An interface is gone.
    pub(in crate::daemon) fn gone(&mut self, place: Place, index: u32) {
        self.candidates.remove(&(place, index));
        self.left_alone.remove(&(place, index));
    }

    /// A namespace is gone, with all that was in it.
    pub(in crate::daemon) fn place_gone(&mut self, place: Place) {
        self.candidates.retain(|(at, _), _| *at != place);
        self.left_alone.retain(|(at, _), _| *at != place);
    }

    /// How long until one is to be looked at.
    pub(in crate::daemon) fn wait(&self) -> Option<Duration> {
        let next = self.candidates.values().map(|c| c.next).min()?;
        Some(next.saturating_duration_since(Instant::now()))
    }

    fn due(&self) -> Vec<(Place, u32)> {
        let now = Instant::now();
        let all = self.candidates.iter();
        all.filter(|(_, candidate)| candidate.next <= now)
            .map(|(key, _)| *key)
            .collect()
    }

    /// It is held: later again, or never.
    fn again(&mut self, key: (Place, u32), name: &str) {
        let Some(candidate) = self.candidates.get_mut(&key) else {
            return;
        };
        let now = Instant::now();
        if now < candidate.end {
            candidate.next = now + candidate.pause;
            candidate.pause = (candidate.pause * 2).min(RETRY_MAX);
        } else {
            self.leave(key, name, HELD);
        }
    }

    fn leave(&mut self, key: (Place, u32), name: &str, why: &str) {
        self.candidates.remove(&key);
        if self.left_alone.len() >= LEFT_ALONE_MAX {
            self.left_alone.clear();
        }
        let told = (name.to_owned(), why.to_owned());
        if self.left_alone.insert(key, told.clone()) != Some(told) {
            log::info!("{name}: left alone: {why}");
        }
    }
}

impl Daemon {
    /// Looks for TAPs that are children of an interface, since they were there first.
    pub(in crate::daemon) fn look_for_children(&mut self, parent: InterfaceId) {
        if self.interfaces.ip(parent).is_none() {
            return;
        }
        let links = self.inside(parent, |i, netlink| (i.place, netlink.links()));
        match links {
            Some((place, Ok(links))) => {
                for link in links {
                    if self.interfaces.by_index(place, link.index).is_none() {
                        self.adoption.candidates.consider(place, &link);
                    }
                }
            }
            Some((_, Err(e))) => log::warn!("cannot look for children: {e}"),
            None => {}
        }
    }

    /// Looks at the interfaces that are due, and takes over those that are children.
    pub(in crate::daemon) fn meet_strangers(&mut self) {
        for key in self.adoption.candidates.due() {
            self.meet(key);
        }
    }

    fn meet(&mut self, key: (Place, u32)) {
        let (place, index) = key;
        let Some(link) = self.stranger(key) else {
            // Gone, or ours by now.
            self.adoption.candidates.candidates.remove(&key);
            return;
        };
        match self.judge(place, &link) {
            Verdict::Foreign => drop(self.adoption.candidates.candidates.remove(&key)),
            Verdict::LeftAlone(why) => self.adoption.candidates.leave(key, &link.name, &why),
            Verdict::Held => self.adoption.candidates.again(key, &link.name),
            Verdict::Child(parent, spec) => match self.adopt(parent, &spec, &link) {
                Ok(_) => self.adoption.candidates.gone(place, index),
                Err(e) if is_held(&e) => self.adoption.candidates.again(key, &link.name),
                Err(e) => self
                    .adoption
                    .candidates
                    .leave(key, &link.name, &e.to_string()),
            },
        }
    }

    /// The interface as it is now, if it is still none of ours.
    fn stranger(&mut self, (place, index): (Place, u32)) -> Option<rtnl::Link> {
        if self.interfaces.by_index(place, index).is_some() {
            return None;
        }
        // Some interface of ours is there: else nothing would be of interest.
        let neighbours = self.interfaces.ip_ids(|i, _| i.place == place);
        let neighbour = *neighbours.first()?;
        self.inside(neighbour, |_, netlink| netlink.link_by_index(index).ok())
            .flatten()
    }

    fn adopt(
        &mut self,
        parent: InterfaceId,
        spec: &IpoibConfig,
        link: &rtnl::Link,
    ) -> Result<InterfaceId, DaemonError> {
        let found = self.interfaces.get(parent);
        let interface = found.ok_or_else(|| no_parent(spec))?;
        let stray = UnservedTap {
            link,
            namespace: interface.elsewhere(),
        };
        self.bring_in(interface.port, spec, Some(parent), Some(stray))
    }
}

/// Whether trying again may help.
fn is_held(error: &DaemonError) -> bool {
    let DaemonError::Device { source, .. } = error else {
        return false;
    };
    matches!(source, InterfaceError::Tap(e) if e.is_held())
}
