//! Between the endpoints of management and the control thread.

use super::super::command::Report;
use super::DataThread;

/// Reports that may wait for the control thread when a datagram of management joins them; more
/// datagrams are lost and counted. Whoever knows the Q_Key may send as many as he likes.
const WAITING_MAX: usize = 512;

impl DataThread {
    /// Tells the control thread what has arrived.
    pub(super) fn report_management(&mut self) {
        for datagram in self.management.take() {
            if self.reports.len() >= WAITING_MAX {
                self.management.count_lost();
            } else {
                self.report(Report::Management(Box::new(datagram)));
            }
        }
    }
}
