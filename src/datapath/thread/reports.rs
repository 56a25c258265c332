//! Channels from and to the control thread and the other threads of the port.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crossbeam_channel::Sender;

use super::super::command::Report;
use super::super::handle::{Inbox, Mailbox};

/// Maximum number of reports that wait for the control thread; more are lost and counted. One frame with a
/// forged membership report names hundreds of groups: the data threads read faster than the control thread
/// can act.
pub(in crate::datapath) const REPORTS_MAX: usize = 16_384;

/// A thread's channels to the other threads.
pub(in crate::datapath) struct Control {
    /// The thread's number.
    pub index: usize,
    pub inbox: Inbox,
    /// The other threads of the port, which have replicas of the same cores.
    pub replicas: Vec<Mailbox>,
    pub(super) reports: Sender<Report>,
    pub(super) reports_wake: Arc<OwnedFd>,
    /// Lost reports.
    pub reports_lost: u64,
    /// Cores report events of neighbours.
    pub watched: bool,
    /// The thread ends after this round.
    pub stop: bool,
}

impl Control {
    pub fn report(&self, report: Report) {
        // The receiver is closed only while the daemon ends.
        if self.reports.send(report).is_ok() {
            self.wake();
        }
    }

    /// Reports a core's events, each with a mark whether it is needed. While too many reports wait, those not
    /// needed are lost.
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
        // The counter saturates only after 2^64 unread wake-ups.
        let _ = rustix::io::write(&*self.reports_wake, &1u64.to_ne_bytes());
    }
}

/// Whether an event may be reported while `waiting` reports wait.
pub(in crate::datapath) fn may_wait(is_needed: bool, waiting: usize) -> bool {
    is_needed || waiting < REPORTS_MAX
}
