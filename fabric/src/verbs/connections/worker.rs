//! The connections of a [`VerbsWorker`]: the engine, with the clock, the device and its memory.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use proto::{
    ConnectError, ConnectionEvent, ConnectionId, EndpointId, Instant, RejectReason, ServiceId,
};
use rustix::event::epoll::{self, EventData, EventFlags};

use super::device::Shape;
use super::real::RealDevice;
use super::{Bounds, Member, View};
use crate::connection::{ConnectRequest, ConnectionInfo, Connections, Posted};
use crate::kernel::clock;
use crate::pkeys::Entry;
use crate::verbs::config::VerbsConfig;
use crate::verbs::device::{Device, TRANSMIT_LEN};
use crate::verbs::ibv::Place;
use crate::verbs::worker::{VerbsWorker, Woken};
use crate::worker::{Train, TrainTicket};

/// Messages that a connection may have outstanding; the consumer is stopped at half of it.
const DEPTH: u32 = 512;

/// Post lists that a connection may have outstanding, likewise: 1 MiB in the largest messages.
const LISTS: usize = 32;

/// How soon rdma_cm is tried again that could not be used.
const OPEN_AGAIN: Duration = Duration::from_secs(5);

/// What was lent last.
#[derive(Debug)]
pub struct Lent {
    connection: ConnectionId,
    place: Place,
    /// One message over all places of the train, not one in each.
    whole: bool,
    payload: usize,
    capacity: usize,
}

impl Lent {
    fn train(&mut self, ticket: TrainTicket) -> Train<'_> {
        let (payload, capacity) = (self.payload, self.capacity);
        Train::new(&mut self.place, 0, payload, capacity, ticket)
    }

    /// What a ticket says of it; none if that is not so.
    fn shape(&self, ticket: &TrainTicket) -> Option<Shape> {
        let t = ticket;
        let fits = t.payload == self.payload
            && t.last <= t.payload
            && (1..=self.capacity).contains(&t.count);
        let len = if self.whole {
            (t.count.checked_sub(1)?).checked_mul(t.payload)? + t.last
        } else {
            t.payload
        };
        fits.then_some(Shape {
            stride: self.payload,
            count: if self.whole { 1 } else { t.count },
            len,
            last: if self.whole { len } else { t.last },
        })
    }
}

/// How much there may be, before a device is known.
pub fn bounds(config: &VerbsConfig) -> Bounds {
    Bounds {
        connections: config.connections_max,
        message: config.message_max.min(TRANSMIT_LEN),
        messages: DEPTH,
        lists: LISTS,
        completions: DEPTH,
    }
}

impl VerbsWorker {
    /// Begins with a device, if it has connections.
    pub(in crate::verbs) fn open_connections(&mut self, device: &Arc<Device>) {
        if device.messages.is_none() {
            return;
        }
        let limits = &device.limits;
        let depth = DEPTH.min(device.attributes.max_qp_wr);
        self.connections.bound(Bounds {
            messages: depth,
            completions: limits.rc_sends as u32,
            connections: (device.attributes.max_qp as usize)
                .min(self.connections.bounds().connections),
            ..self.connections.bounds()
        });
        let now = clock();
        self.connections.follow(now, self.view());
        let real = RealDevice::new(device, self.table.port, depth).and_then(|real| {
            if let Some((epoll, token)) = &self.epoll {
                watch(&real, epoll, Woken::RdmaCm.word(*token))?;
            }
            Ok(real)
        });
        match real {
            Ok(real) => {
                self.connections.attach(now, real);
                self.told_of_rdma_cm = false;
            }
            Err(e) => self.without_rdma_cm(now, &e),
        }
    }

    /// Tries again later, since the kernel's module may yet be loaded.
    fn without_rdma_cm(&mut self, now: Instant, error: &io::Error) {
        self.open_again = Some(now.after(OPEN_AGAIN));
        if !std::mem::replace(&mut self.told_of_rdma_cm, true) {
            log::warn!(
                "{}: there are no connections, since rdma_cm cannot be used: {error}; \
                 modprobe rdma_ucm",
                self.name
            );
        }
    }

    /// Tries again to use rdma_cm, if it is time.
    pub(in crate::verbs) fn open_connections_again(&mut self, now: Instant) {
        if self.open_again.take_if(|at| *at <= now).is_some()
            && let (Some(_), Some(device)) = (&self.lane, self.table.device.clone())
        {
            self.open_connections(&device);
        }
    }

    /// Ends all connections: the device goes.
    pub(in crate::verbs) fn close_connections(&mut self) {
        self.open_again = None;
        if let (Some(real), Some((epoll, _))) = (self.connections.device(), &self.epoll)
            && let Ok(fd) = real.fd()
        {
            let _ = epoll::delete(epoll, fd);
        }
        drop(self.connections.detach(clock()));
    }

    /// Waits for rdma_cm, too.
    pub(in crate::verbs) fn watch_connections(
        &mut self,
        epoll: &OwnedFd,
        token: u64,
    ) -> io::Result<()> {
        match self.connections.device() {
            Some(real) => watch(real, epoll, Woken::RdmaCm.word(token)),
            None => Ok(()),
        }
    }

    /// The port's table is another one.
    pub(in crate::verbs) fn follow_connections(&mut self) {
        let view = self.view();
        self.connections.follow(clock(), view);
        self.reclaim();
    }

    fn view(&self) -> View {
        let t = &self.table;
        let member = |e: &crate::verbs::snapshot::Endpoint| Member {
            qpn: e.pair.qp.qpn(),
            entry: e.pkey.map(|(pkey, index)| Entry { index, pkey }),
        };
        View {
            name: self.name.clone(),
            gid: t.gid,
            scope: t.scope,
            ethernet: t.ethernet,
            path_mtu: t.path_mtu,
            pkeys: Arc::clone(&t.pkeys),
            members: t
                .endpoints
                .all()
                .iter()
                .map(|e| (e.id, member(e)))
                .collect(),
        }
    }

