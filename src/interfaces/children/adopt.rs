//! TAPs that the user creates as children: `ip tuntap add dev ib0.8001 mode tap` makes a child of `ib0`,
//! like the kernel's `ip link add ... type ipoib`. The daemon takes them over.
//!
//! The kernel announces the TAP while `ip` still holds it, but not its release. So the control loop retries
//! held TAPs for a while.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use control::config::IpoibConfig;
use netdev::tap::is_held as is_tap_held;

use super::judge::Verdict;
use crate::interface::{InterfaceError, InterfaceId, Place, UnservedTap};
use crate::interfaces::children::judge::judge;
use crate::interfaces::service::no_parent;
use crate::interfaces::{Context, DaemonError, Interfaces};

/// How long a held TAP is retried, and the longest pause.
const HELD_PATIENCE: Duration = Duration::from_secs(2);
const RETRY_MAX: Duration = Duration::from_millis(50);
/// The first pause. Usually `ip` releases the TAP within this time.
const RETRY_FIRST: Duration = Duration::from_millis(1);

/// How long a TAP in another network namespace must be unchanged before the daemon takes it over. The
/// takeover moves it away for a moment, and a script usually has more commands for it.
const QUIET: Duration = Duration::from_millis(100);

/// The reason for a TAP that may be released later.
const HELD: &str = "another program holds it";

/// Maximum number of remembered interfaces that were left alone; if it is reached, all are forgotten, and
/// may be logged again.
const LEFT_ALONE_MAX: usize = 4096;

/// Interfaces that the daemon does not serve, by namespace and index.
#[derive(Debug, Default)]
pub struct ChildCandidates {
    /// Interfaces to check.
    candidates: BTreeMap<(Place, u32), Candidate>,
    /// Checked and left alone, with name and reason, so that each is logged once.
    left_alone: BTreeMap<(Place, u32), (String, String)>,
}

#[derive(Debug)]
struct Candidate {
    next: Instant,
    pause: Duration,
    /// A TAP that is still held then is left alone.
    end: Instant,
}

impl ChildCandidates {
    /// An interface that the daemon does not serve was announced.
    pub fn seen(&mut self, place: Place, link: &rtnl::Link) {
        let logged = self.left_alone.get(&(place, link.index));
        // The reason may be gone: another child of the partition, or the program that held the TAP. The
        // kernel announces that program's end if the TAP is up.
        let changed =
            |name: &str, why: &str| name != link.name || why != HELD || !is_tap_held(link);
        if logged.is_none_or(|(name, why)| changed(name, why)) {
            self.consider(place, link, false);
        }
    }

    /// Adds an interface to check, even if it was left alone before. Queues from a service manager (`is_stored`)
    /// need no move, and the daemon closes them after the start: they are checked at once.
    fn consider(&mut self, place: Place, link: &rtnl::Link, is_stored: bool) {
        if !link.tun.is_some_and(|tun| tun.tap) {
            return;
        }
        let now = Instant::now();
        let key = (place, link.index);
        let candidate = self.candidates.entry(key).or_insert(Candidate {
            next: now,
            pause: RETRY_FIRST,
            end: now + HELD_PATIENCE,
        });
        match is_stored {
            true => candidate.next = now,
            false => self.touched(place, link.index),
        }
    }

    /// An interface was changed by another program.
    pub fn touched(&mut self, place: Place, index: u32) {
        if place != Place::HOME
            && let Some(candidate) = self.candidates.get_mut(&(place, index))
        {
            candidate.next = (Instant::now() + QUIET).min(candidate.end - RETRY_MAX);
        }
    }

    /// An interface is gone.
    pub fn gone(&mut self, place: Place, index: u32) {
        self.candidates.remove(&(place, index));
        self.left_alone.remove(&(place, index));
    }

    /// A namespace was deleted with its interfaces.
    pub fn place_gone(&mut self, place: Place) {
        self.candidates.retain(|(at, _), _| *at != place);
        self.left_alone.retain(|(at, _), _| *at != place);
    }

    /// Time until the next check is due.
    pub fn wait(&self) -> Option<Duration> {
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

    /// A TAP is held: retries later, or gives up.
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
        let logged = (name.to_owned(), why.to_owned());
        if self.left_alone.insert(key, logged.clone()) != Some(logged) {
            log::info!("{name}: not used as a child: {why}");
        }
    }
}

/// Notes the TAPs among the links of a namespace that may be children.
pub fn links_listed(interfaces: &Interfaces, cx: &mut Context, place: Place, links: &[rtnl::Link]) {
    for link in links {
        if interfaces.by_index(place, link.index).is_none() {
            let is_stored = cx.host.inherited.has(&link.name);
            cx.adoption.candidates.consider(place, link, is_stored);
        }
    }
}

/// Checks the interfaces that are due, and takes over those that are children.
pub fn adopt_due(interfaces: &mut Interfaces, cx: &mut Context) {
    for key in cx.adoption.candidates.due() {
        check(interfaces, cx, key);
    }
}

fn check(interfaces: &mut Interfaces, cx: &mut Context, key: (Place, u32)) {
    let (place, index) = key;
    let Some(link) = unserved_link(interfaces, cx, key) else {
        // Gone, or served by now.
        cx.adoption.candidates.candidates.remove(&key);
        return;
    };
    match judge(interfaces, cx, place, &link) {
        Verdict::Foreign => drop(cx.adoption.candidates.candidates.remove(&key)),
        Verdict::LeftAlone(why) => cx.adoption.candidates.leave(key, &link.name, &why),
        Verdict::Held => cx.adoption.candidates.again(key, &link.name),
        Verdict::Child(parent, spec) => match adopt(interfaces, cx, parent, &spec, &link) {
            Ok(_) => cx.adoption.candidates.gone(place, index),
            Err(e) if is_held(&e) => cx.adoption.candidates.again(key, &link.name),
            Err(e) => cx
                .adoption
                .candidates
                .leave(key, &link.name, &e.to_string()),
        },
    }
}

/// Reads an interface, unless the daemon serves it.
fn unserved_link(
    interfaces: &mut Interfaces,
    cx: &mut Context,
    (place, index): (Place, u32),
) -> Option<rtnl::Link> {
    if interfaces.by_index(place, index).is_some() {
        return None;
    }
    // Only namespaces with interfaces of ours matter.
    let neighbours = interfaces.ip_ids(|i, _| i.place == place);
    let neighbour = *neighbours.first()?;
    interfaces
        .inside(cx, neighbour, |_, netlink| {
            netlink.link_by_index(index).ok()
        })
        .flatten()
}

fn adopt(
    interfaces: &mut Interfaces,
    cx: &mut Context,
    parent: InterfaceId,
    spec: &IpoibConfig,
    link: &rtnl::Link,
) -> Result<InterfaceId, DaemonError> {
    let found = interfaces.get(parent);
    let interface = found.ok_or_else(|| no_parent(spec))?;
    let stray = UnservedTap {
        link,
        namespace: interface.elsewhere(),
    };
    interfaces.serve_ipoib(cx, interface.port, spec, Some(parent), Some(stray))
}

/// Whether a retry may help.
fn is_held(error: &DaemonError) -> bool {
    let DaemonError::Interface { source, .. } = error else {
        return false;
    };
    matches!(source, InterfaceError::Tap(e) if e.is_held())
}
