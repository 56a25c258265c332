//! This side's end of the fabric: a port, its worker, and arrivals.

use std::collections::VecDeque;
use std::fmt::Display;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use fabric::cm::{DatagramService, NoService};
use fabric::port::UdEndpoint;
use fabric::soft::{SoftConfig, SoftPort, SoftWorker};
use fabric::{
    AhAttributes, CloseReason, ConnectionEvent, ConnectionId, ConnectionInfo, Connections,
    EndpointId, Gid, Joined, PKey, Port, Posted, QKey, Qpn, Room, Sent, Train, TrainTicket,
    UdDestination, UdInit, Worker,
};
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

use super::cli::Common;

/// Interval at which the port reads the state of its underlay.
const LOOK: Duration = Duration::from_secs(1);

/// Maximum number of packets in one poll.
const DEPTH: usize = 32;

/// An arrival.
#[derive(Debug)]
pub enum Arrival {
    /// A datagram.
    Datagram(Datagram),
    /// A message of a connection.
    Message(ConnectionId, Vec<u8>),
    /// An event of a connection.
    Event(ConnectionEvent),
    /// The answer to a request for a datagram service.
    Service(Result<DatagramService, NoService>),
}

/// A received datagram.
#[derive(Debug)]
pub struct Datagram {
    /// The sender's queue pair.
    pub qpn: Qpn,
    /// The sender's GID.
    pub gid: Gid,
    /// The destination GID.
    pub to: Gid,
    /// Its payload, without immediate data.
    pub payload: Vec<u8>,
}

impl Datagram {
    /// Checks the sender.
    ///
    /// # Errors
    /// Another sender.
    pub fn is_from(&self, qpn: Qpn, gid: Gid) -> Result<()> {
        ensure!(
            (self.qpn, self.gid) == (qpn, gid),
            "received a datagram from QPN {} of {} instead of QPN {qpn} of {gid}",
            self.qpn,
            self.gid
        );
        Ok(())
    }
}

/// See the module.
pub struct End {
    // The worker must be dropped before its port.
    worker: SoftWorker,
    port: SoftPort,
    epoll: OwnedFd,
    timeout: Duration,
    arrived: VecDeque<Arrival>,
    looked: Instant,
}

impl End {
    /// Opens the port of the command line.
    ///
    /// # Errors
    /// The port is not usable.
    pub fn open(common: &Common) -> Result<End> {
        let config = SoftConfig {
            gid: common.gid,
            message_max: (common.size as usize).max(SMALLEST_MESSAGE_MAX),
            connections_max: CONNECTIONS_MAX,
            ..SoftConfig::new(&common.underlay)
        };
        let mut port = SoftPort::open(config)?;
        let workers = port.take_soft_workers();
        let mut worker = workers
            .into_iter()
            .next()
            .context("the port has no worker")?;
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        worker.register(epoll.as_fd(), 0)?;
        epoll::add(
            &epoll,
            port.event_fd(),
            EventData::new_u64(0),
            EventFlags::IN,
        )?;
        Ok(End {
            worker,
            port,
            epoll,
            timeout: common.timeout,
            arrived: VecDeque::new(),
            looked: Instant::now(),
        })
    }

    /// The port's GID.
    pub fn gid(&self) -> Gid {
        self.port.attributes().gid
    }

    /// The worker, to manage connections.
    pub fn worker(&mut self) -> &mut SoftWorker {
        &mut self.worker
    }

    /// Creates a UD queue pair in the default partition, for datagrams of `size` bytes.
    ///
    /// # Errors
    /// The size is too large for the port.
    pub fn create_ud(&mut self, qkey: QKey, size: usize) -> Result<UdEndpoint> {
        let port = self.port.attributes();
        ensure!(
            size <= port.ud_payload_max as usize,
            "a datagram of {size} bytes exceeds the maximum of {}, {} bytes: lower --size, or raise the \
             MTU of the underlay",
            port.name,
            port.ud_payload_max
        );
        let (pkey, qpn) = (PKey::DEFAULT, None);
        Ok(self.port.create_ud(UdInit { pkey, qkey, qpn })?)
    }

    /// Attaches a queue pair to a group.
    ///
    /// # Errors
    /// The port cannot join it.
    pub fn attach(&mut self, endpoint: EndpointId, group: Gid) -> Result<()> {
        // The software fabric answers at once.
        match self.port.change_groups(endpoint, &[group], &[])?.pop() {
            Some(Joined::Now(_)) => Ok(()),
            Some(Joined::Refused(why)) => bail!("{why}"),
            _ => bail!("{group} is not joined"),
        }
    }

