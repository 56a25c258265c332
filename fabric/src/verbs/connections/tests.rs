//! The engine over a fake device that counts the calls.

mod fake;
mod random;

use std::sync::Arc;
use std::time::Duration;

use proto::{
    ConnectError, ConnectionId, EndpointId, IbMtu, PKey, Qpn, RejectReason, ServiceId, Services,
};
use zerocopy::IntoBytes;

use self::fake::{Fake, FakeId, asks, view};
use super::device::{Event, Shape};
use super::messages::Received;
use super::state::CmEvent;
use super::*;
use crate::connection::{ConnectRequest, Posted, STALLED_AFTER};
use crate::mad::cm::{RdmaCmData, request_data};
use crate::{PKeyTable, WcStatus};

const PORT: u16 = 4755;
const SERVICE: ServiceId = ServiceId::rdma_cm(PORT);
const ME: EndpointId = EndpointId(1);
const OTHER: EndpointId = EndpointId(2);
/// The UD queue pairs of both endpoints.
const MY_QPN: u32 = 0x11;
const OTHER_QPN: u32 = 0x12;

const BOUNDS: Bounds = Bounds {
    connections: 8,
    message: 65_524,
    messages: 16,
    lists: 8,
    completions: 64,
};

const SHAPE: Shape = Shape {
    stride: 100,
    count: 2,
    len: 100,
    last: 50,
};

struct World {
    engine: Engine<Fake>,
    now: Instant,
    slots: Vec<u32>,
}

impl World {
    fn new() -> World {
        let mut engine = Engine::new(BOUNDS);
        let now = Instant(1_000_000_000);
        engine.follow(now, view());
        engine.attach(now, Fake::default());
        World {
            engine,
            now,
            slots: Vec::new(),
        }
    }

    fn fake(&mut self) -> &mut Fake {
        self.engine.device().unwrap()
    }

    fn listening() -> World {
        let mut world = World::new();
        world.engine.listen(world.now, ME, SERVICE);
        world.engine.listen(world.now, OTHER, SERVICE);
        world
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now.after(time);
        while let Some(at) = self.engine.next_deadline().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.engine.handle_timeout(self.now).unwrap();
        }
        self.now = end;
    }

    fn event(&mut self, event: Event<FakeId>) {
        self.fake().events.push_back(event);
        self.engine.process(self.now).unwrap();
    }

    fn of(&mut self, context: u64, event: CmEvent, status: i32) {
        self.event(Event::Of {
            context,
            event,
            status,
            private_data: Box::from([7; 196]),
        });
    }

    fn connect(&mut self) -> (ConnectionId, u64) {
        let id = self.engine.connect(self.now, ME, &asks(SERVICE)).unwrap();
        (id, self.fake().last_context)
    }

    /// Opens a connection from the active side.
    fn open(&mut self) -> (ConnectionId, u64) {
        let (id, context) = self.connect();
        self.of(context, CmEvent::AddrResolved, 0);
        self.of(context, CmEvent::RouteResolved, 0);
        self.of(context, CmEvent::ConnectResponse, 0);
        let replied = self.engine.poll_event();
        assert!(
            matches!(replied, Some(ConnectionEvent::Replied { connection, private_data })
            if connection == id && *private_data == [7; 196])
        );
        self.engine.establish(self.now, id);
        (id, context)
    }

    fn request(&mut self, to: u32) {
        self.request_for(SERVICE, to);
    }

    fn request_for(&mut self, service: ServiceId, to: u32) {
        let id = self.fake().new_id(2 << 32);
        self.event(Event::Request {
            service,
            id,
            private_data: request_data(service, Qpn::new(to), b"hello"),
        });
    }

    fn requested(&mut self) -> Option<(ConnectionId, EndpointId)> {
        match self.engine.poll_event()? {
            ConnectionEvent::Requested {
                connection,
                endpoint,
                service,
                private_data,
                ..
            } => {
                let len = if service == SERVICE { 56 } else { 92 };
                assert_eq!(private_data.len(), len);
                assert!(private_data.starts_with(b"hello"));
                Some((connection, endpoint))
            }
            other => panic!("{other:?}"),
        }
    }

    fn closed(&mut self) -> Option<(ConnectionId, CloseReason)> {
        match self.engine.poll_event()? {
            ConnectionEvent::Closed { connection, reason } => Some((connection, reason)),
            other => panic!("{other:?}"),
        }
    }

    fn post(&mut self, id: ConnectionId) -> Result<Posted, u32> {
        self.engine.post(self.now, id, &mut self.slots, 9, &SHAPE)
    }

    fn qpn(&self) -> Qpn {
        self.engine.list()[0].local_qpn
    }
}

