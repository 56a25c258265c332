//! Taking over a TAP that someone else made, in this namespace or in another one.
//!
//! The driver finds a TAP by its name in the namespace where `/dev/net/tun` was opened, and the open
//! file keeps that namespace alive for as long as it is open, wherever the TAP goes. A daemon that
//! opened it in the TAP's namespace would hold that after `ip netns del`, for ever. So the TAP comes
//! here under a name that nobody else has, is opened and goes back to its place, name and index, with
//! what a move takes from it. That takes some tens of milliseconds, nearly all of it the kernel's two
//! moves, each of which waits until no processor uses the interface any more.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use rtnl::{Link, Requests, Saved, Stacking};

use super::sysctls::Sysctls;
use super::{Tap, TapError, TapOptions, TapQueue, existing};
use crate::netns::Namespace;

/// Names to try for the time here; another daemon may use the same ones.
const NAMES_TRIED: usize = 16;

impl Tap {
    /// Takes over a persistent TAP that no process holds, in the network namespace of the calling
    /// thread, or in `namespace`. `options.queues` are at most what it allows: one, if it was not
    /// made with `multi_queue`.
    ///
    /// From another namespace it comes back with its index, MAC, MTU, alias, alternative names,
    /// state, addresses, per-interface sysctls, and the routes and permanent neighbours that someone
    /// gave it. What the kernel forgets besides (queueing disciplines, joined groups) is lost.
    ///
    /// # Errors
    /// As [`Tap::open`], but of a held TAP it does not say by whom ([`TapError::with_holder`] does):
    /// `ip tuntap add` holds each one for a moment. [`TapError::Missing`] if there is none,
    /// [`TapError::TakesPart`] if it is a port or has others on top, in another namespace, and
    /// [`TapError::Namespace`] without CAP_SYS_ADMIN. It is as it was then, but for
    /// [`TapError::Stranded`], which takes that the administrator gave one of its names away meanwhile.
    pub fn adopt(
        options: &TapOptions,
        namespace: Option<&Namespace>,
    ) -> Result<(Tap, Vec<TapQueue>), TapError> {
        options.check()?;
        match namespace {
            Some(namespace) if !is_here(namespace) => adopt_from(options, namespace),
            _ => {
                let mut requests = Requests::new()?;
                let before = unheld(&mut requests, &options.name)?;
                Tap::attach(options, &mut requests, Some(&before))
            }
        }
    }
}

fn is_here(namespace: &Namespace) -> bool {
    let here = Namespace::current().and_then(|here| here.id());
    matches!((here, namespace.id()), (Ok(here), Ok(there)) if here == there)
}

/// The interface of that name, which must be a TAP that nobody holds.
fn unheld(requests: &mut Requests, name: &str) -> Result<Link, TapError> {
    existing(requests, name)?.ok_or_else(|| TapError::Missing(name.to_owned()))
}

fn adopt_from(
    options: &TapOptions,
    namespace: &Namespace,
) -> Result<(Tap, Vec<TapQueue>), TapError> {
    let mut journey = Journey::prepare(&options.name, namespace)?;
    let called = journey.come_here()?;
    let opened = Tap::adopt(
        &TapOptions {
            name: called,
            ..options.clone()
        },
        None,
    );
    let back = journey.go_back();
    let (mut tap, queues) = opened?;
    tap.ifindex = back?;
    Ok((tap, queues))
}

/// What to make of a namespace that cannot be entered.
fn unreachable(name: &str) -> impl Fn(io::Error) -> TapError {
    |source| TapError::Namespace {
        name: name.to_owned(),
        source,
    }
}

/// The way of a TAP from its place to here and back.
struct Journey<'a> {
    place: &'a Namespace,
    home: Namespace,
    /// Asks in the TAP's namespace. It is gone with the journey, as every hold on that is.
    there: Requests,
    here: Requests,
    /// The interface before the journey.
    link: Link,
    saved: Saved,
    sysctls: Sysctls,
    /// Its name for the time away from its own.
    called: String,
}

