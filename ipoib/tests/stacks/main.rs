//! Hosts with an independent TCP/IP stack (smoltcp), each on the Ethernet side of a core. Below the cores
//! are the engines of the software fabric: reliable connections, communication management, and datagrams.
//! All packets, with ICRCs, travel over the simulated network of `fabric`'s tests. It loses, duplicates,
//! delays, reorders and damages packets as the seed determines.
//!
//! Time is virtual. A failed test prints its seed, which repeats the same world. For a longer run, or to
//! repeat a world of [`trouble`]:
//!
//! ```sh
//! STACKS_WORLDS=10000 cargo test --release -p ipoib --test stacks -- trouble
//! STACKS_SEED=77 STACKS_WORLDS=1 cargo test -p ipoib --test stacks -- trouble
//! ```

mod connected;
mod flow;
mod many;
mod net;
#[allow(dead_code, reason = "fabric's simulation does more")]
#[path = "../../../fabric/tests/rc_sim/network.rs"]
mod network;
mod node;
#[allow(dead_code, reason = "as above")]
#[path = "../../../fabric/tests/rc_sim/packets.rs"]
mod packets;
mod port;
#[allow(dead_code, reason = "as above")]
#[path = "../../../fabric/tests/rc_sim/random.rs"]
mod random;
mod tap;
mod trouble;

use proto::Qpn;

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
        lost += net.network.toll.lost;
    }
    assert!(lost > 10, "the wires lost {lost}");
}

#[test]
fn c55_connections_outlive_a_restart_of_the_peer_with_another_queue_pair() {
    for (seed, to) in [(0x5eed_0011, v4(2)), (0x5eed_0012, v6(2))] {
        let mut net = Net::new(seed, CLEAN, [DATAGRAM; 2]);
        net.transfer(to, 200_000, |net| net.restart(1, Qpn::new(0x999), 300));
        assert_eq!(net.nodes[0].core.counters().neighbours_superseded, 1);
    }
}

#[test]
fn connections_outlive_our_own_restart() {
    let mut asked = 0;
    for (seed, to) in [(0x5eed_0021, v4(2)), (0x5eed_0022, v6(2))] {
        let mut net = Net::new(seed, ROUGH, [DATAGRAM; 2]);
        net.transfer(to, 200_000, |net| net.restart(0, Qpn::new(0x998), 300));
        // The stack's neighbour cache survived the restart, the core's table did not.
        let counters = net.nodes[0].core.counters();
        assert!(counters.neighbours_learned > 0);
        asked += counters.resolutions_sent;
    }
    assert!(asked > 0, "the peer always spoke first");
}
