use std::thread;

use rustix::event::{EventfdFlags, eventfd};

use super::*;
use crate::connection::{ConnectRequest, Posted};
use crate::pkeys::PKeyTable;
use crate::subnet::{Destination, SubnetPath, Unreachable};
use crate::verbs::device::{Device, Opened};
use crate::verbs::endpoint::UdEndpointState;
use crate::verbs::ibv::fake::Fake;
use crate::verbs::snapshot::Endpoints;
use crate::verbs::sys::{IBV_WC_LOC_QP_OP_ERR, IBV_WC_SUCCESS, IBV_WC_WR_FLUSH_ERR, Library};
use proto::{
    ConnectError, ConnectionEvent, ConnectionId, IbMtu, Lid, PKey, QKey, Qpn, ServiceId, Services,
};

const ENDPOINT: EndpointId = EndpointId(1);
const GID: Gid = Gid([0xfe; 16]);

const PEER: Destination = Destination {
    gid: Gid([0xfd; 16]),
    pkey: PKey::DEFAULT,
};

const PATH: SubnetPath = SubnetPath {
    dlid: Lid(7),
    slid: Lid(8),
    sl: 0,
    rate: 0,
    mtu: IbMtu::B2048,
    packet_life: 0,
    global: None,
};

/// A worker of a device with one endpoint.
struct World {
    fake: Arc<Fake>,
    opened: Opened,
    qpn: Qpn,
    worker: VerbsWorker,
}

impl World {
    /// On a device with so many shared receive queues.
    fn new(ethernet: bool, max_srq: i32) -> World {
        let fake = Arc::new(Fake::default());
        fake.device().max_srq = max_srq;
        fake.queue().takes = usize::MAX;
        let library: Arc<dyn Library> = fake.clone();
        let config = VerbsConfig::new("fake", 1);
        let opened = Device::open(&library, &config).unwrap();
        let mut endpoint = UdEndpointState::new(ENDPOINT, PKey::DEFAULT, QKey::IPOIB_DEFAULT);
        endpoint.make(&opened, 1, &PKeyTable::default()).unwrap();
        let wake = || Arc::new(eventfd(0, EventfdFlags::NONBLOCK).unwrap());
        let shared = Arc::new(Shared::new(wake(), wake()));
        let table = Table {
            device: Some(Arc::clone(&opened.first)),
            port: 1,
            gid: GID,
            ethernet,
            services: Services::RdmaCm,
            payload_max: 2048,
            path_mtu: Some(IbMtu::B2048),
            endpoints: Arc::new(Endpoints::of(endpoint.seen().collect())),
            ..Table::default()
        };
        shared.publish(table);
        let worker = VerbsWorker::new(&config, shared, 0).unwrap();
        World {
            fake,
            opened,
            qpn: endpoint.qpn,
            worker,
        }
    }

    fn counter(&self, name: &str) -> u64 {
        let all = self.worker.counters();
        all.iter().find(|(n, _)| *n == name).unwrap().1
    }

    /// Sends a train of three packets.
    fn send(&mut self, ah: AddressHandle) -> Sent {
        self.send_packets(ah, 3)
    }

    fn send_packets(&mut self, ah: AddressHandle, count: usize) -> Sent {
        let mut train = self.worker.train(100).unwrap();
        for _ in 0..count {
            train.next(100).unwrap();
        }
        let ticket = train.finish();
        let to = UdDestination {
            ah,
            qpn: self.qpn,
            qkey: QKey::IPOIB_DEFAULT,
        };
        self.worker.send(ENDPOINT, &to, ticket)
    }

    /// The port's answer about a path.
    fn answer(&mut self, destination: Destination, path: Result<SubnetPath, Unreachable>) {
        self.worker.shared.paths.send([(destination, path)]);
        assert!(self.worker.poll(8).unwrap().is_empty());
    }

    /// Sends until a train waits for room.
    fn fill(&mut self) {
        let ah = self.make(&AhAttributes::to(PEER.gid, PEER.pkey));
        while self.send_packets(ah, 64) == Sent::Done {}
        assert_eq!(self.worker.room(), Room::Nothing);
    }

    fn request(&mut self) -> Result<ConnectionId, ConnectError> {
        let request = ConnectRequest {
            service: ServiceId::rdma_cm(4755),
            peer: PEER.gid,
            to: self.qpn,
            private_data: &[],
        };
        self.worker.connect(ENDPOINT, &request)
    }