    /// The destination for datagrams to a queue pair.
    ///
    /// # Errors
    /// The port's GID cannot reach it.
    pub fn destination(&mut self, gid: Gid, qpn: Qpn, qkey: QKey) -> Result<UdDestination> {
        let ours = self.gid();
        let made = self
            .worker
            .create_ah(&AhAttributes::to(gid, fabric::PKey::DEFAULT));
        let ah = made.with_context(|| {
            format!("{gid} cannot be reached from {ours}; another --gid may help")
        })?;
        Ok(UdDestination { ah, qpn, qkey })
    }

    /// Sends a datagram.
    ///
    /// # Errors
    /// Sending fails.
    pub fn send(&mut self, from: EndpointId, to: &UdDestination, payload: &[u8]) -> Result<()> {
        self.send_parts(payload, &[], |worker, ticket| worker.send(from, to, ticket))
    }

    /// Sends a datagram whose immediate data is the sender's queue pair number, as programs of rdma_cm do.
    ///
    /// # Errors
    /// Sending fails.
    pub fn send_from(
        &mut self,
        from: &UdEndpoint,
        to: &UdDestination,
        payload: &[u8],
    ) -> Result<()> {
        let immediate = from.qpn.get().to_be_bytes();
        self.send_parts(&immediate, payload, |worker, ticket| {
            worker.send_with_immediate(from.id, to, ticket)
        })
    }

    fn send_parts(
        &mut self,
        head: &[u8],
        rest: &[u8],
        send: impl FnOnce(&mut SoftWorker, TrainTicket) -> Sent,
    ) -> Result<()> {
        self.await_room()?;
        let len = head.len() + rest.len();
        let mut train = self
            .worker
            .train(len)
            .context("the worker lends no memory")?;
        let place = train.next(len).with_context(|| {
            format!("a datagram of {len} bytes, with its immediate data, does not fit the port")
        })?;
        let (first, second) = place.split_at_mut(head.len());
        first.copy_from_slice(head);
        second.copy_from_slice(rest);
        let ticket = train.finish();
        let sent = send(&mut self.worker, ticket);
        ensure!(sent != Sent::Failed, "the network refuses a datagram");
        self.worker.flush();
        Ok(())
    }

    fn await_room(&mut self) -> Result<()> {
        let end = Instant::now() + self.timeout;
        while self.worker.room() == Room::Nothing {
            self.take(end, &"room to send")?;
        }
        Ok(())
    }

    /// Waits for room in the connection, and posts a message.
    ///
    /// # Errors
    /// A timeout, or the connection has ended.
    pub fn post(&mut self, connection: ConnectionId, payload: &[u8]) -> Result<()> {
        let end = Instant::now() + self.timeout;
        loop {
            if self.worker.room() == Room::Messages
                && let Some(train) = self.worker.message(connection, payload.len())
            {
                let ticket = fill(train, payload)?;
                let posted = Connections::post(&mut self.worker, connection, ticket);
                ensure!(
                    posted != Posted::Refused,
                    "the connection refuses a message"
                );
                self.worker.flush();
                return Ok(());
            }
            self.take(end, &"room for a message in the connection")?;
            if self.arrived.iter().any(|a| ends(a, connection)) {
                bail!("the connection ended before all messages were sent");
            }
        }
    }

    /// Waits for the next arrival; errors name it by `what`.
    ///
    /// # Errors
    /// A timeout.
    pub fn next(&mut self, what: &dyn Display) -> Result<Arrival> {
        self.next_until(Some(Instant::now() + self.timeout), what)
    }

    /// Waits for the first arrival, without a timeout.
    ///
    /// # Errors
    /// Errors of the network.
    pub fn first(&mut self) -> Result<Arrival> {
        self.next_until(None, &"the peer")
    }

    fn next_until(&mut self, end: Option<Instant>, what: &dyn Display) -> Result<Arrival> {
        loop {
            if let Some(arrival) = self.arrived.pop_front() {
                return Ok(arrival);
            }
            let end = end.unwrap_or_else(|| Instant::now() + LOOK * 2);
            self.take(end, what)?;
        }
    }

    /// Waits for the next datagram.
    ///
    /// # Errors
    /// A timeout, or another arrival.
    pub fn datagram(&mut self, what: &dyn Display) -> Result<Datagram> {
        datagram(self.next(what)?)
    }

