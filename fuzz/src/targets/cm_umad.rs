//! Connection management over umad with peers that send anything, and an owner that answers, ends and waits. Sent
//! messages must be readable, ended connections have no events, and in the end nothing is left.
//!
//! Input: steps. A step's byte: 0x07 the action (0 to 3 a datagram, 4 begin a connection, 5 the owner acts on a
//! connection, 6 a path is found or missing, 7 time passes), 0x18 the peer, 0xe0 the connection. After a datagram's byte:
//! the attribute, a byte of flags (1 our id in place of the receiver's, 2 a request of the peer for our service, 4 a
//! GRH, 8 another LID, 16 no padding, 32 an error), the length of the rest, and that: the start of the message,
//! followed by zeros. After the byte of time: 10 ms units.

use std::collections::BTreeMap;
use std::time::Duration;

use fabric::cm::CmConfig;
use fabric::mad::{MAD_LEN, Mad, cm};
use fabric::pkeys::{Entry, PKeyTable};
use fabric::subnet::{Destination, SubnetPath};
use fabric::verbs::fuzzed::{Address, CmEvent, Event, Line, Manager, Own, Source, received};
use fabric::{Gid, Guid, IbMtu, Instant, Lid, PKey, Qpn, RejectReason, ServiceId};

const SERVICE: ServiceId = ServiceId(0x10 << 56 | 0x42);

/// Connections in `cm`, and connections that the owner has begun.
const CONNECTIONS_MAX: usize = 16;

fn gid(lid: Lid) -> Gid {
    let [high, low] = lid.0.to_be_bytes();
    Gid([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, high, low])
}

struct Owner {
    manager: Manager,
    _listener: Line,
    now: Instant,
    lines: BTreeMap<u64, Line>,
    /// Communication ids of ours, from what we have sent.
    ids: Vec<[u8; 4]>,
    next: u64,
}

impl Owner {
    fn new() -> Owner {
        let mut manager = Manager::new(CmConfig {
            ca_guid: Guid([1; 8]),
            worker: 0,
            workers: 1,
            seed: [7, 7],
            half_open_max: 8,
            connections_max: CONNECTIONS_MAX,
        });
        manager.set_own(Own {
            number: 1,
            gid_index: 0,
            lid: Some(Lid(1)),
            lmc: 1,
        });
        Owner {
            _listener: manager.listen(SERVICE),
            manager,
            now: Instant(1),
            lines: BTreeMap::new(),
            ids: Vec::new(),
            next: 0,
        }
    }

    fn qpn(&mut self) -> Qpn {
        self.next += 1;
        Qpn::new(0x100 + self.next as u32)
    }

    fn nth(&self, n: u8) -> Option<u64> {
        let len = self.lines.len();
        self.lines.keys().nth(usize::from(n) % len.max(1)).copied()
    }

    fn begin(&mut self, peer: Lid) {
        if self.lines.len() >= CONNECTIONS_MAX {
            return;
        }
        let entry = Entry {
            index: 0,
            pkey: PKey::DEFAULT,
        };
        let from = Source {
            gid: gid(Lid(1)),
            entry,
        };
        let to = Address {
            gid: gid(peer),
            scope: 0,
            service: SERVICE,
        };
        self.next += 1;
        let line = self.manager.begin(self.next, &from, &to);
        self.lines.insert(self.next, line);
    }

    fn end(&mut self, context: u64) {
        if let Some(line) = self.lines.remove(&context) {
            self.manager.destroy(self.now, line);
        }
    }

    fn act(&mut self, context: u64, act: u8) {
        let (now, qpn) = (self.now, self.qpn());
        let Some(line) = self.lines.get(&context) else {
            return;
        };
        match act & 7 {
            0 => self.manager.confirm(line),
            1 => self.manager.reject(now, line, RejectReason::NO_QP, &[1; 8]),
            2 => self.manager.disconnect(now, line),
            3 => drop(self.manager.ask(now, line, qpn, &[2; 8])),
            4 => self.manager.accept(now, line, qpn, &[3; 8]),
            5 => drop(self.manager.resolve_route(line)),
            _ => self.end(context),
        }
    }

    fn paths(&mut self, found: bool) {
        for Destination { gid, pkey } in self.manager.take_wanted() {
            let path = SubnetPath {
                dlid: Lid(u16::from(gid.0[15])),
                slid: Lid(1),
                sl: 0,
                rate: 3,
                mtu: IbMtu::B2048,
                packet_life: 18,
                global: None,
            };
            let path = found.then_some(&path);
            self.manager.path_found(Destination { gid, pkey }, path);
        }
    }

