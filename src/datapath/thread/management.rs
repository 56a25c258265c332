//! Between the endpoints of management and the control thread.

use super::super::command::Report;
use super::DataThread;

impl DataThread {
    /// Tells the control thread what has arrived.
    pub(super) fn report_management(&mut self) {
        for datagram in self.management.take() {
            match self.management.wait() {
                Some(place) => self.report(Report::Management(Box::new(datagram), place)),
                None => self.management.count_lost(),
            }
        }
    }
}