    /// Waits for the first datagram, without a timeout.
    ///
    /// # Errors
    /// Another arrival.
    pub fn first_datagram(&mut self) -> Result<Datagram> {
        datagram(self.first()?)
    }

    /// Waits for the next message of a connection.
    ///
    /// # Errors
    /// A timeout, or the connection ended.
    pub fn message(&mut self, connection: ConnectionId, what: &dyn Display) -> Result<Vec<u8>> {
        match self.next(what)? {
            Arrival::Message(of, payload) if of == connection => Ok(payload),
            other => Err(unexpected(&other, what)),
        }
    }

    /// The state of a connection; `None` after its end.
    pub fn info(&self, connection: ConnectionId) -> Option<ConnectionInfo> {
        let mut list = self.worker.list().into_iter();
        list.find(|c| c.connection == connection)
    }

    /// Waits until the peer has acknowledged all posted messages; `false` if the connection ends before.
    ///
    /// # Errors
    /// A timeout.
    pub fn acknowledged(&mut self, connection: ConnectionId) -> Result<bool> {
        let end = Instant::now() + self.timeout;
        loop {
            match self.info(connection) {
                Some(info) if info.in_flight == 0 => return Ok(true),
                Some(_) => self.take(end, &"the acknowledgement of the last message")?,
                None => return Ok(false),
            }
        }
    }

    /// Ends a connection, and waits for the peer's confirmation.
    ///
    /// # Errors
    /// A timeout.
    pub fn close(&mut self, connection: ConnectionId) -> Result<()> {
        let heard = |worker: &SoftWorker| -> u64 {
            let all = worker.counters().into_iter();
            all.filter(|(name, _)| ENDS.contains(name))
                .map(|(_, n)| n)
                .sum()
        };
        let before = heard(&self.worker);
        self.worker.close(connection);
        self.worker.flush();
        let end = Instant::now() + self.timeout;
        while heard(&self.worker) == before {
            self.take(end, &"the peer to end the connection")?;
        }
        Ok(())
    }

    /// Answers packets until the network is `quiet` for this time: the acknowledgement of the peer's last
    /// message may have been lost.
    ///
    /// # Errors
    /// Errors of the network.
    pub fn linger(&mut self, quiet: Duration) -> Result<()> {
        let mut end = Instant::now() + quiet;
        while Instant::now() < end {
            if self.step(end)? {
                end = Instant::now() + quiet;
            }
        }
        Ok(())
    }

    /// Waits until `end` for an arrival, and takes it.
    fn take(&mut self, end: Instant, what: &dyn Display) -> Result<()> {
        if Instant::now() >= end {
            let port = self.port.attributes();
            let timeout = self.timeout.as_secs_f64();
            match port.state_reason {
                Some(reason) => bail!("timeout of {timeout} s while waiting for {what}: {reason}"),
                None => bail!("timeout of {timeout} s while waiting for {what}"),
            }
        }
        self.step(end)?;
        Ok(())
    }

    /// Waits until `end` for an arrival; returns whether one was received.
    fn step(&mut self, end: Instant) -> Result<bool> {
        if !self.drain()? {
            self.sleep(end)?;
        }
        if self.looked.elapsed() >= LOOK {
            self.looked = Instant::now();
            // The port's state shows its events; a port that recovers needs no action.
            self.port.process();
        }
        let came = self.drain()?;
        if self.worker.next_deadline().is_some_and(|at| at.0 <= now()) {
            self.worker.handle_timeout();
        }
        self.events();
        self.worker.flush();
        Ok(came)
    }

    /// Takes all arrivals that the worker has.
    fn drain(&mut self) -> Result<bool> {
        let mut any = false;
        loop {
            let batch = self
                .worker
                .poll(DEPTH)
                .context("the worker cannot receive")?;
            let mut empty = batch.is_empty();
            for (of, payload) in batch.datagrams() {
                self.arrived.push_back(Arrival::Datagram(Datagram {
                    qpn: of.src_qpn,
                    gid: of.src_gid,
                    to: of.dst_gid,
                    payload: payload.to_vec(),
                }));
            }
            for (of, message) in batch.messages() {
                let payload = message.parts().collect::<Vec<_>>().concat();
                self.arrived
                    .push_back(Arrival::Message(of.connection, payload));
            }
            empty &= !self.events();
            any |= !empty;
            if empty || self.arrived.len() >= ARRIVED_MAX {
                return Ok(any);
            }
        }
    }