fn lost(reason: u16) -> CloseReason {
    CloseReason::Rejected(RejectReason(reason))
}

#[test]
fn who_asks_is_connected_and_disconnects() {
    let mut w = World::new();
    let (id, context) = w.open();
    assert_eq!(w.engine.path_mtu(id), 1024);
    let info = &w.engine.list()[0];
    assert_eq!((info.state, info.qp_state), ("ESTABLISHED", "RTS"));
    assert_eq!(info.remote_qpn, Qpn::new(0x99));
    let expected = [
        "begin",
        "resolve_route",
        "make",
        "ask",
        "bring_up",
        "confirm",
    ];
    assert_eq!(w.fake().calls, expected);
    let data = RdmaCmData::new(Qpn::new(0x77), b"data");
    assert_eq!(w.fake().sent, data.as_bytes());
    w.engine.close(w.now, id);
    assert_eq!(w.engine.path_mtu(id), 0);
    w.of(context, CmEvent::Disconnected, 0);
    w.engine.receive_queue_empty();
    w.pass(DRAIN_MIN * 3);
    assert_eq!(w.engine.poll_event(), None, "we wanted it");
    assert_eq!(w.fake().calls[6..], ["disconnect", "stop", "destroy"]);
    w.fake().assert_empty();
    assert_eq!(w.engine.next_deadline(), None, "nothing to wake up for");
}

#[test]
fn who_is_asked_finds_the_endpoint_that_is_meant() {
    let mut w = World::listening();
    w.request(OTHER_QPN);
    let (id, endpoint) = w.requested().unwrap();
    assert_eq!(endpoint, OTHER);
    w.engine.accept(w.now, id, b"yes");
    assert_eq!(w.fake().sent, b"yes");
    let calls = ["listen", "path", "make", "bring_up", "accept"];
    assert_eq!(w.fake().calls, calls);
    let qpn = w.qpn();
    let got = w.engine.received(w.now, qpn, WcStatus::Success, 10);
    let expected = Received {
        endpoint: OTHER,
        connection: id,
    };
    assert_eq!(got, Some(expected), "before the ReadyToUse");
    let context = w.fake().last_context;
    w.of(context, CmEvent::Established, 0);
    assert_eq!(w.engine.list()[0].state, "ESTABLISHED");
}

#[test]
fn a_request_for_the_only_one_needs_no_number() {
    let mut w = World::new();
    w.engine.listen(w.now, ME, SERVICE);
    w.request(0);
    assert_eq!(w.requested().map(|r| r.1), Some(ME));
    w.engine.listen(w.now, OTHER, SERVICE);
    w.request(0);
    assert_eq!(w.requested(), None, "which of both?");
    w.request(0x55);
    assert_eq!(w.requested(), None, "nobody has this number");
    w.fake().assert_alive(2, 0);
}

#[test]
fn requests_of_another_partition_or_for_more_than_fits_are_rejected() {
    let mut w = World::listening();
    for (pkey_index, path_mtu) in [(1, 1024), (9, 1024), (0, 4096)] {
        w.fake().path.pkey_index = pkey_index;
        w.fake().path.path_mtu = path_mtu;
        w.request(MY_QPN);
        assert_eq!(w.requested(), None);
    }
    assert_eq!(w.engine.counts.not_served, 3);
    w.fake().assert_alive(1, 0);
}

#[test]
fn a_flood_of_requests_is_bounded() {
    let mut w = World::listening();
    for _ in 0..1000 {
        w.request(MY_QPN);
    }
    let asked = std::iter::from_fn(|| w.requested()).count();
    assert_eq!(asked, BOUNDS.connections);
    w.fake().assert_alive(1 + 8, 0);
    assert!(matches!(
        w.engine.connect(w.now, ME, &asks(SERVICE)),
        Err(ConnectError::Full)
    ));
    // Evicting connections again and again is rate-limited.
    for c in w.engine.list() {
        w.engine
            .reject(w.now, c.connection, RejectReason::NO_QP, &[]);
    }
    for _ in 0..1000 {
        w.request(MY_QPN);
        if let Some((id, _)) = w.requested() {
            w.engine.reject(w.now, id, RejectReason::NO_QP, &[]);
        }
    }
    assert!(w.engine.counts.rate_limited > 600);
    w.fake().assert_alive(1, 0);
}

