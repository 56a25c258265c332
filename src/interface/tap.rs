//! The TAP of an interface: new, or one that was there before, in the daemon's network namespace or in
//! another one.

use std::thread;
use std::time::{Duration, Instant};

use control::config::InterfaceConfig;
use netdev::netns::Namespace;
use netdev::tap::{Tap, TapError, TapOptions, TapQueue, temporary_name};

use super::{InterfaceError, LeftBehind, closed, visit};
use crate::fdstore::{self, Inherited, Stored};

/// How long a TAP that somebody holds is tried again: `ip tuntap add` lets go of its own after a
/// moment, and so does a daemon that ends while this one starts. The kernel announces neither.
const HELD_PATIENCE: Duration = Duration::from_secs(2);
const HELD_RETRY: Duration = Duration::from_millis(50);

/// An interface that nobody serves and that a device takes over.
pub struct UnservedTap<'a> {
    /// What it is like.
    pub link: &'a rtnl::Link,
    /// The network namespace that it is in, if it is another one than the daemon's.
    pub namespace: Option<Namespace>,
}

/// Where a TAP is made, or found.
pub struct TapSources<'a> {
    /// The interface that is taken over; none is made then, and one that is held is not waited for.
    pub found: Option<UnservedTap<'a>>,
    /// The kernel.
    pub netlink: &'a mut rtnl::Requests,
    /// Queues that a service manager has kept.
    pub inherited: &'a mut Inherited,
    /// The network namespace where the interface is to be, if it is another one than the daemon's.
    pub namespace: Option<Namespace>,
    /// Its interface, which a daemon has left behind under another name or in another namespace.
    pub left: Option<LeftBehind>,
}

/// A TAP, new or taken over.
pub(super) struct Opened {
    pub tap: Tap,
    pub queues: Vec<TapQueue>,
    pub name: String,
    /// Its queues were open all the time.
    pub inherited: bool,
    /// Where it is, if not in the daemon's own network namespace.
    pub namespace: Option<Namespace>,
}

impl Opened {
    /// Takes over what a service manager has kept, or what a daemon has left behind; else opens the
    /// interface of that name, or makes it.
    pub(super) fn find(
        spec: &InterfaceConfig,
        queues: usize,
        site: &mut TapSources<'_>,
    ) -> Result<Opened, InterfaceError> {
        let namespace = site.namespace.take();
        let place = namespace.as_ref().and_then(|there| there.id().ok());
        if let Some(stored) = site.inherited.of(&fdstore::label(spec), &spec.name, place) {
            return Opened::take_over(spec, queues, stored);
        }
        if let Some(stray) = site.found.take() {
            return Opened::adopt(stray, queues);
        }
        let read = |netlink: &mut rtnl::Requests| netlink.link_by_name(&spec.name);
        let found = match &namespace {
            None => read(site.netlink),
            Some(there) => visit(there, read).map_err(|e| closed(spec.netns.as_deref(), &e))?,
        };
        let exists = match found {
            Ok(_) => true,
            Err(e) if e.is_not_found() => false,
            Err(e) => return Err(netlink_error("look for", spec, e)),
        };
        if !exists
            && let Some(left) = site.left.take()
            && let Some(opened) = Opened::adopt_left(spec, queues, left)?
        {
            return Ok(opened);
        }
        match namespace {
            None => Opened::here(spec, &spec.name, queues),
            Some(there) if exists => Opened::adopt_in(spec, &spec.name, queues, there),
            Some(there) => Opened::make_in(spec, queues, site.netlink, there),
        }
    }

    /// In the daemon's own namespace.
    fn here(spec: &InterfaceConfig, name: &str, queues: usize) -> Result<Opened, InterfaceError> {
        let (tap, queues) = patiently(|| Tap::open(&options(spec, name, queues)))?;
        Ok(Opened {
            tap,
            queues,
            name: name.to_owned(),
            inherited: false,
            namespace: None,
        })
    }

    /// A new one in another namespace. It is made at home and moved: the descriptor of one that was
    /// made elsewhere would keep that namespace alive.
    fn make_in(
        spec: &InterfaceConfig,
        queues: usize,
        netlink: &mut rtnl::Requests,
        there: Namespace,
    ) -> Result<Opened, InterfaceError> {
        // Its own name may be taken here. It persists only where it belongs.
        let (tap, queues) = patiently(|| {
            Tap::open(&TapOptions {
                name: temporary_name(),
                queues,
                persist: false,
            })
        })?;
        netlink
            .move_link(tap.ifindex(), &there, Some(&spec.name), None)
            .map_err(|e| netlink_error("move", spec, e))?;
        if spec.persist {
            tap.set_persist(true).map_err(|e| {
                InterfaceError::Netns(format!("{} cannot be made persistent: {e}", spec.name))
            })?;
        }
        Ok(Opened {
            tap,
            queues,
            name: spec.name.clone(),
            inherited: false,
            namespace: Some(there),
        })
    }

