//! The connections of a [`VerbsWorker`]: connects the engine to the clock, the device and its memory.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use proto::{
    ConnectError, ConnectionEvent, ConnectionId, EndpointId, Instant, RejectReason, ServiceId,
    Services,
};
use rustix::event::epoll::{self, EventData, EventFlags};

use super::device::Shape;
use super::rdma_cm::RdmaCm;
use super::real::{Manager, RealDevice};
use super::umad::{Own, UmadCm};
use super::{Bounds, Member, View};
use crate::connection::{ConnectRequest, ConnectionInfo, Connections, Posted};
use crate::kernel::clock;
use crate::pkeys::Entry;
use crate::subnet::{Destination, SubnetPath};
use crate::verbs::config::VerbsConfig;
use crate::verbs::device::{Device, TRANSMIT_LEN};
use crate::verbs::ibv::Place;
use crate::verbs::ibv::cm::PortSpace;
use crate::verbs::transmit::Transmit;
use crate::verbs::worker::{VerbsWorker, Woken};
use crate::worker::{Train, TrainTicket};

/// Maximum outstanding messages of a connection; at half of it the consumer has to stop.
const DEPTH: u32 = 512;

/// Maximum outstanding post lists of a connection, likewise: 1 MiB with the largest messages.
const LISTS: usize = 32;

/// Waiting time after a failure to open communication management.
const OPEN_AGAIN: Duration = Duration::from_secs(5);

/// The memory lent last.
#[derive(Debug)]
pub struct Lent {
    connection: ConnectionId,
    place: Place,
    /// One message over all places of the train; false: one message in each place.
    whole: bool,
    payload: usize,
    capacity: usize,
}

impl Lent {
    fn train(&mut self, ticket: TrainTicket) -> Train<'_> {
        let (payload, capacity) = (self.payload, self.capacity);
        Train::new(&mut self.place, 0, payload, capacity, ticket)
    }

    /// The messages described by a ticket; `None` if the ticket does not fit.
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

