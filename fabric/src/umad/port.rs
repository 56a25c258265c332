//! One open port: its agents, its thread, sending and receiving.

use std::ffi::{CStr, CString, c_int};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use super::arrivals::{Arrivals, MAX_BYTES};
use super::attributes::PortAttributes;
use super::error::{self, UmadError};
use super::message::{Buffer, MAD, Received, To};
use super::simulated::{self, Answers};
use super::sys::{Library, PortId, Real, device_name, wait_readable};
use crate::Guid;
use crate::kernel::wake;
use crate::mad::class::SUBN_LID_ROUTED;

/// How long the thread of a simulated port waits inside libibumad before it looks whether to end.
const SIMULATED_WAIT: Duration = Duration::from_millis(100);

/// What an agent sends and receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agent {
    /// The management class: 3 is subnet administration, 7 communication management.
    pub class: u8,
    /// 2 for these two, 1 for subnet management.
    pub class_version: u8,
    /// 1: the kernel reassembles and acknowledges tables; 0: segments arrive as they are.
    pub rmpp_version: u8,
    /// Bit n: requests of method n are received. 0 for an agent that only asks.
    pub methods: u128,
}

impl Agent {
    /// Subnet administration: asks, and receives answers with tables reassembled.
    pub const SA: Agent = Agent {
        class: 3,
        class_version: 2,
        rmpp_version: 1,
        methods: 0,
    };
    /// The Reports of subnet administration (method 6). A port has one such agent.
    pub const REPORTS: Agent = Agent {
        methods: 1 << 6,
        ..Agent::SA
    };
    /// Communication management (method 3, Send). A port has one such agent; `ib_cm` is one.
    pub const CM: Agent = Agent {
        class: 7,
        class_version: 2,
        rmpp_version: 0,
        methods: 1 << 3,
    };
    /// Subnet management by LID: asks.
    pub const SM: Agent = Agent {
        class: 1,
        class_version: 1,
        rmpp_version: 0,
        methods: 0,
    };
}

/// An agent of an open port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AgentId(pub(crate) u32);

#[cfg(test)]
impl AgentId {
    /// An agent of no port.
    pub const fn for_tests(number: u32) -> AgentId {
        AgentId(number)
    }
}

/// A port, open for management datagrams. Dropping it ends its agents.
pub struct Umad {
    name: String,
    device: String,
    c_device: CString,
    number: u8,
    library: Arc<dyn Library>,
    id: PortId,
    agents: Mutex<Vec<AgentId>>,
    receiver: Arc<Receiver>,
    thread: Option<JoinHandle<()>>,
}

impl Umad {
    /// Opens a port of an RDMA device; ports are numbered from 1.
    ///
    /// # Errors
    /// A sentence that says what is missing and what to do: libibumad, `ib_umad`, the device, the port,
    /// the right to its node.
    pub fn open(device: &str, port: u8) -> Result<Umad, UmadError> {
        Umad::open_with(Real::load()?, device, port)
    }

    pub(crate) fn open_with(
        library: Arc<dyn Library>,
        device: &str,
        number: u8,
    ) -> Result<Umad, UmadError> {
        let name = format!("{device}/{number}");
        library.init().map_err(|_| UmadError::NoModule)?;
        let failed = |reason| error::of_open(device, number, &name, reason, &library.devices());
        let c_device = device_name(device)
            .filter(|_| number != 0)
            .ok_or_else(|| failed(Errno::NODEV.into()))?;
        let start = |e: io::Error| UmadError::Start {
            port: name.clone(),
            reason: e,
        };
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let stop = stop.map_err(|e| start(e.into()))?;
        let arrivals = Arrivals::new().map_err(|e| start(e.into()))?;
        let id = library.open_port(&c_device, number).map_err(failed)?;
        let simulated = match library.descriptor(id) {
            Some(_) => None,
            None => Some(Simulated::new(&*library, &c_device, number, id).map_err(start)?),
        };
        let mut umad = Umad {
            receiver: Arc::new(Receiver {
                name: name.clone(),
                library: library.clone(),
                id,
                simulated,
                arrivals,
                stop,
                stopped: AtomicBool::new(false),
            }),
            name,
            device: device.to_owned(),
            c_device,
            number,
            library,
            id,
            agents: Mutex::default(),
            thread: None,
        };
        let receiver = umad.receiver.clone();
        let thread = thread::Builder::new().name("ibtap-umad".to_owned());
        let thread = thread
            .spawn(move || receiver.run())
            .map_err(|reason| UmadError::Start {
                port: umad.name.clone(),
                reason,
            })?;
        umad.thread = Some(thread);
        Ok(umad)
    }

