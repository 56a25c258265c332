//! Forgetting the link.

use super::Ipoib;
use crate::event::Event;

impl Ipoib {
    /// Forgets neighbours, their IP addresses and connections, and the ways to groups, as when the
    /// interface went down or its partition changed (kernel ipoib_ib.c, `__ipoib_ib_dev_flush`). Frames
    /// that waited are dropped and counted; guests stay, since they are on the host's side. Nobody is
    /// told, but for the ends of connections ([`Ipoib::poll_connection`]); address handles come back
    /// through [`Ipoib::pop_released_ah`].
    ///
    /// Replicas are flushed one by one: news that another had sent before its own turn may still come,
    /// and are what any news of a peer is, a hint.
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
                self.tell(Event::NeighbourForgotten { address });
            }
        }
        self.neighbours.flush();
        self.groups.flush();
        self.announcer.clear();
        self.services.echo.clear();
        self.updates.clear();
        self.last_source = None;
    }
}
