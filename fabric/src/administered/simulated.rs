//! The simulated port of ibsim with the GID of the software fabric's port: its umad carries the datagrams of
//! subnet administration, and a subnet manager gives the P_Key table and the LID.
//!
//! When the device is removed, the port is down, and umad is opened again when the device is back.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use proto::{Gid, Lid};
use rustix::event::epoll::{self, EventData, EventFlags};

use super::side::{Changes, Side};
use super::watcher::Watcher;
use crate::administration::{Abilities, Carrier, Manager, Place, UmadCarrier};
use crate::kernel::Timer;
use crate::mad::MAD_LEN;
use crate::pkeys::PKeyTable;
use crate::port::{FabricError, Port, PortAttributes, PortEvent};
use crate::soft::SoftPort;
use crate::umad::{self, LinkState, Umad, UmadError};

/// Time between two attempts to open umad again.
const OPEN_AGAIN: Duration = Duration::from_secs(1);

/// Opens umad of the port.
pub(super) type Opener = Box<dyn Fn() -> Result<Umad, UmadError> + Send>;

/// See the module.
pub(super) struct Simulated {
    open: Opener,
    name: String,
    abilities: Abilities,
    /// `None` while the device is away.
    opened: Option<Opened>,
    /// Readable when umad has to be opened again.
    again: Timer,
    /// Epoll instance with all of these.
    events: OwnedFd,
    /// The last attributes of the simulated port.
    seen: umad::PortAttributes,
    /// Why the attributes are not known.
    silent: Option<String>,
}

/// The open port.
struct Opened {
    carrier: UmadCarrier,
    watcher: Watcher,
}

impl Simulated {
    /// Opens the first port of the first RDMA device.
    ///
    /// # Errors
    /// [`FabricError::Unusable`] that says what is missing and what to do; [`FabricError::Os`].
    pub fn open() -> Result<Simulated, FabricError> {
        let device = umad::devices()?.into_iter().next();
        let device = device.ok_or_else(|| {
            FabricError::Unusable(
                "sa = \"umad\" needs an RDMA device for management datagrams, and there is none: \
                 start ibtapd with ibsim-run, or leave sa out"
                    .into(),
            )
        })?;
        Simulated::over(Box::new(move || Umad::open(&device, 1)))
    }

    /// With umad of a port.
    ///
    /// # Errors
    /// As [`Simulated::open`].
    pub fn over(open: Opener) -> Result<Simulated, FabricError> {
        let failed = |source: rustix::io::Errno| failed(source.into());
        let events = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
        let again = Timer::new().map_err(failed)?;
        add(&events, again.as_fd())?;
        let (opened, seen) = Opened::over(open()?, &events)?;
        Ok(Simulated {
            open,
            name: opened.carrier.umad().name().to_owned(),
            abilities: opened.carrier.abilities(),
            opened: Some(opened),
            again,
            events,
            seen,
            silent: None,
        })
    }

    /// The first look: the port takes the P_Key table over.
    ///
    /// # Errors
    /// [`FabricError::Unusable`] if the port has not the GID of the simulated port.
    pub fn begin(&mut self, port: &mut SoftPort) -> Result<(), FabricError> {
        if let Some(why) = other_gid(&port.attributes(), &self.name, self.seen.gid()) {
            return Err(FabricError::Unusable(why));
        }
        port.set_pkeys(self.seen.pkeys.clone())?;
        self.follow_manager(port);
        Ok(())
    }

    /// Closes umad, because its device is gone.
    fn lose(&mut self, why: String) {
        let opened = self.opened.take();
        self.silent = Some(why);
        if !opened.is_some_and(|o| o.carrier.umad().is_simulated()) {
            self.set_again(OPEN_AGAIN);
        }
    }

    /// Has umad opened again after each interval; 0: no more.
    fn set_again(&self, interval: Duration) {
        if let Err(e) = self.again.set(interval, interval) {
            log::error!("{}: cannot set a timer: {e}", self.name);
        }
    }

    /// Opens umad again, if it is time and the device is back.
    fn open_again(&mut self, port: &mut SoftPort) -> Changes {
        if !self.again.has_expired() || self.opened.is_some() {
            return Changes::default();
        }
        let opened = (self.open)().map_err(FabricError::from);
        match opened.and_then(|umad| Opened::over(umad, &self.events)) {
            Ok((opened, seen)) => {
                self.set_again(Duration::ZERO);
                log::info!("{}: open again", self.name);
                self.opened = Some(opened);
                let changes = self.follow(seen, port);
                Changes {
                    lost: true,
                    ..changes
                }
            }
            Err(e) => {
                log::debug!("{e}");
                Changes::default()
            }
        }
    }

