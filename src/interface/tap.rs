//! The TAP of an interface: new or existing, in the daemon's network namespace or in another one.

use std::thread;
use std::time::Duration;

use control::config::InterfaceConfig;
use netdev::netns::{Namespace, NamespaceId};
use netdev::tap::{Tap, TapError, TapOptions, TapQueue, temporary_name};

use super::{InterfaceError, LeftBehind, closed, visit};
use crate::fdstore::{self, Inherited, Stored};

/// How long held TAPs are retried: `ip tuntap add` and a former daemon that is ending release them after a
/// moment. The kernel does not announce that.
const HELD_PATIENCE: Duration = Duration::from_secs(2);
const HELD_RETRY: Duration = Duration::from_millis(50);

/// The waiting time for all held TAPs of one turn of the control loop. Root of a container can hold many.
#[derive(Debug)]
pub struct Patience(Duration);

impl Default for Patience {
    fn default() -> Patience {
        Patience(HELD_PATIENCE)
    }
}

impl Patience {
    /// Opens a TAP; waits while it is held.
    fn wait<T>(&mut self, mut open: impl FnMut() -> Result<T, TapError>) -> Result<T, TapError> {
        let mut logged = false;
        loop {
            match open() {
                Err(e) if e.is_held() && !self.0.is_zero() => {
                    if !std::mem::replace(&mut logged, true) {
                        log::info!("waiting: {e}");
                    }
                    thread::sleep(HELD_RETRY);
                    self.0 = self.0.saturating_sub(HELD_RETRY);
                }
                opened => return opened,
            }
        }
    }
}

/// An unserved TAP to take over.
pub struct UnservedTap<'a> {
    /// The interface as read.
    pub link: &'a rtnl::Link,
    /// Its network namespace, if it is not the daemon's.
    pub namespace: Option<Namespace>,
}

/// Where a TAP comes from.
pub struct TapSources<'a> {
    /// The TAP to take over. If given, no TAP is created, and a held TAP is an error at once.
    pub found: Option<UnservedTap<'a>>,
    /// Requests in the daemon's namespace.
    pub netlink: &'a mut rtnl::Requests,
    /// Queues that the service manager kept over a restart.
    pub inherited: &'a mut Inherited,
    /// The waiting time for held TAPs.
    pub patience: &'a mut Patience,
    /// The network namespace for the interface, if it is not the daemon's.
    pub namespace: Option<Namespace>,
    /// Its left interface, which has another name or is in another namespace.
    pub left: Option<LeftBehind>,
}

/// A TAP, new or taken over.
pub(super) struct Opened {
    pub tap: Tap,
    pub queues: Vec<TapQueue>,
    pub name: String,
    /// Its queues were never closed.
    pub inherited: bool,
    /// Its namespace, if it is not the daemon's.
    pub namespace: Option<Namespace>,
}

impl Opened {
    /// Takes over the queues of the service manager, or a left interface; else opens the TAP of that name,
    /// or creates it.
    pub(super) fn find(
        spec: &InterfaceConfig,
        queues: usize,
        site: &mut TapSources<'_>,
    ) -> Result<Opened, InterfaceError> {
        if let Some(stray) = site.found.take() {
            let stored = site
                .inherited
                .named(&stray.link.name, id_of(&stray.namespace));
            return match stored {
                Some(stored) => {
                    let label = stored.label.clone();
                    // While the store holds the TAP, no retry can take it over.
                    Opened::take_over(spec, queues, stored).inspect_err(|_| fdstore::remove(&label))
                }
                None => Opened::adopt(stray, queues),
            };
        }
        let is_elsewhere = site.namespace.is_some();
        Opened::find_configured(spec, queues, site).map_err(|e| match is_elsewhere {
            true => e.elsewhere(spec.netns.as_deref()),
            false => e,
        })
    }

