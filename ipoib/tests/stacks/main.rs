//! Two TCP/IP stacks that are not ours (smoltcp), each on the Ethernet side of a core, joined by a
//! simulated fabric that loses, duplicates and reorders.

mod connected;
mod net;
mod node;
mod tap;

use fabric::Qpn;

use net::{CLEAN, Net, ROUGH};
use node::{DATAGRAM, v4, v6};

#[test]
fn arp_nd_and_ping_on_a_clean_wire() {
    let mut net = Net::new(0x1b, CLEAN, [DATAGRAM; 2]);
    net.ping_until_answered(v4(2), 2);
    net.ping_until_answered(v6(2), 2);
    for node in &net.nodes {
        let n: Vec<_> = node.core.neighbours().collect();
        assert_eq!(n.len(), 1);
        assert_eq!(n[0].ips.len(), 2);
        assert_eq!(node.core.counters().frames_held, 0);
    }
}

#[test]
fn ping_and_tcp_through_loss_duplication_and_reordering() {
    let mut lost = 0;
    for seed in [0x5eed_0001, 0x5eed_0002, 0x5eed_0003] {
        let mut net = Net::new(seed, ROUGH, [DATAGRAM; 2]);
        net.ping_until_answered(v4(2), 60);
        net.ping_until_answered(v6(2), 60);
        net.transfer(if seed & 1 == 0 { v4(2) } else { v6(2) }, 200_000, |_| {});
        lost += net.lost;
    }
    assert!(lost > 10, "the wires lost {lost}");
}

#[test]
fn c55_connections_outlive_a_restart_of_the_peer_with_another_queue_pair() {
    for (seed, to) in [(0x5eed_0011, v4(2)), (0x5eed_0012, v6(2))] {
        let mut net = Net::new(seed, CLEAN, [DATAGRAM; 2]);
        net.transfer(to, 200_000, |net| net.nodes[1].restart(Qpn::new(0x999)));
        assert_eq!(net.nodes[0].core.counters().neighbours_superseded, 1);
    }
}

#[test]
fn connections_outlive_our_own_restart() {
    for (seed, to) in [(0x5eed_0021, v4(2)), (0x5eed_0022, v6(2))] {
        let mut net = Net::new(seed, ROUGH, [DATAGRAM; 2]);
        net.transfer(to, 200_000, |net| net.nodes[0].restart(Qpn::new(0x998)));
        // The stack's neighbour cache survived, the core's table did not: it had to ask.
        assert!(net.nodes[0].core.counters().resolutions_sent > 0);
    }
}
