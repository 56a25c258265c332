//! Many endpoints on one port: the cost of creating and destroying them is linear. `cargo test -p
//! fabric --release --test suite scale -- --nocapture` prints the times.

use std::time::Instant;

use fabric::port::UdEndpoint;
use fabric::soft::SoftConfig;
use fabric::{Gid, Joined, PKey};

use crate::net::Cable;
use crate::node::{Node, QKEY, payloads};

const COUNT: u16 = 128;
const GROUPS: u16 = 4;

/// Number of groups of another endpoint.
const OTHERS: u16 = 2000;

fn groups(partition: u16) -> Vec<Gid> {
    let group = |n| format!("ff12:401b:{:x}::{n:x}", partition | 0x8000).parse();
    (1..=GROUPS).map(|n| group(n).unwrap()).collect()
}

/// Runs `f` and prints the time for each of `COUNT`.
fn timed<T>(what: &str, f: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = f();
    println!("{what}: {:?} each", start.elapsed() / u32::from(COUNT));
    result
}

#[test]
fn children_by_the_hundred_leave_nothing_behind() {
    let cable = Cable::new(1500);
    let table: Vec<PKey> = (0..=COUNT)
        .map(|n| PKey::new(if n == 0 { 0xffff } else { 0x8000 | n }))
        .collect();
    let config = SoftConfig {
        pkeys: table.clone(),
        workers: 2,
        ..SoftConfig::new("u0")
    };
    let mut a = Node::open(&cable.a, config);
    let parent = a.endpoint();
    // Like a bridge with many guests: it must not slow others much.
    let many: Vec<Gid> = (0..OTHERS)
        .map(|n| format!("ff12:401b:ffff::1:{n:x}").parse().unwrap())
        .collect();
    a.at_home(|port| port.change_groups(parent.id, &many, &[]))
        .unwrap();
    for _ in 0..3 {
        let partitions = 1..=COUNT;
        let all: Vec<UdEndpoint> = timed("create_ud", || {
            partitions.clone().map(|n| a.endpoint_in(n)).collect()
        });
        timed("change_groups", || {
            a.at_home(|port| {
                for (endpoint, n) in all.iter().zip(partitions.clone()) {
                    let answers = port.change_groups(endpoint.id, &groups(n), &[]).unwrap();
                    let is_now = |answer: &Joined| matches!(answer, Joined::Now(_));
                    assert!(answers.iter().all(is_now), "{answers:?}");
                }
            });
        });
        let resources = a.port.resources();
        assert_eq!(resources.queue_pairs.len(), usize::from(COUNT) + 2);
        assert_eq!(resources.groups.len(), usize::from(OTHERS + COUNT * GROUPS));
        timed("poll", || {
            for w in &mut a.workers {
                w.poll(1).unwrap();
            }
        });
        let shuffled: Vec<PKey> = table.iter().rev().copied().collect();
        for table in [shuffled, table.clone()] {
            let moved = timed("set_pkeys", || a.port.set_pkeys(table).unwrap());
            // The endpoint in the middle does not move.
            assert_eq!(moved.len(), usize::from(COUNT));
        }
        timed("destroy_ud", || {
            for endpoint in &all {
                a.port.destroy_ud(endpoint.id).unwrap();
            }
        });
        let resources = a.port.resources();
        let left = (resources.queue_pairs.len(), resources.groups.len());
        assert_eq!(left, (2, usize::from(OTHERS)));
    }
    let gid = a.gid();
    a.send(&parent, gid, parent.qpn, QKEY, &payloads(0, 8, 8));
    assert!(a.receive_for_a_while().is_empty());
}
