//! One worker: receive memory, transmit memory, and its view of the table.

mod destinations;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use proto::{AddressHandle, ConnectError, EndpointId, Gid, Instant, Psn};
use rustix::event::epoll::{self, EventData, EventFlags};

use super::address_handle::{self, Address};
use super::counts::Counts;
use super::engine::{Engine, EngineConfig, Partition, PortView, Standing};
use super::icrc_check::IcrcCheck;
use super::lanes::Lanes;
use super::mailbox::Mailbox;
use super::qp::Posted;
use super::reception::{DELIVERIES, Reception};
use super::snapshot::{Shared, Sockets, Table};
use super::sys::{SLOT_LEN, Slab};
use super::train::{self, HEAD, Header, Route, packet_len};
use super::transmitter::{Outcome, Shape, Transmitter};
use super::ud::Path;
use super::underlay::path_mtu;
use super::wire::opcode;
use crate::connection::Connections;
use crate::handles::{AddressHandles, Found};
use crate::kernel::clock;
use crate::worker::{
    AhAttributes, Batch, Counters, Room, Sent, Train, TrainTicket, UdDestination, UdReceived,
    Worker,
};

/// Single datagrams that count as one received piece. On a network that does not merge them, larger batches make larger
/// frames for the host, and cost less in a flood (docs/performance.md, "Floods").
const PIECE: usize = 4;

/// Bytes of transmit memory: the largest UDP payload, rounded up.
const TRANSMIT_LEN: usize = 1 << 16;

/// A train to be sent.
#[derive(Clone, Copy, Debug)]
struct Departure {
    from: EndpointId,
    /// The opcode of all packets of the train.
    opcode: u8,
    /// The start of the queue pair that the train was posted to. A restart drops the train.
    starts: u32,
    to: UdDestination,
    train: TrainTicket,
    psn: Psn,
}

/// A blocked train.
#[derive(Clone, Copy, Debug)]
struct Pending {
    departure: Departure,
    /// The contents of the destination's address handle. The handle may be destroyed, and its number
    /// used again, before the train has left.
    address: Address,
    progress: Progress,
}

/// The progress of a train.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Progress {
    /// Finished copies, if the train goes to a list of peers.
    copies: usize,
    /// Packets of the current copy sent.
    packets: usize,
}

/// Parameters of a new worker.
pub(super) struct WorkerInit {
    pub engine: EngineConfig,
    pub shared: Arc<Shared>,
    /// Becomes readable when the worker has something to do.
    pub wake: Arc<OwnedFd>,
    /// The mailboxes of all workers.
    pub mailboxes: Arc<[Mailbox]>,
}

/// The part of a soft port that belongs to one data thread.
pub struct SoftWorker {
    index: usize,
    shared: Arc<Shared>,
    /// Becomes readable when the sockets change.
    wake: Arc<OwnedFd>,
    generation: u64,
    pub(super) table: Arc<Table>,
    sockets: Arc<[Sockets]>,
    epoll: Option<(OwnedFd, u64)>,
    /// The receiving socket in the epoll instance.
    watched: Option<Arc<OwnedFd>>,
    writable_armed: bool,
    slab: Slab,
    icrc: IcrcCheck,
    received: Vec<UdReceived>,
    /// Whether the last batch was full of datagrams that came singly.
    singly: bool,
    /// Drops of the receiving socket up to its last datagram.
    socket_drops: Option<u32>,
    transmit: Vec<u8>,
    pending: Option<Pending>,
    transmitter: Transmitter,
    pub(super) engine: Engine,
    mailboxes: Arc<[Mailbox]>,
    handles: AddressHandles<Address>,
    /// The trains that wait for their address handles.
    waiting: VecDeque<destinations::Waiting>,
    lanes: Lanes,
    counts: Counts,
}

impl SoftWorker {
    pub(super) fn new(init: WorkerInit) -> SoftWorker {
        let mut worker = SoftWorker {
            index: init.engine.worker,
            wake: init.wake,
            engine: Engine::new(init.engine).with_starts(Arc::clone(&init.shared.starts)),
            shared: init.shared,
            mailboxes: init.mailboxes,
            generation: 0,
            table: Arc::default(),
            sockets: Arc::default(),
            epoll: None,
            watched: None,
            writable_armed: false,
            slab: Slab::new(),
            icrc: IcrcCheck::default(),
            received: Vec::with_capacity(DELIVERIES),
            singly: false,
            socket_drops: None,
            transmit: vec![0; TRANSMIT_LEN],
            pending: None,
            transmitter: Transmitter { segmentation: true },
            handles: AddressHandles::default(),
            waiting: VecDeque::new(),
            lanes: Lanes::default(),
            counts: Counts::default(),
        };
        worker.follow();
        worker
    }