impl<'a> Journey<'a> {
    /// Looks at everything that may be in the way, before anything is changed.
    fn prepare(name: &str, place: &'a Namespace) -> Result<Journey<'a>, TapError> {
        let home = Namespace::current().map_err(unreachable(name))?;
        let here = Requests::new()?;
        let visit = place.visit(|| {
            let mut there = Requests::new()?;
            let link = unheld(&mut there, name)?;
            refuse_held(&link)?;
            refuse_taking_part(&mut there, &link)?;
            Ok(Journey {
                place,
                home,
                here,
                saved: there.save(link.index)?,
                sysctls: Sysctls::read(name),
                there,
                link,
                called: String::new(),
            })
        });
        visit.map_err(unreachable(name))?
    }

    /// Brings the TAP here: its name here. If that fails it is as it was.
    fn come_here(&mut self) -> Result<String, TapError> {
        self.try_to_come().or_else(|e| {
            self.settle(self.link.index)?;
            Err(e)
        })?;
        Ok(self.called.clone())
    }

    fn try_to_come(&mut self) -> Result<(), TapError> {
        let index = self.link.index;
        // Kernels before 6.2 rename no interface that is up; the move takes it down anyway.
        self.there.set_down(index)?;
        for _ in 0..NAMES_TRIED {
            self.called = temporary_name();
            let moved = self
                .there
                .set_name(index, &self.called)
                .and_then(|()| self.there.move_link(index, &self.home, None, None));
            match moved {
                Err(e) if e.is_exists() => {}
                outcome => return Ok(outcome?),
            }
        }
        Err(TapError::TakesPart {
            name: self.link.name.clone(),
            part: "has an alternative name that is taken here".to_owned(),
        })
    }

    /// Takes the TAP back to its place: its index there.
    fn go_back(mut self) -> Result<u32, TapError> {
        let index = self.here.link_by_name(&self.called)?.index;
        self.here
            .move_link(index, self.place, None, Some(self.link.index))
            // The index may be taken by now.
            .or_else(|_| self.here.move_link(index, self.place, None, None))
            .map_err(|source| TapError::Stranded {
                name: self.link.name.clone(),
                called: self.called.clone(),
                source: source.into(),
            })?;
        let index = self.there.link_by_name(&self.called)?.index;
        self.settle(index)?;
        Ok(index)
    }

    /// Gives the TAP in its place its name, addresses, state and routes again. What it can do
    /// without is only told.
    fn settle(&mut self, index: u32) -> Result<(), TapError> {
        let (there, name) = (&mut self.there, &self.link.name);
        let told = |outcome: Result<(), rtnl::Error>| {
            if let Err(e) = outcome {
                log::warn!("{name} is back in its network namespace, but: {e}");
            }
        };
        there.set_name(index, name)?;
        // Before addresses: some say which ones the kernel makes, or whether it takes any.
        self.place
            .visit(|| self.sysctls.restore())
            .map_err(unreachable(name))?;
        told(there.restore_addresses(index, &self.saved));
        if self.link.up {
            there.set_up(index)?;
            told(there.restore_routes(index, &self.saved));
        }
        Ok(())
    }
}

/// A name for the moment that an interface is where its own may be taken: one that no other process of
/// this machine is likely to use, `ibtap` and numbers in hexadecimal, at most 15 bytes, and not of the
/// form `PARENT.PKEY`.
pub fn temporary_name() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed) & 0xff;
    format!("ibtap{:x}-{count:02x}", std::process::id() & 0xff_ffff)
}

/// A held TAP must not be moved away from its holder. The kernel does not count the queue of one
/// without `multi_queue`, but takes the carrier when the last is closed (drivers/net/tun.c,
/// `__tun_detach`); and what is not persistent is there because someone holds it.
fn refuse_held(link: &Link) -> Result<(), TapError> {
    if link.carrier || link.tun.is_none_or(|tun| !tun.persist) {
        return Err(TapError::held(&link.name));
    }
    Ok(())
}

/// What a move would end without a way to put it back.
fn refuse_taking_part(there: &mut Requests, link: &Link) -> Result<(), TapError> {
    let part = match there.stacking(link.index)? {
        Stacking::Bond(above) | Stacking::Bridge(above) => format!("is a port of {above}"),
        Stacking::Macvlan(above) | Stacking::Other(above) => format!("has {above} on top"),
        // Of the kinds of master, stacking leaves out a routing domain.
        Stacking::None | Stacking::Promiscuous if link.master.is_some() => {
            "is part of a VRF".to_owned()
        }
        Stacking::None | Stacking::Promiscuous => return Ok(()),
    };
    Err(TapError::TakesPart {
        name: link.name.clone(),
        part,
    })
}