#[test]
fn a_peer_that_does_not_answer_times_out() {
    let mut w = World::new();
    let (id, context) = w.connect();
    w.of(context, CmEvent::AddrResolved, 0);
    w.of(context, CmEvent::RouteResolved, 0);
    w.pass(Duration::from_secs(14));
    assert_eq!(w.closed(), None);
    w.pass(Duration::from_secs(2));
    assert_eq!(w.closed(), Some((id, CloseReason::TimedOut)));
    w.fake().assert_empty();
    w.of(context, CmEvent::ConnectResponse, 0);
    assert_eq!(w.engine.poll_event(), None);
    assert_eq!(w.engine.counts.unmatched, 1);
}

#[test]
fn a_rejection_says_why() {
    let mut w = World::new();
    let (id, context) = w.connect();
    w.of(context, CmEvent::AddrResolved, 0);
    w.of(context, CmEvent::RouteResolved, 0);
    w.of(context, CmEvent::Rejected, 8);
    assert_eq!(w.closed(), Some((id, lost(8))));
    w.fake().assert_empty();
}

#[test]
fn every_call_that_fails_ends_the_connection_and_leaves_nothing() {
    for call in ["resolve_route", "make", "ask", "bring_up", "confirm"] {
        let mut w = World::new();
        w.fake().failing = Some(call);
        let (id, context) = w.connect();
        w.of(context, CmEvent::AddrResolved, 0);
        w.of(context, CmEvent::RouteResolved, 0);
        w.of(context, CmEvent::ConnectResponse, 0);
        if matches!(call, "bring_up" | "confirm") {
            assert!(w.engine.poll_event().is_some());
            w.engine.establish(w.now, id);
        }
        let reason = CloseReason::Failed(WcStatus::LocQpOpErr);
        assert_eq!(w.closed(), Some((id, reason)), "{call}");
        w.pass(DRAIN_MAX * 2);
        w.fake().assert_empty();
    }
    for call in ["path", "make", "bring_up", "accept"] {
        let mut w = World::listening();
        w.fake().failing = Some(call);
        w.request(MY_QPN);
        if let Some((id, _)) = w.requested() {
            w.engine.accept(w.now, id, &[]);
            assert!(w.closed().is_some(), "{call}");
        }
        w.pass(DRAIN_MAX * 2);
        w.fake().assert_alive(1, 0);
    }
    let mut w = World::new();
    w.fake().failing = Some("begin");
    let refused = w.engine.connect(w.now, ME, &asks(SERVICE));
    assert!(matches!(refused, Err(ConnectError::Os(_))));
    assert!(w.engine.list().is_empty());
    assert_eq!(w.engine.next_deadline(), None);
}

#[test]
fn a_window_that_is_full_says_so_and_opens_again() {
    let mut w = World::new();
    let (id, _) = w.open();
    let qpn = w.qpn();
    for _ in 0..3 {
        assert_eq!(w.post(id), Ok(Posted::Done));
    }
    assert_eq!(w.post(id), Ok(Posted::Full), "half of sixteen");
    assert!(!w.engine.has_room());
    for _ in 0..4 {
        assert_eq!(w.post(id), Ok(Posted::Full), "what was begun with goes");
    }
    assert_eq!(w.engine.room(w.now, id), None);
    assert_eq!(w.post(id), Err(9));
    for _ in 0..5 {
        w.engine.sent(w.now, qpn, WcStatus::Success, true);
    }
    assert!(w.engine.has_room());
    assert_eq!(w.engine.room(w.now, id).unwrap().messages, 10);
    let info = &w.engine.list()[0];
    assert_eq!((info.tx_messages, info.tx_bytes), (10, 750));
    assert_eq!(info.in_flight, 6);
}