    /// Takes what rdma_cm has to say.
    ///
    /// # Errors
    /// What the channel says.
    pub(in crate::verbs) fn hear(&mut self) -> io::Result<()> {
        if self.connections.device().is_none() {
            return Ok(());
        }
        self.counts.verbs_calls += 1;
        self.connections.process(clock())?;
        self.reclaim();
        Ok(())
    }

    /// Has back what was posted to queue pairs that are gone.
    pub(in crate::verbs) fn reclaim(&mut self) {
        let emptied = self.connections.device().map(RealDevice::take_emptied);
        for queue in emptied.into_iter().flatten() {
            if let Some(lane) = &mut self.lane {
                lane.transmit.reclaim(&queue);
            }
        }
    }

    /// Whether messages may be posted, as far as all of them are concerned.
    pub(in crate::verbs) fn has_room_for_messages(&self) -> bool {
        let places = self
            .lane
            .as_ref()
            .is_none_or(|l| l.transmit.has_for_messages());
        self.connections.has_room() && (places || self.connections.is_idle())
    }

    fn lend(
        &mut self,
        connection: ConnectionId,
        whole: bool,
        payload: usize,
        count: usize,
    ) -> Option<Train<'_>> {
        let lane = self.lane.as_mut()?;
        let place = match lane.lent.take() {
            Some(lent) => lent.place,
            None => lane.transmit.take_for_messages()?,
        };
        let fits = place.len() / payload.max(1);
        let lent = lane.lent.insert(Lent {
            connection,
            place,
            whole,
            payload,
            capacity: count.min(fits),
        });
        let empty = TrainTicket {
            count: 0,
            payload,
            last: 0,
        };
        Some(lent.train(empty))
    }
}

fn watch(real: &RealDevice, epoll: &OwnedFd, word: u64) -> io::Result<()> {
    epoll::add(epoll, real.fd()?, EventData::new_u64(word), EventFlags::IN)?;
    Ok(())
}

impl Connections for VerbsWorker {
    fn listen(&mut self, endpoint: EndpointId, service: ServiceId) {
        self.follow();
        self.connections.listen(clock(), endpoint, service);
    }

    fn close_all(&mut self, endpoint: EndpointId) {
        self.connections.close_all(clock(), endpoint);
        self.reclaim();
    }

    fn connect(
        &mut self,
        endpoint: EndpointId,
        request: &ConnectRequest<'_>,
    ) -> Result<ConnectionId, ConnectError> {
        self.follow();
        self.counts.verbs_calls += 2;
        self.connections.connect(clock(), endpoint, request)
    }

    fn accept(&mut self, connection: ConnectionId, private_data: &[u8]) {
        self.connections.accept(clock(), connection, private_data);
    }

    fn establish(&mut self, connection: ConnectionId) {
        self.connections.establish(clock(), connection);
    }

    fn reject(&mut self, connection: ConnectionId, reason: RejectReason, private_data: &[u8]) {
        let now = clock();
        self.connections
            .reject(now, connection, reason, private_data);
    }

    fn close(&mut self, connection: ConnectionId) {
        self.connections.close(clock(), connection);
        self.reclaim();
    }

    fn poll_event(&mut self) -> Option<ConnectionEvent> {
        self.connections.poll_event()
    }

    fn message(&mut self, connection: ConnectionId, len: usize) -> Option<Train<'_>> {
        if len > self.connections.bounds().message {
            return None;
        }
        let path_mtu = self.connections.room(clock(), connection)?.path_mtu;
        let count = len.div_ceil(path_mtu.max(1)).max(1);
        self.lend(connection, true, path_mtu.min(len), count)
    }

    fn messages(
        &mut self,
        connection: ConnectionId,
        len: usize,
        count: usize,
    ) -> Option<Train<'_>> {
        let room = self.connections.room(clock(), connection)?;
        if len > room.path_mtu {
            return None;
        }
        self.lend(connection, false, len, count.clamp(1, room.messages))
    }

    fn resume(&mut self, ticket: TrainTicket) -> Train<'_> {
        let lent = self.lane.as_mut().and_then(|lane| lane.lent.as_mut());
        match lent {
            Some(lent) if lent.payload == ticket.payload => lent.train(ticket),
            _ => Train::new(&mut [], 0, 1, 0, TrainTicket::default()),
        }
    }

    fn post(&mut self, connection: ConnectionId, ticket: TrainTicket) -> Posted {
        let Some(lane) = &mut self.lane else {
            return Posted::Refused;
        };
        let Some(lent) = lane.lent.take() else {
            return Posted::Refused;
        };
        let shape = lent
            .shape(&ticket)
            .filter(|_| lent.connection == connection);
        let Some(shape) = shape else {
            lane.transmit.give(lent.place);
            return if ticket.count == 0 {
                Posted::Done
            } else {
                Posted::Refused
            };
        };
        self.counts.post_lists += 1;
        self.counts.verbs_calls += 1;
        let now = clock();
        let memory = &mut lane.transmit;
        let posted = self
            .connections
            .post(now, connection, memory, lent.place, &shape);
        match posted {
            Ok(Posted::Done) if !lane.transmit.has_for_messages() => Posted::Full,
            Ok(posted) => posted,
            Err(place) => {
                lane.transmit.give(place);
                Posted::Refused
            }
        }
    }

    fn path_mtu(&self, connection: ConnectionId) -> usize {
        self.connections.path_mtu(connection)
    }

    fn list(&self) -> Vec<ConnectionInfo> {
        self.connections.list()
    }
}