    /// Opens a connection.
    fn connect(&mut self) -> ConnectionId {
        let id = self.request().unwrap();
        assert!(self.worker.poll(8).unwrap().is_empty());
        let replied = self.worker.poll_event();
        assert!(
            matches!(replied, Some(ConnectionEvent::Replied { connection, .. }) if connection == id)
        );
        self.worker.establish(id);
        id
    }

    /// Posts a message; false if there is no place for it.
    fn post(&mut self, to: ConnectionId) -> bool {
        let Some(mut message) = self.worker.message(to, 100) else {
            return false;
        };
        message.next(100).unwrap();
        let ticket = message.finish();
        self.worker.post(to, ticket) != Posted::Refused
    }

    /// Handles the timers for a while; returns the connections that were closed.
    fn pass(&mut self, time: Duration) -> Vec<ConnectionId> {
        let end = clock().after(time);
        while clock() < end {
            if self.worker.next_deadline().is_some_and(|at| at <= clock()) {
                self.worker.handle_timeout();
            }
            thread::sleep(Duration::from_millis(1));
        }
        let events = std::iter::from_fn(|| self.worker.poll_event());
        let closed = events.filter_map(|event| match event {
            ConnectionEvent::Closed { connection, .. } => Some(connection),
            _ => None,
        });
        closed.collect()
    }

    /// Publishes a changed table.
    fn publish(&mut self, change: impl FnOnce(&mut Table)) {
        let mut table = Table::clone(&self.worker.table);
        change(&mut table);
        self.worker.shared.publish(table);
        assert!(self.worker.poll(8).unwrap().is_empty());
    }

    /// Waits until a handle is made.
    fn make(&mut self, to: &AhAttributes) -> AddressHandle {
        let ah = self.worker.create_ah(to).unwrap();
        for destination in self.worker.shared.destinations.take() {
            self.answer(destination, Ok(PATH));
        }
        while self.counter("ah_made") == 0 {
            assert!(self.worker.poll(8).unwrap().is_empty());
        }
        ah
    }
}

/// The peers send again, but nothing would wake the thread.
#[test]
fn no_receive_queue_is_empty_while_the_thread_sleeps() {
    for max_srq in [2, 0] {
        let mut w = World::new(true, max_srq);
        assert!(w.worker.poll(8).unwrap().is_empty());
        let posted = w.fake.queue().names.clone();
        for name in &posted {
            let queue = &w.opened.first.receive_cq;
            w.fake.complete(queue, *name, w.qpn, IBV_WC_SUCCESS);
        }
        let batch = w.worker.poll(8).unwrap();
        assert_eq!(batch.datagrams().count(), 128);
        assert!(!w.worker.arm().unwrap());
        assert_eq!(w.fake.queue().names.len(), 2 * posted.len());
    }
}

/// Answers to other workers arrive here, too.
#[test]
fn only_a_refused_path_ends_an_address_handle() {
    let mut w = World::new(false, 2);
    let ah = w.make(&AhAttributes::to(PEER.gid, PEER.pkey));
    let refused = Err(Unreachable::Refused("no record".to_owned()));
    let elsewhere = Destination {
        pkey: PKey::new(0x8001),
        ..PEER
    };
    w.answer(PEER, Err(Unreachable::NoAnswer));
    w.answer(elsewhere, refused.clone());
    assert_eq!(w.send(ah), Sent::Done);
    assert_eq!(w.counter("tx_trains"), 1);
    w.answer(PEER, refused);
    assert_eq!(w.send(ah), Sent::Done);
    assert_eq!((w.counter("tx_trains"), w.counter("tx_waited")), (1, 1));
}

/// The subnet manager may have assigned other LIDs, and a port with another GID has paths of its own.
#[test]
fn a_change_of_the_subnet_ends_what_is_known_of_lids() {
    for gid in [GID, PEER.gid] {
        let mut w = World::new(false, 2);
        w.make(&AhAttributes::to(PEER.gid, PEER.pkey));
        let source = |w: &World| {
            let lane = w.worker.lane.as_ref().unwrap();
            lane.receive.sources.gid(PATH.dlid, 0)
        };
        assert_eq!(source(&w), PEER.gid);
        w.publish(|table| {
            table.gid = gid;
            table.flushes += 1;
        });
        assert_eq!(source(&w), Gid::UNSPECIFIED);
    }
}

