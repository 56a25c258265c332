//! What a data thread shares with the control thread and the other threads of its port.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crossbeam_channel::Sender;

use super::super::command::Report;
use super::super::handle::{Inbox, Mailbox};

/// Reports that may wait for the control thread; more are lost and counted. A forged membership
/// report of one frame names hundreds of groups, which the data threads read faster than the control
/// thread can act on.
pub(in crate::datapath) const REPORTS_MAX: usize = 16_384;

/// How a thread hears of others, and others of it.
pub(in crate::datapath) struct Control {
    /// The thread's number.
    pub index: usize,
    pub inbox: Inbox,
    /// The other threads of the port, which have replicas of the same cores.
    pub replicas: Vec<Mailbox>,
    pub(super) reports: Sender<Report>,
    pub(super) reports_wake: Arc<OwnedFd>,
    /// Events that were not reported.
    pub reports_lost: u64,
    /// Somebody wants to hear about neighbours.
    pub watched: bool,
    /// The thread is to end.
    pub stop: bool,
}

impl Control {
    pub fn report(&self, report: Report) {
        // Nobody listens only while the daemon ends.
        if self.reports.send(report).is_ok() {
            self.wake();
        }
    }

    /// Reports a core's events. While too many reports wait, those that are not marked as needed are
    /// lost.
    pub fn report_events(&mut self, events: impl Iterator<Item = (bool, Report)>) {
        let mut reported = false;
        for (is_needed, report) in events {
            if may_wait(is_needed, self.reports.len()) {
                reported |= self.reports.send(report).is_ok();
            } else {
                self.reports_lost += 1;
            }
        }
        if reported {
            self.wake();
        }
    }

    fn wake(&self) {
        // Full only when the control thread has been woken 2^64 times without looking.
        let _ = rustix::io::write(&*self.reports_wake, &1u64.to_ne_bytes());
    }
}

/// Whether an event is reported while so many reports wait.
pub(in crate::datapath) fn may_wait(is_needed: bool, waiting: usize) -> bool {
    is_needed || waiting < REPORTS_MAX
}
