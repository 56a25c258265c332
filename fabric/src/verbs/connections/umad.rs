//! Our own communication management on an InfiniBand port, over the management datagrams of umad(7).
//!
//! The agent of class 7 receives all connection requests of the port, so the kernel's `ib_cm` must not be
//! loaded. The workers of the port share the agent ([`agent`]); each manages its own connections. A MAD is
//! sent with timeout 0: a reply is no response MAD, and `fabric::cm` repeats messages itself.

mod agent;
pub mod fuzzed;
#[cfg(test)]
mod kernel_tests;
mod manager;
mod path;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use proto::{CmChoice, Guid, Instant, Services};

use super::device::Event;
use crate::cm::{CmConfig, HALF_OPEN_MAX};
use crate::kernel::{clock, random};
use crate::umad::{Agent, Umad, UmadError};
use crate::verbs::config::VerbsConfig;
use crate::verbs::ibv::LinkLayer;
use agent::Datagrams;
use manager::{Fault, Manager};

pub use agent::CmAgent;
pub use manager::{Line, NOT_A_MESSAGE};
pub use path::Own;

/// The communication management of one worker.
#[derive(Debug)]
pub struct UmadCm {
    datagrams: Datagrams,
    /// The connections. A call that sends messages goes through [`UmadCm::act`].
    pub manager: Manager,
}

impl From<Fault> for io::Error {
    fn from(fault: Fault) -> io::Error {
        io::Error::other(fault)
    }
}

/// The services of a port's connections by its configuration. On InfiniBand, tries to register an agent of
/// class 7, unless the configuration excludes that: the kernel's `ib_cm` may have it. An interface must not
/// advertise connections that the port cannot accept, so the kernel's manager is the alternative also for
/// [`CmChoice::Umad`].
pub fn services(config: &VerbsConfig, link_layer: LinkLayer) -> Services {
    match (link_layer, config.cm) {
        (LinkLayer::Ethernet, _) => return Services::RdmaCm,
        (LinkLayer::InfiniBand, CmChoice::RdmaCm | CmChoice::Off) => {
            return Services::RdmaCmInfiniBand;
        }
        (LinkLayer::InfiniBand, CmChoice::Auto | CmChoice::Umad) => {}
    }
    let name = config.name();
    let umad = Umad::open(&config.device, config.port);
    let Err(why) = umad.and_then(|umad| umad.register(Agent::CM)) else {
        log::info!("{name}: connections are managed by ibtapd, over umad");
        return Services::InfiniBand;
    };
    let level = match config.cm {
        CmChoice::Umad => log::Level::Warn,
        _ => log::Level::Info,
    };
    log::log!(
        level,
        "{name}: connections are managed by the kernel, over rdma_cm: {why}"
    );
    Services::RdmaCmInfiniBand
}

impl UmadCm {
    /// Opens the communication management of a worker, for so many connections. `ca_guid` is the device's
    /// node GUID.
    ///
    /// # Errors
    /// [`UmadError::Held`] if the kernel's `ib_cm` is loaded, and the other errors of opening a umad.
    pub fn open(
        agent: &Arc<CmAgent>,
        worker: usize,
        ca_guid: Guid,
        connections: usize,
    ) -> Result<UmadCm, UmadError> {
        let datagrams = Datagrams::open(agent, worker)?;
        let config = CmConfig {
            ca_guid,
            worker,
            workers: agent.workers(),
            seed: [random(), random()],
            half_open_max: HALF_OPEN_MAX,
            // Those in TIMEWAIT count, too.
            connections_max: connections.saturating_mul(2),
        };
        Ok(UmadCm {
            datagrams,
            manager: Manager::new(config),
        })
    }

    /// Readable when there are events.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.datagrams.fd()
    }

    fn flush(&mut self) {
        while let Some((to, datagram)) = self.manager.poll_transmit() {
            // A lost message is repeated.
            if let Err(e) = self.datagrams.send(&to, &datagram) {
                log::debug!("{e}");
            }
        }
    }

    /// A call of the manager now, and then its messages are sent.
    pub fn act<T>(&mut self, act: impl FnOnce(&mut Manager, Instant) -> T) -> T {
        let done = act(&mut self.manager, clock());
        self.flush();
        done
    }

    /// The next event, if any. Handles at most one received datagram.
    ///
    /// # Errors
    /// The umad receives nothing any more.
    pub fn event(&mut self) -> io::Result<Option<Event<Line>>> {
        if let Some(event) = self.manager.poll_event() {
            return Ok(Some(event));
        }
        let Some(received) = self.datagrams.receive().map_err(io::Error::other)? else {
            return Ok(None);
        };
        self.act(|manager, now| manager.receive(now, &received));
        Ok(Some(self.manager.poll_event().unwrap_or(Event::Other)))
    }
}
