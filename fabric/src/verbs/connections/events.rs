//! What rdma_cm tells, and requests.

use proto::{ConnectionEvent, ConnectionId, EndpointId, Instant, ServiceId};
use zerocopy::FromBytes;

use super::Engine;
use super::connection::Connection;
use super::consumer::Begin;
use super::device::{Device, Event};
use super::lookup::Key;
use super::state::{CmEvent, meaning};
use crate::mad::cm::RdmaCmData;
use crate::pkeys::Entry;

/// Why a request is not shown to the consumer; its id ends, which rejects it (kernel
/// drivers/infiniband/core/cm.c, `cm_destroy_id`).
enum Unwanted {
    /// For nobody, of another partition, or for too large packets.
    NotServed,
    /// Its source makes too many.
    RateLimited,
    /// There is no place for it.
    TableFull,
}

impl<D: Device> Engine<D> {
    pub(super) fn told(&mut self, now: Instant, event: Event<D::Id>) {
        match event {
            Event::Request {
                port,
                id,
                private_data,
            } => self.requested(now, port, id, &private_data),
            Event::Of {
                context,
                event,
                status,
                private_data,
            } => self.happened(now, context, event, status, private_data),
            Event::ListenerGone { port } => self.listeners.lost(now, port),
            Event::Other => {}
        }
    }

    fn happened(
        &mut self,
        now: Instant,
        context: u64,
        event: CmEvent,
        status: i32,
        private_data: Box<[u8]>,
    ) {
        let key = Key::of_context(context);
        let Some((key, c)) = key.and_then(|key| Some((key, self.table.get_mut(key)?))) else {
            self.counts.unmatched += 1;
            return;
        };
        if event == CmEvent::ConnectResponse {
            c.private_data = private_data;
        }
        if let Some(input) = meaning(event, status) {
            log::debug!("connection {} to {}: {event:?} {status}", c.id.0, c.peer);
            self.drive(now, key, input);
        }
    }

    fn requested(&mut self, now: Instant, port: u16, line: D::Id, private_data: &[u8]) {
        self.counts.requests += 1;
        match self.take_request(now, port, line, private_data) {
            Ok(()) => {}
            Err(Unwanted::NotServed) => self.counts.not_served += 1,
            Err(Unwanted::RateLimited) => self.counts.rate_limited += 1,
            Err(Unwanted::TableFull) => self.counts.table_full += 1,
        }
    }

    fn take_request(
        &mut self,
        now: Instant,
        port: u16,
        mut line: D::Id,
        private_data: &[u8],
    ) -> Result<(), Unwanted> {
        if self.table.is_full() {
            return Err(Unwanted::TableFull);
        }
        let (endpoint, begin, path) = self.judge(now, port, &line, private_data)?;
        let device = self.device.as_mut().ok_or(Unwanted::NotServed)?;
        let (id, local, peer) = (ConnectionId(self.next_id), self.view.gid, begin.peer);
        let key = self.table.insert(|key| {
            device.set_context(&mut line, key.context());
            let mut c = Connection::new(now, id, local, begin, line);
            c.path_mtu = path.path_mtu;
            c.remote_qpn = path.remote_qpn;
            Some(c)
        });
        self.named(now, key.ok_or(Unwanted::TableFull)?, id);
        self.events.push_back(ConnectionEvent::Requested {
            connection: id,
            endpoint,
            service: ServiceId::rdma_cm(port),
            peer,
            private_data: private_data.into(),
        });
        Ok(())
    }

    /// Who serves a request, if it can be served here. Both sides use one path MTU (IBA vol. 1,
    /// 9.7.4.1.6), and a reply has no field for another.
    fn judge(
        &mut self,
        now: Instant,
        port: u16,
        line: &D::Id,
        private_data: &[u8],
    ) -> Result<(EndpointId, Begin, super::device::Path), Unwanted> {
        let device = self.device.as_mut().ok_or(Unwanted::NotServed)?;
        let path = device.path(line).map_err(|e| {
            log::debug!("a request cannot be served: {e}");
            Unwanted::NotServed
        })?;
        if !self.limits.take(now, path.peer) {
            return Err(Unwanted::RateLimited);
        }
        let found = RdmaCmData::ref_from_prefix(private_data).ok();
        let found = found.and_then(|(data, _)| self.listeners.find(port, data, &self.view));
        let (endpoint, entry) = found.ok_or(Unwanted::NotServed)?;
        let fits = self
            .view
            .path_mtu
            .is_some_and(|own| path.path_mtu <= own.bytes());
        if !fits || !self.is_of(entry, path.pkey_index) || !self.reaches(path.peer) {
            return Err(Unwanted::NotServed);
        }
        let begin = Begin {
            endpoint,
            entry,
            active: false,
            peer: path.peer,
            private_data: Box::default(),
        };
        Ok((endpoint, begin, path))
    }

    /// Whether the P_Key at an index of the table is of an entry's partition.
    fn is_of(&self, entry: Entry, index: u16) -> bool {
        let places = self.view.pkeys.places();
        let asked = places.get(usize::from(index));
        asked.is_some_and(|pkey| pkey.full() == entry.pkey.full())
    }
}