#[test]
fn a_peer_that_takes_nothing_holds_up_the_others_for_a_moment_only() {
    let mut w = World::new();
    let (id, _) = w.open();
    for _ in 0..4 {
        w.post(id).unwrap();
    }
    assert!(!w.engine.has_room());
    w.pass(STALLED_AFTER + LOOK_AT_FULL * 2);
    assert!(!w.engine.has_room(), "no other peer is in use");
    let mut other = asks(SERVICE);
    other.peer.0[15] ^= 1;
    let other = w.engine.connect(w.now, ME, &other).unwrap();
    w.pass(LOOK_AT_FULL);
    assert!(w.engine.has_room());
    w.engine.close(w.now, other);
    w.pass(LOOK_AT_FULL);
    assert_eq!(w.post(id), Err(9));
    let one = Shape { count: 1, ..SHAPE };
    for k in 0..10 {
        // Two messages are sent nevertheless.
        let posted = w.engine.post(w.now, id, &mut w.slots, 9, &one);
        assert_eq!(posted.is_ok(), k < 2);
        assert!(w.engine.has_room());
        w.pass(LOOK_AT_FULL);
    }
    w.pass(PROGRESS * 2);
    let reason = CloseReason::Failed(WcStatus::RnrRetryExcErr);
    assert_eq!(w.closed(), Some((id, reason)));
    w.fake().assert_empty();
    assert_eq!(w.engine.outstanding, 0);
}

#[test]
fn a_connection_that_ends_holds_up_no_others() {
    let mut w = World::new();
    let (id, _) = w.open();
    for _ in 0..4 {
        w.post(id).unwrap();
    }
    assert!(!w.engine.has_room());
    w.engine.close(w.now, id);
    assert!(w.engine.has_room());
}

#[test]
fn what_a_failed_queue_pair_has_comes_back_before_it_is_destroyed() {
    let mut w = World::new();
    let (id, _) = w.open();
    let qpn = w.qpn();
    for _ in 0..2 {
        w.post(id).unwrap();
    }
    w.engine.sent(w.now, qpn, WcStatus::RetryExcErr, false);
    let reason = CloseReason::Failed(WcStatus::RetryExcErr);
    assert_eq!(w.closed(), Some((id, reason)));
    w.engine.receive_queue_empty();
    w.pass(DRAIN_MIN * 2);
    w.fake().assert_alive(1, 1);
    for _ in 0..2 {
        w.engine.sent(w.now, qpn, WcStatus::WrFlushErr, true);
    }
    assert_eq!(w.engine.received(w.now, qpn, WcStatus::Success, 1), None);
    assert_eq!(w.engine.poll_event(), None);
    w.pass(DRAIN_MIN * 2);
    w.fake().assert_empty();
    assert_eq!(w.engine.counts.not_drained, 0);
    // Another connection may have the number now.
    w.engine.sent(w.now, qpn, WcStatus::Success, true);
    assert_eq!(w.engine.counts.stray_completions, 1);
}

#[test]
fn what_never_comes_back_is_destroyed_all_the_same() {
    let mut w = World::new();
    let (id, _) = w.open();
    w.post(id).unwrap();
    w.engine.close(w.now, id);
    w.pass(DRAIN_MAX * 2);
    w.fake().assert_empty();
    assert_eq!((w.engine.outstanding, w.engine.counts.not_drained), (0, 1));
}

#[test]
fn a_post_that_fails_ends_the_connection() {
    let mut w = World::new();
    let (id, _) = w.open();
    w.fake().failing = Some("post");
    assert_eq!(w.post(id), Ok(Posted::Refused));
    assert!(w.closed().is_some());
    assert_eq!(w.post(id), Err(9));
}

#[test]
fn a_port_that_changes_ends_what_stood_on_it() {
    type Change = fn(&mut View);
    let changes: [(Change, CloseReason); 4] = [
        (
            |v| v.gid = "fe80::9".parse().unwrap(),
            CloseReason::PortGone,
        ),
        (
            |v| {
                v.members.remove(&ME);
            },
            CloseReason::PortGone,
        ),
        (
            |v| {
                if let Some(m) = v.members.get_mut(&ME) {
                    m.entry = None;
                }
            },
            CloseReason::PKeyChange,
        ),
        (|v| v.path_mtu = None, CloseReason::PortGone),
    ];
    for (change, reason) in changes {
        let mut w = World::new();
        let (id, _) = w.open();
        w.engine.follow(w.now, view());
        assert_eq!(w.engine.poll_event(), None, "nothing has changed");
        let mut other = view();
        change(&mut other);
        w.engine.follow(w.now, other);
        assert_eq!(w.closed(), Some((id, reason)));
    }
}