    /// Takes the newest table, if it has changed.
    pub(super) fn follow(&mut self) {
        let newest = self.shared.generation();
        if newest == self.generation {
            return;
        }
        self.generation = newest;
        let old = std::mem::replace(&mut self.table, self.shared.table());
        let same_endpoints = Arc::ptr_eq(&old.endpoints, &self.table.endpoints);
        if !same_endpoints {
            self.lanes.follow(&self.table.endpoints);
        }
        if !Arc::ptr_eq(&self.sockets, &self.table.sockets) {
            self.change_sockets();
        }
        if let Err(e) = self.watch_receive() {
            log::error!("a worker cannot poll its new socket: {e}");
        }
        let (subnet, before) = (self.table.subnet.is_some(), old.subnet.is_some());
        if old.gid != self.table.gid || subnet != before {
            self.handles.renew();
            self.make_handles();
        } else if old.flushes != self.table.flushes {
            self.handles.age_all();
        }
        let now = clock();
        self.engine.set_port(now, port_view(&self.table));
        if !same_endpoints {
            let endpoints = &self.table.endpoints;
            self.engine
                .follow_endpoints(now, |id| endpoints.standing(id));
        }
    }

    /// The P_Key table entry of an endpoint.
    ///
    /// # Errors
    /// [`ConnectError::NoPKey`], [`ConnectError::NoSuchEndpoint`].
    pub(super) fn partition(&mut self, endpoint: EndpointId) -> Result<Partition, ConnectError> {
        self.follow();
        match self.table.endpoints.standing(endpoint) {
            Standing::Member(partition) => Ok(partition),
            Standing::Waiting => Err(ConnectError::NoPKey(endpoint)),
            Standing::Gone => Err(ConnectError::NoSuchEndpoint(endpoint)),
        }
    }

    fn change_sockets(&mut self) {
        self.disarm();
        let new = Arc::clone(&self.table.sockets);
        let old = std::mem::replace(&mut self.sockets, new);
        self.transmitter.segmentation = true;
        // A blocked train was for the old network.
        if self.pending.take().is_some() {
            self.counts.packets.tx_failed += 1;
        }
        let receive = |s: &[Sockets]| s.get(self.index).map(|s| Arc::as_ptr(&s.receive));
        if receive(&old) != receive(&self.sockets) {
            self.socket_drops = None;
        }
    }

    /// The socket to read, if any.
    fn receiving(&self) -> Option<&Arc<OwnedFd>> {
        let sockets = self.table.receives.then_some(&self.sockets)?;
        Some(&sockets.get(self.index)?.receive)
    }

    /// Polls the socket to read, and no other.
    fn watch_receive(&mut self) -> io::Result<()> {
        let Some((epoll, token)) = &self.epoll else {
            return Ok(());
        };
        let wanted = self.receiving().cloned();
        if wanted.as_ref().map(Arc::as_ptr) == self.watched.as_ref().map(Arc::as_ptr) {
            return Ok(());
        }
        if let Some(before) = self.watched.take() {
            // Another table may keep the socket open for a moment; it must not wake us.
            let _ = epoll::delete(epoll, &before);
        }
        if let Some(socket) = wanted {
            epoll::add(epoll, &socket, EventData::new_u64(*token), EventFlags::IN)?;
            self.watched = Some(socket);
        }
        Ok(())
    }

    fn arm(&mut self) {
        if self.writable_armed {
            return;
        }
        if let (Some((epoll, token)), Some(s)) = (&self.epoll, self.sockets.get(self.index)) {
            let data = EventData::new_u64(*token);
            match epoll::add(epoll, &s.transmit.fd, data, EventFlags::OUT) {
                Ok(()) => self.writable_armed = true,
                Err(e) => log::error!("a worker cannot poll its socket for room: {e}"),
            }
        }
    }

    fn disarm(&mut self) {
        if !std::mem::take(&mut self.writable_armed) {
            return;
        }
        if let (Some((epoll, _)), Some(s)) = (&self.epoll, self.sockets.get(self.index)) {
            let _ = epoll::delete(epoll, &s.transmit.fd);
        }
    }

