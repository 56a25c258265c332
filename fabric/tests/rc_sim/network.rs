//! The network: it drops, duplicates, delays, reorders and damages datagrams, as the seed determines.
//! It does not inspect datagrams, so it serves queue pairs and whole nodes.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::random::Random;

/// Nanoseconds since the world began.
pub type Time = u64;

pub const MICROSECOND: Time = 1_000;
pub const MILLISECOND: Time = 1_000_000;
pub const SECOND: Time = 1_000_000_000;

/// The faults of one direction; shares in millionths.
#[derive(Clone, Copy, Debug, Default)]
pub struct Impairments {
    /// Share of lost datagrams.
    pub loss: u32,
    /// Share of lost datagrams after a lost one.
    pub loss_goes_on: u32,
    /// Share of duplicated datagrams.
    pub duplicate: u32,
    /// Share of datagrams with flipped bits or cut off.
    pub corrupt: u32,
    /// Share of datagrams delayed by up to `spike`, so that others overtake them.
    pub reorder: u32,
    /// Maximum additional delay of those.
    pub spike: Time,
    /// The delay of all datagrams.
    pub latency: Time,
    /// Maximum random addition to the delay; datagrams keep their order.
    pub jitter: Time,
    /// Bits a second; 0 is unlimited.
    pub rate: u64,
    /// Bytes that may wait for the link; further datagrams are dropped.
    pub queue: u64,
}

/// A datagram in transit, from the BTH to the ICRC.
#[derive(Clone, Debug)]
pub struct Datagram {
    /// The sending node.
    pub from: usize,
    /// The receiving node.
    pub to: usize,
    pub bytes: Vec<u8>,
}

#[derive(Debug)]
struct Arrival {
    at: Time,
    /// Datagrams of the same time arrive in the order of sending.
    number: u64,
    datagram: Datagram,
}