/// The port's MTU falls and grows again.
#[test]
fn connections_end_when_the_port_carries_larger_packets() {
    let with = |path_mtu| View {
        path_mtu: Some(path_mtu),
        ..view()
    };
    let mut w = World::new();
    let (id, _) = w.open();
    w.engine.follow(w.now, with(IbMtu::B4096));
    assert_eq!(w.closed(), None, "the path has 1024, the port had 2048");
    w.engine.follow(w.now, with(IbMtu::B512));
    assert_eq!(w.closed(), Some((id, CloseReason::PathMtu)));
    w.fake().path.path_mtu = 512;
    let (id, _) = w.open();
    w.engine.follow(w.now, with(IbMtu::B1024));
    assert_eq!(w.closed(), Some((id, CloseReason::PathMtu)));
}

#[test]
fn a_device_that_goes_takes_everything_along_and_listens_again_when_it_is_back() {
    let mut w = World::listening();
    let (id, _) = w.open();
    w.request(MY_QPN);
    let (asked, _) = w.requested().unwrap();
    let (second, _) = w.open();
    w.engine.close(w.now, second);
    let device = w.engine.detach(w.now).unwrap();
    device.assert_empty();
    let mut closed: Vec<_> = std::iter::from_fn(|| w.closed()).collect();
    closed.sort_by_key(|c| c.0);
    let gone = CloseReason::PortGone;
    assert_eq!(closed, [(id, gone), (asked, gone)]);
    assert!(matches!(
        w.engine.connect(w.now, ME, &asks(SERVICE)),
        Err(ConnectError::Unreachable(_))
    ));
    assert_eq!(w.engine.next_deadline(), None);
    // The endpoints are no members meanwhile.
    w.engine.follow(w.now, View::default());
    w.engine.follow(w.now, view());
    w.engine.attach(w.now, Fake::default());
    assert_eq!(w.fake().calls, ["listen"]);
    w.request(MY_QPN);
    assert_eq!(w.requested().map(|r| r.1), Some(ME));
}

#[test]
fn a_listener_that_cannot_be_is_tried_again() {
    let mut w = World::new();
    w.fake().failing = Some("listen");
    w.engine.listen(w.now, ME, SERVICE);
    w.pass(Duration::from_secs(11));
    assert_eq!(w.fake().calls, ["listen"; 3]);
    w.fake().failing = None;
    w.pass(Duration::from_secs(60));
    assert_eq!(w.fake().calls, ["listen"; 4]);
    w.event(Event::ListenerGone { service: SERVICE });
    w.pass(Duration::from_secs(60));
    assert_eq!(w.fake().calls, ["listen"; 5]);
    w.engine.close_all(w.now, ME);
    w.fake().assert_empty();
}

#[test]
fn only_what_rdma_cm_can_do_is_asked_of_it() {
    let mut w = World::new();
    let other = ServiceId(0x1000_0000_0000_0042);
    assert!(matches!(
        w.engine.connect(w.now, ME, &asks(other)),
        Err(ConnectError::Os(_))
    ));
    w.engine.listen(w.now, ME, other);
    let nobody = EndpointId(77);
    assert!(matches!(
        w.engine.connect(w.now, nobody, &asks(SERVICE)),
        Err(ConnectError::NoSuchEndpoint(_))
    ));
    let ipv4 = ConnectRequest {
        peer: "::ffff:10.0.0.1".parse().unwrap(),
        ..asks(SERVICE)
    };
    assert!(matches!(
        w.engine.connect(w.now, ME, &ipv4),
        Err(ConnectError::Unreachable(_))
    ));
    let mut partitioned = view();
    let key = PKey::new(0x8001);
    partitioned.pkeys = Arc::new(PKeyTable::new(vec![key]));
    for member in partitioned.members.values_mut() {
        member.entry = partitioned.pkeys.find(key);
    }
    w.engine.follow(w.now, partitioned);
    let refused = w.engine.connect(w.now, ME, &asks(SERVICE)).unwrap_err();
    assert!(refused.to_string().contains("default partition"));
    assert!(w.fake().calls.is_empty());
}

/// A port of InfiniBand whose connections the kernel manages.
fn infiniband(services: Services) -> World {
    let mut w = World::new();
    w.engine.follow(w.now, View { services, ..view() });
    w
}

const LINUX: ServiceId = ServiceId(0x1000_0000_0000_0011);
const OF_DEVICE: ServiceId = ServiceId::rdma_ib(4755);

