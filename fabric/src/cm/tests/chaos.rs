//! A network that loses, duplicates and reorders datagrams, under users that connect and disconnect at
//! any time.

use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;

use super::world::World;
use super::*;

/// Maximum number of losses of one datagram. An exchange's retries are then always enough, even if a
/// message and its answer are both lost so often.
const LOSSES: u32 = 1;

/// An action of a user, in milliseconds after the previous one.
#[derive(Clone, Copy, Debug)]
enum Deed {
    Connect(usize),
    /// The user's n-th connection.
    Disconnect(usize, usize),
}

fn deeds() -> impl Strategy<Value = Vec<(u64, Deed)>> {
    let deed = prop_oneof![
        (0..2usize).prop_map(Deed::Connect),
        (0..2usize, 0..8usize).prop_map(|(node, n)| Deed::Disconnect(node, n)),
    ];
    prop::collection::vec((0..600u64, deed), 1..14)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn both_sides_agree_in_the_end(seed in any::<u64>(), deeds in deeds()) {
        let mut random = Random::new([seed, 0]);
        let mut lost: HashMap<Datagram, u32> = HashMap::new();
        let mut world = World::new(move |_, mad| {
            let random = random.next();
            let delay = |r: u64| Duration::from_micros(100 + r % 300_000);
            let losses = lost.entry(*mad).or_default();
            if random % 100 < 40 && *losses < LOSSES {
                *losses += 1;
                return Vec::new();
            }
            let mut copies = vec![delay(random >> 8)];
            if random.is_multiple_of(10) {
                copies.push(delay(random >> 32));
            }
            copies
        });
        for (wait, deed) in deeds {
            world.run(Duration::from_millis(wait));
            match deed {
                Deed::Connect(node) => {
                    world.connect(node);
                }
                Deed::Disconnect(node, n) => {
                    let known: Vec<CmId> = world.nodes[node].seen.keys().copied().collect();
                    if !known.is_empty() {
                        world.disconnect(node, known[n % known.len()]);
                    }
                }
            }
        }
        world.run(Duration::from_secs(120));
        world.assert_settled();
    }

    /// Random bytes do no harm and take no memory.
    #[test]
    fn nonsense_is_borne(data in prop::collection::vec(any::<(u16, [u8; 32], u8)>(), 0..60)) {
        let mut cm = Cm::new(config(1));
        let now = Instant(0);
        cm.connect(now, &ask(gid(1), gid(2), 5)).unwrap();
        let sent = only(&mut cm);
        for (attribute, fill, from) in data {
            let mut mad: Datagram = std::array::from_fn(|i| fill[i % 32]);
            mad[..24].copy_from_slice(&sent[..24]);
            mad[16..18].copy_from_slice(&(cm::REQ + attribute % 12).to_be_bytes());
            if fill[0] & 1 == 0 {
                // The node's own id in the receiver's field.
                mad[28..32].copy_from_slice(&sent[24..28]);
            }
            cm.receive(now, gid(2 + from % 2), &mad, |_| fill[1] & 1 == 0);
            cm.table.assert_consistent();
            prop_assert!(cm.table.len() <= 100);
        }
    }
}
