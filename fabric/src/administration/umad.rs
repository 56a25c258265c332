//! umad as the carrier: the subnet administrator is at the subnet manager's port.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use proto::Lid;

use super::life::Life;
use super::{Abilities, Carrier, Place};
use crate::mad::MAD_LEN;
use crate::port::FabricError;
use crate::umad::{Agent, AgentId, To, Umad, UmadError};

/// How long the answer to a question for a sign of life is delivered: until the next question.
const LIFE: Duration = Duration::from_secs(1);

/// The subnet manager's port, where the subnet administrator is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Manager {
    /// Its LID.
    pub lid: Lid,
    /// The service level of packets to it.
    pub sl: u8,
    /// The place of the default partition in the port's P_Key table.
    pub pkey_index: u16,
}

/// An open umad port with the agents of subnet administration.
#[derive(Debug)]
pub struct UmadCarrier {
    umad: Arc<Umad>,
    /// Watches the subnet manager if the port has no events.
    life: Option<Life>,
    requests: AgentId,
    manager: Option<Manager>,
    /// This program receives the port's Reports.
    has_reports: bool,
}

impl UmadCarrier {
    /// Opens umad on a port of an RDMA device.
    ///
    /// # Errors
    /// [`FabricError::Unusable`] that says what is missing and what to do.
    pub fn open(device: &str, number: u8) -> Result<UmadCarrier, FabricError> {
        UmadCarrier::over(Umad::open(device, number)?)
    }

    /// With an open umad port.
    ///
    /// # Errors
    /// As [`UmadCarrier::open`].
    pub fn over(umad: Umad) -> Result<UmadCarrier, FabricError> {
        let simulated = umad.is_simulated();
        let agent = Agent {
            rmpp_version: u8::from(!simulated),
            ..Agent::SA
        };
        let requests = umad.register(agent)?;
        let reports = umad.register(Agent {
            methods: Agent::REPORTS.methods,
            ..agent
        });
        if let Err(e) = &reports {
            log::warn!(
                "{}: cannot receive Reports of the subnet administrator, so deleted groups are noticed only \
                 at the next join: {e}",
                umad.name()
            );
        }
        let life = match simulated {
            true => Some(Life::new(umad.register(Agent::SM)?)),
            false => None,
        };
        Ok(UmadCarrier {
            umad: Arc::new(umad),
            life,
            requests,
            manager: None,
            has_reports: reports.is_ok(),
        })
    }

    /// The open umad port.
    pub const fn umad(&self) -> &Arc<Umad> {
        &self.umad
    }

    /// Sets the subnet manager; `None` while there is none: requests time out then.
    pub const fn set_manager(&mut self, manager: Option<Manager>) {
        self.manager = manager;
    }

    /// Asks the subnet manager of a simulated port for a sign of life: once a second. Returns whether the
    /// manager has started again, and so has forgotten all registrations.
    pub fn watch_manager(&mut self) -> bool {
        let Some(life) = &mut self.life else {
            return false;
        };
        if let Some(manager) = self.manager {
            let mad = life.ask(manager.lid);
            let to = To::smi(manager.lid);
            if let Err(e) = self.umad.send(life.agent, &to, &mad, LIFE) {
                log::debug!("{e}");
            }
        }
        life.take_restart()
    }
}

impl Carrier for UmadCarrier {
    fn event_fd(&self) -> BorrowedFd<'_> {
        self.umad.event_fd()
    }

    fn receive(&mut self) -> Result<Option<Vec<u8>>, FabricError> {
        while let Some(received) = self.umad.receive()? {
            // The kernel returns a request without an answer; `Subnet` has its own timeouts.
            match &mut self.life {
                _ if received.status != 0 => {}
                Some(life) if life.agent == received.agent => life.receive(&received.mad),
                _ => return Ok(Some(received.mad)),
            }
        }
        Ok(None)
    }

    fn send(&mut self, mad: &[u8; MAD_LEN], wait: Duration) {
        let Some(manager) = self.manager else {
            return;
        };
        let to = To {
            pkey_index: manager.pkey_index,
            ..To::gsi(manager.lid, manager.sl)
        };
        if let Err(e) = self.umad.send(self.requests, &to, mad, wait) {
            log::debug!("{e}");
        }
    }

    fn place(&self) -> Option<Place> {
        let Manager { lid, sl, .. } = self.manager?;
        Some(Place::Manager { lid, sl })
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            reports: self.has_reports,
            segments: self.umad.is_simulated(),
            // A real port has an event of a reregistration, and a simulated one is watched.
            losses: true,
        }
    }
}

impl From<UmadError> for FabricError {
    fn from(e: UmadError) -> FabricError {
        FabricError::Unusable(e.to_string())
    }
}