    fn receive(&mut self, now: Instant, depth: usize) -> io::Result<()> {
        let Some(socket) = self.receiving().cloned() else {
            return Ok(());
        };
        let slots = if self.singly && depth > 1 {
            depth.saturating_mul(PIECE)
        } else {
            depth
        };
        let count = self.slab.receive(&socket, slots)?;
        self.singly = count >= depth && self.slab.is_single(count);
        for i in 0..count {
            self.arrival(now, i);
        }
        Ok(())
    }

    /// Processes the datagrams of one slot.
    fn arrival(&mut self, now: Instant, i: usize) {
        let (arrival, _) = self.slab.slot(i);
        let arrival = *arrival;
        self.counts.packets.rx_trains += 1;
        // The kernel reports no count of 0. A socket of a former process has counted before.
        let drops = arrival.socket_drops.or(self.socket_drops).unwrap_or(0);
        let before = self.socket_drops.replace(drops).unwrap_or(drops);
        self.counts.packets.rx_socket_drops += u64::from(drops.wrapping_sub(before));
        let (Some(dst), 1..) = (arrival.dst, arrival.segment) else {
            self.counts.packets.rx_truncated += 1;
            return;
        };
        let path = Path {
            src: Gid(arrival.src),
            dst: Gid(dst),
            src_port: arrival.src_port,
        };
        let segment = arrival.segment;
        let (mut reception, slab) = self.reception(now);
        let (_, bytes) = slab.slot(i);
        reception.icrc.start_run();
        for (k, packet) in bytes.chunks(segment).enumerate() {
            reception.icrc.at(k);
            let base = i * SLOT_LEN + k * segment;
            reception.packet(&path, packet, base, false);
        }
    }

    /// Processes the packets that other workers have passed on.
    fn open_mailbox(&mut self, now: Instant) {
        let Some(mailbox) = self.mailboxes.get(self.index) else {
            return;
        };
        let letters = mailbox.take(SLOT_LEN);
        if letters.is_empty() {
            return;
        }
        let (mut at, _) = self.slab.spare();
        let mut places = Vec::with_capacity(letters.len());
        for letter in &letters {
            places.push(at);
            at += letter.bytes.len();
        }
        let (start, spare) = self.slab.spare();
        for (letter, &at) in letters.iter().zip(&places) {
            spare[at - start..][..letter.bytes.len()].copy_from_slice(&letter.bytes);
        }
        let (mut reception, _) = self.reception(now);
        for (letter, &at) in letters.iter().zip(&places) {
            reception.icrc.start_run();
            reception.icrc.at(0);
            reception.packet(&letter.path, &letter.bytes, at, true);
        }
    }

    fn reception(&mut self, now: Instant) -> (Reception<'_>, &Slab) {
        let reception = Reception {
            now,
            worker: self.index,
            table: &self.table,
            engine: &mut self.engine,
            icrc: &mut self.icrc,
            received: &mut self.received,
            counts: &mut self.counts,
            mailboxes: &self.mailboxes,
        };
        (reception, &self.slab)
    }

    /// Sends the packets of connections, as far as the network takes them.
    pub(super) fn pump(&mut self, now: Instant, flush: bool) {
        if self.pending.is_some() {
            return;
        }
        let SoftWorker {
            engine,
            transmitter,
            counts,
            ..
        } = self;
        let sockets = self.sockets.get(self.index);
        let ifindex = self.table.ifindex;
        engine.transmit(now, flush, |run| {
            let Some(sockets) = sockets else {
                // Dropped, as on a network that is down.
                return run.count;
            };
            let shape = Shape {
                stride: run.stride,
                count: run.count,
                first: 0,
            };
            let to = Address::port(run.to);
            let outlet = match run.is_management {
                true => &sockets.management,
                false => &sockets.transmit,
            };
            let seal =
                |memory: &mut [u8], route: &Route| train::seal_run(memory, run.stride, route);
            match transmitter.send(counts, (outlet, ifindex), &to, shape, run.memory, seal) {
                Outcome::Done => run.count,
                Outcome::Blocked(_) if run.is_management => {
                    counts.packets.tx_mads_dropped += 1;
                    run.count
                }
                Outcome::Blocked(taken) => {
                    counts.packets.tx_blocked += 1;
                    taken
                }
                Outcome::Failed => {
                    counts.packets.tx_failed += 1;
                    run.count
                }
            }
        });
        if self.engine.is_blocked() {
            self.arm();
        } else {
            self.disarm();
        }
    }

