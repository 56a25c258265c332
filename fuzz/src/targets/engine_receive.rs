//! Arbitrary packets and management datagrams to a worker with two established connections: no panic, bounded
//! memory, and the worker still accepts a connection afterwards.
//!
//! Input: records of a kind byte, a length byte and that many bytes. Kind 0 to 2: a packet to the connection
//! with that number (2: to a queue pair from the input), with headers filled in; 3: a management datagram,
//! class and version filled in; 4: one with a communication id of ours; 5: time passes, in milliseconds; 6: a
//! message is posted; 7: the connection is closed.

use fabric::mad::MAD_LEN;
use fabric::soft::Path;
use fabric::soft::engine::{Engine, EngineConfig, Partition, PortView};
use fabric::{
    ConnectRequest, ConnectionEvent, ConnectionId, EndpointId, Gid, Guid, IbMtu, Instant, PKey,
    Posted, Qpn, ServiceId,
};
use std::time::Duration;

const ENDPOINT: EndpointId = EndpointId(1);
const SERVICE: ServiceId = ServiceId(7);
const CONNECTIONS_MAX: usize = 8;
/// Bytes before the payload of a datagram.
const UD_HEAD: usize = 20;

fn gid(last: u8) -> Gid {
    let mut gid = Gid::UNSPECIFIED;
    (gid.0[0], gid.0[15]) = (0xfd, last);
    gid
}

struct Side {
    gid: Gid,
    engine: Engine,
    established: Vec<ConnectionId>,
    /// Our communication id that the peer used last.
    comm_id: [u8; 4],
}

impl Side {
    fn new(last: u8) -> Side {
        let mut engine = Engine::new(EngineConfig {
            ca_guid: Guid([last; 8]),
            worker: 0,
            workers: 1,
            seed: [last.into(), 7],
            message_max: 4096,
            connections_max: CONNECTIONS_MAX,
        });
        let port = PortView {
            gid: gid(last),
            path_mtu: Some(IbMtu::B256),
            send_max: 65000,
            ..PortView::default()
        };
        engine.set_port(Instant(0), port);
        engine.listen(ENDPOINT, PKey::DEFAULT, SERVICE);
        for endpoint in [1, 2] {
            let partition = Partition {
                qpn: Qpn::new(0x100 + endpoint),
                ..PKey::DEFAULT.into()
            };
            let endpoint = EndpointId(endpoint);
            engine.listen(endpoint, partition, ServiceId::rdma_cm(4755));
            engine.listen_for_datagrams(endpoint, partition, ServiceId::rdma_cm_datagrams(4755));
        }
        Side {
            gid: gid(last),
            engine,
            established: Vec::new(),
            comm_id: [0; 4],
        }
    }

    fn packet(&mut self, now: Instant, from: Gid, bytes: &[u8]) {
        let path = Path {
            src: from,
            dst: self.gid,
            src_port: 49152,
        };
        self.engine.begin_batch();
        let _ = self.engine.receive(now, &path, bytes, 0, || Ok(()));
        self.engine.end_batch(now, bytes);
    }

    fn answer(&mut self, now: Instant) {
        while let Some(event) = self.engine.poll_event() {
            match event {
                ConnectionEvent::Requested { connection, .. } => {
                    self.engine.accept(now, connection, &[]);
                    self.established.push(connection);
                }
                ConnectionEvent::Replied { connection, .. } => {
                    self.engine.establish(now, connection);
                    self.established.push(connection);
                }
                ConnectionEvent::Closed { connection, .. } => {
                    self.established.retain(|&c| c != connection);
                }
            }
        }
    }

    fn post(&mut self, now: Instant, connection: ConnectionId, len: usize) {
        if let Some(mut places) = self.engine.message(now, connection, len) {
            let mut left = len;
            while left > 0
                && let Some(place) = places.next(left.min(256))
            {
                left -= place.len();
            }
            let ticket = places.finish();
            assert_ne!(self.engine.post(now, connection, ticket), Posted::Refused);
        }
    }
}

