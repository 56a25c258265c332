//! Many hosts on a fabric.

use proto::Qpn;

use crate::net::{CLEAN, Net};
use crate::network::Impairments;
use crate::node::{CONNECTED, DATAGRAM, Host, v4, v6};

const HOSTS: usize = 200;
/// Each host sends to the hosts at these distances, and receives from as many.
const TO: [usize; 3] = [1, 7, 61];
const BYTES: usize = 150_000;
const KILLS: u64 = 40;

/// Each host sends to three others. Meanwhile some daemons are killed and return within a second, some with
/// another queue pair. In the end all data has arrived.
fn all_talk(seed: u64, hosts: impl Fn(usize) -> Host) -> Net {
    let some_loss = Impairments {
        loss: 5_000,
        duplicate: 5_000,
        corrupt: 1_000,
        ..CLEAN
    };
    let hosts: Vec<Host> = (0..HOSTS).map(hosts).collect();
    let mut net = Net::new(seed, some_loss, &hosts);
    for from in 0..HOSTS {
        for places in TO {
            let to = (from + places) % HOSTS;
            let number = to as u8 + 1;
            let address = net.random.one_of(&[v4(number), v6(number)]);
            net.begin(from, to, address, BYTES);
        }
    }
    let (mut killed, mut looked_at) = (0, 0);
    net.run_until(3_600_000, "transfers", |net| {
        if killed < KILLS && net.now().0 >= 20 * killed {
            killed += 1;
            let node = net.random.below(HOSTS as u64) as usize;
            let own = net.nodes[node].port.qpn;
            let qpn = net.random.one_of(&[own, Qpn::new(0x1000 + killed as u32)]);
            let after = net.random.below(1000);
            net.restart(node, qpn, after);
        }
        if net.now().0 == looked_at {
            return false;
        }
        looked_at = net.now().0;
        for node in &net.nodes {
            let limit = node.host.connections;
            assert!(node.core.connections().count() <= limit);
            assert!(node.port.engine.list().len() <= limit);
        }
        killed == KILLS && net.all_arrived()
    });
    net.check_connections();
    net
}

fn made(net: &Net) -> u64 {
    let each = net.nodes.iter().map(|n| n.core.counters().connections_made);
    each.sum()
}

#[test]
fn two_hundred_hosts_talk_while_some_are_killed_and_return() {
    let net = all_talk(0x5eed_0200, |n| match n % 10 {
        9 => DATAGRAM,
        _ => CONNECTED,
    });
    let asking = HOSTS - HOSTS / 10;
    assert!(made(&net) as usize > 2 * asking, "{} made", made(&net));
}

/// Each host wants six connections; at most three exist at a time.
#[test]
fn two_hundred_hosts_share_the_connections_that_they_may_have() {
    let net = all_talk(0x5eed_0201, |_| Host {
        connections: 3,
        ..CONNECTED
    });
    let refused = net
        .nodes
        .iter()
        .map(|n| n.core.counters().connections_no_room);
    assert!(made(&net) > 0 && refused.sum::<u64>() > 0);
}
