//! Any one datagram lost or duplicated: the exchange has the same result.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::world::{World, perfect};
use super::*;

const LONG: Duration = Duration::from_secs(120);
const WHILE: Duration = Duration::from_millis(50);

/// An exchange, with the possible numbers of open connections at its end.
type Exchange = (&'static str, fn(&mut World<'_>), RangeInclusive<usize>);

const EXCHANGES: [Exchange; 7] = [
    (
        "connect",
        |w| {
            w.connect(0);
        },
        1..=1,
    ),
    (
        "crossing requests",
        |w| {
            w.connect(0);
            w.connect(1);
        },
        2..=2,
    ),
    (
        "the requester disconnects",
        |w| {
            let id = w.connect(0);
            w.run(LONG);
            w.disconnect(0, id);
        },
        0..=0,
    ),
    (
        "the listener disconnects",
        |w| {
            w.connect(0);
            w.run(LONG);
            for id in w.nodes[1].open() {
                w.disconnect(1, id);
            }
        },
        0..=0,
    ),
    (
        "crossing disconnects",
        |w| {
            let id = w.connect(0);
            w.run(LONG);
            for id in w.nodes[1].open() {
                w.disconnect(1, id);
            }
            w.disconnect(0, id);
        },
        0..=0,
    ),
    (
        "the requester changes its mind at once",
        |w| {
            let id = w.connect(0);
            w.run(Duration::ZERO);
            w.disconnect(0, id);
        },
        0..=0,
    ),
    (
        "the listener changes its mind before it is confirmed",
        |w| {
            w.connect(0);
            w.run(Duration::from_micros(1500));
            let half_open: Vec<CmId> = w.nodes[1].seen.keys().copied().collect();
            for id in half_open {
                w.disconnect(1, id);
            }
        },
        // The request may be lost, and arrive when the listener has changed its mind.
        0..=1,
    ),
];

fn after(
    exchange: &Exchange,
    fate: impl FnMut(usize, &Datagram) -> Vec<Duration>,
) -> Vec<(usize, &'static str)> {
    let (name, begin, open) = exchange;
    let mut world = World::new(fate);
    begin(&mut world);
    world.run(LONG);
    world.assert_settled();
    let is = world.nodes[0].open().len();
    assert!(open.contains(&is), "{name}: {is} {:?}", world.log);
    world.log.clone()
}

#[test]
fn without_loss_nothing_is_sent_twice() {
    let sent = |n: usize| {
        let log = after(&EXCHANGES[n], perfect);
        log.iter().map(|(_, name)| *name).collect::<Vec<_>>()
    };
    assert_eq!(sent(0), ["REQ", "REP", "RTU"]);
    assert_eq!(sent(1), ["REQ", "REQ", "REP", "REP", "RTU", "RTU"]);
    assert_eq!(sent(2), ["REQ", "REP", "RTU", "DREQ", "DREP"]);
    assert_eq!(sent(3), ["REQ", "REP", "RTU", "DREQ", "DREP"]);
    assert_eq!(
        sent(4),
        ["REQ", "REP", "RTU", "DREQ", "DREQ", "DREP", "DREP"]
    );
}

#[test]
fn the_loss_of_any_one_datagram_heals() {
    for exchange in &EXCHANGES {
        let count = after(exchange, perfect).len();
        assert!(count >= 2, "{}", exchange.0);
        for lost in 0..count {
            let mut n = 0;
            after(exchange, |from, mad| {
                n += 1;
                if n == lost + 1 {
                    Vec::new()
                } else {
                    perfect(from, mad)
                }
            });
        }
    }
}

#[test]
fn any_datagram_that_comes_twice_does_nothing_the_second_time() {
    for exchange in &EXCHANGES {
        for again in [
            Duration::from_millis(1),
            Duration::from_millis(40),
            Duration::from_secs(2),
        ] {
            let count = after(exchange, perfect).len();
            for doubled in 0..count {
                let mut n = 0;
                after(exchange, |from, mad| {
                    n += 1;
                    let mut copies = perfect(from, mad);
                    if n == doubled + 1 {
                        copies.push(again);
                    }
                    copies
                });
            }
        }
    }
}

/// One side receives nothing from the other: both end by themselves.
#[test]
fn a_silent_peer_is_noticed() {
    for deaf in 0..2 {
        let mut world = World::new(move |from, mad| {
            if from == deaf {
                Vec::new()
            } else {
                perfect(from, mad)
            }
        });
        let id = world.connect(0);
        world.run(WHILE);
        assert_eq!(world.nodes[0].cm.state(id), Some("REQ_SENT"));
        world.run(LONG);
        world.assert_settled();
        assert!(world.nodes[0].open().is_empty());
        let requests = world.log.iter().filter(|(_, n)| *n == "REQ").count();
        assert_eq!(requests, 1 + usize::from(times::MAX_CM_RETRIES));
    }
}

/// It takes about three seconds.
#[test]
fn a_request_is_given_up_in_time() {
    let mut world = World::new(|_, _| Vec::new());
    world.connect(0);
    world.run(Duration::from_millis(3000));
    assert!(!world.log.contains(&(0, "REJ")));
    world.run(Duration::from_millis(100));
    assert!(world.log.contains(&(0, "REJ")), "{:?}", world.log);
}