    fn events(&mut self) -> bool {
        let mut any = false;
        while let Some(event) = self.worker.poll_event() {
            self.arrived.push_back(Arrival::Event(event));
            any = true;
        }
        while let Some(answer) = self.worker.poll_answer() {
            self.arrived.push_back(Arrival::Service(answer.service));
            any = true;
        }
        any
    }

    fn sleep(&mut self, end: Instant) -> Result<()> {
        // Send the caller's last requests.
        self.worker.flush();
        if Worker::arm(&mut self.worker)? {
            return Ok(());
        }
        let mut wait = end.saturating_duration_since(Instant::now()).min(LOOK);
        if let Some(at) = self.worker.next_deadline() {
            wait = wait.min(Duration::from_nanos(at.0.saturating_sub(now())));
        }
        let wait = Timespec::try_from(wait).ok();
        let mut events = [Event {
            flags: EventFlags::empty(),
            data: EventData::new_u64(0),
        }; 4];
        match epoll::wait(&self.epoll, &mut events, wait.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(e).context("cannot wait"),
        }
    }
}

/// Maximum number of waiting arrivals.
const ARRIVED_MAX: usize = 1024;

/// Counters of messages that confirm the end of a connection.
const ENDS: [&str; 2] = ["cm_rx_msgs_drep", "cm_rx_msgs_dreq"];

/// The smallest maximum message size of the port.
const SMALLEST_MESSAGE_MAX: usize = 65536;

/// More than one, because the numbers of ended connections stay reserved for a while.
const CONNECTIONS_MAX: usize = 64;

fn fill(mut train: Train<'_>, payload: &[u8]) -> Result<TrainTicket> {
    ensure!(
        train.take(payload.len()),
        "the message does not fit its memory"
    );
    let mut rest = payload;
    let mut index = 0;
    while let Some(place) = train.taken(index) {
        let (now, later) = rest.split_at(place.len());
        place.copy_from_slice(now);
        rest = later;
        index += 1;
    }
    Ok(train.finish())
}

fn ends(arrival: &Arrival, connection: ConnectionId) -> bool {
    matches!(arrival, Arrival::Event(ConnectionEvent::Closed { connection: of, .. }) if *of == connection)
}

fn datagram(arrival: Arrival) -> Result<Datagram> {
    match arrival {
        Arrival::Datagram(datagram) => Ok(datagram),
        other => Err(unexpected(&other, &"a datagram")),
    }
}

/// The error for an unexpected arrival while waiting for `what`.
pub fn unexpected(arrival: &Arrival, what: &dyn Display) -> anyhow::Error {
    match arrival {
        Arrival::Datagram(d) => anyhow!(
            "waited for {what}, but received a datagram of {} bytes from QPN {} of {}",
            d.payload.len(),
            d.qpn,
            d.gid
        ),
        Arrival::Message(_, payload) => {
            anyhow!(
                "waited for {what}, but received a message of {} bytes",
                payload.len()
            )
        }
        Arrival::Service(Ok(service)) => anyhow!(
            "waited for {what}, but received QPN {} of a service",
            service.qpn
        ),
        Arrival::Service(Err(why)) => anyhow!("waited for {what}, but {why}"),
        Arrival::Event(ConnectionEvent::Requested { peer, .. }) => {
            anyhow!("waited for {what}, but {peer} requests a connection")
        }
        Arrival::Event(ConnectionEvent::Replied { .. }) => {
            anyhow!("waited for {what}, but received a reply")
        }
        Arrival::Event(ConnectionEvent::Closed { reason, .. }) => {
            anyhow!(
                "waited for {what}, but the connection ended: {}",
                why(*reason)
            )
        }
    }
}

fn why(reason: CloseReason) -> String {
    match reason {
        CloseReason::Disconnected => "the peer ended it".to_owned(),
        CloseReason::Rejected(reason) => format!("the peer rejected it: {reason}"),
        CloseReason::TimedOut => "the peer does not answer".to_owned(),
        CloseReason::Failed(status) => format!("it failed with {status}"),
        CloseReason::PortGone => "the port lost its address".to_owned(),
        CloseReason::PathMtu => "the path MTU is too large for the network".to_owned(),
        CloseReason::PKeyChange => "its P_Key was removed".to_owned(),
    }
}

/// CLOCK_MONOTONIC in nanoseconds, the clock of the worker's deadlines.
fn now() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec.cast_unsigned() * 1_000_000_000 + t.tv_nsec.cast_unsigned()
}
