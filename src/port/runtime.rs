//! An open port: the provider's control side and the data threads.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use control::api::{ApiError, Moderation};
use control::config::{ManagementSettings, PortName};
use crossbeam_channel::{Sender, unbounded};
use fabric::Port;
use proto::GidPrefix;

use crate::datapath::{
    AllowList, Command, DataThread, EthernetSnapshot, LinkId, Mailbox, Parts, Report, Snapshot,
    Tables, ThreadHandle, mailbox,
};
use crate::fdstore;

/// How long the control thread waits for an answer of the data threads.
const ANSWER: Duration = Duration::from_secs(2);

/// Settings of a port.
#[derive(Clone, Copy, Debug)]
pub struct PortSettings {
    /// The P_Key table contains exactly the P_Keys of the interfaces, if the daemon owns the table.
    pub automatic_pkeys: bool,
    /// Peers may be the kernel's IPoIB.
    pub kernel_peers: bool,
    /// How long data threads poll for the next packet before they sleep.
    pub busy_poll: Duration,
    /// Completion moderation of the data threads.
    pub moderation: Moderation,
}

/// A port and its data threads.
pub struct PortRuntime {
    /// The name in the configuration.
    pub name: PortName,
    /// The provider's control side.
    pub port: Box<dyn Port>,
    /// The P_Key table contains exactly the P_Keys of the interfaces.
    pub automatic_pkeys: bool,
    /// Peers may be the kernel's IPoIB.
    pub kernel_peers: bool,
    /// Completion moderation of the data threads.
    pub moderation: Moderation,
    /// Settings of the management of VNICs.
    pub management_settings: ManagementSettings,
    /// Who may send datagrams and ask for connections; `None`: all.
    pub allow: Option<Vec<GidPrefix>>,
    /// The port number for an Ethernet Manager, starting at 1.
    pub number: u8,
    /// The receiving sockets that the service manager keeps, by their inode numbers.
    stored: Vec<u64>,
    threads: Vec<ThreadHandle>,
}