    /// The port's name: `mlx5_0/1`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the port is one of ibsim: nobody reassembles tables then.
    pub fn is_simulated(&self) -> bool {
        self.receiver.simulated.is_some()
    }

    /// Adds an agent. The kernel allows 32 for a port and program.
    ///
    /// # Errors
    /// [`UmadError::Held`] if another agent of the port receives one of the methods, and
    /// [`UmadError::Register`] otherwise.
    pub fn register(&self, agent: Agent) -> Result<AgentId, UmadError> {
        let number = self.library.register(
            self.id,
            agent.class,
            agent.class_version,
            agent.rmpp_version,
            agent.methods,
        );
        // After the registration: a request without its agent would crash the preload.
        let number = number.and_then(|number| {
            if self.is_simulated() && agent.methods != 0 {
                self.library.take_requests(self.id)?;
            }
            Ok(number)
        });
        let number = number.map_err(|reason| {
            error::of_register(&self.device, self.number, &self.name, &agent, reason)
        })?;
        self.agents().push(AgentId(number));
        Ok(AgentId(number))
    }

    /// Ends an agent; its outstanding requests are returned.
    pub fn unregister(&self, agent: AgentId) {
        let mut agents = self.agents();
        let before = agents.len();
        agents.retain(|&a| a != agent);
        if agents.len() < before && !self.is_simulated() {
            self.library.unregister(self.id, agent.0);
        }
    }

    fn agents(&self) -> std::sync::MutexGuard<'_, Vec<AgentId>> {
        self.agents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a MAD of at least 24 bytes; fewer than 256 are filled up with zeros. `timeout` is how long
    /// the kernel waits for an answer; zero if none comes.
    ///
    /// # Errors
    /// [`UmadError::Send`].
    pub fn send(
        &self,
        agent: AgentId,
        to: &To,
        mad: &[u8],
        timeout: Duration,
    ) -> Result<(), UmadError> {
        let sent = self.receiver.send(agent.0, to, mad, timeout);
        sent.map_err(|reason| UmadError::Send {
            port: self.name.clone(),
            reason,
        })
    }

    /// Readable while [`Umad::receive`] has something.
    pub fn event_fd(&self) -> BorrowedFd<'_> {
        self.receiver.arrivals.as_fd()
    }

    /// The next received MAD or returned request; `None` if nothing waits. Returns at once.
    ///
    /// # Errors
    /// [`UmadError::Ended`], once: the device is gone, and nothing will be received any more.
    pub fn receive(&self) -> Result<Option<Received>, UmadError> {
        self.receiver.arrivals.next()
    }

    /// Received MADs that were dropped because the owner did not take them in time.
    pub fn dropped(&self) -> u64 {
        self.receiver.arrivals.dropped()
    }

    /// The port's attributes now. A simulated port may need a second.
    ///
    /// # Errors
    /// [`UmadError::Attributes`].
    pub fn attributes(&self) -> Result<PortAttributes, UmadError> {
        let attributes = self.library.port(&self.c_device, self.number);
        let attributes = attributes.and_then(|seen| match &self.receiver.simulated {
            None => Ok(seen),
            Some(simulated) => {
                let port = To::smi(simulated::PERMISSIVE);
                simulated.answers.refresh(self.number, seen, |mad| {
                    let agent = simulated.agent;
                    self.receiver.send(agent, &port, mad, SIMULATED_WAIT)
                })
            }
        });
        attributes.map_err(|reason| UmadError::Attributes {
            port: self.name.clone(),
            reason,
        })
    }
}

impl fmt::Debug for Umad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Umad")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Drop for Umad {
    fn drop(&mut self) {
        self.receiver.stop();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            log::error!(
                "{}: the thread of management datagrams panicked; report this as a fault (ibtap bugreport)",
                self.name
            );
        }
        if self.is_simulated() {
            return;
        }
        for agent in self.agents().drain(..) {
            self.library.unregister(self.id, agent.0);
        }
        self.library.close_port(self.id);
    }
}

/// The names of the RDMA devices, at most 32.
///
/// # Errors
/// Without libibumad or without the kernel's `ib_umad`.
pub fn devices() -> Result<Vec<String>, UmadError> {
    let library = Real::load()?;
    library.init().map_err(|_| UmadError::NoModule)?;
    Ok(library.devices())
}

