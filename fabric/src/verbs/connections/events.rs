//! Events and requests from communication management.

use proto::{ConnectionEvent, ConnectionId, EndpointId, Instant, RejectReason, ServiceId};

use super::Engine;
use super::connection::Connection;
use super::consumer::Begin;
use super::device::{Device, Event};
use super::lookup::Key;
use super::state::{CmEvent, meaning};
use crate::connection::reaches;
use crate::pkeys::Entry;

/// Why a request is not passed to the consumer.
enum Unwanted {
    /// No listener, another partition, or a too large path MTU.
    NotServed(RejectReason),
    /// Its source exceeds its rate.
    RateLimited,
    /// The limit of connections is reached.
    TableFull,
}

impl<D: Device> Engine<D> {
    pub(super) fn on_event(&mut self, now: Instant, event: Event<D::Id>) {
        match event {
            Event::Request {
                service,
                id,
                private_data,
            } => self.requested(now, service, id, &private_data),
            Event::Of {
                context,
                event,
                status,
                private_data,
            } => self.happened(now, context, event, status, private_data),
            Event::ListenerGone { service } => self.listeners.lost(now, service),
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

    fn requested(&mut self, now: Instant, service: ServiceId, line: D::Id, private_data: &[u8]) {
        self.counts.requests += 1;
        let (line, unwanted) = match self.take_request(now, service, line, private_data) {
            Ok(()) => return,
            Err(refused) => refused,
        };
        let (count, reason) = match unwanted {
            Unwanted::NotServed(reason) => (&mut self.counts.not_served, reason),
            Unwanted::RateLimited => (&mut self.counts.rate_limited, RejectReason::NO_RESOURCES),
            Unwanted::TableFull => (&mut self.counts.table_full, RejectReason::NO_RESOURCES),
        };
        *count += 1;
        if let Some(device) = &mut self.device {
            if let Err(e) = device.reject(&line, reason, &[]) {
                log::debug!("cannot reject a request: {e}");
            }
            device.destroy(line, None);
        }
    }

    /// Passes a request to the consumer; an unwanted one is returned.
    fn take_request(
        &mut self,
        now: Instant,
        service: ServiceId,
        mut line: D::Id,
        private_data: &[u8],
    ) -> Result<(), (D::Id, Unwanted)> {
        if self.table.is_full() {
            return Err((line, Unwanted::TableFull));
        }
        let (endpoint, begin, path) = match self.judge(now, service, &line, private_data) {
            Ok(judged) => judged,
            Err(unwanted) => return Err((line, unwanted)),
        };
        let (id, local, peer) = (ConnectionId(self.next_id), self.view.gid, begin.peer);
        let device = self.device.as_mut();
        let key = self.table.insert(|key| {
            device?.set_context(&mut line, key.context());
            let mut c = Connection::new(now, id, local, begin, line);
            c.path_mtu = path.path_mtu;
            c.remote_qpn = path.remote_qpn;
            Some(c)
        });
        // The table had room and the device was there.
        let Some(key) = key else { return Ok(()) };
        self.named(now, key, id);
        self.events.push_back(ConnectionEvent::Requested {
            connection: id,
            endpoint,
            service,
            peer,
            private_data: private_data.into(),
        });
        Ok(())
    }

    /// The endpoint and path of a request, if it can be served. Both sides use the same path MTU (IBA
    /// vol. 1, 9.7.4.1.6), because a reply has no field for another one.
    fn judge(
        &mut self,
        now: Instant,
        service: ServiceId,
        line: &D::Id,
        private_data: &[u8],
    ) -> Result<(EndpointId, Begin, super::device::Path), Unwanted> {
        const NOT_SERVED: Unwanted = Unwanted::NotServed(RejectReason::INVALID_SERVICE_ID);
        let device = self.device.as_mut().ok_or(NOT_SERVED)?;
        let path = device.path(line, &self.view.pkeys).map_err(|e| {
            log::debug!("cannot serve a request: {e}");
            Unwanted::NotServed(RejectReason::INVALID_GID)
        })?;
        if !self.limits.take(now, path.peer) {
            return Err(Unwanted::RateLimited);
        }
        let found = self.listeners.find(service, private_data, &self.view);
        let (endpoint, entry) = found.ok_or(NOT_SERVED)?;
        let own = self.view.path_mtu;
        if own.is_none_or(|own| path.path_mtu > own.bytes()) {
            return Err(Unwanted::NotServed(RejectReason::INVALID_MTU));
        }
        if !self.is_of(entry, path.pkey_index) || !reaches(self.view.gid, path.peer) {
            return Err(Unwanted::NotServed(RejectReason::INVALID_GID));
        }
        let begin = Begin {
            endpoint,
            entry,
            active: false,
            service,
            peer: path.peer,
            private_data: Box::default(),
        };
        Ok((endpoint, begin, path))
    }

    /// Whether the P_Key at an index of the table is in an entry's partition.
    fn is_of(&self, entry: Entry, index: u16) -> bool {
        let places = self.view.pkeys.places();
        let asked = places.get(usize::from(index));
        asked.is_some_and(|pkey| pkey.full() == entry.pkey.full())
    }
}
