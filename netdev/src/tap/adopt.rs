//! Takes over an existing TAP, in this namespace or another one.
//!
//! The driver finds a TAP by its name in the namespace in which `/dev/net/tun` was opened, and the open
//! file keeps that namespace alive, wherever the TAP moves. A daemon that opened the file in the TAP's
//! namespace would keep that namespace alive after `ip netns del`, for ever. The TAP is therefore moved
//! here under a temporary name, opened, and moved back to its namespace, name and index; state that a move
//! removes is restored. This takes some tens of milliseconds, nearly all of it in the kernel's two moves,
//! which wait until no processor uses the interface.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use rtnl::{Link, Requests, Saved, Stacking};

use super::sysctls::Sysctls;
use super::{Tap, TapError, TapOptions, TapQueue, existing, is_held};
use crate::netns::Namespace;

/// Number of temporary names to try; another daemon may use the same ones.
const NAMES_TRIED: usize = 16;

impl Tap {
    /// Takes over a persistent TAP that no process holds, in the network namespace of the calling thread or
    /// in `namespace`. It opens at most `options.queues` queues, or one if the TAP was made without
    /// `multi_queue`.
    ///
    /// A TAP of another namespace keeps its index, MAC, MTU, alias, alternative names, state, addresses,
    /// per-interface sysctls, and configured routes and permanent neighbours. Other state that the kernel
    /// removes (queueing disciplines, joined groups) is lost.
    ///
    /// # Errors
    /// As [`Tap::open`], but [`TapError::Held`] does not name the holder ([`TapError::with_holder`] does),
    /// because `ip tuntap add` holds each TAP for a moment. [`TapError::Missing`] if the TAP does not
    /// exist. In another namespace: [`TapError::TakesPart`] if it is a port or has interfaces on top,
    /// [`TapError::Namespace`] without CAP_SYS_ADMIN. After an error the TAP is as before, except for
    /// [`TapError::Stranded`], which occurs only if an administrator gave one of its names to another
    /// interface meanwhile.
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

/// The interface with this name, which must be a TAP that no process holds.
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

/// Makes the error for a namespace that cannot be entered.
fn unreachable(name: &str) -> impl Fn(io::Error) -> TapError {
    |source| TapError::Namespace {
        name: name.to_owned(),
        source,
    }
}

/// The move of a TAP to this namespace and back.
struct Journey<'a> {
    place: &'a Namespace,
    home: Namespace,
    /// Requests in the TAP's namespace. They end with the journey and keep the namespace alive until then.
    there: Requests,
    here: Requests,
    /// The interface before the move.
    link: Link,
    saved: Saved,
    sysctls: Sysctls,
    /// Its temporary name.
    called: String,
}

impl<'a> Journey<'a> {
    /// Checks all conditions before any change.
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

    /// Moves the TAP here; returns its name here. After an error the TAP is as before.
    fn come_here(&mut self) -> Result<String, TapError> {
        self.try_to_come().or_else(|e| {
            self.settle(self.link.index)?;
            Err(e)
        })?;
        Ok(self.called.clone())
    }

    fn try_to_come(&mut self) -> Result<(), TapError> {
        let index = self.link.index;
        // Kernels before 6.2 do not rename an interface that is up; the move takes it down anyway.
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
            part: "has an alternative name that is taken in this namespace".to_owned(),
        })
    }

    /// Moves the TAP back; returns its index there.
    fn go_back(mut self) -> Result<u32, TapError> {
        let index = self.here.link_by_name(&self.called)?.index;
        self.here
            .move_link(index, self.place, None, Some(self.link.index))
            // The index may be taken meanwhile.
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

    /// Restores name, addresses, state and routes of the TAP in its namespace. Failures to restore
    /// addresses and routes are only logged.
    fn settle(&mut self, index: u32) -> Result<(), TapError> {
        let (there, name) = (&mut self.there, &self.link.name);
        let logged = |outcome: Result<(), rtnl::Error>| {
            if let Err(e) = outcome {
                log::warn!("{name} is back in its network namespace, but incomplete: {e}");
            }
        };
        there.set_name(index, name)?;
        // Sysctls before addresses: some of them determine the addresses that the kernel makes or accepts.
        self.place
            .visit(|| self.sysctls.restore())
            .map_err(unreachable(name))?;
        logged(there.restore_addresses(index, &self.saved));
        if self.link.up {
            there.set_up(index)?;
            logged(there.restore_routes(index, &self.saved));
        }
        Ok(())
    }
}

/// A temporary name for an interface in a namespace where its own name may be taken. Other processes of
/// this machine are unlikely to use it. It has at most 15 bytes, `ibtap` and hexadecimal numbers, and is
/// not of the form `PARENT.PKEY`.
pub fn temporary_name() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed) & 0xff;
    format!("ibtap{:x}-{count:02x}", std::process::id() & 0xff_ffff)
}

/// Fails if a process holds the TAP: it must not be moved away from its holder.
fn refuse_held(link: &Link) -> Result<(), TapError> {
    match is_held(link) {
        true => Err(TapError::held(&link.name)),
        false => Ok(()),
    }
}

/// Fails if a move would end a relation to other interfaces that cannot be restored.
fn refuse_taking_part(there: &mut Requests, link: &Link) -> Result<(), TapError> {
    let part = match Stacking::on(&there.links()?, link) {
        Stacking::Bond(above) | Stacking::Bridge(above) => format!("is a port of {above}"),
        Stacking::Macvlan(above) | Stacking::Other(above) => format!("has {above} on top"),
        // `Stacking` does not report VRFs, the remaining kind of master.
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
