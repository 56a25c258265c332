//! A fabric that records calls, for tests.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use crossbeam_channel::unbounded;
use fabric::worker::Counters;
use fabric::{
    AddressHandle, AhAttributes, Batch, ConnectError, ConnectRequest, ConnectionEvent,
    ConnectionId, ConnectionInfo, Connections, EndpointId, Gid, Instant, PKey, Posted, QKey, Qpn,
    RejectReason, Room, Sent, ServiceId, Train, TrainTicket, UdDestination, UdReceived, Worker,
};
use ipoib::{ClaimCheck, DhcpMode, HardwareAddress, Inspect, Mode};
use netdev::checksum::{Sum, pseudo_header};
use netdev::tap::TapQueue;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::command::{Command, Report, Tables};
use super::handle::{Mailbox, mailbox};
use super::ip::{IpInit, IpLane, IpParts, IpSettings};
use super::lane::{LaneInit, LinkId};
use super::stats::IpSnapshot;
use super::thread::{DataThread, Parts, now};

/// Bytes before and behind a payload.
const HEAD: usize = 4;
const TAIL: usize = 3;

/// A recorded call.
#[derive(Clone, PartialEq, Debug)]
pub enum Call {
    Send(UdDestination, Vec<Vec<u8>>),
    Post(ConnectionId, Vec<Vec<u8>>),
    Listen(EndpointId, ServiceId),
    CloseAll(EndpointId),
    Connect(ServiceId),
    Accept(ConnectionId),
    Establish(ConnectionId),
    Reject(ConnectionId, RejectReason),
    Close(ConnectionId),
    Flush,
    Timeout,
}

/// The state of a fabric, shared with the test.
#[derive(Default)]
pub struct State {
    pub calls: Vec<Call>,
    pub events: VecDeque<ConnectionEvent>,
    pub deadline: Option<Instant>,
    /// The sending endpoint of each [`Call::Send`].
    pub from: Vec<EndpointId>,
    /// Created address handles.
    pub handles: Vec<AhAttributes>,
    /// Requested places, for each call of [`Connections::messages`].
    pub asked: Vec<usize>,
    /// Messages for which a connection has room.
    pub takes: usize,
    /// No room, even if [`FakeFabric::room`] is set.
    pub full: bool,
    /// A connection is full.
    pub full_connection: bool,
    /// A sent train uses up the room: it sets [`State::full`].
    pub fills: bool,
    /// Datagrams for the next poll, with their payloads. The poll sets their ranges.
    pub arrivals: Vec<(UdReceived, Vec<u8>)>,
    /// Destroyed address handles.
    pub destroyed: Vec<AddressHandle>,
}

/// A fabric that sends nothing. Trains have at most `capacity` packets; packets of a message have `path_mtu`
/// bytes.
pub struct FakeFabric {
    memory: Vec<u8>,
    capacity: usize,
    pub room: bool,
    pub path_mtu: usize,
    arrived: Vec<u8>,
    received: Vec<UdReceived>,
    state: Arc<Mutex<State>>,
}

impl FakeFabric {
    pub fn new(capacity: usize) -> FakeFabric {
        FakeFabric {
            memory: vec![0; 1 << 17],
            capacity,
            room: true,
            path_mtu: 1024,
            arrived: Vec::new(),
            received: Vec::new(),
            state: Arc::new(Mutex::new(State {
                takes: usize::MAX,
                ..State::default()
            })),
        }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub fn shared(&self) -> Arc<Mutex<State>> {
        self.state.clone()
    }

    /// The sent packets, by train.
    pub fn trains(&self) -> Vec<Vec<Vec<u8>>> {
        let packets = |call: &Call| match call {
            Call::Send(_, packets) | Call::Post(_, packets) => Some(packets.clone()),
            _ => None,
        };
        self.state().calls.iter().filter_map(packets).collect()
    }

    /// The lengths of the sent packets, by train.
    pub fn sizes(&self) -> Vec<Vec<usize>> {
        let lengths = |train: &Vec<Vec<u8>>| train.iter().map(Vec::len).collect();
        self.trains().iter().map(lengths).collect()
    }

    fn lend(&mut self, capacity: usize, ticket: TrainTicket) -> Train<'_> {
        let stride = HEAD + ticket.payload + TAIL;
        Train::new(&mut self.memory, HEAD, stride, capacity, ticket)
    }

