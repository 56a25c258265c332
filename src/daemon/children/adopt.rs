//! TAPs that somebody makes beside an interface: `ip tuntap add dev ib0.8001 mode tap` is a child of
//! `ib0`, as the kernel's `ip link add ... type ipoib` would make one. The daemon takes them over.
//!
//! The kernel announces the TAP while `ip` still holds it, and says nothing when it lets go: those are
//! tried again for a while, from the control loop.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fabric::PKey;
use ipoib::Mode;
use netdev::netns::{self, Namespace};
use netdev::tap::is_held as is_tap_held;

use super::super::{Daemon, DaemonError, Left, Place};
use super::make::{child_spec, cut_name};
use crate::datapath::DeviceId;
use crate::device::{Alias, Device, DeviceError, DeviceSpec, Stray};

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
pub(in crate::daemon) struct Strangers {
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

/// What is done with an interface that is none of ours.
enum Verdict {
    /// It has nothing to do with us.
    Foreign,
    /// It is left alone, although its name looks like a child's, for this reason.
    LeftAlone(String),
    /// It becomes a child.
    Child(DeviceId, Box<DeviceSpec>),
    /// It would, but somebody holds it.
    Held,
}

impl Strangers {
    /// An interface that is none of ours was seen.
    pub(in crate::daemon) fn seen(&mut self, place: Place, link: &rtnl::Link) {
        let told = self.left_alone.get(&(place, link.index));
        // Its holder may have let go, which the kernel tells of one that is up.
        let news = |name: &str, why: &str| name != link.name || (why == HELD && !is_tap_held(link));
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
    pub(in crate::daemon) fn look_for_children(&mut self, parent: DeviceId) {
        let links = self.inside(parent, |device, netlink| (device.place, netlink.links()));
        match links {
            Some((place, Ok(links))) => {
                for link in links {
                    if self.by_index(place, link.index).is_none() {
                        self.strangers.consider(place, &link);
                    }
                }
            }
            Some((_, Err(e))) => log::warn!("cannot look for children: {e}"),
            None => {}
        }
    }

    /// Looks at the interfaces that are due, and takes over those that are children.
    pub(in crate::daemon) fn meet_strangers(&mut self) {
        for key in self.strangers.due() {
            self.meet(key);
        }
    }

    fn meet(&mut self, key: (Place, u32)) {
        let (place, index) = key;
        let Some(link) = self.stranger(key) else {
            // Gone, or ours by now.
            self.strangers.candidates.remove(&key);
            return;
        };
        match self.judge(place, &link) {
            Verdict::Foreign => drop(self.strangers.candidates.remove(&key)),
            Verdict::LeftAlone(why) => self.strangers.leave(key, &link.name, &why),
            Verdict::Held => self.strangers.again(key, &link.name),
            Verdict::Child(parent, spec) => match self.adopt(parent, &spec, &link) {
                Ok(_) => self.strangers.gone(place, index),
                Err(e) if is_held(&e) => self.strangers.again(key, &link.name),
                Err(e) => self.strangers.leave(key, &link.name, &e.to_string()),
            },
        }
    }

    /// The interface as it is now, if it is still none of ours.
    fn stranger(&mut self, (place, index): (Place, u32)) -> Option<rtnl::Link> {
        if self.by_index(place, index).is_some() {
            return None;
        }
        // Some interface of ours is there: else nothing would be of interest.
        let neighbour = self.devices.iter().find(|(_, (_, d))| d.place == place);
        let neighbour = *neighbour?.0;
        self.inside(neighbour, |_, netlink| netlink.link_by_index(index).ok())
            .flatten()
    }

    fn judge(&self, place: Place, link: &rtnl::Link) -> Verdict {
        if self.is_anothers(link) {
            return Verdict::Foreign;
        }
        let Some((id, pkey, mode)) = self.served_before(place, link) else {
            return self.judge_name(place, link);
        };
        self.judge_child(id, pkey, mode, link)
    }

    /// Whether its alias says that it is of a daemon in another network namespace.
    fn is_anothers(&self, link: &rtnl::Link) -> bool {
        let gid = link.alias.as_deref().and_then(Alias::parse);
        let gid = gid.and_then(|alias| alias.gid);
        let mut ports = self.ports.iter();
        gid.is_some_and(|gid| ports.all(|port| port.port.attributes().gid != gid))
    }

    /// By its alias, a child that a daemon of ours has served on this port, whatever it is called
    /// now.
    fn served_before(&self, place: Place, link: &rtnl::Link) -> Option<(DeviceId, PKey, Mode)> {
        let alias = Alias::parse(link.alias.as_deref()?)?;
        let id = self.parent_called(place, alias.parent.as_deref()?)?;
        let (at, _) = self.devices.get(&id)?;
        let port = self.ports[*at].port.attributes();
        let ours = alias.port == port.name && alias.gid.is_none_or(|gid| gid == port.gid);
        ours.then(|| (id, alias.pkey, alias.mode.into()))
    }

    /// A child that somebody made and that a former daemon of ours served in another namespace than
    /// its parent's is taken over there.
    pub(in crate::daemon) fn adopt_left(&mut self, at: usize, left: Left) {
        let (described, alias, link) = (left.to_string(), left.alias, left.link);
        let Some(parent) = self.parent_of_left(at, alias.parent.as_deref(), &left.namespace) else {
            return;
        };
        let verdict = self.judge_child(parent, alias.pkey, alias.mode.into(), &link);
        let Verdict::Child(_, mut spec) = verdict else {
            return;
        };
        spec.netns = left.namespace.as_ref().and_then(netns::name_of);
        let stray = Stray {
            link: &link,
            namespace: left.namespace,
        };
        if let Err(e) = self.bring_in(at, &spec, Some(parent), Some(stray)) {
            log::info!("{described}: left alone: {e}");
        }
    }

    /// The parent on a port that is called so, unless it is in that same namespace: then the child is
    /// found beside it.
    fn parent_of_left(
        &self,
        at: usize,
        name: Option<&str>,
        namespace: &Option<Namespace>,
    ) -> Option<DeviceId> {
        let there = namespace.as_ref().and_then(|there| there.id().ok());
        let is_it = |device: &Device| {
            let names = [device.name.as_str(), device.spec.name.as_str()];
            device.parent.is_none() && name.is_some_and(|name| names.contains(&name))
        };
        let mut on_port = self.devices.iter().filter(|(_, (port, _))| *port == at);
        on_port
            .find(|(_, (_, device))| is_it(device) && device.namespace != there)
            .map(|(id, _)| *id)
    }

    /// By its name, what the user wants to be a child.
    fn judge_name(&self, place: Place, link: &rtnl::Link) -> Verdict {
        let Some((parent, pkey)) = split_name(&link.name) else {
            return Verdict::Foreign;
        };
        let Some(id) = self.parent_called(place, parent) else {
            return Verdict::LeftAlone(format!(
                "its name is like a child's, but no interface {parent} is served here"
            ));
        };
        let mode = self.devices[&id].1.spec.mode;
        self.judge_child(id, pkey, mode, link)
    }

    fn judge_child(&self, id: DeviceId, pkey: PKey, mode: Mode, link: &rtnl::Link) -> Verdict {
        if let Err((_, why)) = self.refuse_child(id, pkey) {
            return Verdict::LeftAlone(why);
        }
        // One that is not persistent exists only while it is held; `ip` makes it persistent last.
        let tun = link.tun.unwrap_or_default();
        if !tun.persist && !self.inherited.has(&link.name) {
            return Verdict::Held;
        }
        let (at, parent) = &self.devices[&id];
        let spec = DeviceSpec {
            mode,
            queues: match tun.multi_queue {
                true => self.ports[*at].threads(),
                false => 1,
            },
            persist: tun.persist,
            netns: self.netns_of(id),
            ..child_spec(parent, &link.name, pkey)
        };
        Verdict::Child(id, Box::new(spec))
    }

    /// The interface that is called so; else the one that the configuration calls so, or the only
    /// one whose name is so when cut for a child's.
    fn parent_called(&self, place: Place, name: &str) -> Option<DeviceId> {
        let here = || self.devices.iter().filter(|(_, (_, d))| d.place == place);
        let parents = || here().filter(|(_, (_, d))| d.parent.is_none());
        let cut = || {
            let mut all = parents().filter(|(_, (_, d))| cut_name(&d.name) == name);
            all.next().filter(|_| all.next().is_none())
        };
        here()
            .find(|(_, (_, d))| d.name == name)
            .or_else(|| parents().find(|(_, (_, d))| d.spec.name == name))
            .or_else(cut)
            .map(|(id, _)| *id)
    }

    fn adopt(
        &mut self,
        parent: DeviceId,
        spec: &DeviceSpec,
        link: &rtnl::Link,
    ) -> Result<DeviceId, DaemonError> {
        let (at, _) = self.devices[&parent];
        let stray = Stray {
            link,
            namespace: self.namespace_of(parent),
        };
        self.bring_in(at, spec, Some(parent), Some(stray))
    }
}

/// Whether trying again may help.
fn is_held(error: &DaemonError) -> bool {
    let DaemonError::Device { source, .. } = error else {
        return false;
    };
    matches!(source, DeviceError::Tap(e) if e.is_held())
}

/// `PARENT.PKEY`, with four hexadecimal digits.
fn split_name(name: &str) -> Option<(&str, PKey)> {
    let (parent, digits) = name.rsplit_once('.')?;
    let hexadecimal = digits.len() == 4 && digits.bytes().all(|b| b.is_ascii_hexdigit());
    if parent.is_empty() || !hexadecimal {
        return None;
    }
    Some((parent, PKey::new(u16::from_str_radix(digits, 16).ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_childs_name_is_its_parents_and_four_digits() {
        for (name, split) in [
            ("ib0.8001", Some(("ib0", 0x8001))),
            ("ib0.0001", Some(("ib0", 0x0001))),
            ("ib0.8aBc", Some(("ib0", 0x8abc))),
            ("ib0.8001.8002", Some(("ib0.8001", 0x8002))),
            ("ib0", None),
            ("ib0.", None),
            (".8001", None),
            ("ib0.801", None),
            ("ib0.08001", None),
            ("ib0.+801", None),
            ("ib0.80g1", None),
            ("ib0-8001", None),
        ] {
            let split = split.map(|(parent, pkey)| (parent, PKey::new(pkey)));
            assert_eq!(split_name(name), split, "{name}");
        }
    }

    proptest! {
        #[test]
        fn the_name_that_a_child_gets_is_understood(parent in "[a-z0-9-]{1,15}", key: u16) {
            let name = super::super::make::child_name(&parent, PKey::new(key));
            let cut = &parent[..parent.len().min(10)];
            prop_assert_eq!(split_name(&name), Some((cut, PKey::new(key).full())));
        }

        #[test]
        fn no_name_makes_it_panic(name: String) {
            let _ = split_name(&name);
        }
    }
}