    fn find_configured(
        spec: &InterfaceConfig,
        queues: usize,
        site: &mut TapSources<'_>,
    ) -> Result<Opened, InterfaceError> {
        let namespace = site.namespace.take();
        let stored = site.inherited.named(&spec.name, id_of(&namespace));
        if let Some(stored) = stored.or_else(|| site.inherited.labelled(&fdstore::label(spec))) {
            let label = stored.label.clone();
            let elsewhere = stored.namespace.is_some();
            match Opened::take_over(spec, queues, stored) {
                // Two causes must not keep the daemon from serving the other interfaces: root of a container may rename
                // the interface and open further queues; the daemon may not enter a namespace that the configuration
                // does not name. The administrator of the host mends other errors.
                Err(e)
                    if elsewhere
                        && (namespace.is_none() || !matches!(e, InterfaceError::Netns(_))) =>
                {
                    log::warn!(
                        "{}: cannot take over the queues that systemd has kept: {e}",
                        spec.name
                    );
                    fdstore::remove(&label);
                }
                taken => return taken,
            }
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
            && let Some(opened) = Opened::adopt_left(spec, queues, site.patience, left)?
        {
            return Ok(opened);
        }
        match namespace {
            None => Opened::here(spec, &spec.name, queues, site.patience),
            Some(there) if exists => {
                Opened::adopt_in(spec, &spec.name, queues, site.patience, there)
            }
            Some(there) => Opened::make_in(spec, queues, site, there),
        }
    }

    /// Opens or creates a TAP in the daemon's own namespace.
    fn here(
        spec: &InterfaceConfig,
        name: &str,
        queues: usize,
        patience: &mut Patience,
    ) -> Result<Opened, InterfaceError> {
        let (tap, queues) = patience.wait(|| Tap::open(&options(spec, name, queues)))?;
        Ok(Opened {
            tap,
            queues,
            name: name.to_owned(),
            inherited: false,
            namespace: None,
        })
    }

    /// Creates a TAP in another namespace. It is created in the daemon's and then moved: the descriptor of
    /// a TAP that was created in a namespace keeps that namespace alive.
    fn make_in(
        spec: &InterfaceConfig,
        queues: usize,
        site: &mut TapSources<'_>,
        there: Namespace,
    ) -> Result<Opened, InterfaceError> {
        // The name may be in use here. The TAP becomes persistent after the move only.
        let (tap, queues) = site.patience.wait(|| {
            Tap::open(&TapOptions {
                name: temporary_name(),
                queues,
                persist: false,
            })
        })?;
        site.netlink
            .move_link(tap.ifindex(), &there, Some(&spec.name), None)
            .map_err(|e| netlink_error("move", spec, e))?;
        if spec.persist {
            // Root of the other namespace may have deleted the TAP.
            tap.set_persist(true)
                .map_err(|_| InterfaceError::Vanished(spec.name.clone()))?;
        }
        Ok(Opened {
            tap,
            queues,
            name: spec.name.clone(),
            inherited: false,
            namespace: Some(there),
        })
    }

    /// Takes over a left interface. `None` if another program holds it, or if it is in another namespace, whose
    /// administrator must not keep the daemon from serving the other interfaces.
    fn adopt_left(
        spec: &InterfaceConfig,
        queues: usize,
        patience: &mut Patience,
        left: LeftBehind,
    ) -> Result<Option<Opened>, InterfaceError> {
        let described = left.to_string();
        let elsewhere = left.namespace.is_some();
        let name = left.link.name;
        let adopted = match left.namespace {
            Some(there) => Opened::adopt_in(spec, &name, queues, patience, there),
            None => Opened::here(spec, &name, queues, patience),
        };
        match adopted {
            Ok(opened) => {
                log::info!("{}: reusing interface {described}", spec.name);
                Ok(Some(opened))
            }
            Err(InterfaceError::Tap(e)) if e.is_held() || elsewhere => {
                log::warn!("{}: cannot reuse interface {described}: {e}", spec.name);
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    /// Attaches to an existing TAP. Its persistence does not change.
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
        // It may have been deleted, and another interface may have its name.
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
        patience: &mut Patience,
        there: Namespace,
    ) -> Result<Opened, InterfaceError> {
        let options = options(spec, name, queues);
        let (tap, queues) = patience.wait(|| Tap::adopt(&options, Some(&there)))?;
        Ok(Opened {
            tap,
            queues,
            name: name.to_owned(),
            inherited: false,
            namespace: Some(there),
        })
    }

    /// Takes over the queues that the service manager has kept, at most `most`.
    fn take_over(
        spec: &InterfaceConfig,
        most: usize,
        stored: Stored,
    ) -> Result<Opened, InterfaceError> {
        let (label, name) = (stored.label, stored.interface);
        let kept = stored.fds.len();
        // The label is removed if name or number of queues no longer match.
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
        log::info!("{name}: taken over with the {kept} queue(s) that systemd has kept");
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

fn id_of(namespace: &Option<Namespace>) -> Option<NamespaceId> {
    namespace.as_ref().and_then(|there| there.id().ok())
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