    fn packets(&self, t: TrainTicket) -> Vec<Vec<u8>> {
        let packet = |i: usize| {
            let at = i * (HEAD + t.payload + TAIL) + HEAD;
            let len = if i + 1 == t.count { t.last } else { t.payload };
            self.memory[at..at + len].to_vec()
        };
        (0..t.count).map(packet).collect()
    }

    fn call(&self, call: Call) {
        self.state().calls.push(call);
    }
}

fn empty(payload: usize) -> TrainTicket {
    TrainTicket {
        payload,
        ..TrainTicket::default()
    }
}

impl Worker for FakeFabric {
    fn register(&mut self, _: BorrowedFd<'_>, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn poll(&mut self, _: usize) -> io::Result<Batch<'_>> {
        let arrivals = std::mem::take(&mut self.state().arrivals);
        self.arrived.clear();
        self.received.clear();
        for (mut received, payload) in arrivals {
            received.range = self.arrived.len()..self.arrived.len() + payload.len();
            self.arrived.extend(payload);
            self.received.push(received);
        }
        Ok(Batch::new(&self.arrived[..], &self.received))
    }

    fn arm(&mut self) -> io::Result<bool> {
        Ok(!self.state().arrivals.is_empty())
    }

    /// Handles are numbered in order of creation.
    fn create_ah(&mut self, attributes: &AhAttributes) -> io::Result<AddressHandle> {
        let mut state = self.state();
        state.handles.push(*attributes);
        Ok(AddressHandle(state.handles.len() as u32 - 1))
    }

    fn destroy_ah(&mut self, ah: AddressHandle) {
        self.state().destroyed.push(ah);
    }

    fn train(&mut self, payload: usize) -> Option<Train<'_>> {
        let has_room = self.room && !self.state().full;
        has_room.then(|| self.lend(self.capacity, empty(payload)))
    }

    fn resume(&mut self, ticket: TrainTicket) -> Train<'_> {
        self.lend(self.capacity, ticket)
    }

    fn send(&mut self, from: EndpointId, to: &UdDestination, t: TrainTicket) -> Sent {
        let mut state = self.state();
        state.from.push(from);
        state.full |= state.fills;
        drop(state);
        self.call(Call::Send(*to, self.packets(t)));
        Sent::Done
    }

    fn room(&self) -> Room {
        let state = self.state();
        if !self.room || state.full {
            Room::Nothing
        } else if state.full_connection {
            Room::Datagrams
        } else {
            Room::Messages
        }
    }

    fn connections(&mut self) -> Option<&mut dyn Connections> {
        Some(self)
    }

    fn flush(&mut self) {
        self.call(Call::Flush);
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.state().deadline
    }

    fn handle_timeout(&mut self) {
        self.state().deadline = None;
        self.call(Call::Timeout);
    }

    fn counters(&self) -> Counters {
        Vec::new()
    }
}

impl Connections for FakeFabric {
    fn listen(&mut self, endpoint: EndpointId, service: ServiceId) {
        self.call(Call::Listen(endpoint, service));
    }

    fn close_all(&mut self, endpoint: EndpointId) {
        self.call(Call::CloseAll(endpoint));
    }

    fn connect(
        &mut self,
        _: EndpointId,
        request: &ConnectRequest<'_>,
    ) -> Result<ConnectionId, ConnectError> {
        self.call(Call::Connect(request.service));
        let calls = self.state().calls.len();
        Ok(ConnectionId(100 + calls as u32))
    }

