//! In spite of trouble on hosts and network, TCP delivers all data, and no connection is left over. A seed
//! determines the world.

use std::env;

use ipoib::Mode;
use proto::Qpn;

use crate::net::Net;
use crate::network::{Impairments, MICROSECOND, MILLISECOND};
use crate::node::{CONNECTED, DATAGRAM, Host, v4, v6};
use crate::random::Random;

/// Number of worlds in `scripts/test`.
const WORLDS: u64 = 300;
/// Duration of the trouble, in milliseconds.
const TROUBLE_MS: u64 = 3000;

fn setting(name: &str, otherwise: u64) -> u64 {
    env::var(name).map_or(otherwise, |v| v.parse().expect("a number"))
}

fn host(random: &mut Random) -> Host {
    let silent_about_it = Host {
        flagged: false,
        ..CONNECTED
    };
    let with = |connections| Host {
        connections,
        ..CONNECTED
    };
    random.one_of(&[
        CONNECTED,
        CONNECTED,
        CONNECTED,
        DATAGRAM,
        silent_about_it,
        with(0),
        with(1),
        with(2),
    ])
}

fn weather(random: &mut Random) -> Impairments {
    Impairments {
        loss: random.one_of(&[0, 10_000, 50_000]),
        loss_goes_on: random.one_of(&[0, 300_000]),
        duplicate: random.one_of(&[0, 30_000]),
        corrupt: random.one_of(&[0, 10_000]),
        reorder: random.one_of(&[0, 30_000]),
        spike: random.between(1, 10) * MILLISECOND,
        latency: random.between(5, 2000) * MICROSECOND,
        jitter: random.below(500) * MICROSECOND,
        rate: random.one_of(&[0, 200_000_000, 10_000_000_000]),
        queue: random.one_of(&[128 << 10, 1 << 20]),
    }
}

/// Starts flows between some of the hosts.
fn begin_flows(net: &mut Net) {
    let nodes = net.nodes.len();
    for from in 0..nodes {
        for to in (0..nodes).filter(|&to| to != from) {
            if from + to > 1 && net.random.percent(50) {
                continue;
            }
            let number = to as u8 + 1;
            let address = net.random.one_of(&[v4(number), v6(number)]);
            let total = net.random.between(10_000, 400_000) as usize;
            net.begin(from, to, address, total);
        }
    }
}

fn make_trouble(net: &mut Net) {
    let nodes = net.nodes.len() as u64;
    let one = net.random.below(nodes) as usize;
    let other = net.random.below(nodes) as usize;
    let ms = net.random.below(1500);
    match net.random.below(5) {
        0 => {
            let qpn = net.nodes[one].port.qpn;
            let new = Qpn::new(0x1000 + net.random.below(0x1000) as u32);
            let qpn = net.random.one_of(&[qpn, new]);
            net.restart(one, qpn, ms);
        }
        1 => net.set_mode(one, Mode::Datagram),
        2 => net.set_mode(one, Mode::Connected),
        3 => net.cut(one, other, ms),
        _ => {
            net.cut(one, other, ms);
            net.cut(other, one, ms);
        }
    }
}

fn world(seed: u64) -> [u64; 3] {
    let mut random = Random::new(seed);
    let hosts: Vec<Host> = (0..random.between(2, 4))
        .map(|_| host(&mut random))
        .collect();
    let weather = weather(&mut random);
    let mut net = Net::new(seed, weather, &hosts);
    begin_flows(&mut net);
    let mut trouble_at = 0;
    net.run_until(3_600_000, "transfers", |net| {
        let now = net.now().0;
        if now >= trouble_at && now < TROUBLE_MS {
            trouble_at = now + net.random.between(20, 500);
            make_trouble(net);
        }
        now >= TROUBLE_MS && net.all_arrived()
    });
    net.check_connections();
    let counted = |count: fn(&ipoib::Counters) -> u64| {
        net.nodes.iter().map(|n| count(n.core.counters())).sum()
    };
    let sum = [
        counted(|c| c.connections_made),
        counted(|c| c.connections_failed),
        counted(|c| c.connections_refused),
    ];
    // Idle connections end on both sides, even without a message from the peer.
    net.abort_all();
    net.pass(600);
    net.check_connections();
    for node in &net.nodes {
        assert_eq!(node.core.connections().count(), 0);
        assert_eq!(node.port.engine.next_deadline(), None);
    }
    sum
}

#[test]
fn tcp_gets_through_all_trouble_at_once() {
    let first = setting("STACKS_SEED", 1);
    let mut sum = [0; 3];
    for seed in first..first + setting("STACKS_WORLDS", WORLDS) {
        let counts = world(seed);
        sum.iter_mut().zip(counts).for_each(|(s, n)| *s += n);
    }
    println!("connections made, failed, refused: {sum:?}");
    if env::var_os("STACKS_SEED").is_none() {
        assert!(
            sum.iter().all(|n| *n > 0),
            "too little happened to prove much"
        );
    }
}
