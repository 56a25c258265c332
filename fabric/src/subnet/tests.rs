//! Ports on a simulated subnet: a subnet administrator with OpenSM's rules, and a network that loses,
//! delays, doubles and reorders datagrams.

mod abilities;
pub(crate) mod administrator;
mod conformance;
mod crowd;
mod groups;
mod hostile;
mod leaving;
mod reports;
mod unanswered;

use std::collections::BTreeMap;
use std::time::Duration;

use proto::{Gid, IbMtu, Instant, Lid, PKey, QKey};

use super::*;
use crate::mad::MAD_LEN;
use crate::random::Random;
use administrator::Administrator;

/// The Q_Key of an endpoint without a group.
const QKEY: QKey = QKey::new(0x0b1b);

pub(crate) fn port_gid(n: u16) -> Gid {
    let [high, low] = n.to_be_bytes();
    Gid([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 2, 0xc9, 3, 0, 0, high, low])
}

pub(crate) fn group(n: u8) -> Gid {
    let mut gid = [0; 16];
    gid[..6].copy_from_slice(&[0xff, 0x12, 0x40, 0x1b, 0xff, 0xff]);
    gid[15] = n;
    Gid(gid)
}

pub(crate) fn broadcast() -> Gid {
    proto::mgid::broadcast(PKey::DEFAULT, proto::mgid::LINK_LOCAL)
}

fn to(n: u16) -> Destination {
    let (gid, pkey) = (port_gid(n), PKey::DEFAULT);
    Destination { gid, pkey }
}

/// Faults of the network.
#[derive(Clone, Copy, Default)]
struct Faults {
    /// Per mille of datagrams that are lost.
    lost: u64,
    /// Per mille that arrive twice.
    doubled: u64,
    /// The longest delay in milliseconds.
    delay: u64,
}

/// Ports and a subnet administrator.
struct World {
    now: Instant,
    random: Random,
    faults: Faults,
    sa: Administrator,
    /// When the administrator has answered the requests so far, and its time for one request.
    sa_free: Instant,
    sa_time: Duration,
    ports: Vec<Subnet>,
    /// Datagrams on their way by time of arrival and number: to a port, or from it.
    on_the_way: BTreeMap<(Instant, u64), (usize, bool, [u8; MAD_LEN])>,
    sent: u64,
    /// The events of each port.
    events: Vec<Vec<SubnetEvent>>,
}

impl World {
    fn new(ports: u16, seed: u64, faults: Faults) -> World {
        let random = Random::new([seed, 7]);
        let port = |n: u16| {
            let local = LocalPort {
                gid: port_gid(n),
                mtu: IbMtu::B4096,
                kernel_pkeys: Vec::new(),
            };
            Subnet::new(local, [seed, n.into()], true)
        };
        World {
            now: Instant(1_000_000_000),
            random,
            faults,
            sa: Administrator::new(ports),
            sa_free: Instant(0),
            sa_time: Duration::ZERO,
            ports: (0..ports).map(port).collect(),
            on_the_way: BTreeMap::new(),
            sent: 0,
            events: vec![Vec::new(); ports.into()],
        }
    }

    fn carry(&mut self, port: usize, to_sa: bool, mad: [u8; MAD_LEN]) {
        let mut chance = |per_mille: u64| self.random.next() % 1000 < per_mille;
        if chance(self.faults.lost) {
            return;
        }
        let copies = 1 + u64::from(chance(self.faults.doubled));
        for _ in 0..copies {
            let delay =
                Duration::from_micros(5 + self.random.next() % (1 + self.faults.delay * 1000));
            self.sent += 1;
            let key = (self.now.after(delay), self.sent);
            self.on_the_way.insert(key, (port, to_sa, mad));
        }
    }

    /// Runs until nothing happens any more, or until a time has passed.
    fn run(&mut self, most: Duration) {
        let end = self.now.after(most);
        loop {
            for port in 0..self.ports.len() {
                while let Some(mad) = self.ports[port].poll_transmit() {
                    self.carry(port, true, mad);
                }
                while let Some(event) = self.ports[port].poll_event() {
                    self.events[port].push(event);
                }
            }
            let arrival = self.on_the_way.first_key_value().map(|((at, _), _)| *at);
            let timers = self.ports.iter().filter_map(Subnet::next_deadline);
            let Some(next) = timers.chain(arrival).min().filter(|at| *at <= end) else {
                return;
            };
            self.now = self.now.max(next);
            while let Some(entry) = self.on_the_way.first_entry()
                && entry.key().0 <= self.now
            {
                let (port, to_sa, mad) = entry.remove();
                if to_sa {
                    self.sa_free = self.sa_free.max(self.now).after(self.sa_time);
                    let queued = self.sa_free.since(self.now);
                    for (wait, answer) in self.sa.answer(port, &mad) {
                        let later = self.now.after(wait + queued);
                        let now = std::mem::replace(&mut self.now, later);
                        self.carry(port, false, answer);
                        self.now = now;
                    }
                } else {
                    self.ports[port].receive(self.now, &mad);
                }
            }
            for port in &mut self.ports {
                if port.next_deadline().is_some_and(|at| at <= self.now) {
                    port.handle_timeout(self.now);
                }
            }
        }
    }

    fn join(&mut self, port: usize, mgid: Gid) -> Joined {
        self.ports[port].join(self.now, mgid, PKey::DEFAULT, QKEY)
    }

    /// Joins a group and returns the answer.
    fn joined(&mut self, port: usize, mgid: Gid) -> Joined {
        match self.join(port, mgid) {
            Joined::Pending => {
                self.run(Duration::from_secs(30));
                self.answer(port, mgid)
            }
            joined => joined,
        }
    }

    /// The last answer for a group.
    fn answer(&self, port: usize, mgid: Gid) -> Joined {
        let events = self.events[port].iter().rev();
        let answer = events.filter_map(|event| match event {
            SubnetEvent::Group { mgid: of, joined } if *of == mgid => Some(joined.clone()),
            _ => None,
        });
        answer.into_iter().next().unwrap_or(Joined::Pending)
    }

    /// The last path to a destination.
    fn path(&mut self, port: usize, destination: Destination) -> Result<SubnetPath, Unreachable> {
        if let Some(path) = self.ports[port].resolve(self.now, destination) {
            return path;
        }
        self.run(Duration::from_secs(30));
        let events = self.events[port].iter().rev();
        let path = events.filter_map(|event| match event {
            SubnetEvent::Path {
                destination: of,
                path,
            } if *of == destination => Some(path.clone()),
            _ => None,
        });
        path.into_iter().next().expect("an answer")
    }
}

fn is_now(joined: &Joined) -> bool {
    matches!(joined, Joined::Now(_))
}