fn carry(now: Instant, from: &mut Side, to: &mut Side) {
    from.answer(now);
    let mut packets = Vec::new();
    from.engine.transmit(now, true, |run| {
        packets.extend(run.memory.chunks(run.stride).map(<[u8]>::to_vec));
        run.count
    });
    for bytes in &packets {
        if bytes[0] < 0x20 {
            to.packet(now, from.gid, bytes);
        } else if let Ok(mad) = bytes[UD_HEAD..][..MAD_LEN].try_into() {
            to.comm_id.copy_from_slice(&bytes[UD_HEAD + 28..][..4]);
            to.engine.mad(now, from.gid, PKey::DEFAULT, mad);
        }
    }
}

fn connect(now: Instant, a: &mut Side, b: &mut Side) -> bool {
    let request = ConnectRequest {
        service: SERVICE,
        peer: b.gid,
        to: Qpn::new(0),
        private_data: &[],
    };
    let Ok(connection) = a.engine.connect(now, ENDPOINT, PKey::DEFAULT, &request) else {
        return false;
    };
    for _ in 0..4 {
        carry(now, a, b);
        carry(now, b, a);
    }
    a.established.contains(&connection)
}

pub fn run(data: &[u8]) {
    let (mut a, mut b) = (Side::new(1), Side::new(2));
    let mut now = Instant(1);
    assert!(connect(now, &mut a, &mut b) && connect(now, &mut a, &mut b));
    let qpns: Vec<_> = b.engine.list().iter().map(|c| c.local_qpn).collect();
    let mut rest = data;
    while let [kind, len, tail @ ..] = rest {
        let (record, tail) = tail.split_at(tail.len().min((*len).into()));
        rest = tail;
        match kind & 7 {
            k @ 0..=2 => {
                let mut bytes = record.to_vec();
                bytes.resize(bytes.len().max(16).next_multiple_of(4), 0);
                bytes[0] &= 0x1f;
                bytes[1] &= 0xf0;
                bytes[2..4].fill(0xff);
                if let Some(qpn) = qpns.get(usize::from(k)) {
                    bytes[5..8].copy_from_slice(&qpn.to_bytes());
                }
                b.packet(now, a.gid, &bytes);
            }
            k @ 3..=4 => {
                let mut mad = [0; MAD_LEN];
                for (byte, given) in mad[16..].iter_mut().zip(record) {
                    *byte = *given;
                }
                mad[..4].copy_from_slice(&[1, 7, 2, 3]);
                if k == 4 {
                    mad[28..32].copy_from_slice(&b.comm_id);
                }
                b.engine.mad(now, a.gid, PKey::DEFAULT, &mad);
            }
            5 => {
                let time = record.first().copied().unwrap_or(1);
                now = now.after(Duration::from_millis(time.into()));
                b.engine.handle_timeout(now);
            }
            6 => {
                if let Some(&connection) = b.established.first() {
                    b.post(now, connection, record.len() * 16);
                }
            }
            _ => {
                if let Some(connection) = b.established.pop() {
                    b.engine.close(now, connection);
                }
            }
        }
        b.answer(now);
        b.engine.transmit(now, kind & 8 != 0, |run| run.count);
        assert!(b.engine.list().len() <= CONNECTIONS_MAX);
    }
    // Incomplete connections time out, and then there is room.
    for _ in 0..200 {
        now = now.after(Duration::from_millis(200));
        b.engine.handle_timeout(now);
        b.answer(now);
        b.engine.transmit(now, true, |run| run.count);
    }
    for connection in std::mem::take(&mut b.established) {
        b.engine.close(now, connection);
    }
    for _ in 0..200 {
        now = now.after(Duration::from_millis(200));
        b.engine.handle_timeout(now);
        b.engine.transmit(now, true, |run| run.count);
    }
    let mut fresh = Side::new(3);
    fresh.engine.handle_timeout(now);
    assert!(connect(now, &mut fresh, &mut b), "{:?}", b.engine.list());
}
