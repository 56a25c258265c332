//! Our own communication management on an InfiniBand port, over the management datagrams of umad(7).
//!
//! The agent of class 7 receives all connection requests of the port, so the kernel's `ib_cm` must not be
//! loaded. The workers of the port share the agent ([`agent`]); each manages its own connections. A MAD is
//! sent with timeout 0: a reply is no response MAD, and `fabric::cm` repeats messages itself.

mod agent;
#[cfg(fuzzing)]
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

use proto::{CmChoice, Guid, Instant, Qpn, RejectReason, ServiceId, Services};

use super::device::{self, Address, Event, Source};
use crate::cm::CmConfig;
use crate::kernel::{clock, random};
use crate::pkeys::PKeyTable;
use crate::subnet::{Destination, SubnetPath};
use crate::umad::{Agent, Umad, UmadError};
use crate::verbs::config::VerbsConfig;
use crate::verbs::ibv::{LinkLayer, RcParameters};
use crate::worker::Counters;
use agent::Datagrams;
use manager::{Fault, Manager};

pub use agent::CmAgent;
pub use manager::{Line, NOT_A_MESSAGE};
pub use path::Own;

/// Maximum number of half-open connections requested by peers.
const HALF_OPEN_MAX: usize = 256;

/// The communication management of one worker.
#[derive(Debug)]
pub struct UmadCm {
    datagrams: Datagrams,
    manager: Manager,
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

    /// See [`Manager::set_own`].
    pub const fn set_own(&mut self, own: Own) {
        self.manager.set_own(own);
    }

    /// See [`Manager::take_wanted`].
    pub fn take_wanted(&mut self) -> Vec<Destination> {
        self.manager.take_wanted()
    }

    /// See [`Manager::ask_again`].
    pub fn ask_again(&mut self) {
        self.manager.ask_again();
    }

    /// See [`Manager::path_found`].
    pub fn path_found(&mut self, destination: Destination, path: Option<&SubnetPath>) {
        self.manager.path_found(destination, path);
    }

    /// See [`Manager::listen`].
    pub fn listen(&mut self, service: ServiceId) -> Line {
        self.manager.listen(service)
    }

    /// See [`Manager::begin`].
    pub fn begin(&mut self, context: u64, from: &Source, to: &Address) -> Line {
        self.manager.begin(context, from, to)
    }

    /// See [`Manager::set_context`].
    pub fn set_context(&mut self, line: &Line, context: u64) {
        self.manager.set_context(line, context);
    }

    /// See [`Manager::resolve_route`].
    pub fn resolve_route(&mut self, line: &Line) -> io::Result<()> {
        Ok(self.manager.resolve_route(line)?)
    }

    /// See [`Manager::path`].
    pub fn path(&self, line: &Line, pkeys: &PKeyTable) -> io::Result<device::Path> {
        Ok(self.manager.path(line, pkeys)?)
    }

    /// See [`Manager::agreed`].
    pub fn agreed(&self, line: &Line) -> io::Result<(RcParameters, device::Path)> {
        Ok(self.manager.agreed(line)?)
    }

    /// See [`Manager::ask`].
    pub fn ask(&mut self, line: &Line, qpn: Qpn, private_data: &[u8]) -> io::Result<()> {
        let asked = self.manager.ask(clock(), line, qpn, private_data);
        self.flush();
        Ok(asked?)
    }

    /// See [`Manager::accept`].
    pub fn accept(&mut self, line: &Line, qpn: Qpn, private_data: &[u8]) {
        self.manager.accept(clock(), line, qpn, private_data);
        self.flush();
    }

    /// See [`Manager::confirm`].
    pub fn confirm(&mut self, line: &Line) {
        self.manager.confirm(line);
        self.flush();
    }

    /// See [`Manager::reject`].
    pub fn reject(&mut self, line: &Line, reason: RejectReason, private_data: &[u8]) {
        self.manager.reject(clock(), line, reason, private_data);
        self.flush();
    }

    /// See [`Manager::disconnect`].
    pub fn disconnect(&mut self, line: &Line) {
        self.manager.disconnect(clock(), line);
        self.flush();
    }

    /// See [`Manager::destroy`].
    pub fn destroy(&mut self, line: Line) {
        self.manager.destroy(clock(), line);
        self.flush();
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
        self.manager.receive(clock(), &received);
        self.flush();
        Ok(Some(self.manager.poll_event().unwrap_or(Event::Other)))
    }

    /// See [`Manager::next_deadline`].
    pub fn next_deadline(&self) -> Option<Instant> {
        self.manager.next_deadline()
    }

    /// See [`Manager::handle_timeout`].
    pub fn handle_timeout(&mut self, now: Instant) {
        self.manager.handle_timeout(now);
        self.flush();
    }

    /// Counters by name.
    pub fn counters(&self) -> Counters {
        self.manager.counters()
    }
}
