use std::net::{Ipv6Addr, SocketAddrV6, UdpSocket};
use std::thread;

use proto::{ConnectionEvent, GidChoice, PKey, QKey, ServiceId};

use super::*;
use crate::connection::ConnectRequest;
use crate::mad::MAD_LEN;
use crate::namespace::Namespace;
use crate::port::{Port, UdInit};
use crate::soft::ud::Refusal;
use crate::soft::{SoftConfig, SoftPort};
use crate::soft::{fake_gsi, sys};

/// A kernel or route without UDP_SEGMENT: packets are sent one by one, and over IPv4 each has the
/// identification of a single datagram. Batches of single datagrams grow.
fn without_segmentation(case: &str, address: &str) {
    let _ns = Namespace::loopback(case);
    let config = SoftConfig {
        gid: GidChoice::Address(address.parse().unwrap()),
        ..SoftConfig::new("lo")
    };
    let mut port = SoftPort::open(config).unwrap();
    let (pkey, qkey) = (PKey::DEFAULT, QKey::IPOIB_DEFAULT);
    let from = port
        .create_ud(UdInit {
            pkey,
            qkey,
            qpn: None,
        })
        .unwrap();
    let to = port
        .create_ud(UdInit {
            pkey,
            qkey,
            qpn: None,
        })
        .unwrap();
    let mut worker = SoftWorker::new(port.for_worker(0));
    worker.transmitter.segmentation = false;
    let ah = worker
        .create_ah(&AhAttributes::to(port.attributes().gid, PKey::DEFAULT))
        .unwrap();
    let mut train = worker.train(1000).unwrap();
    for k in 0..20 {
        train.next(1000).unwrap().fill(k);
    }
    train.next(7).unwrap().fill(20);
    let ticket = train.finish();
    let destination = UdDestination {
        ah,
        qpn: to.qpn,
        qkey,
    };
    assert_eq!(worker.send(from.id, &destination, ticket), Sent::Done);
    assert_eq!(worker.counts.packets.tx_unsegmented, 1);
    let (mut got, mut batches) = (Vec::new(), Vec::new());
    while got.len() < 21 {
        let batch = worker.poll(8).unwrap();
        assert!(!batch.is_empty(), "{:?}", worker.counters());
        batches.push(batch.datagrams().count());
        for (_, p) in batch.datagrams() {
            assert!(p.iter().all(|b| *b == p[0]));
            got.push((p[0], p.len()));
        }
    }
    assert_eq!(batches, [8, 13]);
    let sent = (0..21).map(|k| (k, if k < 20 { 1000 } else { 7 }));
    assert!(got.into_iter().eq(sent));
}

#[test]
fn trains_go_out_one_by_one_over_ipv6() {
    let run = || without_segmentation("v6", "::1");
    thread::spawn(run).join().unwrap();
}

#[test]
fn trains_go_out_one_by_one_over_ipv4() {
    let run = || without_segmentation("v4", "127.0.0.1");
    thread::spawn(run).join().unwrap();
}

/// A port on the loopback interface with two endpoints, and a worker with a blocked train from the
/// first to the second. A loopback interface never blocks, so the test sets the state.
fn blocked() -> (SoftPort, SoftWorker, AddressHandle) {
    let config = SoftConfig {
        gid: GidChoice::Address("::1".parse().unwrap()),
        ..SoftConfig::new("lo")
    };
    let mut port = SoftPort::open(config).unwrap();
    let (pkey, qkey, qpn) = (PKey::DEFAULT, QKey::IPOIB_DEFAULT, None);
    let [from, to] = [(); 2].map(|()| port.create_ud(UdInit { pkey, qkey, qpn }).unwrap());
    let mut worker = SoftWorker::new(port.for_worker(0));
    let ah = worker
        .create_ah(&AhAttributes::to(port.attributes().gid, PKey::DEFAULT))
        .unwrap();
    let mut train = worker.train(100).unwrap();
    train.next(100).unwrap().fill(42);
    let train = train.finish();
    let Found::Ready(address) = worker.find(ah) else {
        panic!("a port needs no path");
    };
    worker.pending = Some(Pending {
        departure: Departure {
            from: from.id,
            opcode: opcode::UD_SEND_ONLY,
            starts: worker.table.endpoint(from.id).unwrap().starts,
            to: UdDestination {
                ah,
                qpn: to.qpn,
                qkey,
            },
            train,
            psn: Psn::new(1),
        },
        address: *address,
        progress: Progress::default(),
    });
    (port, worker, ah)
}