    fn accept(&mut self, connection: ConnectionId, _: &[u8]) {
        self.call(Call::Accept(connection));
    }

    fn establish(&mut self, connection: ConnectionId) {
        self.call(Call::Establish(connection));
    }

    fn reject(&mut self, connection: ConnectionId, reason: RejectReason, _: &[u8]) {
        self.call(Call::Reject(connection, reason));
    }

    fn close(&mut self, connection: ConnectionId) {
        self.call(Call::Close(connection));
    }

    fn poll_event(&mut self) -> Option<ConnectionEvent> {
        self.state().events.pop_front()
    }

    fn message(&mut self, _: ConnectionId, len: usize) -> Option<Train<'_>> {
        let takes = self.state().takes.checked_sub(1)?;
        self.state().takes = takes;
        let payload = self.path_mtu;
        Some(self.lend(len.div_ceil(payload), empty(payload)))
    }

    fn messages(&mut self, _: ConnectionId, len: usize, count: usize) -> Option<Train<'_>> {
        self.state().asked.push(count);
        let lent = count.min(self.state().takes).min(self.capacity);
        self.state().takes -= lent;
        (lent > 0).then(|| self.lend(lent, empty(len)))
    }

    /// Lends the maximum number of places: the number lent before is not stored.
    fn resume(&mut self, ticket: TrainTicket) -> Train<'_> {
        let asked = self.state().asked.last().copied().unwrap_or_default();
        self.lend(asked.min(self.capacity), ticket)
    }

    fn post(&mut self, connection: ConnectionId, ticket: TrainTicket) -> Posted {
        self.call(Call::Post(connection, self.packets(ticket)));
        Posted::Done
    }

    fn path_mtu(&self, _: ConnectionId) -> usize {
        self.path_mtu
    }

    fn list(&self) -> Vec<ConnectionInfo> {
        Vec::new()
    }
}

/// The link of [`lane`].
pub const LINK: LinkId = LinkId(1);
/// The endpoint of [`LINK`].
pub const ENDPOINT: EndpointId = EndpointId(5);

/// A hardware address with a fixed GID.
pub fn address(qpn: u32) -> HardwareAddress {
    let mut gid = [0; 16];
    gid[..2].copy_from_slice(&[0xfe, 0x80]);
    gid[15] = 9;
    HardwareAddress::new(0, Qpn::new(qpn), Gid(gid))
}

/// A lane with at most `connections` connections, and the host's end of its TAP.
pub fn lane(connections: usize) -> (IpLane, OwnedFd) {
    let (mut lane, host) = lane_of(0, connections);
    (lane.base.id, lane.base.endpoint) = (LINK, ENDPOINT);
    (lane, host)
}

/// Like [`lane`], for link `n` of several on a port: its queue pair number is 0x17 + `n`, and its MAC ends in
/// 1 + `n`.
pub fn lane_of(n: u32, connections: usize) -> (IpLane, OwnedFd) {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (tap, host) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    let init = IpInit {
        base: LaneInit {
            pkey: PKey::DEFAULT,
            id: LinkId(100 + n),
            endpoint: EndpointId(200 + n),
            uso: false,
        },
        scope: 2,
        services: fabric::Services::Any,
        connections,
    };
    let lane = IpParts::new(&init, settings(n)).with_queue(TapQueue::over(tap), true);
    (lane, host)
}

/// The settings of [`lane_of`].
pub fn settings(n: u32) -> IpSettings {
    IpSettings {
        mss: None,
        trust_checksums: false,
        local: address(0x17 + n),
        mode: Mode::Connected,
        mac: [2, 0, 0, 0, 0, 1 + n as u8],
        link_mtu: 2044,
        coalesce: true,
        reflect: false,
        dhcp: DhcpMode::default(),
        claims: ClaimCheck::default(),
        refuse_requests: false,
        inspect: Inspect::default(),
        pins: None,
        stacked: false,
        routes_multicast: false,
    }
}