    fn attend(&mut self) {
        while let Some(event) = self.manager.poll_event() {
            match event {
                Event::Request { service, id, .. } => {
                    assert_eq!(service, SERVICE);
                    let table = PKeyTable::default();
                    let wanted = self.manager.path(&id, &table).is_ok();
                    let (now, qpn) = (self.now, self.qpn());
                    self.manager.set_context(&id, self.next);
                    if wanted && self.manager.agreed(&id).is_ok() {
                        self.manager.accept(now, &id, qpn, &[4; 8]);
                    } else {
                        self.manager.reject(now, &id, RejectReason::NO_QP, &[]);
                    }
                    self.lines.insert(self.next, id);
                }
                Event::Of { context, event, .. } => {
                    let line = self.lines.get(&context);
                    let line = line.expect("an event of a connection that has not ended");
                    match event {
                        CmEvent::AddrResolved => self.act(context, 5),
                        CmEvent::RouteResolved => self.act(context, 3),
                        CmEvent::ConnectResponse => {
                            assert!(self.manager.agreed(line).is_ok());
                            self.act(context, 0);
                        }
                        CmEvent::Established => {}
                        _ => self.end(context),
                    }
                }
                Event::ListenerGone { .. } => unreachable!("nobody ends the listener"),
                Event::Other => {}
            }
        }
        while let Some((_, datagram)) = self.manager.poll_transmit() {
            let mad = Mad::parse(&datagram).expect("what is sent is a datagram");
            assert!(mad.communication_management().is_some());
            if let Some(id) = datagram[24..]
                .first_chunk()
                .filter(|id| !self.ids.contains(id))
            {
                self.ids.push(*id);
            }
        }
        assert!(self.manager.len() <= self.lines.len() + CONNECTIONS_MAX);
    }

    fn wait(&mut self, time: Duration) {
        self.now = self.now.after(time);
        self.manager.handle_timeout(self.now);
        self.attend();
    }
}

pub fn run(data: &[u8]) {
    let mut owner = Owner::new();
    let mut input = data.iter().copied();
    while let Some(step) = input.next() {
        let (peer, n) = (Lid(u16::from(2 + (step >> 3 & 3))), step >> 5);
        match step & 7 {
            4 => owner.begin(peer),
            5 => {
                let act = input.next().unwrap_or(0);
                if let Some(context) = owner.nth(n) {
                    owner.act(context, act);
                }
            }
            6 => owner.paths(n != 0),
            7 => {
                let passed = Duration::from_millis(10) * u32::from(input.next().unwrap_or(0));
                owner.wait(passed);
            }
            _ => {
                let mut mad = [0; MAD_LEN];
                mad[..4].copy_from_slice(&[1, 7, 2, 3]);
                mad[17] = input.next().unwrap_or(0);
                let flags = input.next().unwrap_or(0);
                let len = usize::from(input.next().unwrap_or(0));
                for (to, from) in mad[24..].iter_mut().zip(input.by_ref().take(len)) {
                    *to = from;
                }
                if flags & 1 != 0 && !owner.ids.is_empty() {
                    let id = owner.ids[usize::from(n) % owner.ids.len()];
                    mad[28..32].copy_from_slice(&id);
                }
                if flags & 2 != 0 {
                    mad[16..18].copy_from_slice(&cm::REQ.to_be_bytes());
                    let data = &mut mad[24..];
                    data[8..16].copy_from_slice(&SERVICE.0.to_be_bytes());
                    data[48..50].copy_from_slice(&[0xff; 2]);
                    data[52..54].copy_from_slice(&peer.0.to_be_bytes());
                    data[56..72].copy_from_slice(&gid(peer).0);
                }
                let grh = (flags & 4 != 0).then(|| gid(peer));
                let slid = if flags & 8 != 0 { Lid(0x77) } else { peer };
                let end = if flags & 16 != 0 {
                    24 + len.min(232)
                } else {
                    MAD_LEN
                };
                let status = if flags & 32 != 0 { 110 } else { 0 };
                let datagram = received(slid, grh, status, mad[..end].to_vec());
                owner.manager.receive(owner.now, &datagram);
            }
        }
        owner.attend();
    }
    while let Some(context) = owner.nth(0) {
        owner.end(context);
    }
    owner.attend();
    for _ in 0..200 {
        if owner.manager.len() == 0 {
            break;
        }
        owner.wait(Duration::from_secs(10));
        while let Some(context) = owner.nth(0) {
            owner.end(context);
        }
    }
    assert_eq!(owner.manager.len(), 0);
    assert_eq!(owner.manager.next_deadline(), None);
}
