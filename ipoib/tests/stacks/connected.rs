//! Hosts in connected mode: packets on connections, peers without connections, and the reaction of TCP to
//! changes.

use ipoib::{Mode, Role};
use proto::Qpn;
use smoltcp::wire::IpAddress;

use crate::net::{CLEAN, Net, ROUGH};
use crate::node::{CONNECTED, DATAGRAM, Host, LINK_MTU, v4, v6};

/// More bytes than the window of a connection.
const MUCH: usize = 2_000_000;
const SOME: usize = 200_000;

fn both() -> [(u64, IpAddress); 2] {
    [(0x5eed_0100, v4(2)), (0x5eed_0101, v6(2))]
}

/// Number of connections that a node requested.
fn made(net: &Net, node: usize) -> usize {
    let all = net.nodes[node].core.connections();
    all.filter(|(_, peer)| peer.role == Role::Active).count()
}

/// Number of messages posted.
fn messages(net: &Net) -> usize {
    net.nodes.iter().map(|n| n.port.messages).sum()
}

#[test]
fn tcp_goes_over_connections_in_large_messages_while_datagrams_get_lost() {
    for (seed, to) in both() {
        let mut net = Net::new(seed, ROUGH, [CONNECTED; 2]);
        net.transfer(to, MUCH, |_| {});
        assert!(
            net.nodes[0].port.longest > 65_000,
            "the longest is {}",
            net.nodes[0].port.longest
        );
        assert_eq!((made(&net, 0), made(&net, 1)), (1, 1));
        for node in &net.nodes {
            let c = node.core.counters();
            assert_eq!((c.connections_made, c.connections_accepted), (1, 1));
            assert_eq!(c.too_big_answered, 0);
            assert_eq!(node.mtu(), 65520);
        }
    }
}

#[test]
fn with_a_host_in_datagram_mode_tcp_agrees_on_what_a_datagram_carries() {
    for (seed, to) in both() {
        for hosts in [[CONNECTED, DATAGRAM], [DATAGRAM, CONNECTED]] {
            let mut net = Net::new(seed, ROUGH, hosts);
            net.transfer(to, SOME, |_| {});
            assert_eq!(
                (
                    messages(&net),
                    net.nodes[0].core.counters().too_big_answered
                ),
                (0, 0)
            );
        }
    }
}

/// Both hosts have the large MTU, so TCP agrees on large segments. Only the path shows that they do not
/// pass.
#[test]
fn c110_a_host_that_is_told_the_paths_mtu_sends_packets_that_pass() {
    let silent_about_it = Host {
        flagged: false,
        ..CONNECTED
    };
    let refusing = Host {
        connections: 0,
        ..CONNECTED
    };
    for (seed, to) in both() {
        for other in [silent_about_it, refusing] {
            let mut net = Net::new(seed, CLEAN, [CONNECTED, other]);
            net.transfer(to, SOME, |_| {});
            let one = &net.nodes[0];
            assert!(one.core.counters().too_big_answered > 0);
            assert_eq!((one.mtu(), made(&net, 0)), (LINK_MTU, 0));
        }
    }
}

#[test]
fn tcp_survives_changes_of_mode() {
    for (seed, to) in both() {
        let mut net = Net::new(seed, CLEAN, [CONNECTED; 2]);
        net.transfer(to, MUCH, |net| {
            net.nodes[0].core.set_mode(Mode::Datagram);
        });
        assert_eq!((net.nodes[0].mtu(), made(&net, 0)), (LINK_MTU, 0));
        let before = messages(&net);
        // The other host and its connection are unchanged.
        assert_eq!(made(&net, 1), 1);
        net.nodes[0].core.set_mode(Mode::Connected);
        net.ping_until_answered(to, 5);
        net.ping_until_answered(to, 5);
        assert!(made(&net, 0) == 1 && messages(&net) > before);
    }
}

#[test]
fn tcp_survives_a_peer_that_is_killed_and_comes_back() {
    for (seed, to) in both() {
        for qpn in [Qpn::new(0x42), Qpn::new(0x999)] {
            let mut net = Net::new(seed, CLEAN, [CONNECTED; 2]);
            net.transfer(to, MUCH, |net| net.restart(1, qpn, 300));
            let counters = net.nodes[0].core.counters();
            assert_eq!(counters.connections_made, 2, "{qpn}");
            assert_eq!((made(&net, 0), counters.too_big_answered), (1, 0));
        }
    }
}

#[test]
fn tcp_survives_our_own_restart_without_a_smaller_mtu() {
    for (seed, to) in both() {
        for qpn in [Qpn::new(0x41), Qpn::new(0x998)] {
            let mut net = Net::new(seed, CLEAN, [CONNECTED; 2]);
            net.transfer(to, MUCH, |net| net.restart(0, qpn, 300));
            let node = &net.nodes[0];
            assert_eq!(node.core.counters().too_big_answered, 0, "{qpn}");
            assert_eq!((made(&net, 0), node.mtu()), (1, 65520));
        }
    }
}

/// Longer than a request lasts, so that the peer counts as refusing when it returns.
#[test]
fn a_peer_that_was_down_for_long_is_asked_again_when_it_is_back() {
    for (seed, to) in both() {
        let mut net = Net::new(seed, CLEAN, [CONNECTED; 2]);
        let own = net.nodes[1].port.qpn;
        net.transfer(to, MUCH, |net| net.restart(1, own, 40_000));
        assert!(net.nodes[0].core.counters().connections_refused > 0);
        assert_eq!(made(&net, 0), 1);
        let active = net.nodes[0].port.engine.list();
        let made_at = active.iter().filter(|c| c.active).map(|c| c.created).max();
        // The pause began while the peer was down, and would last a minute.
        let pause_over = proto::Instant(80_000_000_000);
        assert!(made_at.is_some_and(|at| at < pause_over), "{made_at:?}");
    }
}