impl PartialEq for Arrival {
    fn eq(&self, other: &Arrival) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Arrival {}

impl PartialOrd for Arrival {
    fn partial_cmp(&self, other: &Arrival) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Arrival {
    /// Reversed: the heap returns the earliest first.
    fn cmp(&self, other: &Arrival) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

/// One direction between two nodes.
#[derive(Clone, Copy, Debug, Default)]
struct Link {
    /// Nothing passes before this time.
    down_until: Time,
    /// When the last datagram has left the sender.
    busy_until: Time,
    /// When the last datagram in order arrives.
    last_arrival: Time,
    lost_before: bool,
}

/// Counters of datagrams.
#[derive(Clone, Copy, Debug, Default)]
pub struct Toll {
    pub sent: u64,
    pub lost: u64,
    pub duplicated: u64,
    pub corrupted: u64,
    pub delayed: u64,
    /// Dropped because a queue was full.
    pub overflowed: u64,
}

/// All links.
#[derive(Debug)]
pub struct Network {
    random: Random,
    impairments: Impairments,
    nodes: usize,
    links: Vec<Link>,
    under_way: BinaryHeap<Arrival>,
    number: u64,
    spare: Vec<Vec<u8>>,
    pub toll: Toll,
}

impl Network {
    pub fn new(seed: u64, nodes: usize, impairments: Impairments) -> Network {
        Network {
            random: Random::new(seed),
            impairments,
            nodes,
            links: vec![Link::default(); nodes * nodes],
            under_way: BinaryHeap::new(),
            number: 0,
            spare: Vec::new(),
            toll: Toll::default(),
        }
    }

    /// Drops everything from `from` to `to` until `until`.
    pub fn cut(&mut self, from: usize, to: usize, until: Time) {
        self.links[from * self.nodes + to].down_until = until;
    }

    /// Sends a copy of `bytes`.
    pub fn send(&mut self, now: Time, from: usize, to: usize, bytes: &[u8]) {
        self.toll.sent += 1;
        let Some(departed) = self.depart(now, from, to, bytes.len()) else {
            return;
        };
        self.deliver(departed, from, to, bytes);
        if self.random.per_million(self.impairments.duplicate) {
            self.toll.duplicated += 1;
            self.deliver(departed, from, to, bytes);
        }
    }

    /// Delivers a forged datagram in the name of `from`.
    pub fn inject(&mut self, now: Time, from: usize, to: usize, bytes: &[u8]) {
        self.deliver(now, from, to, bytes);
    }

    /// When the datagram has left the sender, unless it is lost.
    fn depart(&mut self, now: Time, from: usize, to: usize, len: usize) -> Option<Time> {
        let imp = self.impairments;
        let link = &mut self.links[from * self.nodes + to];
        let mut departed = now;
        // Headers of IP, UDP and Ethernet count as well.
        if let Some(took) = (8 * SECOND * (len as u64 + 62)).checked_div(imp.rate) {
            let start = link.busy_until.max(now);
            if (start - now) / 8 * (imp.rate / 1_000_000) / 1_000 > imp.queue {
                self.toll.overflowed += 1;
                return None;
            }
            link.busy_until = start + took;
            departed = link.busy_until;
        }
        let goes_on = link.lost_before && self.random.per_million(imp.loss_goes_on);
        link.lost_before = goes_on || self.random.per_million(imp.loss);
        if link.lost_before || link.down_until > now {
            self.toll.lost += 1;
            return None;
        }
        Some(departed)
    }

    fn deliver(&mut self, departed: Time, from: usize, to: usize, bytes: &[u8]) {
        let imp = self.impairments;
        let mut at = departed + imp.latency + self.random.below(imp.jitter + 1);
        let link = &mut self.links[from * self.nodes + to];
        if self.random.per_million(imp.reorder) {
            self.toll.delayed += 1;
            at += self.random.below(imp.spike + 1);
        } else {
            at = at.max(link.last_arrival);
            link.last_arrival = at;
        }
        let mut copy = self.spare.pop().unwrap_or_default();
        copy.extend_from_slice(bytes);
        if self.random.per_million(imp.corrupt) {
            self.toll.corrupted += 1;
            self.damage(&mut copy);
        }
        self.number += 1;
        self.under_way.push(Arrival {
            at,
            number: self.number,
            datagram: Datagram {
                from,
                to,
                bytes: copy,
            },
        });
    }

    /// Flips one to eight bits, or cuts the end off.
    fn damage(&mut self, bytes: &mut Vec<u8>) {
        if self.random.percent(20) {
            bytes.truncate(self.random.below(bytes.len() as u64) as usize);
            return;
        }
        for _ in 0..self.random.between(1, 8) {
            let bit = self.random.below(8 * bytes.len() as u64) as usize;
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    /// When the next datagram arrives.
    pub fn next_arrival(&self) -> Option<Time> {
        self.under_way.peek().map(|a| a.at)
    }

    /// The next datagram, if it arrives by `now`.
    pub fn arrive(&mut self, now: Time) -> Option<Datagram> {
        if self.next_arrival()? > now {
            return None;
        }
        self.under_way.pop().map(|a| a.datagram)
    }

    /// Recycles a datagram's memory.
    pub fn recycle(&mut self, datagram: Datagram) {
        let mut bytes = datagram.bytes;
        bytes.clear();
        self.spare.push(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends 1,000 numbered datagrams over a link, a microsecond apart; returns those that arrive, with
    /// their times.
    fn carried(seed: u64, impairments: Impairments) -> Vec<(Time, Vec<u8>)> {
        let mut network = Network::new(seed, 2, impairments);
        for k in 0..1000_u64 {
            network.send(
                k * MICROSECOND,
                0,
                1,
                &[&k.to_be_bytes()[..], &[0; 92]].concat(),
            );
        }
        let mut arrived = Vec::new();
        while let Some(at) = network.next_arrival() {
            assert!(network.arrive(at.saturating_sub(1)).is_none());
            arrived.push((at, network.arrive(at).unwrap().bytes));
        }
        arrived
    }

    const PLAIN: Impairments = Impairments {
        loss: 0,
        loss_goes_on: 0,
        duplicate: 0,
        corrupt: 0,
        reorder: 0,
        spike: 0,
        latency: 5 * MICROSECOND,
        jitter: 3 * MICROSECOND,
        rate: 0,
        queue: 0,
    };

    fn in_order(arrived: &[(Time, Vec<u8>)]) -> bool {
        arrived.is_sorted_by(|a, b| a.1 < b.1)
    }

    #[test]
    fn a_plain_link_keeps_everything_in_order() {
        let arrived = carried(1, PLAIN);
        assert_eq!(arrived.len(), 1000);
        assert!(in_order(&arrived) && arrived.is_sorted_by_key(|a| a.0));
        assert!(arrived[0].0 >= PLAIN.latency);
    }

    #[test]
    fn a_seed_gives_the_same_again() {
        let bad = Impairments {
            loss: 300_000,
            duplicate: 100_000,
            corrupt: 100_000,
            reorder: 100_000,
            spike: MILLISECOND,
            ..PLAIN
        };
        assert_eq!(carried(7, bad), carried(7, bad));
        assert_ne!(carried(7, bad), carried(8, bad));
    }

    #[test]
    fn each_impairment_does_its_part() {
        let share = 300_000;
        let with = |change: fn(&mut Impairments, u32)| {
            let mut bad = PLAIN;
            change(&mut bad, share);
            carried(3, bad)
        };
        let about = |n: usize| (200..400).contains(&n);
        assert!(about(1000 - with(|i, s| i.loss = s).len()));
        assert!(about(with(|i, s| i.duplicate = s).len() - 1000));
        let damaged = with(|i, s| i.corrupt = s);
        let changed = carried(3, PLAIN);
        let changed = changed.iter().map(|c| &c.1);
        let differ = damaged
            .iter()
            .zip(changed)
            .filter(|(d, c)| d.1 != **c)
            .count();
        assert!(about(differ));
        let late = with(|i, s| (i.reorder, i.spike) = (s, MILLISECOND));
        assert!(late.len() == 1000 && !in_order(&late));
    }

    /// 154 bytes with all headers, a microsecond apart, over a link that needs twice as long: half of
    /// them fit, and those of a short queue.
    #[test]
    fn a_slow_link_queues_and_then_drops() {
        let slow = Impairments {
            rate: 162 * 8 * 500_000,
            queue: 10_000,
            jitter: 0,
            ..PLAIN
        };
        let arrived = carried(1, slow);
        assert!((550..=570).contains(&arrived.len()), "{}", arrived.len());
        let apart = |w: &[(Time, Vec<u8>)]| w[1].0 - w[0].0 >= 2 * MICROSECOND - 1;
        assert!(arrived.windows(2).all(apart));
    }
}
