use std::os::fd::OwnedFd;

use crossbeam_channel::unbounded;
use fabric::{CloseReason, Qpn, ServiceId};
use ipoib::{HardwareAddress, Update};
use netdev::vnet::VNET_HEADER_LEN;
use rustix::event::epoll;

use super::super::super::allowed::AllowList;
use super::super::super::command::Command;
use super::super::super::testing::{
    Call, ENDPOINT, LINK, Rig, address, lane, lengths, settings, udp_frame,
};
use super::super::super::thread::now;
use super::super::IpSettings;
use super::*;

fn add(connections: usize) -> Command {
    Command::AddLane(Box::new(lane(connections).0))
}

/// The calls at the end of a thread's last lane.
const ENDED: [Call; 2] = [Call::CloseAll(ENDPOINT), Call::Flush];

fn listens(qpn: u64) -> [Call; 3] {
    let linux = ServiceId(0x1000_0000_0000_0000 | qpn);
    let rfc4755 = ServiceId(0x0100_0000_0000_0000 | qpn);
    let rdma_cm = ServiceId::rdma_cm(ipoib::RDMA_CM_PORT);
    [linux, rdma_cm, rfc4755].map(|service| Call::Listen(ENDPOINT, service))
}

#[test]
fn a_lane_listens_on_all_service_ids_and_disconnects_at_the_end() {
    let calls = Rig::new().run([add(16)]);
    assert_eq!(calls, [&listens(0x17)[..], &[Call::Flush], &ENDED].concat());
}

#[test]
fn a_lane_without_connections_does_not_listen() {
    let calls = Rig::new().run([add(0)]);
    assert_eq!(calls, [&[Call::Flush][..], &ENDED].concat());
}

/// Without the disconnect request the peer would keep a dead connection.
#[test]
fn a_removed_lane_sends_its_disconnect_requests() {
    let (done, _) = unbounded();
    let calls = Rig::new().run([add(16), Command::RemoveLane(LINK, done)]);
    assert_eq!(
        calls[3..],
        [Call::CloseAll(ENDPOINT), Call::Flush, Call::Flush]
    );
}

#[test]
fn a_new_queue_pair_needs_new_listeners_and_a_new_gid_does_not() {
    let at = |local| {
        let settings = IpSettings {
            local,
            ..settings(0)
        };
        Command::Ip(LINK, settings)
    };
    let mut moved = address(0x17);
    moved.0[19] = 77;
    let calls = Rig::new().run([add(16), at(moved)]);
    assert_eq!(calls[3..], [&[Call::Flush][..], &ENDED].concat());
    let calls = Rig::new().run([add(16), at(address(0x18))]);
    let expected = [
        &[Call::CloseAll(ENDPOINT), Call::Flush],
        &listens(0x18)[..],
        &[Call::Flush],
        &ENDED,
    ];
    assert_eq!(calls[3..], expected.concat());
}

fn requested(connection: u32, endpoint: EndpointId) -> ConnectionEvent {
    let mut private_data = vec![0; 92];
    private_data[..8].copy_from_slice(&[0, 0, 0, PEER_QPN as u8, 0, 0, 0xff, 0xf4]);
    ConnectionEvent::Requested {
        connection: ConnectionId(connection),
        endpoint,
        service: ServiceId(0x1000_0000_0000_0017),
        peer: address(0).gid(),
        private_data: private_data.into(),
    }
}

#[test]
fn a_request_for_a_removed_lane_is_rejected() {
    let rig = Rig::new();
    let event = requested(4, EndpointId(99));
    rig.state.lock().unwrap().events.push_back(event);
    let calls = rig.run([add(16)]);
    let rejected = Call::Reject(ConnectionId(4), RejectReason::INVALID_SERVICE_ID);
    assert_eq!(calls[3..], [&[rejected, Call::Flush][..], &ENDED].concat());
}