    /// Takes over what a daemon has left behind, wherever it is now. `None` if somebody else has it
    /// by now.
    fn adopt_left(
        spec: &InterfaceConfig,
        queues: usize,
        left: LeftBehind,
    ) -> Result<Option<Opened>, InterfaceError> {
        let described = left.to_string();
        let name = left.link.name;
        let adopted = match left.namespace {
            Some(there) => Opened::adopt_in(spec, &name, queues, there),
            None => Opened::here(spec, &name, queues),
        };
        match adopted {
            Ok(opened) => {
                log::info!("{}: it is {described} now", spec.name);
                Ok(Some(opened))
            }
            Err(InterfaceError::Tap(e)) if e.is_held() => {
                log::info!("{}: {described} was its interface, but: {e}", spec.name);
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    /// Attaches to a TAP that is there, and that stays persistent or not as it is.
    fn adopt(stray: UnservedTap<'_>, queues: usize) -> Result<Opened, InterfaceError> {
        let link = stray.link;
        let options = TapOptions {
            name: link.name.clone(),
            queues,
            persist: false,
        };
        let (tap, queues) = match &stray.namespace {
            None => Tap::open(&options)?,
            there => Tap::adopt(&options, there.as_ref())?,
        };
        // It may have gone meanwhile, and its name to another.
        if !tap.existed() || (stray.namespace.is_none() && tap.ifindex() != link.index) {
            return Err(InterfaceError::Vanished(link.name.clone()));
        }
        Ok(Opened {
            tap,
            queues,
            name: link.name.clone(),
            inherited: false,
            namespace: stray.namespace,
        })
    }

    fn adopt_in(
        spec: &InterfaceConfig,
        name: &str,
        queues: usize,
        there: Namespace,
    ) -> Result<Opened, InterfaceError> {
        let options = options(spec, name, queues);
        let (tap, queues) = patiently(|| Tap::adopt(&options, Some(&there)))?;
        Ok(Opened {
            tap,
            queues,
            name: name.to_owned(),
            inherited: false,
            namespace: Some(there),
        })
    }

    /// Goes on with the queues that the service manager has kept, `most` of them.
    fn take_over(
        spec: &InterfaceConfig,
        most: usize,
        stored: Stored,
    ) -> Result<Opened, InterfaceError> {
        let (label, name) = (stored.label, stored.interface);
        let kept = stored.fds.len();
        // The label goes where it says something wrong from now on.
        if label != fdstore::label(spec) || kept > most {
            fdstore::remove(&label);
        }
        let take = || Tap::from_fds(stored.fds, most, spec.persist);
        let (tap, queues) = match &stored.namespace {
            None => take()?,
            Some(there) => there
                .visit(take)
                .map_err(|e| closed(spec.netns.as_deref(), &e))??,
        };
        log::info!("{name}: taken over with the {kept} queue(s) that the service manager kept");
        if kept != most {
            let used = queues.len();
            log::info!("{name}: {used} queue(s) are used; the configuration asks for {most}");
        }
        Ok(Opened {
            tap,
            queues,
            name,
            inherited: true,
            namespace: stored.namespace,
        })
    }
}

fn options(spec: &InterfaceConfig, name: &str, queues: usize) -> TapOptions {
    TapOptions {
        name: name.to_owned(),
        queues,
        persist: spec.persist,
    }
}

fn netlink_error(what: &str, spec: &InterfaceConfig, e: rtnl::Error) -> InterfaceError {
    InterfaceError::Netlink(format!("cannot {what} the interface {}", spec.name), e)
}

fn patiently<T>(mut open: impl FnMut() -> Result<T, TapError>) -> Result<T, TapError> {
    let end = Instant::now() + HELD_PATIENCE;
    let mut told = false;
    loop {
        match open() {
            Err(e) if e.is_held() && Instant::now() < end => {
                if !std::mem::replace(&mut told, true) {
                    log::info!("waiting: {e}");
                }
                thread::sleep(HELD_RETRY);
            }
            opened => return opened,
        }
    }
}
