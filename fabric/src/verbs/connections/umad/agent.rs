//! The agent of class 7 of a port, shared by the workers of the port: the kernel allows one.
//!
//! Any worker sends. The first worker takes all received datagrams and passes those of others on: the low byte of
//! a communication id selects the worker ([`worker_of`]), as in the software fabric. A queue is bounded; a
//! message that is lost is repeated by its sender.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use super::manager::Datagram;
use crate::mad::cm::worker_of;
use crate::ready_queue::ReadyQueue;
use crate::umad::{Agent, AgentId, Received, To, Umad, UmadError};
use crate::verbs::config::VerbsConfig;
use crate::verbs::lock;

/// Maximum number of datagrams that wait for a worker.
const WAITING_MAX: usize = 1024;

/// An open umad with the agent.
#[derive(Debug)]
pub struct Registered {
    umad: Umad,
    agent: AgentId,
}

impl Registered {
    fn over(umad: Umad) -> Result<Arc<Registered>, UmadError> {
        let agent = umad.register(Agent::CM)?;
        Ok(Arc::new(Registered { umad, agent }))
    }
}

/// The agent of a port, while a worker uses it.
#[derive(Debug)]
pub struct CmAgent {
    device: String,
    port: u8,
    registered: Mutex<Weak<Registered>>,
    /// Received datagrams by worker, except the first worker's.
    others: Vec<ReadyQueue<Received>>,
}

impl CmAgent {
    /// For the workers of a port. Opens nothing yet.
    ///
    /// # Errors
    /// Errors of eventfd(2).
    pub fn new(config: &VerbsConfig) -> io::Result<CmAgent> {
        let others = (1..config.workers).map(|_| ReadyQueue::new());
        Ok(CmAgent {
            device: config.device.clone(),
            port: config.port,
            registered: Mutex::default(),
            others: others.collect::<Result<_, _>>()?,
        })
    }

    /// Number of workers.
    pub fn workers(&self) -> usize {
        1 + self.others.len()
    }

    fn register(&self) -> Result<Arc<Registered>, UmadError> {
        let mut registered = lock(&self.registered);
        if let Some(open) = registered.upgrade() {
            return Ok(open);
        }
        let open = Registered::over(Umad::open(&self.device, self.port)?)?;
        *registered = Arc::downgrade(&open);
        Ok(open)
    }

    /// Whether a worker uses the agent.
    pub fn is_registered(&self) -> bool {
        lock(&self.registered).strong_count() > 0
    }

    /// Registers the agent with an open umad, for a test that does the work of a worker.
    #[cfg(test)]
    pub fn register_over(&self, umad: Umad) -> Arc<Registered> {
        let open = Registered::over(umad).unwrap();
        *lock(&self.registered) = Arc::downgrade(&open);
        open
    }

    /// The queue of a worker; `None` for the first one.
    fn queue(&self, worker: usize) -> Option<&ReadyQueue<Received>> {
        self.others.get(worker.checked_sub(1)?)
    }
}

/// The datagrams of one worker.
#[derive(Debug)]
pub struct Datagrams {
    shared: Arc<CmAgent>,
    open: Arc<Registered>,
    worker: usize,
}

impl Datagrams {
    /// Opens the agent, unless another worker has opened it.
    ///
    /// # Errors
    /// [`UmadError::Held`] if another program has the agent, and the other errors of opening a umad.
    pub fn open(shared: &Arc<CmAgent>, worker: usize) -> Result<Datagrams, UmadError> {
        Ok(Datagrams {
            open: shared.register()?,
            shared: Arc::clone(shared),
            worker,
        })
    }

    /// Readable while [`Datagrams::receive`] may have one.
    pub fn fd(&self) -> BorrowedFd<'_> {
        match self.shared.queue(self.worker) {
            Some(queue) => queue.as_fd(),
            None => self.open.umad.event_fd(),
        }
    }

    /// Sends a datagram.
    ///
    /// # Errors
    /// [`UmadError::Send`].
    pub fn send(&self, to: &To, datagram: &Datagram) -> Result<(), UmadError> {
        let Registered { umad, agent } = &*self.open;
        umad.send(*agent, to, datagram, Duration::ZERO)
    }

    /// The next datagram of the worker; `None` if none waits. The first worker passes on those of others.
    ///
    /// # Errors
    /// As [`Umad::receive`], for the first worker.
    pub fn receive(&self) -> Result<Option<Received>, UmadError> {
        if let Some(queue) = self.shared.queue(self.worker) {
            return Ok(queue.take());
        }
        while let Some(received) = self.open.umad.receive()? {
            match self.shared.pass_on(received) {
                None => {}
                own => return Ok(own),
            }
        }
        Ok(None)
    }
}

impl CmAgent {
    /// Passes a received datagram to its worker, or returns the first worker's.
    fn pass_on(&self, received: Received) -> Option<Received> {
        let worker = worker_of(&received.mad, self.workers()).unwrap_or(0);
        let Some(queue) = self.queue(worker) else {
            return Some(received);
        };
        if !queue.put_if(received, |waiting| waiting.len() < WAITING_MAX) {
            log::debug!("{}/{}: worker {worker} is busy", self.device, self.port);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mad::MAD_LEN;
    use crate::mad::cm::{ATTRIBUTE, DREQ, RECEIVER_ID, REQ, SENDER_ID};
    use proto::{Lid, Qpn};

    fn received(attribute: u16, sender: u32, receiver: u32) -> Received {
        let mut mad = vec![0; MAD_LEN];
        mad[ATTRIBUTE..][..2].copy_from_slice(&attribute.to_be_bytes());
        mad[SENDER_ID..][..4].copy_from_slice(&sender.to_be_bytes());
        mad[RECEIVER_ID..][..4].copy_from_slice(&receiver.to_be_bytes());
        Received {
            agent: AgentId::for_tests(0),
            status: 0,
            slid: Lid(3),
            sqpn: Qpn::GSI,
            sl: 0,
            path_bits: 0,
            pkey_index: 0,
            grh: None,
            mad,
        }
    }

    #[test]
    fn a_datagram_goes_to_the_worker_of_its_communication_id() {
        let config = VerbsConfig {
            workers: 3,
            ..VerbsConfig::new("fake", 1)
        };
        let agent = CmAgent::new(&config).unwrap();
        assert_eq!(agent.workers(), 3);
        // The first worker's stay with it, as do datagrams that are too short.
        assert!(agent.pass_on(received(DREQ, 0x701, 0x603)).is_some());
        let mut short = received(DREQ, 0x701, 0x604);
        short.mad.truncate(20);
        assert!(agent.pass_on(short).is_some());
        // A request has the id of its sender only.
        for (worker, message) in [
            (1, received(DREQ, 0x703, 0x604)),
            (2, received(REQ, 0x602, 0)),
        ] {
            assert!(agent.pass_on(message.clone()).is_none());
            let queue = agent.queue(worker).unwrap();
            assert_eq!(queue.take().map(|r| r.mad), Some(message.mad));
            assert!(queue.take().is_none());
        }
        // Datagrams for a worker that takes none are dropped.
        for _ in 0..WAITING_MAX + 10 {
            assert!(agent.pass_on(received(REQ, 1, 0)).is_none());
        }
        let queue = agent.queue(1).unwrap();
        let waiting = std::iter::from_fn(|| queue.take()).count();
        assert_eq!(waiting, WAITING_MAX);
        assert!(agent.queue(2).unwrap().take().is_none());
    }
}