/// An Ethernet frame with a UDP datagram over IPv4 of `payload` bytes, without checksums.
pub fn udp_frame(payload: usize) -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend([8, 0, 0x45, 0]);
    frame.extend((28 + payload as u16).to_be_bytes());
    frame.extend([0, 1, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([0, 9, 0, 9]);
    frame.extend((8 + payload as u16).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend((0..payload).map(|i| (i % 251) as u8));
    frame
}

/// An Ethernet frame with a SYN over IPv4 that announces the segment size `mss`. The checksum of TCP is right.
pub fn syn_frame(mss: u16) -> Vec<u8> {
    let [high, low] = mss.to_be_bytes();
    let mut frame = vec![0; 12];
    frame.extend([8, 0, 0x45, 0, 0, 44, 0, 1, 0x40, 0, 64, 6, 0, 0]);
    let addresses = [10, 0, 0, 1, 10, 0, 0, 2];
    frame.extend(addresses);
    frame.extend([0x14, 0xb4, 0x9c, 0x40, 0, 0, 0, 1, 0, 0, 0, 0]);
    frame.extend([0x60, 0x02, 0xff, 0xff, 0, 0, 0, 0, 2, 4, high, low]);
    let sum = tcp_sum(&frame).finish();
    frame[50..52].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// The sum over TCP in a frame without IP options; it is valid if the checksum is right.
pub fn tcp_sum(frame: &[u8]) -> Sum {
    let segment = &frame[34..];
    pseudo_header(&frame[26..30], &frame[30..34], 6, segment.len() as u32).plus(Sum::of(segment))
}

/// The destination of a peer, by its queue pair number.
pub fn peer(qpn: u32) -> UdDestination {
    UdDestination {
        qkey: QKey::OWN,
        ah: AddressHandle(qpn),
        qpn: Qpn::new(qpn),
    }
}

/// A data thread with a [`FakeFabric`].
pub struct Rig {
    pub thread: DataThread,
    pub commands: Mailbox,
    pub state: Arc<Mutex<State>>,
    pub reports: crossbeam_channel::Receiver<Report>,
}

impl Rig {
    pub fn new() -> Rig {
        let fabric = FakeFabric::new(16);
        let state = fabric.shared();
        let (commands, inbox) = mailbox().unwrap();
        let wake = rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap();
        let (sender, reports) = unbounded();
        let thread = DataThread::new(Parts {
            index: 0,
            fabric: Box::new(fabric),
            busy_poll: Duration::ZERO,
            inbox,
            replicas: Vec::new(),
            reports: sender,
            reports_wake: Arc::new(wake),
        });
        Rig {
            thread: thread.unwrap(),
            commands,
            state,
            reports,
        }
    }

    /// A snapshot of the thread's first IP link.
    pub fn snapshot(&mut self, tables: bool) -> IpSnapshot {
        let (reply, snapshot) = unbounded();
        let tables = if tables { Tables::All } else { Tables::None };
        self.commands.send(Command::Snapshot { tables, reply });
        self.thread.commands(now());
        snapshot.try_recv().unwrap().ip.remove(0)
    }

    /// Runs the thread until it has done all commands, and returns its calls.
    pub fn run(self, commands: impl IntoIterator<Item = Command>) -> Vec<Call> {
        for command in commands {
            self.commands.send(command);
        }
        self.commands.send(Command::Stop);
        self.thread.run();
        std::mem::take(&mut self.state.lock().unwrap().calls)
    }
}

/// The number of bytes of each post (true) and send (false).
pub fn lengths(calls: &[Call]) -> Vec<(bool, usize)> {
    let length = |call: &Call| match call {
        Call::Post(_, packets) => Some((true, packets.concat().len())),
        Call::Send(_, packets) => Some((false, packets.concat().len())),
        _ => None,
    };
    calls.iter().filter_map(length).collect()
}
