//! The simulated port of ibsim with the GID of the software fabric's port: its umad carries the datagrams of
//! subnet administration, and a subnet manager gives the P_Key table and the LID.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use proto::{Gid, Lid};
use rustix::event::epoll::{self, EventData, EventFlags};

use super::side::{Changes, Side};
use super::watcher::Watcher;
use crate::administration::{Abilities, Carrier, Manager, Place, UmadCarrier};
use crate::mad::MAD_LEN;
use crate::pkeys::PKeyTable;
use crate::port::{FabricError, Port, PortAttributes, PortEvent};
use crate::soft::SoftPort;
use crate::umad::{self, LinkState, Umad};

/// See the module.
pub(super) struct Simulated {
    carrier: UmadCarrier,
    watcher: Watcher,
    /// Epoll instance with both.
    events: OwnedFd,
    /// The last attributes of the simulated port.
    seen: umad::PortAttributes,
    /// Why the attributes are not known.
    silent: Option<String>,
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
        Simulated::over(Umad::open(&device, 1)?)
    }

    /// With an open umad port.
    ///
    /// # Errors
    /// As [`Simulated::open`].
    pub fn over(umad: Umad) -> Result<Simulated, FabricError> {
        let seen = umad.attributes()?;
        let carrier = UmadCarrier::over(umad)?;
        let failed = |source: std::io::Error| FabricError::Os {
            what: format!(
                "{}: cannot wait for management datagrams",
                carrier.umad().name()
            ),
            source,
        };
        let watcher = Watcher::start(carrier.umad(), &seen).map_err(failed)?;
        let events = epoll::create(epoll::CreateFlags::CLOEXEC);
        let events = events.map_err(|e| failed(e.into()))?;
        for fd in [carrier.event_fd(), watcher.event_fd()] {
            epoll::add(&events, fd, EventData::new_u64(0), EventFlags::IN)
                .map_err(|e| failed(e.into()))?;
        }
        Ok(Simulated {
            carrier,
            watcher,
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
        if let Some(why) = other_gid(&port.attributes(), self.name(), self.seen.gid()) {
            return Err(FabricError::Unusable(why));
        }
        port.set_pkeys(self.seen.pkeys.clone())?;
        self.follow_manager(port);
        Ok(())
    }

    fn name(&self) -> &str {
        self.carrier.umad().name()
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
        self.carrier.set_manager(manager);
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
        let (was_read, seen) = self.watcher.take();
        let mut changes = match seen {
            None => Changes::default(),
            Some(Ok(now)) => self.follow(now, port),
            Some(Err(why)) => {
                self.silent = Some(why);
                Changes::default()
            }
        };
        if was_read {
            changes.lost |= self.carrier.watch_manager();
        }
        self.follow_manager(port);
        changes
    }

    fn trouble(&self, port: &PortAttributes) -> Option<String> {
        let (name, state) = (self.name(), self.seen.state);
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
        self.carrier.receive()
    }

    fn send(&mut self, mad: &[u8; MAD_LEN], wait: Duration) {
        self.carrier.send(mad, wait);
    }

    fn place(&self) -> Option<Place> {
        self.carrier.place()
    }

    fn abilities(&self) -> Abilities {
        self.carrier.abilities()
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