/// Attributes of a port that is not open.
///
/// # Errors
/// As of [`devices`]; [`UmadError::NoDevice`] or [`UmadError::NoPort`] if there is no such port.
pub fn attributes(device: &str, port: u8) -> Result<PortAttributes, UmadError> {
    let library = Real::load()?;
    library.init().map_err(|_| UmadError::NoModule)?;
    let found = match device_name(device) {
        Some(name) => library.port(&name, port),
        None => Err(Errno::NODEV.into()),
    };
    found.map_err(|_| {
        let missing = Errno::NODEV.into();
        let name = format!("{device}/{port}");
        error::of_open(device, port, &name, missing, &library.devices())
    })
}

/// A port of ibsim.
#[derive(Debug)]
struct Simulated {
    /// The agent that asks the port for its attributes.
    agent: u32,
    /// The agent that gets the questions of subnet managers, if ibsim takes the port for one.
    guard: u32,
    /// The port GUID.
    guid: Guid,
    answers: Answers,
}

impl Simulated {
    fn new(library: &dyn Library, device: &CStr, number: u8, id: PortId) -> io::Result<Simulated> {
        let register = |class| library.register(id, class, 1, 0, 0);
        Ok(Simulated {
            agent: register(simulated::CLASS)?,
            guard: register(SUBN_LID_ROUTED)?,
            guid: library.port(device, number)?.guid,
            answers: Answers::default(),
        })
    }
}

/// The part of a port that its thread shares.
struct Receiver {
    name: String,
    library: Arc<dyn Library>,
    id: PortId,
    simulated: Option<Simulated>,
    arrivals: Arrivals,
    stop: OwnedFd,
    stopped: AtomicBool,
}

impl Receiver {
    fn send(&self, agent: u32, to: &To, mad: &[u8], timeout: Duration) -> io::Result<()> {
        let timeout = c_int::try_from(timeout.as_millis()).unwrap_or(c_int::MAX);
        let mut buffer = Buffer::with(to, mad);
        self.library.send(self.id, agent, &mut buffer, timeout)
    }

    fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        wake(&self.stop);
    }

    /// Receives until the port is closed or fails.
    fn run(&self) {
        if let Err(reason) = self.receive_all() {
            self.arrivals.fail(UmadError::Ended {
                port: self.name.clone(),
                reason,
            });
        }
    }

    fn receive_all(&self) -> io::Result<()> {
        let descriptor = self.library.descriptor(self.id);
        let mut buffer = Buffer::new(MAD);
        while !self.stopped.load(Ordering::Acquire) {
            let wait = match descriptor {
                None => SIMULATED_WAIT,
                Some(fd) => match wait_readable(fd, self.stop.as_fd()) {
                    Ok(true) => Duration::ZERO,
                    Ok(false) | Err(Errno::INTR) => continue,
                    Err(e) => return Err(e.into()),
                },
            };
            let wait = c_int::try_from(wait.as_millis()).unwrap_or(0);
            match self.library.receive(self.id, &mut buffer, wait) {
                Ok((agent, length)) => {
                    self.deliver(buffer.received(AgentId(agent), length));
                    // A large table does not keep its memory.
                    if buffer.mad_length() > MAD {
                        buffer = Buffer::new(MAD);
                    }
                }
                Err((e, needed)) => match e.raw_os_error() {
                    Some(libc::EAGAIN | libc::EINTR | libc::ETIMEDOUT) => {}
                    Some(libc::ENOSPC)
                        if (buffer.mad_length() + 1..=MAX_BYTES).contains(&needed) =>
                    {
                        buffer = Buffer::new(needed);
                    }
                    // The preload answers so to a wake-up without a MAD.
                    Some(libc::EIO) if self.simulated.is_some() => thread::sleep(SIMULATED_WAIT),
                    _ => return Err(e),
                },
            }
        }
        Ok(())
    }

    fn deliver(&self, received: Received) {
        let Some(simulated) = &self.simulated else {
            return self.arrivals.add(received);
        };
        let agent = received.agent.0;
        if let Some((to, mad)) = simulated::manager_answer(&received, simulated.guid) {
            if let Err(e) = self.send(agent, &to, &mad, Duration::ZERO) {
                log::debug!("{}: cannot answer a subnet manager: {e}", self.name);
            }
        } else if agent == simulated.agent {
            simulated.answers.add(received.mad);
        } else if agent != simulated.guard {
            self.arrivals.add(received);
        }
    }
}
