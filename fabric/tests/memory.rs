//! The memory of a connection, including maps and spare capacity, counted by the allocator.

use std::time::Duration;

use fabric::mad::MAD_LEN;
use fabric::soft::Path;
use fabric::soft::engine::{Engine, EngineConfig, PortView};
use fabric::{
    ConnectRequest, ConnectionEvent, ConnectionId, EndpointId, Gid, Guid, IbMtu, Instant, PKey,
    ServiceId,
};
use kit::allocator::Growth;

const CONNECTIONS: usize = 1000;
const SERVICE: ServiceId = ServiceId(7);
const ENDPOINT: EndpointId = EndpointId(1);
/// Bytes before the payload of a datagram.
const UD_HEAD: usize = 20;

fn gid(last: u8) -> Gid {
    let mut gid = Gid::UNSPECIFIED;
    (gid.0[0], gid.0[1], gid.0[15]) = (0xfe, 0x80, last);
    gid
}

fn engine(last: u8) -> Engine {
    let mut engine = Engine::new(EngineConfig {
        ca_guid: Guid([last; 8]),
        worker: 0,
        workers: 1,
        seed: [last.into(), 1],
        message_max: 65524,
        connections_max: 4096,
    });
    let port = PortView {
        gid: gid(last),
        path_mtu: Some(IbMtu::B4096),
        send_max: 65000,
        ..PortView::default()
    };
    engine.set_port(Instant(0), port);
    engine.listen(ENDPOINT, PKey::DEFAULT, SERVICE);
    engine
}

/// Delivers the packets of `from` to `to`.
fn carry(now: Instant, from: (&mut Engine, Gid), to: (&mut Engine, Gid)) {
    let (engine, gid) = to;
    let mut packets = Vec::new();
    from.0.transmit(now, true, |run| {
        packets.extend(run.memory.chunks(run.stride).map(<[u8]>::to_vec));
        run.count
    });
    let memory = packets.concat();
    engine.begin_batch();
    let mut at = 0;
    for bytes in &packets {
        if bytes[0] < 0x20 {
            let path = Path {
                src: from.1,
                dst: gid,
                src_port: 49152,
            };
            engine.receive(now, &path, bytes, at, || Ok(())).unwrap();
        } else {
            let mad: &[u8; MAD_LEN] = bytes[UD_HEAD..][..MAD_LEN].try_into().unwrap();
            engine.mad(now, from.1, PKey::DEFAULT, mad);
        }
        at += bytes.len();
    }
    engine.end_batch(now, &memory);
}

fn answer(now: Instant, engine: &mut Engine) {
    while let Some(event) = engine.poll_event() {
        match event {
            ConnectionEvent::Requested { connection, .. } => engine.accept(now, connection, &[]),
            ConnectionEvent::Replied { connection, .. } => engine.establish(now, connection),
            ConnectionEvent::Closed { reason, .. } => panic!("{reason:?}"),
        }
    }
}

/// Every connection has carried a message of 64 KiB, and was then idle for some seconds.
#[test]
fn an_idle_connection_costs_under_16_kibibytes_on_both_sides_together() {
    let (mut a, mut b) = (engine(1), engine(2));
    let mut now = Instant(1);
    let growth = Growth::start();
    let mut connections: Vec<ConnectionId> = Vec::with_capacity(CONNECTIONS);
    for _ in 0..CONNECTIONS {
        let request = ConnectRequest {
            service: SERVICE,
            peer: gid(2),
            to: fabric::Qpn::new(0),
            private_data: &[],
        };
        let connection = a.connect(now, ENDPOINT, PKey::DEFAULT, &request).unwrap();
        connections.push(connection);
        for _ in 0..3 {
            carry(now, (&mut a, gid(1)), (&mut b, gid(2)));
            answer(now, &mut b);
            carry(now, (&mut b, gid(2)), (&mut a, gid(1)));
            answer(now, &mut a);
        }
        let mut places = a.message(now, connection, 65524).unwrap();
        for _ in 0..15 {
            places.next(4096).unwrap().fill(1);
        }
        places.next(65524 - 15 * 4096).unwrap().fill(2);
        let ticket = places.finish();
        a.post(now, connection, ticket);
        for _ in 0..5 {
            carry(now, (&mut a, gid(1)), (&mut b, gid(2)));
            carry(now, (&mut b, gid(2)), (&mut a, gid(1)));
            now = now.after(Duration::from_millis(1));
            a.handle_timeout(now);
            b.handle_timeout(now);
        }
    }
    for _ in 0..100 {
        now = now.after(Duration::from_millis(100));
        a.handle_timeout(now);
        b.handle_timeout(now);
        carry(now, (&mut a, gid(1)), (&mut b, gid(2)));
        carry(now, (&mut b, gid(2)), (&mut a, gid(1)));
    }
    for e in [&a, &b] {
        let list = e.list();
        assert_eq!(list.len(), CONNECTIONS);
        assert!(list.iter().all(|c| c.state == "ESTABLISHED"));
    }
    assert!(b.list().iter().all(|c| c.rx_bytes == 65524));
    assert_eq!(a.next_deadline(), None, "idle connections have no deadline");
    let each = growth.bytes() / CONNECTIONS;
    println!("{each} bytes for both sides of a connection");
    assert!(each < 16 << 10, "{each} bytes");
}
