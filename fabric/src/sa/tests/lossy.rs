//! An administrator that loses, delays, doubles and reorders.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::mad::sa::McMemberRecord;
use crate::mad::{SaHeader, method};
use crate::random::Random;
use crate::rmpp::Sender;

/// Members in the table of the group with this number.
fn members(group: u8) -> usize {
    usize::from(group) * 3
}

struct World {
    random: Random,
    client: Client,
    now: Instant,
    /// Datagrams on the way, by the time of arrival; true to the administrator.
    wire: BTreeMap<(Instant, u64), (bool, [u8; MAD_LEN])>,
    count: u64,
    senders: BTreeMap<u32, Sender>,
    loss: u64,
}

impl World {
    fn new(seed: u64, loss: u64) -> World {
        World {
            random: Random::new([seed, 7]),
            client: Client::new(ClientConfig {
                tries: 12,
                queue_max: 100,
                ..config(seed)
            }),
            now: NOW,
            wire: BTreeMap::new(),
            count: 0,
            senders: BTreeMap::new(),
            loss,
        }
    }

    fn put(&mut self, to_sa: bool, mad: [u8; MAD_LEN]) {
        let copies = 1 + u64::from(self.random.below(10) == 0);
        for _ in 0..copies {
            let late = self.random.below(20) == 0;
            let delay = self.random.below(if late { 2000 } else { 5 });
            let at = self.now.after(Duration::from_millis(1 + delay));
            self.count += 1;
            if self.random.below(100) >= self.loss {
                self.wire.insert((at, self.count), (to_sa, mad));
            }
        }
    }

    /// The administrator: memberships as requested, tables of several segments, sometimes busy.
    fn administrator(&mut self, mad: &[u8; MAD_LEN]) {
        let tid = header(mad).transaction_id.get() as u32;
        let parsed = Mad::parse(mad).unwrap();
        let (head, _) = parsed.subnet_administration().unwrap();
        if head.rmpp_type != 0 {
            if let Some(sender) = self.senders.get_mut(&tid) {
                sender.receive(self.now, mad);
            }
            return;
        }
        // As the kernel's RMPP: one answer with a transaction id at a time.
        let sending = self.senders.get(&tid).is_some_and(|s| s.end().is_none());
        if sending {
            return;
        }
        if self.random.below(10) == 0 {
            return self.put(false, answer(mad, 1));
        }
        let reply = answer(mad, 0);
        if mad[3] != method::GET_TABLE {
            return self.put(false, reply);
        }
        let request = McMemberRecord::parse(&mad[56..]).unwrap();
        let mut data = Vec::new();
        for n in 0..members(request.mgid.0[15]) {
            let member = McMemberRecord {
                port_gid: gid(n as u8),
                ..request
            };
            data.extend_from_slice(&member.write());
            data.extend_from_slice(&[0; 4]);
        }
        let head = SaHeader {
            attribute_offset: 7.into(),
            ..head
        };
        let sender = Sender::new(self.now, header(&reply), head, data);
        self.senders.insert(tid, sender);
    }

    fn step(&mut self) -> bool {
        while let Some(mad) = self.client.poll_transmit() {
            self.put(true, mad);
        }
        let mut segments = Vec::new();
        for sender in self.senders.values_mut() {
            segments.extend(std::iter::from_fn(|| sender.poll_transmit()));
        }
        for mad in segments {
            self.put(false, mad);
        }
        let arrival = self.wire.first_key_value().map(|((at, _), _)| *at);
        let sending = self.senders.values().filter_map(Sender::next_deadline);
        let next = arrival
            .into_iter()
            .chain(self.client.next_deadline())
            .chain(sending)
            .min();
        let Some(next) = next else {
            return false;
        };
        self.now = self.now.max(next);
        while let Some(entry) = self.wire.first_entry().filter(|e| e.key().0 <= self.now) {
            let (to_sa, mad) = entry.remove();
            if to_sa {
                self.administrator(&mad);
            } else {
                self.client.receive(self.now, &mad);
            }
        }
        self.client.handle_timeout(self.now);
        for sender in self.senders.values_mut() {
            sender.handle_timeout(self.now);
        }
        true
    }
}

/// Runs 40 requests; returns the answers by group.
fn run(seed: u64, loss: u64, renew: bool) -> (Counts, usize) {
    let mut world = World::new(seed, loss);
    let mut open = BTreeMap::new();
    for n in 0..40u8 {
        let request = if n % 2 == 0 {
            join(n)
        } else {
            Request::group(gid(n))
        };
        let id = world.client.ask(world.now, request).unwrap();
        assert!(open.insert(id, n).is_none());
    }
    let (mut failed, mut steps) = (0, 0);
    while world.step() {
        steps += 1;
        assert!(steps < 200_000, "seed {seed}: no end");
        if renew && steps % 50 == 0 && steps < 500 {
            world.client.renew(world.now);
        }
        while let Some(event) = world.client.poll_event() {
            let Event::Answered { id, result } = event else {
                panic!("seed {seed}: nobody reported");
            };
            let n = open.remove(&id).expect("a request ends once");
            let Ok(response) = result else {
                failed += 1;
                continue;
            };
            let records: Vec<McMemberRecord> = response.all().collect();
            let expected = if n % 2 == 0 { 1 } else { members(n) };
            assert_eq!(records.len(), expected, "seed {seed}, group {n}");
            assert!(records.iter().all(|r| r.mgid == gid(n)), "seed {seed}");
        }
    }
    assert!(open.is_empty() && world.client.open() == 0, "seed {seed}");
    (*world.client.counts(), failed)
}

#[test]
fn a_good_network_needs_no_retries_but_of_busy_answers() {
    let (counts, failed) = run(1, 0, false);
    assert_eq!((failed, counts.answered, counts.timed_out), (0, 40, 0));
    assert!(counts.retries <= counts.busy + 12, "{counts:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn every_request_ends_once_and_well(seed: u64, loss in 0u64..30, renew: bool) {
        let (counts, failed) = run(seed, loss, renew);
        prop_assert_eq!(counts.answered + failed as u64, 40, "seed {}", seed);
        prop_assert!(failed <= 4, "seed {}, loss {}: {} failed, {:?}", seed, loss, failed, counts);
    }
}