    /// Sends a filled train whose packets carry immediate data: the first four bytes of each payload.
    /// The receiver does not count them as payload. (Programs of rdma_cm send their queue pair number
    /// in them.)
    pub fn send_with_immediate(
        &mut self,
        from: EndpointId,
        to: &UdDestination,
        train: TrainTicket,
    ) -> Sent {
        let shortest = train.last.min(train.payload);
        if train.count > 0 && shortest < size_of::<u32>() {
            return self.failed();
        }
        self.post_send(from, opcode::UD_SEND_ONLY_IMM, to, train)
    }

    fn post_send(
        &mut self,
        from: EndpointId,
        opcode: u8,
        to: &UdDestination,
        train: TrainTicket,
    ) -> Sent {
        self.follow();
        if train.count == 0 {
            return Sent::Done;
        }
        // The MTU may have shrunk since the train was begun.
        let too_big = train.payload.max(train.last) > self.table.payload_max;
        self.counts.packets.tx_too_big += u64::from(too_big);
        let lane = self.lanes.take(from, train.count);
        let (false, Some((starts, psn))) = (too_big, lane) else {
            return self.failed();
        };
        let departure = Departure {
            from,
            opcode,
            starts,
            to: *to,
            train,
            psn,
        };
        match self.find(to.ah) {
            Found::Ready(address) => self.transmit(Pending {
                departure,
                address: *address,
                progress: Progress::default(),
            }),
            Found::Making => self.wait(departure),
            Found::Failed => self.failed(),
        }
    }

    /// Sends the train in the transmit memory, or the rest of it. Without room, the train stays there.
    fn transmit(&mut self, mut p: Pending) -> Sent {
        let mut memory = std::mem::take(&mut self.transmit);
        let sent = self.carry(&mut memory, &mut p);
        self.transmit = memory;
        if sent == Sent::Blocked {
            self.pending = Some(p);
            self.arm();
        }
        sent
    }

    /// Sends a train, or the rest of it, to all its destinations.
    fn carry(&mut self, memory: &mut [u8], p: &mut Pending) -> Sent {
        let table = Arc::clone(&self.table);
        let sockets = Arc::clone(&self.sockets);
        let Some(socket) = sockets.get(self.index) else {
            return self.failed();
        };
        let (address, train) = (p.address, &p.departure.train);
        if train.payload.max(train.last) > address.payload_max {
            self.counts.packets.tx_too_big += 1;
            return self.failed();
        }
        let Some(header) = header(&table, &p.departure) else {
            return self.failed();
        };
        let copies = address.multicast && table.copies;
        let one = [address.ip];
        let destinations = if copies { &table.peers[..] } else { &one };
        let mut any = p.progress.copies > 0;
        for &ip in destinations.iter().skip(p.progress.copies) {
            let to = Address { ip, ..address };
            match self.copy((&table, socket), p, &header, &to, memory) {
                Outcome::Done => any = true,
                Outcome::Failed => {}
                Outcome::Blocked(packets) => {
                    p.progress.packets = packets;
                    self.counts.packets.tx_blocked += 1;
                    return Sent::Blocked;
                }
            }
            p.progress.copies += 1;
            p.progress.packets = 0;
        }
        if any { Sent::Done } else { self.failed() }
    }

    fn failed(&mut self) -> Sent {
        self.counts.packets.tx_failed += 1;
        Sent::Failed
    }

    /// Sends one copy of a train, starting at the packet of its progress.
    fn copy(
        &mut self,
        (table, socket): (&Table, &Sockets),
        p: &Pending,
        header: &Header,
        to: &Address,
        memory: &mut [u8],
    ) -> Outcome {
        let Departure { train, psn, .. } = &p.departure;
        let shape = Shape {
            stride: packet_len(train.payload),
            count: train.count,
            first: p.progress.packets,
        };
        let seal =
            |memory: &mut [u8], route: &Route| train::seal(memory, train, header, *psn, route);
        let out = (&socket.transmit, table.ifindex);
        self.transmitter
            .send(&mut self.counts, out, to, shape, memory, seal)
    }
}

/// The headers of a train, if the endpoint exists, may send, and was not restarted.
fn header(table: &Table, p: &Departure) -> Option<Header> {
    let endpoint = table.endpoint(p.from)?;
    let sends = endpoint.qp.post_send() == Posted::Processed && endpoint.starts == p.starts;
    sends.then(|| Header {
        opcode: p.opcode,
        pkey: endpoint.pkey,
        dest_qp: p.to.qpn,
        qkey: endpoint.qp.qkey_to_send(p.to.qkey),
        src_qp: endpoint.qp.qpn(),
    })
}

