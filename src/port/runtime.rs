//! A port in service: the provider's control side and its data threads.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use control::api::Moderation;
use control::config::{ManagementSettings, PortName};
use crossbeam_channel::{Sender, unbounded};
use fabric::Port;

use crate::datapath::{
    Command, DataThread, EthernetSnapshot, LinkId, Mailbox, Parts, Report, Snapshot, Tables,
    ThreadHandle, mailbox,
};
use crate::ethernet::Management;

/// How long the control thread waits for a data thread's answer.
const ANSWER: Duration = Duration::from_secs(2);

/// How a port is served.
#[derive(Clone, Copy, Debug)]
pub struct PortSettings {
    /// The P_Key table is to hold what the devices ask for, no less and no more, if it is ours.
    pub automatic_pkeys: bool,
    /// Peers may be the kernel's IPoIB.
    pub kernel_peers: bool,
    /// How long data threads look for the next packet before they sleep.
    pub busy_poll: Duration,
}

/// A port and its data threads.
pub struct PortRuntime {
    /// What the configuration calls it.
    pub name: PortName,
    /// The provider's control side.
    pub port: Box<dyn Port>,
    /// The P_Key table holds what the devices ask for, no less and no more.
    pub automatic_pkeys: bool,
    /// Peers may be the kernel's IPoIB.
    pub kernel_peers: bool,
    /// Completion moderation of its data threads.
    pub moderation: Moderation,
    /// Who may manage its VNICs.
    pub management_settings: ManagementSettings,
    /// The management of its VNICs, where some are managed or somebody manages.
    pub management: Option<Management>,
    threads: Vec<ThreadHandle>,
}

impl PortRuntime {
    /// Starts a data thread for each of the port's workers.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn start(
        name: PortName,
        mut port: Box<dyn Port>,
        settings: PortSettings,
        reports: &Sender<Report>,
        reports_wake: &Arc<OwnedFd>,
    ) -> io::Result<PortRuntime> {
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
                .spawn(move || data.run())?;
            threads.push(ThreadHandle { mailbox: own, join });
        }
        Ok(PortRuntime {
            name,
            // Another's table follows nobody.
            automatic_pkeys: settings.automatic_pkeys && port.capabilities().pkeys_settable,
            kernel_peers: settings.kernel_peers,
            port,
            moderation: Moderation::default(),
            management_settings: ManagementSettings::default(),
            management: None,
            threads,
        })
    }

    /// How many data threads there are.
    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Where the threads' commands go.
    pub fn mailboxes(&self) -> Vec<Mailbox> {
        self.threads.iter().map(|t| t.mailbox.clone()).collect()
    }

    /// Tells every thread.
    pub fn tell(&self, command: impl Fn() -> Command) {
        for thread in &self.threads {
            thread.mailbox.send(command());
        }
    }

    /// Tells the first thread only.
    pub fn tell_first(&self, command: Command) {
        if let Some(thread) = self.threads.first() {
            thread.mailbox.send(command);
        }
    }

    /// Takes a device's queues from the threads and waits until they are closed: what each thread has counted
    /// of a VNIC, where it says so in time.
    pub fn remove_lanes(&self, id: LinkId) -> Vec<EthernetSnapshot> {
        let (counted, closed) = unbounded();
        self.tell(|| Command::RemoveLane(id, counted.clone()));
        drop(counted);
        let deadline = Instant::now() + ANSWER;
        // Ends when the last thread has dropped its sender.
        std::iter::from_fn(|| closed.recv_deadline(deadline).ok()).collect()
    }

    /// Copies of all threads' counters, with or without all tables; a thread that does not answer in time
    /// is left out.
    pub fn snapshots(&self, tables: bool) -> Vec<Snapshot> {
        self.snapshots_with(match tables {
            true => Tables::All,
            false => Tables::None,
        })
    }

    /// The same with the tables of one device.
    pub fn snapshots_of(&self, id: LinkId) -> Vec<Snapshot> {
        self.snapshots_with(Tables::Of(id))
    }

    fn snapshots_with(&self, tables: Tables) -> Vec<Snapshot> {
        let (reply, answers) = unbounded();
        self.tell(|| Command::Snapshot {
            tables,
            reply: reply.clone(),
        });
        drop(reply);
        let mut all: Vec<Snapshot> = Vec::with_capacity(self.threads.len());
        while all.len() < self.threads.len() {
            match answers.recv_timeout(ANSWER) {
                Ok(snapshot) => all.push(snapshot),
                Err(_) => break,
            }
        }
        all.sort_by_key(|s| s.worker.worker);
        all
    }

    /// Waits until the threads have done what they were told before.
    pub fn sync(&self) {
        self.snapshots(false);
    }

    /// Ends the threads, then the port.
    pub fn stop(self) {
        for thread in self.threads {
            thread.stop();
        }
    }
}
