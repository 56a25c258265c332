//! Removes all state about the link.

use super::Ipoib;
use crate::event::Event;

impl Ipoib {
    /// Removes neighbours, their IP addresses and connections, and the address handles of groups, as when
    /// the interface goes down or its partition changes (kernel ipoib_ib.c, `__ipoib_ib_dev_flush`). Held
    /// frames are dropped and counted. Guests stay, because they are on the host side; so do updates about
    /// them, which this replica does not repeat soon. Only the ends of connections are reported
    /// ([`Ipoib::poll_connection`]); [`Ipoib::pop_released_ah`] returns the address handles. Guests whose
    /// announcement was pending are announced when they are heard.
    ///
    /// Replicas are flushed one by one. Updates that another replica made before its flush may still
    /// arrive; like all updates about peers they are only hints.
    pub fn flush(&mut self) {
        self.drop_connections();
        let mut lost = self.resolver.clear() + self.flush_host_side();
        while self.connected.table.pop_released().is_some() {
            lost += 1;
        }
        self.counters.held_dropped += lost;
        if self.watched {
            let known: Vec<_> = self.neighbours.live().map(|(_, n)| n.address).collect();
            for address in known {
                self.report(Event::NeighbourForgotten { address });
            }
        }
        self.neighbours.flush();
        self.groups.flush();
        self.services.echo.clear();
        self.updates.retain(|u| !u.is_about_neighbours());
        self.postpone_announcements();
        self.announcer.clear();
        self.last_source = None;
    }
}
