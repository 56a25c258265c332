//! Many ports on a fabric that loses, repeats and reorders, with guests that move between them. A failure
//! prints the seed of its world: `VNIC_WORLD_SEED=77 cargo test -p vnic world` runs that world again.

use std::collections::HashMap;

use crate::Lid;
use crate::packet::Refusal;
use crate::port::testing::*;
use crate::port::{Meta, Place, Settings, Update, VeswPort};
use proto::{Mac, Qpn, Time};

/// Number of worlds in a test run, unless set with `VNIC_WORLDS`.
const WORLDS: u64 = 60;

/// Pseudo-random numbers (Marsaglia, "Xorshift RNGs").
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % n
    }

    pub fn percent(&mut self, n: usize) -> bool {
        self.below(100) < n
    }
}

/// A port with its replicas.
struct Member {
    lid: u32,
    replicas: Vec<VeswPort>,
}

/// A datagram in flight.
struct Packet {
    from: usize,
    /// One member, or all members.
    to: Option<usize>,
    bytes: Vec<u8>,
}

/// A frame that reached a TAP.
struct Arrival {
    member: usize,
    frame: Vec<u8>,
}

/// Faults of the fabric, in percent.
#[derive(Clone, Copy)]
struct Faults {
    lost: usize,
    repeated: usize,
    reordered: usize,
}

const NONE: Faults = Faults {
    lost: 0,
    repeated: 0,
    reordered: 0,
};

/// Members of two switches on one fabric, with equal addresses.
struct World {
    random: Random,
    now: u64,
    faults: Faults,
    members: Vec<Member>,
    /// Members by queue pair number.
    by_qpn: HashMap<u32, usize>,
    in_flight: Vec<Packet>,
    arrivals: Vec<Arrival>,
}

fn vesw_of(member: usize) -> u16 {
    2 + (member % 2) as u16
}

impl World {
    fn new(seed: u64, members: usize) -> World {
        let mut random = Random::new(seed);
        let members: Vec<Member> = (0..members)
            .map(|at| {
                // The two switches have the same LIDs.
                let lid = 1 + at as u32 / 2;
                let mut info = info(lid);
                info.vesw_id = vesw_of(at);
                let replica = |n| {
                    let settings = Settings {
                        local: address(at as u32),
                        reports: n == 0,
                        ..settings(lid)
                    };
                    port_with(settings, &info)
                };
                let replicas = (0..1 + random.below(3)).map(replica).collect();
                Member { lid, replicas }
            })
            .collect();
        let by_qpn = (0..members.len())
            .map(|at| (address(at as u32).qpn.get(), at))
            .collect();
        World {
            random,
            now: 0,
            faults: NONE,
            members,
            by_qpn,
            in_flight: Vec::new(),
            arrivals: Vec::new(),
        }
    }

    /// A host behind a member sends a frame; a random replica handles it.
    fn send(&mut self, member: usize, frame: &[u8]) {
        let replica = self.random.below(self.members[member].replicas.len());
        let port = &mut self.members[member].replicas[replica];
        let sent = send_at(port, self.now, frame);
        if let Sent::Packet(_, (_, qpn), bytes) = sent {
            let to = (qpn != Qpn::MULTICAST).then(|| self.by_qpn[&qpn.get()]);
            self.in_flight.push(Packet {
                from: member,
                to,
                bytes,
            });
        }
        self.spread(member, replica);
    }

    /// Applies the updates of a replica to the other replicas of its member.
    fn spread(&mut self, member: usize, replica: usize) {
        let replicas = &mut self.members[member].replicas;
        let updates: Vec<Update> = replicas[replica].drain_updates().collect();
        for (at, other) in replicas.iter_mut().enumerate() {
            for update in updates.iter().filter(|_| at != replica) {
                other.apply(Time(self.now), update);
            }
            assert!(
                at == replica || !other.has_updates(),
                "an update circulates"
            );
        }
    }