#[test]
fn over_rdma_cm_a_port_of_infiniband_asks_for_any_service_and_listens_on_its_own() {
    let mut w = infiniband(Services::RdmaCmInfiniBand);
    for service in [LINUX, OF_DEVICE] {
        let id = w.engine.connect(w.now, ME, &asks(service)).unwrap();
        assert_eq!(w.fake().asked, Some(service));
        w.engine.close(w.now, id);
    }
    assert!(w.engine.connect(w.now, ME, &asks(SERVICE)).is_err());
    for service in [LINUX, SERVICE, OF_DEVICE] {
        w.engine.listen(w.now, ME, service);
        w.engine.listen(w.now, OTHER, service);
    }
    let listens = w.fake().calls.iter().filter(|c| **c == "listen").count();
    assert_eq!(listens, 1, "for both endpoints");
    w.request_for(OF_DEVICE, OTHER_QPN);
    assert_eq!(w.requested().map(|r| r.1), Some(OTHER));
    w.request_for(OF_DEVICE, 0x55);
    assert_eq!(w.requested(), None, "nobody has this number");
    assert_eq!(w.fake().rejected, Some(RejectReason::INVALID_SERVICE_ID));
}

/// Sending on a connection that Linux's IPoIB requested panics the peer's kernel. Whatever the consumer
/// does: nothing is posted, and the queue pair cannot send.
#[test]
fn c96_nothing_is_sent_on_a_connection_that_linux_may_have_requested() {
    let mut w = infiniband(Services::InfiniBand);
    w.engine.listen(w.now, ME, LINUX);
    w.request_for(LINUX, 0);
    let (id, endpoint) = w.requested().unwrap();
    assert_eq!(endpoint, ME);
    w.engine.accept(w.now, id, b"yes");
    let calls = ["listen", "path", "make", "bring_up to receive", "accept"];
    assert_eq!(w.fake().calls, calls);
    for established in [false, true] {
        if established {
            let context = w.fake().last_context;
            w.of(context, CmEvent::Established, 0);
        }
        assert_eq!(w.engine.room(w.now, id), None);
        assert_eq!(w.post(id), Err(9));
        assert_eq!(w.engine.list()[0].qp_state, "RTR");
        let qpn = w.qpn();
        let got = w.engine.received(w.now, qpn, WcStatus::Success, 10);
        assert_eq!(got.map(|g| g.connection), Some(id));
    }
    assert!(w.slots.is_empty());
    // Our own request for the same service may send.
    let own = w.engine.connect(w.now, ME, &asks(LINUX)).unwrap();
    let context = w.fake().last_context;
    for event in [
        CmEvent::AddrResolved,
        CmEvent::RouteResolved,
        CmEvent::ConnectResponse,
    ] {
        w.of(context, event, 0);
    }
    w.engine.establish(w.now, own);
    assert_eq!(w.post(own), Ok(Posted::Done));
}

/// The kernel took over communication management while the device was away.
#[test]
fn listeners_for_services_that_do_not_arrive_any_more_wait() {
    let mut w = infiniband(Services::InfiniBand);
    w.engine.listen(w.now, ME, LINUX);
    w.engine.listen(w.now, ME, OF_DEVICE);
    assert_eq!(w.fake().calls, ["listen"; 2]);
    let with = |services| View { services, ..view() };
    w.engine.follow(w.now, with(Services::RdmaCmInfiniBand));
    assert_eq!(w.fake().calls, ["listen"; 3]);
    assert_eq!(w.engine.next_deadline(), None);
    w.engine.follow(w.now, with(Services::InfiniBand));
    assert_eq!(w.fake().calls, ["listen"; 5]);
}

/// The kernel has one listener for a service: of several workers, only the first one listens.
#[test]
fn a_worker_that_does_not_listen_still_requests() {
    let mut w = World::new();
    let second = |services, listens| View {
        services,
        listens,
        ..view()
    };
    w.engine
        .follow(w.now, second(Services::RdmaCmInfiniBand, false));
    w.engine.listen(w.now, ME, OF_DEVICE);
    assert_eq!(w.fake().calls, [""; 0]);
    assert_eq!(w.engine.next_deadline(), None);
    assert!(w.engine.connect(w.now, ME, &asks(OF_DEVICE)).is_ok());
    let before = w.fake().calls.len();
    // With our own communication management, it listens.
    w.engine.follow(w.now, second(Services::InfiniBand, true));
    assert_eq!(w.fake().calls[before..], ["listen"]);
}