/// The engine's view of the port.
fn port_view(table: &Table) -> PortView {
    PortView {
        gid: if table.is_reachable() {
            table.gid
        } else {
            Gid::UNSPECIFIED
        },
        path_mtu: path_mtu(table.payload_max as u32),
        send_max: table.send_max,
        reserved: table.endpoints.qpns().collect(),
        pkeys: Arc::clone(&table.pkeys),
    }
}

impl Worker for SoftWorker {
    fn register(&mut self, epoll: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        let epoll = epoll.try_clone_to_owned()?;
        // Edge-triggered: the count is never read, every write wakes once.
        let edge = EventFlags::IN | EventFlags::ET;
        epoll::add(&epoll, &self.wake, EventData::new_u64(token), edge)?;
        self.epoll = Some((epoll, token));
        self.watch_receive()?;
        if self.pending.is_some() || self.engine.is_blocked() {
            self.arm();
        }
        Ok(())
    }

    fn poll(&mut self, depth: usize) -> io::Result<Batch<'_>> {
        self.follow();
        if let Some(p) = self.pending.take()
            && self.transmit(p) != Sent::Blocked
        {
            self.disarm();
        }
        let now = clock();
        self.received.clear();
        self.engine.begin_batch();
        let outcome = self.receive(now, depth);
        self.open_mailbox(now);
        self.take_paths();
        self.engine.end_batch(now, self.slab.memory());
        if self.engine.wants_to_send() || self.engine.is_blocked() {
            self.pump(now, false);
        }
        outcome?;
        let (messages, kept, parts) = self.engine.received();
        Ok(Batch::new(self.slab.memory(), &self.received).with_messages(kept, messages, parts))
    }

    fn create_ah(&mut self, attributes: &AhAttributes) -> io::Result<AddressHandle> {
        self.follow();
        address_handle::check(attributes, &self.table.gid, self.table.copies)?;
        let handle = self.handles.create(attributes)?;
        self.make_handles();
        Ok(handle)
    }

    fn destroy_ah(&mut self, ah: AddressHandle) {
        self.handles.release(ah);
        drop(self.handles.take_ended());
    }

    fn train(&mut self, payload: usize) -> Option<Train<'_>> {
        if self.pending.is_some() {
            return None;
        }
        let empty = TrainTicket {
            count: 0,
            payload,
            last: 0,
        };
        Some(Worker::resume(self, empty))
    }

    fn resume(&mut self, ticket: TrainTicket) -> Train<'_> {
        let stride = packet_len(ticket.payload);
        let capacity = if ticket.payload > self.table.payload_max {
            0
        } else {
            train::capacity(ticket.payload, self.table.send_max)
        };
        // The limits may have shrunk since the train was begun; `send` checks again.
        let capacity = capacity.max(ticket.count);
        Train::new(&mut self.transmit, HEAD, stride, capacity, ticket)
    }

    fn send(&mut self, from: EndpointId, to: &UdDestination, train: TrainTicket) -> Sent {
        self.post_send(from, opcode::UD_SEND_ONLY, to, train)
    }

    fn room(&self) -> Room {
        if self.pending.is_some() || self.engine.is_blocked() {
            Room::Nothing
        } else if self.engine.has_room() {
            Room::Messages
        } else {
            Room::Datagrams
        }
    }

    fn connections(&mut self) -> Option<&mut dyn Connections> {
        Some(self)
    }

    fn flush(&mut self) {
        self.pump(clock(), true);
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.engine.next_deadline()
    }

    fn handle_timeout(&mut self) {
        let now = clock();
        self.engine.handle_timeout(now);
        self.pump(now, false);
    }

    fn counters(&self) -> Counters {
        let mut all = self.counts.named();
        all.extend(self.engine.counters());
        all
    }
}

impl Drop for SoftWorker {
    fn drop(&mut self) {
        self.disarm();
        if let Some((epoll, _)) = &self.epoll {
            let _ = epoll::delete(epoll, &self.wake);
            if let Some(socket) = &self.watched {
                let _ = epoll::delete(epoll, socket);
            }
        }
    }
}

#[cfg(test)]
#[path = "worker_tests.rs"]
mod tests;