impl PortRuntime {
    /// Starts a data thread for each of the port's workers.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn start(
        name: PortName,
        mut port: Box<dyn Port>,
        settings: PortSettings,
        reports: &Sender<Report>,
        reports_wake: &Arc<OwnedFd>,
    ) -> io::Result<PortRuntime> {
        let is_soft = matches!(name, PortName::Underlay(_));
        let workers = port.take_workers();
        let boxes = workers
            .iter()
            .map(|_| mailbox())
            .collect::<io::Result<Vec<_>>>()?;
        let mailboxes: Vec<Mailbox> = boxes.iter().map(|(m, _)| m.clone()).collect();
        let mut threads = Vec::with_capacity(workers.len());
        for (index, (fabric, (own, inbox))) in workers.into_iter().zip(boxes).enumerate() {
            let replicas = mailboxes
                .iter()
                .enumerate()
                .filter(|(i, _)| *i != index)
                .map(|(_, m)| m.clone())
                .collect();
            let data = DataThread::new(Parts {
                index,
                fabric,
                busy_poll: settings.busy_poll,
                inbox,
                replicas,
                reports: reports.clone(),
                reports_wake: reports_wake.clone(),
            })?;
            let join = thread::Builder::new()
                .name(format!("{name}/{index}"))
                .spawn(move || {
                    if is_soft {
                        sandbox::enter(sandbox::Thread::Data);
                    }
                    data.run();
                })?;
            threads.push(ThreadHandle::new(own, join));
        }
        let mut runtime = PortRuntime {
            name,
            // The daemon cannot change a table of another owner.
            automatic_pkeys: settings.automatic_pkeys && port.capabilities().pkeys_settable,
            kernel_peers: settings.kernel_peers,
            port,
            moderation: Moderation::default(),
            management_settings: ManagementSettings::default(),
            allow: None,
            number: 1,
            stored: Vec::new(),
            threads,
        };
        runtime.set_moderation(settings.moderation);
        Ok(runtime)
    }

    /// Sets the completion moderation; all interfaces of the port share it.
    pub fn set_moderation(&mut self, wanted: Moderation) {
        if self.moderation != wanted {
            self.moderation = wanted;
            log::info!(
                "{}: completion moderation rx-usecs {} rx-frames {}",
                self.port.attributes().name,
                wanted.rx_usecs,
                wanted.rx_frames
            );
            self.send(|| Command::SetModeration(wanted));
        }
    }

    /// Sends [`PortRuntime::allow`] to the data threads, with the port's own GID: multicast of the port's own
    /// interfaces comes back from there.
    pub fn send_allowed(&self) {
        let list = self.allow.as_ref().map(|allow| {
            let own = GidPrefix::from(self.port.attributes().gid);
            Arc::new(AllowList::new(allow.iter().copied().chain([own])))
        });
        self.send(|| Command::SetAllowed(list.clone()));
    }

    /// Stores the receiving sockets with the service manager, if they are not stored. Those of a former underlay are
    /// removed.
    pub fn store_sockets(&mut self) {
        let sockets = self.port.receiving_sockets();
        let inode =
            |socket: &BorrowedFd<'_>| rustix::fs::fstat(socket).map_or(0, |stat| stat.st_ino);
        let now: Vec<u64> = sockets.iter().map(inode).collect();
        if self.stored != now {
            self.forget_sockets();
            fdstore::keep_sockets(&self.name, &*self.port);
            self.stored = now;
        }
    }

    /// Removes the receiving sockets from the service manager's store.
    pub fn forget_sockets(&mut self) {
        fdstore::forget_sockets(&self.name, std::mem::take(&mut self.stored).len());
    }

    /// Number of data threads.
    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    /// The mailboxes of all threads.
    pub fn mailboxes(&self) -> Vec<Mailbox> {
        self.threads.iter().map(|t| t.mailbox.clone()).collect()
    }

    /// Sends a command to every thread.
    pub fn send(&self, command: impl Fn() -> Command) {
        for thread in &self.threads {
            thread.mailbox.send(command());
        }
    }

    /// Sends a command to the first thread.
    pub fn send_first(&self, command: Command) {
        if let Some(thread) = self.threads.first() {
            thread.mailbox.send(command);
        }
    }

    /// Removes a link's lanes from the threads and waits until their queues are closed. Returns the last
    /// counters of a VNIC from each thread that answers in time.
    pub fn remove_lanes(&self, id: LinkId) -> Vec<EthernetSnapshot> {
        let (counted, closed) = unbounded();
        self.send(|| Command::RemoveLane(id, counted.clone()));
        drop(counted);
        let deadline = Instant::now() + ANSWER;
        // The channel closes when the last thread has dropped its sender.
        std::iter::from_fn(|| closed.recv_deadline(deadline).ok()).collect()
    }

    /// Snapshots of the threads that answer in time, with or without all tables.
    pub fn snapshots(&self, tables: bool) -> Vec<Snapshot> {
        self.snapshots_with(match tables {
            true => Tables::All,
            false => Tables::None,
        })
    }

    /// Snapshots of all threads, with or without all tables.
    ///
    /// # Errors
    /// [`ApiError::Busy`] if a thread does not answer in time. Without its counters, sums would go backwards.
    pub fn all_snapshots(&self, tables: bool) -> Result<Vec<Snapshot>, ApiError> {
        let answered = self.snapshots(tables);
        match answered.len() == self.threads.len() {
            true => Ok(answered),
            false => Err(ApiError::Busy),
        }
    }

    /// Snapshots of the threads that answer in time, with the tables of one link.
    pub fn snapshots_of(&self, id: LinkId) -> Vec<Snapshot> {
        self.snapshots_with(Tables::Of(id))
    }

    fn snapshots_with(&self, tables: Tables) -> Vec<Snapshot> {
        let (reply, answers) = unbounded();
        self.send(|| Command::Snapshot {
            tables,
            reply: reply.clone(),
        });
        drop(reply);
        let answered = std::iter::from_fn(|| answers.recv_timeout(ANSWER).ok());
        let mut all: Vec<Snapshot> = answered.take(self.threads.len()).collect();
        all.sort_by_key(|s| s.worker.worker);
        all
    }

    /// Waits until the threads have done all earlier commands.
    pub fn sync(&self) {
        self.snapshots(false);
    }

    /// Whether every thread answers in time.
    pub fn answers(&self) -> bool {
        self.all_snapshots(false).is_ok()
    }

    /// Stops the threads, then closes the port.
    pub fn stop(mut self) {
        self.threads.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::fake::FakePort;

    fn runtime() -> PortRuntime {
        let settings = PortSettings {
            automatic_pkeys: false,
            kernel_peers: false,
            busy_poll: Duration::ZERO,
            moderation: Moderation::default(),
        };
        let (reports, _) = unbounded();
        let wake = rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).unwrap();
        let port = Box::new(FakePort::new().unwrap());
        let name = PortName::Underlay("eth0".into());
        PortRuntime::start(name, port, settings, &reports, &Arc::new(wake)).unwrap()
    }

    #[test]
    fn a_thread_that_does_not_answer_leaves_no_gap_in_the_sums() {
        let mut runtime = runtime();
        assert!(runtime.all_snapshots(false).is_ok_and(|all| all.is_empty()));
        // The thread drops its commands.
        let (own, _) = mailbox().unwrap();
        let silent = ThreadHandle::new(own, thread::spawn(|| {}));
        runtime.threads.push(silent);
        let answer = runtime.all_snapshots(false);
        assert!(matches!(answer, Err(ApiError::Busy)));
        assert!(!runtime.answers());
    }
}
