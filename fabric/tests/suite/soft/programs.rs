//! Programs with and without rdma_cm, on ports with several workers.

use std::time::{Duration, Instant};

use fabric::cm::DatagramService;
use fabric::port::UdEndpoint;
use fabric::soft::{RemoteQp, SoftConfig, SoftPort, SoftWorker};
use fabric::{
    ConnectRequest, ConnectionEvent, ConnectionId, Connections, Gid, IbMtu, PKey, Port, Posted,
    ServiceId, UdInit, Worker,
};

use super::exchange::{config, ipv4};
use crate::net::{Cable, Namespace};
use crate::node::{QKEY, open};

const WORKERS: usize = 3;
const DATAGRAMS: ServiceId = ServiceId::rdma_cm_datagrams(7174);
const RDMA_CM: ServiceId = ServiceId::rdma_cm(4755);
const SOON: Duration = Duration::from_secs(10);

struct Side {
    port: SoftPort,
    workers: Vec<SoftWorker>,
    messages: Vec<Vec<u8>>,
}

impl Side {
    fn open(ns: &Namespace, config: SoftConfig) -> Side {
        let config = SoftConfig {
            workers: WORKERS,
            ..config
        };
        let mut port = open(ns, &config).unwrap();
        let workers = port.take_soft_workers();
        Side {
            port,
            workers,
            messages: Vec::new(),
        }
    }

    fn gid(&self) -> Gid {
        self.port.attributes().gid
    }

    fn endpoint(&mut self) -> UdEndpoint {
        let init = UdInit {
            pkey: PKey::DEFAULT,
            qkey: QKEY,
            qpn: None,
        };
        self.port.create_ud(init).unwrap()
    }

    fn turn(&mut self) {
        for w in &mut self.workers {
            w.handle_timeout();
            let batch = w.poll(8).unwrap();
            for (_, payload) in batch.messages() {
                let whole = payload.parts().collect::<Vec<_>>().concat();
                self.messages.push(whole);
            }
            w.flush();
        }
    }

    fn post(&mut self, worker: usize, connection: ConnectionId, bytes: &[u8]) -> bool {
        let w = &mut self.workers[worker];
        let Some(mut places) = w.message(connection, bytes.len()) else {
            return false;
        };
        for piece in bytes.chunks(256) {
            places.next(piece.len()).unwrap().copy_from_slice(piece);
        }
        let ticket = places.finish();
        w.post(connection, ticket) != Posted::Refused
    }
}

/// Runs both until `f` returns something.
fn until<T>(
    sides: &mut [Side; 2],
    what: &str,
    mut get: impl FnMut(&mut [Side; 2]) -> Option<T>,
) -> T {
    let end = Instant::now() + SOON;
    loop {
        if let Some(got) = get(sides) {
            return got;
        }
        assert!(Instant::now() < end, "{what}");
        sides.iter_mut().for_each(Side::turn);
    }
}

fn pair(cable: &Cable, v4: bool) -> [Side; 2] {
    let of = |peer| if v4 { ipv4(peer) } else { config() };
    [
        Side::open(&cable.a, of("192.0.2.2")),
        Side::open(&cable.b, of("192.0.2.1")),
    ]
}

/// Each worker can request and answer.
#[test]
fn datagram_services_are_found_from_every_worker() {
    let cable = Cable::new(1500);
    for v4 in [false, true] {
        let mut sides = pair(&cable, v4);
        let (ours, theirs) = (sides[0].endpoint(), sides[1].endpoint());
        for w in &mut sides[1].workers {
            w.listen_for_datagrams(theirs.id, DATAGRAMS);
        }
        let peer = sides[1].gid();
        for worker in 0..WORKERS {
            let w = &mut sides[0].workers[worker];
            let id = w
                .ask_for_datagrams(ours.id, peer, DATAGRAMS, b"where")
                .unwrap();
            let answer = until(&mut sides, "an answer", |sides| {
                sides[0].workers[worker].poll_answer()
            });
            let found = DatagramService {
                qpn: theirs.qpn,
                qkey: QKEY,
            };
            assert_eq!((answer.id, answer.service), (id, Ok(found)));
        }
    }
}

#[test]
fn one_of_two_endpoints_is_connected_to_by_its_queue_pair() {
    let cable = Cable::new(1500);
    let mut sides = pair(&cable, true);
    let ours = sides[0].endpoint();
    let theirs = [sides[1].endpoint(), sides[1].endpoint()];
    for w in &mut sides[1].workers {
        theirs.iter().for_each(|e| w.listen(e.id, RDMA_CM));
    }
    let peer = sides[1].gid();
    for to in theirs {
        let request = ConnectRequest {
            service: RDMA_CM,
            peer,
            to: to.qpn,
            private_data: b"may I",
        };
        let w = &mut sides[0].workers[1];
        let connection = w.connect(ours.id, &request).unwrap();
        let event = until(&mut sides, "a request", |sides| {
            sides[1].workers.iter_mut().find_map(|w| {
                let event = w.poll_event()?;
                if let ConnectionEvent::Requested { connection, .. } = event {
                    w.accept(connection, b"you may");
                }
                Some(event)
            })
        });
        let ConnectionEvent::Requested {
            endpoint,
            private_data,
            ..
        } = event
        else {
            panic!("{event:?}");
        };
        assert_eq!((endpoint, &private_data[..5]), (to.id, &b"may I"[..]));
        until(&mut sides, "a reply", |sides| {
            let w = &mut sides[0].workers[1];
            let replied = matches!(w.poll_event()?, ConnectionEvent::Replied { .. });
            assert!(replied);
            w.establish(connection);
            Some(())
        });
    }
}

/// Both sides exchange their parameters, as over TCP.
#[test]
fn queue_pairs_are_connected_by_hand() {
    let cable = Cable::new(1500);
    for v4 in [false, true] {
        let mut sides = pair(&cable, v4);
        let worker = 2;
        let local = sides.each_mut().map(|side| {
            let endpoint = side.endpoint();
            side.workers[worker].begin_unmanaged(endpoint.id).unwrap()
        });
        for (side, other) in [(0, 1), (1, 0)] {
            let remote = RemoteQp {
                qpn: local[other].qpn,
                psn: local[other].psn,
                gid: local[other].gid,
                path_mtu: IbMtu::B256,
                ack_timeout: 14,
                retry_count: 7,
                rnr_retry: 7,
            };
            let connection = local[side].connection;
            sides[side].workers[worker]
                .connect_unmanaged(connection, &remote)
                .unwrap();
        }
        for len in [1, 256, 257, 4001] {
            let sent: Vec<u8> = (0..len).map(|k| k as u8).collect();
            for side in [0, 1] {
                let connection = local[side].connection;
                until(&mut sides, "room", |sides| {
                    sides[side].post(worker, connection, &sent).then_some(())
                });
                let got = until(&mut sides, "a message", |sides| {
                    sides[1 - side].messages.pop()
                });
                assert_eq!(got, sent);
            }
        }
    }
}