    /// Delivers all datagrams in flight, including new ones.
    fn settle(&mut self) {
        while !self.in_flight.is_empty() {
            let any = self.random.below(self.in_flight.len());
            let next = if self.random.percent(self.faults.reordered) {
                any
            } else {
                0
            };
            let packet = self.in_flight.remove(next);
            let to: Vec<usize> = match packet.to {
                Some(member) => vec![member],
                None => (0..self.members.len())
                    .filter(|m| vesw_of(*m) == vesw_of(packet.from))
                    .collect(),
            };
            for member in to {
                if self.random.percent(self.faults.lost) {
                    continue;
                }
                let times = 1 + usize::from(self.random.percent(self.faults.repeated));
                for _ in 0..times {
                    self.receive(member, &packet);
                }
            }
        }
    }

    fn receive(&mut self, member: usize, packet: &Packet) {
        let source = address(packet.from as u32);
        let meta = Meta {
            src_gid: source.gid,
            src_qpn: source.qpn,
            multicast: packet.to.is_none(),
        };
        let replica = self.random.below(self.members[member].replicas.len());
        let port = &mut self.members[member].replicas[replica];
        match port.from_fabric(Time(self.now), &meta, &packet.bytes) {
            Ok(frame) => self.arrivals.push(Arrival {
                member,
                frame: frame.to_vec(),
            }),
            Err(why) => {
                let own = member == packet.from;
                assert_eq!(own, why == Refusal::SelfMulticast, "{why:?}");
                assert!(own || why == Refusal::OtherLid, "{why:?}");
            }
        }
        self.spread(member, replica);
    }

    /// Advances the time, second by second.
    fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now += 1000;
            for replica in self.members.iter_mut().flat_map(|m| &mut m.replicas) {
                if replica.next_deadline().is_some_and(|due| due.0 <= self.now) {
                    replica.handle_timeout(Time(self.now));
                }
            }
        }
    }

    /// Members of the same switch.
    fn peers(&self, member: usize) -> Vec<usize> {
        (0..self.members.len())
            .filter(|m| *m != member && vesw_of(*m) == vesw_of(member))
            .collect()
    }

    /// Frames that arrived since the last call; checks that each is on its switch.
    fn arrived(&mut self) -> Vec<Arrival> {
        let arrivals = std::mem::take(&mut self.arrivals);
        for a in &arrivals {
            let vesw = u16::from_be_bytes([a.frame[14], a.frame[15]]);
            assert_eq!(vesw, vesw_of(a.member), "frame of another switch");
        }
        arrivals
    }
}

/// A frame that contains the number of its switch, and a number.
fn marked(vesw: u16, number: u32, to: Mac, from: Mac) -> Vec<u8> {
    let mut f = frame(to, from);
    f[14..16].copy_from_slice(&vesw.to_be_bytes());
    f[16..20].copy_from_slice(&number.to_be_bytes());
    f
}

fn number(frame: &[u8]) -> u32 {
    u32::from_be_bytes([frame[16], frame[17], frame[18], frame[19]])
}

/// Guests have the same addresses on both switches.
fn guest(n: usize) -> Mac {
    [0x52, 0x54, 0, 0, 0, n as u8]
}

fn seeds() -> impl Iterator<Item = u64> {
    let number = |name| {
        let text: Option<String> = std::env::var(name).ok();
        text.map(|text| text.parse().expect("a number in the environment"))
    };
    match number("VNIC_WORLD_SEED") {
        Some(seed) => seed..seed + 1,
        None => 1..1 + number("VNIC_WORLDS").unwrap_or(WORLDS),
    }
}

/// Runs worlds; prints the seed of a failure.
fn worlds(run: impl Fn(u64) + std::panic::RefUnwindSafe) {
    for seed in seeds() {
        let result = std::panic::catch_unwind(|| run(seed));
        if let Err(cause) = result {
            eprintln!("VNIC_WORLD_SEED={seed}");
            std::panic::resume_unwind(cause);
        }
    }
}