/// They would keep places that other trains need.
#[test]
fn trains_do_not_wait_for_a_path_that_does_not_exist() {
    let mut w = World::new(false, 2);
    let to = AhAttributes::to(PEER.gid, PEER.pkey);
    let ah = w.worker.create_ah(&to).unwrap();
    assert_eq!(w.send(ah), Sent::Done);
    w.answer(PEER, Err(Unreachable::NoAnswer));
    assert_eq!((w.counter("tx_waited"), w.counter("tx_no_ah")), (1, 1));
}

#[test]
fn trains_that_wait_end_with_their_device() {
    let mut w = World::new(false, 2);
    let to = AhAttributes::to(PEER.gid, PEER.pkey);
    let ah = w.worker.create_ah(&to).unwrap();
    assert_eq!(w.send(ah), Sent::Done);
    w.worker.destroy_ah(ah);
    assert_eq!(w.worker.shared.destinations.take(), [PEER]);
    w.publish(|table| table.device = None);
    assert_eq!(w.counter("tx_failed"), 1);
    let library: Arc<dyn Library> = w.fake.clone();
    let again = Device::open(&library, &VerbsConfig::new("fake", 1)).unwrap();
    w.publish(|table| table.device = Some(Arc::clone(&again.first)));
    // Nobody uses the handle any more.
    assert_eq!(w.worker.shared.destinations.take(), []);
}

/// The first packet fails, and its queue pair flushes the others.
#[test]
fn a_failed_train_counts_once_and_not_as_a_message() {
    let mut w = World::new(true, 2);
    let ah = w.make(&AhAttributes::to(PEER.gid, PEER.pkey));
    assert_eq!(w.send(ah), Sent::Done);
    let packets = w.fake.device().sends.clone();
    assert_eq!(packets.len(), 3);
    let failures = [IBV_WC_WR_FLUSH_ERR; 2];
    let failures = std::iter::once(IBV_WC_LOC_QP_OP_ERR).chain(failures);
    for (packet, failure) in packets.into_iter().zip(failures) {
        let queue = &w.opened.first.send_cq;
        w.fake.complete(queue, packet, w.qpn, failure);
    }
    assert!(w.worker.poll(8).unwrap().is_empty());
    assert_eq!((w.counter("cq_errors"), w.counter("tx_failed")), (3, 1));
    assert_eq!(w.counter("rc_stray_completions"), 0);
}

#[test]
fn c41_after_a_failed_send_the_queue_pair_sends_again() {
    let mut w = World::new(true, 2);
    let ah = w.make(&AhAttributes::to(PEER.gid, PEER.pkey));
    assert_eq!(w.send_packets(ah, 1), Sent::Done);
    let packet = w.fake.device().sends[0];
    let queue = &w.opened.first.send_cq;
    w.fake.complete(queue, packet, w.qpn, IBV_WC_LOC_QP_OP_ERR);
    assert!(w.worker.poll(8).unwrap().is_empty());
    assert_eq!(w.counter("qp_restarts"), 1);
    assert_eq!(w.send_packets(ah, 1), Sent::Done);
    assert_eq!(w.fake.device().sends.len(), 2);
}

/// No completion follows for what the queue pair had.
#[test]
fn a_restarted_queue_pair_makes_room() {
    let mut w = World::new(true, 2);
    w.fill();
    w.publish(|table| {
        let mut endpoint = table.endpoints.all()[0].clone();
        endpoint.starts += 1;
        table.endpoints = Arc::new(Endpoints::of(vec![endpoint]));
    });
    assert_eq!(w.worker.room(), Room::Messages);
}

/// The worker itself restarts the queue pair, after it has handled the send completions.
#[test]
fn a_failed_receive_makes_room_before_the_thread_sleeps() {
    let mut w = World::new(true, 0);
    w.fill();
    // The first call arms the queue of sends, which has to be polled once more.
    assert!(w.worker.arm().unwrap());
    assert!(!w.worker.arm().unwrap());
    let receive = w.fake.queue().names[0];
    let queue = &w.opened.first.receive_cq;
    w.fake.complete(queue, receive, w.qpn, IBV_WC_LOC_QP_OP_ERR);
    assert!(w.worker.poll(8).unwrap().is_empty());
    assert!(w.worker.arm().unwrap());
    assert!(w.worker.poll(8).unwrap().is_empty());
    assert_eq!(w.worker.room(), Room::Messages);
}

