use rustix::event::{EventfdFlags, eventfd};

use super::*;
use crate::pkeys::PKeyTable;
use crate::verbs::device::{Device, Opened};
use crate::verbs::endpoint::UdEndpointState;
use crate::verbs::ibv::fake::Fake;
use crate::verbs::snapshot::Endpoints;
use crate::verbs::sys::{IBV_WC_SUCCESS, Library};
use proto::{PKey, QKey, Qpn, Services};

const ENDPOINT: EndpointId = EndpointId(1);
const GID: Gid = Gid([0xfe; 16]);

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
        shared.publish(Table {
            device: Some(Arc::clone(&opened.first)),
            port: 1,
            gid: GID,
            ethernet,
            services: Services::RdmaCm,
            payload_max: 2048,
            endpoints: Arc::new(Endpoints::of(endpoint.seen().collect())),
            ..Table::default()
        });
        let worker = VerbsWorker::new(&config, shared, 0).unwrap();
        World {
            fake,
            opened,
            qpn: endpoint.qpn,
            worker,
        }
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