/// Guests move while the fabric has faults. After the faults end and every guest has sent a frame, each
/// frame arrives at the one port of its destination, without flooding.
#[test]
fn worlds_settle_after_guests_moved() {
    worlds(|seed| {
        let mut world = World::new(seed, 8);
        // Two switches with six guests each.
        let mut homes: Vec<usize> = (0..12).map(|n| n % 8).collect();
        world.faults = Faults {
            lost: 20,
            repeated: 10,
            reordered: 50,
        };
        for _ in 0..300 {
            let who = world.random.below(12);
            let peers = world.peers(homes[who]);
            if world.random.percent(5) {
                homes[who] = peers[world.random.below(peers.len())];
            }
            let other = (who % 2) + 2 * world.random.below(6);
            let to = match world.random.below(3) {
                0 => BROADCAST,
                _ => guest(other / 2),
            };
            let home = homes[who];
            world.send(home, &marked(vesw_of(home), 0, to, guest(who / 2)));
            if world.random.percent(50) {
                world.settle();
            }
            if world.random.percent(20) {
                world.pass(1);
            }
        }
        world.settle();
        world.arrived();

        // Addresses that were not followed are followed again after ten to twenty seconds.
        world.faults = NONE;
        for _ in 0..2 {
            world.pass(21);
            for (who, home) in homes.clone().into_iter().enumerate() {
                let hello = marked(vesw_of(home), 0, BROADCAST, guest(who / 2));
                world.send(home, &hello);
                world.settle();
            }
        }
        world.arrived();
        for (who, home) in homes.clone().into_iter().enumerate() {
            for (other, target) in homes.clone().into_iter().enumerate() {
                let same_switch = who % 2 == other % 2;
                if !same_switch || home == target {
                    continue;
                }
                let f = marked(vesw_of(home), 9, guest(other / 2), guest(who / 2));
                world.send(home, &f);
                assert!(
                    world.in_flight[0].to == Some(target),
                    "guest {who} to {other}"
                );
                world.settle();
                let arrived = world.arrived();
                assert_eq!(arrived.len(), 1);
                assert_eq!((arrived[0].member, &arrived[0].frame), (target, &f));
            }
        }
    });
}

/// A flow stays in order on a fabric that keeps order, also while addresses are learned.
#[test]
fn r15_a_flow_stays_in_order() {
    worlds(|seed| {
        let mut world = World::new(seed, 6);
        for n in 0..50_u32 {
            world.send(0, &marked(2, n, guest(1), guest(0)));
            if n == 20 {
                world.send(2, &marked(2, 1000, guest(0), guest(1)));
            }
            if world.random.percent(30) {
                world.settle();
            }
        }
        world.settle();
        let arrived = world.arrived();
        let flow = arrived
            .iter()
            .filter(|a| a.member == 2 && number(&a.frame) < 1000);
        let numbers: Vec<u32> = flow.map(|a| number(&a.frame)).collect();
        assert_eq!(numbers, (0..50).collect::<Vec<u32>>());
    });
}

/// Without loss, all frames arrive, and the counters of all members agree.
#[test]
fn sent_frames_are_counted_at_their_receivers() {
    worlds(|seed| {
        let mut world = World::new(seed, 6);
        let mut sent = 0;
        for _ in 0..200 {
            let member = world.random.below(6);
            let (from, to) = (world.random.below(4), world.random.below(4));
            // A guest may be behind several members here; no frame may be lost for that.
            let f = marked(vesw_of(member), 0, guest(to), guest(from));
            world.send(member, &f);
            sent += 1;
            world.settle();
            world.now += 100;
        }
        let arrived = world.arrived().len() as u64;
        let total = |of: fn(&crate::counters::Counters) -> u64| -> u64 {
            let replicas = world.members.iter().flat_map(|m| &m.replicas);
            replicas.map(|r| of(r.counters())).sum()
        };
        assert_eq!(total(|c| c.tx_unicast), sent);
        assert_eq!(total(|c| c.rx_unicast), arrived);
        assert_eq!(total(|c| c.rx_bytes), arrived * 64);
        let flooded = total(|c| c.tx_flooded);
        let known = total(|c| c.tx_unicast) - flooded;
        assert_eq!(arrived, 2 * flooded + known);
        assert_eq!(total(|c| c.rx_self_mcast), flooded);
        assert!(known > 0 && flooded > 0);
        // No replica has learned an address at its own LID.
        for member in &world.members {
            for replica in &member.replicas {
                let own = Place::At(Lid::new(member.lid));
                assert!(replica.learned(Time(0)).all(|l| l.place != own));
            }
        }
    });
}