/// The peer of the request, or another one.
#[test]
fn a_request_of_a_host_that_is_not_allowed_is_rejected() {
    for (prefix, admitted) in [("fe80::99", false), ("::/0", true)] {
        let mut rig = Rig::new();
        let list = AllowList::new([prefix.parse().unwrap()]);
        rig.commands.send(Command::SetAllowed(Some(list.into())));
        rig.commands.send(add(16));
        let now = now();
        rig.thread.commands(now);
        let event = requested(4, ENDPOINT);
        rig.state.lock().unwrap().events.push_back(event);
        rig.thread.serve_connections(now);
        let is_known = rig.thread.ip.connections.contains_key(&ConnectionId(4));
        assert_eq!(is_known, admitted);
        let rejected = Call::Reject(ConnectionId(4), RejectReason::CONSUMER);
        let calls = rig.state.lock().unwrap().calls.clone();
        assert_eq!(calls.contains(&rejected), !admitted, "{calls:?}");
    }
}

#[test]
fn the_lane_of_a_connection_is_known_until_the_connection_ends() {
    let mut rig = Rig::new();
    rig.commands.send(add(16));
    let now = now();
    rig.thread.commands(now);
    for connection in [4, 5, 6] {
        let event = requested(connection, ENDPOINT);
        rig.state.lock().unwrap().events.push_back(event);
    }
    let closed = ConnectionEvent::Closed {
        connection: ConnectionId(5),
        reason: CloseReason::Disconnected,
    };
    rig.state.lock().unwrap().events.push_back(closed);
    rig.thread.serve_connections(now);
    assert!(!rig.thread.ip.connections.contains_key(&ConnectionId(5)));
    assert_eq!(rig.snapshot(false).connection_count, 2, "without tables");
    let (done, _) = unbounded();
    rig.commands.send(Command::RemoveLane(LINK, done));
    rig.thread.commands(now);
    assert!(rig.thread.ip.connections.is_empty());
}

/// A lane with one peer. `flags` of the peer's address select whether it accepts connections.
struct Pair {
    rig: Rig,
    host: OwnedFd,
    events: Vec<epoll::Event>,
}

const PEER_QPN: u32 = 0x99;

impl Pair {
    fn new(flags: u8) -> Pair {
        let rig = Rig::new();
        let (lane, host) = lane(16);
        rig.commands.send(Command::AddLane(Box::new(lane)));
        let update = Update::Learned {
            address: HardwareAddress::new(flags, Qpn::new(PEER_QPN), address(0).gid()),
            mac: PEER_MAC,
            ip: Some(std::net::IpAddr::from([10, 0, 0, 2])),
        };
        rig.commands.send(Command::Update(LINK, update));
        let mut pair = Pair {
            rig,
            host,
            events: Vec::with_capacity(8),
        };
        pair.round();
        pair.calls();
        pair
    }

    fn round(&mut self) {
        self.rig.thread.round(&mut self.events).unwrap();
    }

    /// The calls since the previous call of this function, without flushes and timeouts.
    fn calls(&mut self) -> Vec<Call> {
        let mut calls = std::mem::take(&mut self.rig.state.lock().unwrap().calls);
        calls.retain(|call| !matches!(call, Call::Flush | Call::Timeout));
        calls
    }

    /// The host sends one datagram to the peer.
    fn send(&mut self, payload: usize) {
        let mut frame = vec![0; VNET_HEADER_LEN];
        frame.extend(udp_frame(payload));
        frame[VNET_HEADER_LEN..][..6].copy_from_slice(&PEER_MAC);
        frame[VNET_HEADER_LEN + 6..][..6].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
        rustix::io::write(&self.host, &frame).unwrap();
        self.round();
    }

    /// The fabric reports a connection event.
    fn happens(&mut self, event: ConnectionEvent) {
        let mut state = self.rig.state.lock().unwrap();
        state.events.push_back(event);
        state.deadline = Some(fabric::Instant(1));
        drop(state);
        self.round();
    }

    fn connection(&self) -> ConnectionId {
        *self.rig.thread.ip.connections.keys().next().unwrap()
    }

