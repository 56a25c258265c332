//! A communication manager with peers that send anything, and a user that answers, disconnects and waits.
//! Events must have a valid order, and sent messages must be readable.
//!
//! Input: steps. A step's byte: 0x07 the action (0 to 3 a datagram, 4 request a datagram service, 5 connect,
//! 6 disconnect, 7 time passes), 0x18 the peer, 0xe0 the connection. After a datagram's byte: the attribute,
//! a byte of flags (1 our id in place of the receiver's, 2 the id of our last SIDR_REQ), the length of the
//! rest, and that: the start of the message, followed by zeros. After the byte of time: 10 ms units.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fabric::cm::{
    Ask, Cm, CmConfig, CmEvent, CmId, Consent, DatagramService, NoService, SidrAsk, SidrEvent,
    SidrId,
};
use fabric::mad::{MAD_LEN, Mad};
use fabric::{Gid, Guid, IbMtu, Instant, PKey, Psn, QKey, Qpn, RejectReason, ServiceId};

const CONNECTIONS_MAX: usize = 16;

fn gid(n: u8) -> Gid {
    Gid([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, n])
}

struct User {
    cm: Cm,
    now: Instant,
    qpn: u32,
    /// Whether an end was reported.
    known: BTreeMap<CmId, bool>,
    /// Requests for datagram services without an answer.
    asked: BTreeSet<SidrId>,
}

impl User {
    fn new() -> User {
        let cm = Cm::new(CmConfig {
            ca_guid: Guid([1; 8]),
            worker: 1,
            workers: 2,
            seed: [7, 7],
            half_open_max: 8,
            connections_max: CONNECTIONS_MAX,
        });
        User {
            cm,
            now: Instant(1),
            qpn: 0x100,
            known: BTreeMap::new(),
            asked: BTreeSet::new(),
        }
    }

    fn nth(&self, n: u8) -> Option<CmId> {
        let len = self.known.len();
        self.known.keys().nth(usize::from(n) % len.max(1)).copied()
    }

    fn connect(&mut self, to: Gid) {
        self.qpn += 1;
        let ask = Ask {
            service: ServiceId(1),
            local_gid: gid(1),
            remote_gid: to,
            primary: None,
            qpn: Qpn::new(self.qpn),
            starting_psn: Psn::new(self.qpn),
            pkey: PKey::DEFAULT,
            path_mtu: IbMtu::B4096,
            srq: true,
            private_data: &[],
        };
        if let Ok(id) = self.cm.connect(self.now, &ask) {
            assert!(self.known.insert(id, false).is_none());
        }
    }

    fn ask(&mut self, peer: Gid) {
        let ask = SidrAsk {
            service: ServiceId(1),
            peer,
            pkey: PKey::DEFAULT,
            private_data: &[],
        };
        if let Ok(id) = self.cm.ask_for_datagrams(self.now, &ask) {
            assert!(self.asked.insert(id));
        }
    }

    fn attend_datagrams(&mut self) {
        while let Some(event) = self.cm.poll_sidr() {
            match event {
                SidrEvent::Requested { request, .. } => {
                    let service = DatagramService {
                        qpn: Qpn::new(0x42),
                        qkey: QKey::new(7),
                    };
                    let wants = request.pkey.is_valid();
                    let service = wants.then_some(service).ok_or(NoService::Rejected);
                    self.cm.answer(&request, service);
                }
                SidrEvent::Answered { id, .. } => assert!(self.asked.remove(&id)),
            }
        }
        assert!(self.asked.len() <= 64);
    }

    fn end(&mut self, id: CmId) {
        self.cm.disconnect(self.now, id);
        self.known.insert(id, true);
    }

    fn attend(&mut self) {
        while let Some(event) = self.cm.poll_event() {
            let id = event.id();
            match event {
                CmEvent::Requested { remote, .. } => {
                    assert!(self.known.insert(id, false).is_none());
                    self.qpn += 1;
                    let consent = Consent {
                        qpn: Qpn::new(self.qpn),
                        starting_psn: Psn::new(0),
                        srq: true,
                        private_data: &[],
                    };
                    if remote.qpn.get() % 4 == 0 {
                        self.cm.reject(self.now, id, RejectReason::NO_QP, &[]);
                        self.known.insert(id, true);
                    } else {
                        self.cm.accept(self.now, id, &consent);
                    }
                }
                CmEvent::Replied { .. } => {
                    assert_eq!(self.known.get(&id), Some(&false));
                    self.cm.establish(id);
                }
                CmEvent::Established { .. } => assert_eq!(self.known.get(&id), Some(&false)),
                CmEvent::Rejected { .. }
                | CmEvent::Disconnected { .. }
                | CmEvent::TimedOut { .. } => {
                    assert_eq!(self.known.insert(id, true), Some(false));
                }
                CmEvent::Released { .. } => {
                    assert_eq!(self.known.remove(&id), Some(true));
                    assert_eq!(self.cm.state(id), None);
                }
            }
        }
        self.attend_datagrams();
        assert!(self.known.len() <= CONNECTIONS_MAX);
        while let Some(out) = self.cm.poll_transmit() {
            let mad = Mad::parse(&out.datagram).expect("what is sent is a datagram");
            assert!(mad.communication_management().is_some());
        }
    }
}

pub fn run(data: &[u8]) {
    let mut user = User::new();
    let mut input = data.iter().copied();
    while let Some(step) = input.next() {
        let (peer, n) = (gid(2 + (step >> 3 & 3)), step >> 5);
        match step & 7 {
            4 => user.ask(peer),
            5 => user.connect(peer),
            6 => {
                if let Some(id) = user.nth(n) {
                    user.end(id);
                }
            }
            7 => {
                let passed = Duration::from_millis(10) * u32::from(input.next().unwrap_or(0));
                user.now = user.now.after(passed);
                user.cm.handle_timeout(user.now);
                assert!(user.cm.next_deadline().is_none_or(|at| at > user.now));
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
                if let Some(id) = user.nth(n).filter(|_| flags & 1 != 0) {
                    mad[28..32].copy_from_slice(&id.0.to_be_bytes());
                }
                if let Some(id) = user.asked.last().filter(|_| flags & 2 != 0) {
                    mad[24..28].copy_from_slice(&id.0.to_be_bytes());
                }
                user.cm.receive(user.now, peer, &mad, |_| true);
            }
        }
        user.attend();
    }
}