    /// Follows the LID of the subnet manager.
    fn follow_manager(&mut self, port: &SoftPort) {
        let seen = &self.seen;
        // While the port is not active, nothing reaches the manager.
        let is_there = self.trouble(&port.attributes()).is_none() && seen.sm_lid.0 != 0;
        let manager = is_there.then(|| Manager {
            lid: seen.sm_lid,
            sl: seen.sm_sl,
            pkey_index: PKeyTable::new(seen.pkeys.clone()).management().index,
        });
        if let Some(opened) = &mut self.opened {
            opened.carrier.set_manager(manager);
        }
    }

    /// Follows the attributes of the simulated port.
    fn follow(&mut self, now: umad::PortAttributes, port: &mut SoftPort) -> Changes {
        self.silent = None;
        let before = std::mem::replace(&mut self.seen, now);
        // Another manager does not know the registrations, and a registration has the port's LID.
        let lost = before.lid != self.seen.lid || before.sm_lid != self.seen.sm_lid;
        let mut events = Vec::new();
        if before.pkeys != self.seen.pkeys {
            match port.set_pkeys(self.seen.pkeys.clone()) {
                Ok(changed) => events.push(PortEvent::PKeyChange(changed)),
                Err(e) => {
                    log::error!("cannot follow the P_Key table of the subnet manager: {e}");
                }
            }
        }
        Changes { events, lost }
    }
}

impl Side for Simulated {
    fn look(&mut self, port: &mut SoftPort) -> Changes {
        let mut changes = self.open_again(port);
        let watched = self.opened.as_ref().map(|opened| opened.watcher.take());
        let (was_read, seen) = watched.unwrap_or_default();
        match seen {
            None => {}
            Some(Ok(now)) => changes.extend(self.follow(now, port)),
            Some(Err(why)) => {
                // ibsim's preload connects once in the life of a process (umad2sim/umad2sim.c,
                // `umad2sim_init`), so no other umad reaches the next ibsim.
                let remedy =
                    "; if ibsim has ended, end ibtapd, start ibsim, and start ibtapd again";
                let opened = self.opened.as_ref();
                let is_simulated = opened.is_some_and(|o| o.carrier.umad().is_simulated());
                self.silent = Some(why + if is_simulated { remedy } else { "" });
            }
        }
        if let (true, Some(opened)) = (was_read, &mut self.opened) {
            changes.lost |= opened.carrier.watch_manager();
        }
        self.follow_manager(port);
        changes
    }

    fn trouble(&self, port: &PortAttributes) -> Option<String> {
        let (name, state) = (&self.name, self.seen.state);
        let silent = self.silent.clone();
        silent
            .or_else(|| other_gid(port, name, self.seen.gid()))
            .or_else(|| {
                (state != LinkState::Active).then(|| {
                    format!("{name} is in state {state}: the subnet manager has not made it ACTIVE")
                })
            })
    }

    fn lid(&self) -> Option<Lid> {
        Some(self.seen.lid).filter(|lid| lid.0 != 0)
    }

    fn sets_pkeys(&self) -> bool {
        true
    }
}

impl Carrier for Simulated {
    fn event_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }

    fn receive(&mut self) -> Result<Option<Vec<u8>>, FabricError> {
        let Some(opened) = &mut self.opened else {
            return Ok(None);
        };
        let received = opened.carrier.receive();
        Ok(received.unwrap_or_else(|e| {
            self.lose(e.to_string());
            None
        }))
    }

    fn send(&mut self, mad: &[u8; MAD_LEN], wait: Duration) {
        if let Some(opened) = &mut self.opened {
            opened.carrier.send(mad, wait);
        }
    }

    fn place(&self) -> Option<Place> {
        self.opened.as_ref()?.carrier.place()
    }

    fn abilities(&self) -> Abilities {
        self.abilities
    }
}

impl Opened {
    /// With an open umad port, whose events are added to an epoll instance; and the attributes of the port.
    fn over(umad: Umad, events: &OwnedFd) -> Result<(Opened, umad::PortAttributes), FabricError> {
        let seen = umad.attributes()?;
        let carrier = UmadCarrier::over(umad)?;
        let watcher = Watcher::start(carrier.umad(), &seen).map_err(failed)?;
        add(events, carrier.event_fd())?;
        add(events, watcher.event_fd())?;
        Ok((Opened { carrier, watcher }, seen))
    }
}

fn add(events: &OwnedFd, fd: BorrowedFd<'_>) -> Result<(), FabricError> {
    let added = epoll::add(events, fd, EventData::new_u64(0), EventFlags::IN);
    added.map_err(|e| failed(e.into()))
}

fn failed(source: io::Error) -> FabricError {
    FabricError::Os {
        what: "cannot wait for management datagrams".to_owned(),
        source,
    }
}

/// A sentence if the software fabric's port has not the GID of the umad port.
fn other_gid(port: &PortAttributes, umad: &str, wanted: Gid) -> Option<String> {
    let (name, gid) = (&port.name, port.gid);
    (gid != wanted).then(|| {
        format!(
            "{name} has the GID {gid}, and {umad} has {wanted}: give the underlay the address {wanted}, \
             and set gid to it"
        )
    })
}