fn polled(worker: &mut SoftWorker) -> Vec<(u8, usize)> {
    let batch = worker.poll(8).unwrap();
    batch.datagrams().map(|(_, p)| (p[0], p.len())).collect()
}

/// The immediate data of each packet are the first four bytes of its place, and not payload.
fn without_underlay() {
    let _ns = Namespace::loopback("without_underlay");
    let (port, mut worker, _) = blocked();
    let endpoint = worker.pending.take().unwrap().departure.from;
    let request = ConnectRequest {
        service: ServiceId(1),
        peer: port.attributes().gid,
        to: crate::Qpn::new(2),
        private_data: &[],
    };
    worker.connect(endpoint, &request).unwrap();
    let absent = Table {
        sockets: Arc::default(),
        ..Table::clone(&worker.table)
    };
    worker.table = Arc::new(absent);
    let refused = worker.connect(endpoint, &request);
    assert!(matches!(refused, Err(ConnectError::NoGid)), "{refused:?}");
}

#[test]
fn without_an_underlay_a_port_has_no_gid_to_connect_from() {
    thread::spawn(without_underlay).join().unwrap();
}

fn with_immediate() {
    let _ns = Namespace::loopback("imm");
    let (port, mut worker, ah) = blocked();
    assert_eq!(polled(&mut worker).len(), 1);
    let pairs = port.resources().queue_pairs;
    let ud = |n| pairs.iter().filter(|qp| qp.kind == "UD").nth(n).unwrap();
    let to = UdDestination {
        ah,
        qpn: ud(1).qpn,
        qkey: QKey::IPOIB_DEFAULT,
    };
    let mut send = |lengths: &[usize]| {
        let mut train = worker.train(12).unwrap();
        for (&len, k) in lengths.iter().zip(7..) {
            train.next(len).unwrap().fill(k);
        }
        let ticket = train.finish();
        worker.send_with_immediate(ud(0).endpoint, &to, ticket)
    };
    assert_eq!(
        send(&[12, 12, 3]),
        Sent::Failed,
        "no room for immediate data"
    );
    assert_eq!(send(&[12, 12, 5]), Sent::Done);
    assert_eq!(send(&[]), Sent::Done);
    let got = polled(&mut worker);
    assert_eq!(got, [(7, 8), (8, 8), (9, 1)], "{:?}", worker.counters());
}

#[test]
fn immediate_data_are_no_payload() {
    thread::spawn(with_immediate).join().unwrap();
}

/// A blocked train goes to its original destination, even if its address handle is destroyed.
fn handle_ends_while_blocked() {
    let _ns = Namespace::loopback("handle");
    let (_port, mut worker, ah) = blocked();
    worker.destroy_ah(ah);
    // With the next GID, handles without users end.
    worker.handles.renew();
    let elsewhere = AhAttributes::to("2001:db8::1".parse().unwrap(), PKey::DEFAULT);
    assert_eq!(worker.create_ah(&elsewhere).unwrap(), ah);
    let got = polled(&mut worker);
    assert_eq!(got, [(42, 100)], "{:?}", worker.counters());
    assert_eq!(worker.room(), Room::Messages);
}

/// A restarted queue pair flushes its blocked train.
fn restart_while_blocked() {
    let _ns = Namespace::loopback("restart");
    let (mut port, mut worker, _) = blocked();
    for first in [0x8001, 0xffff] {
        let table = [first, 0xffff].map(PKey::new).into();
        assert_eq!(port.set_pkeys(table).unwrap().len(), 2);
    }
    assert!(polled(&mut worker).is_empty());
    assert_eq!(worker.room(), Room::Messages);
    assert_eq!(
        (
            worker.counts.packets.tx_packets,
            worker.counts.packets.tx_failed
        ),
        (0, 1)
    );
}

#[test]
fn a_restart_drops_a_blocked_train() {
    thread::spawn(restart_while_blocked).join().unwrap();
}