/// Limits before a device is known.
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
    /// Starts the connections of a device, if it supports them.
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
        let real = self.open_manager(device).and_then(|manager| {
            let mut real = RealDevice::new(device, manager, self.table.port, depth);
            if let Some(umad) = real.umad() {
                umad.manager.set_own(self.own());
            }
            if let Some((epoll, token)) = &self.epoll {
                watch(&real, epoll, Woken::Connections.word(*token)).map_err(|e| e.to_string())?;
            }
            Ok(real)
        });
        match real {
            Ok(real) => {
                self.connections.attach(now, real);
                self.cm_reported = false;
            }
            Err(why) => self.without_manager(now, &why),
        }
    }

    /// Opens communication management.
    ///
    /// # Errors
    /// What is missing and what to do.
    fn open_manager(&self, device: &Device) -> Result<Manager, String> {
        let context = &device.context;
        let space = match self.table.services {
            Services::Any | Services::InfiniBand => {
                let connections = self.connections.bounds().connections;
                let guid = device.attributes.node_guid;
                let opened = UmadCm::open(&device.cm_agent, self.index, guid, connections);
                return match opened {
                    Ok(umad) => Ok(Manager::Umad(Box::new(umad))),
                    Err(e) => Err(e.to_string()),
                };
            }
            Services::RdmaCm => PortSpace::Tcp,
            Services::RdmaCmInfiniBand => PortSpace::Ib,
        };
        let opened = RdmaCm::new(context.libraries(), space);
        let opened = opened.map(Manager::RdmaCm);
        opened.map_err(|e| format!("cannot use rdma_cm: {e}; modprobe rdma_ucm"))
    }

    /// Schedules another attempt, because a kernel module may be loaded or unloaded later.
    fn without_manager(&mut self, now: Instant, why: &str) {
        self.open_again = Some(now.after(OPEN_AGAIN));
        if !std::mem::replace(&mut self.cm_reported, true) {
            log::warn!("{}: no connections are possible: {why}", self.name);
        }
    }

    fn own(&self) -> Own {
        let t = &self.table;
        Own {
            number: t.port,
            gid_index: t.gid_index,
            lid: t.lid,
            lmc: t.lmc,
        }
    }

    /// Asks the port for the paths that requests wait for; [`VerbsWorker::path_found`] takes the answers.
    pub(in crate::verbs) fn ask_for_paths(&mut self) {
        let wanted = match self.connections.device().and_then(RealDevice::umad) {
            Some(umad) => umad.manager.take_wanted(),
            None => return,
        };
        if !wanted.is_empty() {
            self.shared.destinations.send(wanted);
        }
    }

    /// Passes the port's answer about a path.
    pub(in crate::verbs) fn path_found(
        &mut self,
        destination: Destination,
        path: Option<&SubnetPath>,
    ) {
        if let Some(umad) = self.connections.device().and_then(RealDevice::umad) {
            umad.manager.path_found(destination, path);
        }
        // Without a path, it may ask once more.
        self.ask_for_paths();
    }

    /// Opens communication management again, after the waiting time.
    fn open_connections_again(&mut self, now: Instant) {
        if self.open_again.take_if(|at| *at <= now).is_some()
            && let (Some(_), Some(device)) = (&self.lane, self.table.device.clone())
        {
            self.open_connections(&device);
        }
    }

    /// Ends all connections with their device.
    pub(in crate::verbs) fn close_connections(&mut self) {
        self.open_again = None;
        if let (Some(real), Some((epoll, _))) = (self.connections.device(), &self.epoll)
            && let Ok(fd) = real.fd()
        {
            let _ = epoll::delete(epoll, fd);
        }
        drop(self.connections.detach(clock()));
    }

    /// Adds the events of communication management to an epoll instance.
    pub(in crate::verbs) fn watch_connections(
        &mut self,
        epoll: &OwnedFd,
        token: u64,
    ) -> io::Result<()> {
        match self.connections.device() {
            Some(real) => watch(real, epoll, Woken::Connections.word(token)),
            None => Ok(()),
        }
    }

    /// Follows a change of the port's table.
    pub(in crate::verbs) fn follow_connections(&mut self, flushed: bool) {
        let view = self.view();
        let own = self.own();
        if let Some(umad) = self.connections.device().and_then(RealDevice::umad) {
            umad.manager.set_own(own);
            if flushed {
                umad.manager.ask_again();
            }
        }
        self.connections.follow(clock(), view);
        self.ask_for_paths();
        self.reclaim();
    }

    fn view(&self) -> View {
        let t = &self.table;
        let member = |e: &crate::verbs::snapshot::Endpoint| Member {
            qpn: e.qpn(),
            entry: e.pkey.map(|(pkey, index)| Entry { index, pkey }),
        };
        View {
            name: self.name.clone(),
            gid: t.gid,
            scope: t.scope,
            services: t.services,
            // The kernel has one listener for a service of the port.
            listens: self.index == 0 || t.services == Services::InfiniBand,
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

    /// Handles the events of communication management.
    ///
    /// # Errors
    /// Errors of its descriptor.
    pub(in crate::verbs) fn process_connections(&mut self) -> io::Result<()> {
        if self.connections.device().is_none() {
            return Ok(());
        }
        self.counts.verbs_calls += 1;
        self.connections.process(clock())?;
        self.ask_for_paths();
        self.reclaim();
        Ok(())
    }

    /// Reclaims the places of destroyed queue pairs.
    pub(in crate::verbs) fn reclaim(&mut self) {
        let emptied = self.connections.device().map(RealDevice::take_emptied);
        for queue in emptied.into_iter().flatten() {
            if let Some(lane) = &mut self.lane {
                lane.transmit.reclaim(&queue);
            }
        }
    }

    /// Whether connections have room for messages.
    pub(in crate::verbs) fn has_room_for_messages(&self) -> bool {
        self.connections.has_room() && (self.has_places() || self.connections.is_idle())
    }

    fn has_places(&self) -> bool {
        let transmit = self.lane.as_ref().map(|lane| &lane.transmit);
        transmit.is_none_or(Transmit::has_for_messages)
    }

    /// Handles the timers of connections.
    ///
    /// # Errors
    /// Errors of communication management.
    pub(in crate::verbs) fn connections_timeout(&mut self, now: Instant) -> io::Result<()> {
        self.open_connections_again(now);
        self.connections.handle_timeout(now)?;
        if !self.has_places() {
            self.connections.end_stalled(now);
        }
        self.ask_for_paths();
        self.reclaim();
        Ok(())
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
        if self.lane.is_none() {
            // The RDMA device is away, and the port has no GID without it.
            return Err(ConnectError::NoGid);
        }
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