    /// The next frame that the host reads, from the Ethernet header on.
    fn read(&self) -> Option<Vec<u8>> {
        let mut frame = vec![0; 1 << 17];
        let len = rustix::io::read(&self.host, &mut frame).ok()?;
        Some(frame[VNET_HEADER_LEN..len].to_vec())
    }
}

const PEER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// Flag of an address whose host accepts connections (RFC 4755, section 3.1).
const RC: u8 = 0x80;

#[test]
fn a_large_packet_waits_for_the_connection_and_small_ones_do_not() {
    let mut pair = Pair::new(RC);
    pair.send(5000);
    let service = ServiceId(0x1000_0000_0000_0000 | u64::from(PEER_QPN));
    assert_eq!(pair.calls(), [Call::Connect(service)]);
    pair.send(100);
    assert_eq!(lengths(&pair.calls()), [(false, 132)]);
    pair.send(6000);
    assert!(pair.calls().is_empty());

    let connection = pair.connection();
    let mut private_data = vec![0; 196];
    private_data[..8].copy_from_slice(&[0, 0, 0, PEER_QPN as u8, 0, 0, 0xff, 0xf4]);
    pair.happens(ConnectionEvent::Replied {
        connection,
        private_data: private_data.into(),
    });
    let calls = pair.calls();
    assert!(calls[0] == Call::Establish(connection));
    assert_eq!(lengths(&calls), [(true, 5032), (true, 6032)], "in order");
    pair.send(60_000);
    pair.send(100);
    assert_eq!(lengths(&pair.calls()), [(true, 60_032), (true, 132)]);
    assert_eq!(pair.read(), None, "no ICMP");
}

#[test]
fn a_rejected_connection_is_requested_by_the_other_service_ids_and_then_packets_are_answered() {
    let mut pair = Pair::new(RC);
    pair.send(5000);
    pair.calls();
    let refused = |pair: &Pair| ConnectionEvent::Closed {
        connection: pair.connection(),
        reason: CloseReason::Rejected(RejectReason::INVALID_SERVICE_ID),
    };
    let rfc4755 = ServiceId(0x0100_0000_0000_0000 | u64::from(PEER_QPN));
    for service in [ServiceId::rdma_cm(ipoib::RDMA_CM_PORT), rfc4755] {
        pair.happens(refused(&pair));
        assert_eq!(pair.calls(), [Call::Connect(service)]);
        assert_eq!(pair.read(), None);
    }
    pair.happens(refused(&pair));
    assert!(pair.calls().is_empty());
    assert!(pair.rig.thread.ip.connections.is_empty());
    assert_eq!(pair.read().unwrap()[14 + 20..][..2], [3, 4]);
}

#[test]
fn a_peer_s_request_is_accepted_and_its_end_is_noticed() {
    let mut pair = Pair::new(RC);
    let connection = ConnectionId(7);
    pair.happens(requested(7, ENDPOINT));
    assert_eq!(pair.calls(), [Call::Accept(connection)]);
    assert_eq!(pair.connection(), connection);
    pair.happens(ConnectionEvent::Closed {
        connection,
        reason: CloseReason::Disconnected,
    });
    assert!(pair.rig.thread.ip.connections.is_empty());
}

/// RFC 1191, section 4: the lower half of the unused word has the next hop's MTU.
#[test]
fn large_packets_to_a_peer_without_connections_are_answered() {
    let mut pair = Pair::new(0);
    pair.send(2016);
    assert_eq!(lengths(&pair.calls()), [(false, 2048)]);
    pair.send(5000);
    assert!(pair.calls().is_empty());
    let answer = pair.read().unwrap();
    let icmp = &answer[14 + 20..];
    assert_eq!(icmp[..2], [3, 4], "fragmentation needed");
    assert_eq!(icmp[6..8], 2044u16.to_be_bytes());
    assert_eq!(
        answer[14 + 12..][..4],
        [10, 0, 0, 2],
        "from the destination"
    );
    let stats = pair.rig.snapshot(false).stats;
    assert_eq!((stats.tx_too_big, stats.tx_packets), (1, 1));
}