#[test]
fn a_blocked_train_does_not_need_its_address_handle() {
    thread::spawn(handle_ends_while_blocked).join().unwrap();
}

/// Without steering in the kernel, the wrong worker passes all packets on, and a connection works.
fn handed_on() {
    let _ns = Namespace::loopback("handed");
    let config = SoftConfig {
        gid: GidChoice::Address("::1".parse().unwrap()),
        workers: 2,
        ..SoftConfig::new("lo")
    };
    let mut port = SoftPort::open(config).unwrap();
    let (pkey, qkey) = (PKey::DEFAULT, QKey::IPOIB_DEFAULT);
    let qpn = None;
    let endpoint = port.create_ud(UdInit { pkey, qkey, qpn }).unwrap().id;
    let mut workers = [0, 1].map(|i| SoftWorker::new(port.for_worker(i)));
    let always_the_first = [libc::sock_filter {
        code: (libc::BPF_RET | libc::BPF_K) as u16,
        jt: 0,
        jf: 0,
        k: 0,
    }];
    sys::steer_group(&workers[0].sockets[0].receive, &always_the_first).unwrap();
    let service = ServiceId(7);
    workers[1].listen(endpoint, service);
    let request = ConnectRequest {
        service,
        peer: port.attributes().gid,
        to: crate::Qpn::new(0),
        private_data: &[],
    };
    let ours = workers[1].connect(endpoint, &request).unwrap();
    let sent: Vec<u8> = (0..20_000u32).map(|i| (i * 7 / 3) as u8).collect();
    let mut got = Vec::new();
    for _ in 0..1000 {
        for worker in &mut workers {
            if worker.next_deadline().is_some_and(|at| at <= clock()) {
                worker.handle_timeout();
            }
            let batch = worker.poll(8).unwrap();
            for (_, message) in batch.messages() {
                got = message.parts().collect::<Vec<_>>().concat();
            }
            while let Some(event) = worker.poll_event() {
                match event {
                    ConnectionEvent::Requested { connection, .. } => {
                        worker.accept(connection, &[]);
                    }
                    ConnectionEvent::Replied { connection, .. } => {
                        worker.establish(connection);
                        let mtu = worker.path_mtu(connection);
                        let mut places = worker.message(connection, sent.len()).unwrap();
                        for piece in sent.chunks(mtu) {
                            places.next(piece.len()).unwrap().copy_from_slice(piece);
                        }
                        let ticket = places.finish();
                        worker.post(ours, ticket);
                    }
                    ConnectionEvent::Closed { reason, .. } => panic!("{reason:?}"),
                }
            }
            worker.flush();
        }
        if !got.is_empty() {
            break;
        }
        thread::sleep(std::time::Duration::from_millis(1));
    }
    assert!(got == sent, "{:?}", workers[1].counters());
    assert!(workers[0].counts.packets.rx_handed_on > 5);
    assert!(workers[0].list().is_empty() && workers[1].list().len() == 2);
}

#[test]
fn packets_at_the_wrong_worker_are_handed_on() {
    thread::spawn(handed_on).join().unwrap();
}

/// Any local user binds a socket to the host's address and speaks for the host.
fn forged_in_the_ports_name() {
    let _ns = Namespace::loopback("forged");
    let (port, mut worker, _) = blocked();
    worker.pending = None;
    let own = port.attributes().gid;
    let mut source = SocketAddrV6::new(Ipv6Addr::LOCALHOST, 0, 0, 1);
    let socket = UdpSocket::bind(source).unwrap();
    source.set_port(socket.local_addr().unwrap().port());
    let mad = [7; MAD_LEN];
    for n in 1..=2 {
        fake_gsi::send(&socket, source, own, &mad);
        while worker.counts.packets.rx_trains < n {
            assert!(worker.poll(8).unwrap().is_empty());
        }
        assert_eq!(
            worker.counts.refused[Refusal::ForgedOwn as usize],
            n,
            "{:?}",
            worker.counts
        );
    }
    assert_eq!(worker.counts.packets.rx_mads_unhandled, 0);
}

#[test]
fn a_local_process_does_not_speak_for_the_port() {
    thread::spawn(forged_in_the_ports_name).join().unwrap();
}