/// The worker notices a failure before the port does.
#[test]
fn a_peer_is_not_unreachable_because_the_device_has_failed() {
    let mut w = World::new(true, 2);
    let failed: io::Result<()> = Err(io::Error::other("it fails"));
    w.worker.check("for a test", failed);
    let refused = w.request();
    assert!(matches!(&refused, Err(ConnectError::NoGid)), "{refused:?}");
}

/// Of four peers that take nothing, one gives its places: that of the first message.
#[test]
fn peers_that_take_nothing_do_not_keep_all_places() {
    let mut w = World::new(true, 2);
    let dead: [ConnectionId; 4] = std::array::from_fn(|_| w.connect());
    let alive = w.connect();
    let (begun, mut first) = (clock(), Vec::new());
    loop {
        let posted = dead.map(|to| {
            let posted = w.post(to);
            let sends = &w.fake.device().sends;
            if posted && to == dead[0] {
                first.extend(sends.last().copied());
            }
            posted
        });
        if posted == [false; 4] {
            break;
        }
    }
    assert_eq!(w.worker.room(), Room::Datagrams);
    assert!(!w.post(alive));
    let all = Connections::list(&w.worker);
    let of_first = all.iter().find(|c| c.connection == dead[0]);
    let qpn = of_first.unwrap().local_qpn;
    let mut closed = Vec::new();
    while closed.is_empty() && clock() < begun.after(Duration::from_secs(5)) {
        closed = w.pass(Duration::from_millis(10));
    }
    assert_eq!(closed, [dead[0]]);
    // Three lost packets may take 804 ms.
    assert!(clock() > begun.after(Duration::from_millis(804)));
    let queue = &w.opened.first.send_cq;
    for message in first {
        w.fake.complete(queue, message, qpn, IBV_WC_WR_FLUSH_ERR);
    }
    assert!(w.worker.poll(8).unwrap().is_empty());
    assert_eq!(w.worker.room(), Room::Messages);
    assert!(w.post(alive));
    assert_eq!(w.pass(Duration::from_millis(100)), []);
}

/// Receives `count` datagrams that are not polled yet, changes the endpoints, and polls them.
fn polled_after(count: usize, change: fn(&mut Endpoint) -> bool) -> (World, usize) {
    let mut w = World::new(true, 2);
    assert!(w.worker.poll(8).unwrap().is_empty());
    let posted = w.fake.queue().names.clone();
    // Those of messages follow.
    assert_eq!(posted.len(), 2 * 128);
    for name in &posted[..count] {
        let queue = &w.opened.first.receive_cq;
        w.fake.complete(queue, *name, w.qpn, IBV_WC_SUCCESS);
    }
    let mut table = Table::clone(&w.worker.table);
    let mut endpoints = table.endpoints.all().to_vec();
    endpoints.retain_mut(change);
    table.endpoints = Arc::new(Endpoints::of(endpoints));
    w.worker.shared.publish(table);
    // The caller may send before it polls.
    let to = AhAttributes::to(PEER.gid, PEER.pkey);
    w.worker.create_ah(&to).unwrap();
    assert!(w.worker.arm().unwrap());
    let datagrams = w.worker.poll(8).unwrap().datagrams().count();
    assert!(w.worker.poll(8).unwrap().is_empty());
    (w, datagrams)
}

/// Otherwise each restart takes places from all interfaces of the port.
#[test]
fn a_restarted_queue_pair_keeps_no_place_of_the_shared_queue() {
    let (w, datagrams) = polled_after(100, |endpoint| {
        endpoint.starts += 1;
        true
    });
    assert_eq!(datagrams, 100);
    assert_eq!(w.fake.queue().names.len(), 2 * 128 + 100);
    assert_eq!(w.counter("qp_restarts"), 1);
}

#[test]
fn a_removed_queue_pair_keeps_no_place_of_the_shared_queue() {
    let (w, datagrams) = polled_after(100, |_| false);
    assert_eq!(datagrams, 0);
    assert_eq!(w.counter("rx_bad_qp"), 100);
    assert_eq!(w.fake.queue().names.len(), 2 * 128 + 100);
}
