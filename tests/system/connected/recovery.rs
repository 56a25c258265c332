//! Peers that are killed, return, or disappear from the network.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::lab::{
    Background, CONNECTED, CONNECTED_MTU, HEALED, Host, Lab, Load, Pinging, SOON, UNDERLAY_MTU,
    eventually, iperf_across,
};

use super::{full_packets_pass, v4_payload, v6_payload};

/// Maximum time in which others may notice the loss of a peer.
const UNNOTICED: Duration = Duration::from_secs(2);

const PERSISTENT: [&str; 3] = ["--mode", "connected", "--persist"];

/// A load from one host to another in the background.
fn load(from: &Host, to: &Host) -> (Load, [Background; 2]) {
    let turn = Load::begin();
    let server = to.spawn("iperf3 -s -p 5301");
    eventually(SOON, "the iperf3 server", || {
        let listening = to.ok("ss -Hltn sport = :5301");
        (!listening.trim().is_empty()).then_some(())
    });
    let client = from.spawn(&format!("iperf3 -p 5301 -t 60 -c {}", to.v4()));
    let before = from.of_connections("tx_bytes");
    eventually(SOON, "the load to flow", || {
        (from.of_connections("tx_bytes") > before + (1 << 20)).then_some(())
    });
    (turn, [server, client])
}

/// Full packets pass both ways within a few seconds. A late answer counts, too: the load fills the queues.
fn heals(a: &Host, b: &Host) {
    for (from, to) in [(a, b), (b, a)] {
        for (payload, address) in [
            (v4_payload(CONNECTED_MTU), to.v4()),
            (v6_payload(CONNECTED_MTU), to.v6()),
        ] {
            from.is_answered_again(&format!("-M do -s {payload} {address}"));
        }
        full_packets_pass(from, to, CONNECTED_MTU);
    }
}

/// A peer's stream with a third host continues.
#[test]
fn a_peer_killed_under_load_comes_back_and_others_go_on() {
    let Some(lab) = Lab::segment(3) else { return };
    let mut lab = lab.run_with(&CONNECTED);
    let (a, b, c) = lab.three();
    a.connects_to(b);
    let loads = [load(a, b), load(b, a)];
    let ping = Pinging::start(c, &a.v4());
    iperf_across(a, c, "", |a| {
        b.kill_daemon();
        eventually(SOON, "the TAP to go with its owner", || {
            (!b.has_link("ib0")).then_some(())
        });
        std::thread::sleep(Duration::from_millis(500));
        b.start(&CONNECTED);
        b.configure("ib0");
        heals(a, b);
    });
    ping.stop().gap_below(UNNOTICED);
    drop(loads);
    a.connects_to(b);
    b.connects_to(a);
}

/// The stream waits for the peer, for 300 ms at most. If packets were dropped, TCP would also lose some of those that it
/// sends again, and stand for seconds.
#[test]
fn a_stream_loses_nothing_to_a_peer_that_stops_for_a_moment() {
    const SHORT: Duration = Duration::from_millis(250);
    let Some(lab) = Lab::pair() else { return };
    let mut lab = lab.run_with(&CONNECTED);
    let (a, b) = lab.two();
    a.connects_to(b);
    let peer = Pid::from_raw(b.daemon().pid() as i32).expect("a process id");
    iperf_across(a, b, "-P 4", |a| {
        let mut short = 0;
        for _ in 0..30 {
            let dropped = a.counter("ib0", "tx_no_room");
            let began = Instant::now();
            kill_process(peer, Signal::STOP).expect("it is alive");
            std::thread::sleep(Duration::from_millis(150));
            let acknowledged = a.of_connections("tx_messages");
            kill_process(peer, Signal::CONT).expect("it is alive");
            // On a busy machine, the peer may not run at once.
            while a.of_connections("tx_messages") <= acknowledged && began.elapsed() < SHORT {}
            let stopped = began.elapsed();
            std::thread::sleep(Duration::from_millis(100));
            if stopped < SHORT {
                assert_eq!(a.counter("ib0", "tx_no_room"), dropped, "{stopped:?}");
                short += 1;
            }
            if short == 3 {
                return;
            }
        }
        panic!("the peer was never stopped for a short time only");
    });
}

/// The interface survives the daemon, and so do the TCP connections over it.
fn streams_outlive_a_kill(options: &str) {
    let Some(lab) = Lab::pair() else { return };
    let mut lab = lab.run_with(&PERSISTENT);
    let (a, b) = lab.two();
    a.connects_to(b);
    b.connects_to(a);
    iperf_across(b, a, options, |b| {
        b.kill_daemon();
        b.start(&PERSISTENT);
        heals(a, b);
    });
    assert_eq!(b.mtu("ib0"), u64::from(CONNECTED_MTU));
}

#[test]
fn c102_a_stream_outlives_the_kill_of_its_sender() {
    streams_outlive_a_kill("");
}

#[test]
fn c102_a_stream_outlives_the_kill_of_its_receiver() {
    streams_outlive_a_kill("-R");
}

/// "Packet too big" from a daemon that is not ready would make the peers send small packets for ten minutes.
#[test]
fn a_restart_under_load_leaves_the_path_mtu_as_it_was() {
    let Some(lab) = Lab::pair() else { return };
    let mut lab = lab.run_with(&PERSISTENT);
    let (a, b) = lab.two();
    a.connects_to(b);
    iperf_across(b, a, "-R", |b| {
        for _ in 0..3 {
            b.stop();
            b.start(&PERSISTENT);
            heals(a, b);
        }
    });
    assert_eq!(a.counter("ib0", "too_big_answered"), 0);
}

/// A daemon that ends disconnects, and the peer drops its ends at once.
#[test]
fn c103_a_daemon_that_ends_disconnects() {
    let Some(mut lab) = Lab::connected_pair() else {
        return;
    };
    let (a, b) = lab.two();
    a.connects_to(b);
    b.connects_to(a);
    b.stop();
    eventually(HEALED, "the connections to end", || {
        let left = a.connections("ib0").iter().any(|c| c.is_established());
        (!left).then_some(())
    });
    assert_eq!(
        a.counter("ib0", "retry_exceeded_err"),
        0,
        "by the disconnect, not by a timeout"
    );
}

/// A silent peer: after its retries the connection fails, without delay for other peers.
#[test]
fn a_peer_that_disappears_delays_no_other_and_is_found_again() {
    let Some(lab) = Lab::segment(3) else { return };
    let mut lab = lab.run_with(&CONNECTED);
    let (hosts, switch) = lab.hosts_and_switch();
    let [a, b, c] = hosts else {
        unreachable!("three hosts");
    };
    a.connects_to(b);
    a.connects_to(c);
    let loads = [load(a, b), load(b, a)];
    let failed = a.counter("ib0", "retry_exceeded_err");
    let ping = Pinging::start(a, &c.v4());
    switch.ok("ip link set port1 down");
    eventually(SOON, "the connection to fail", || {
        (a.counter("ib0", "retry_exceeded_err") > failed).then_some(())
    });
    assert!(a.counter("ib0", "local_ack_timeout_err") > 0);
    ping.goes_on();
    full_packets_pass(a, c, CONNECTED_MTU);
    switch.ok("ip link set port1 up");
    ping.stop().gap_below(UNNOTICED);
    drop(loads);
    b.await_carrier("ib0", true);
    a.reaches(b);
    heals(a, b);
}

/// Connections have a path MTU. When the underlay's MTU shrinks, connections that no longer fit end at once,
/// used or not, and smaller ones are made. When it grows, larger ones replace these.
#[test]
fn connections_follow_the_underlays_mtu() {
    let Some(mut lab) = Lab::connected_pair() else {
        return;
    };
    let (a, b) = lab.two();
    a.connects_to(b);
    let path_mtus = |host: &Host, peer: &Host| -> Vec<u64> {
        let both = [true, false].map(|active| host.connections_with(peer, active));
        both.iter()
            .flatten()
            .map(|c| c.number("path_mtu"))
            .collect()
    };
    assert!(path_mtus(a, b).contains(&4096));
    for host in [&*a, &*b] {
        host.ok("ip link set eth0 mtu 2400");
        assert_eq!(host.mtu("ib0"), u64::from(CONNECTED_MTU));
    }
    eventually(SOON, "connections of 4096 bytes end", || {
        let left = [path_mtus(a, b), path_mtus(b, a)].concat();
        (!left.contains(&4096)).then_some(())
    });
    heals(a, b);
    for host in [&*a, &*b] {
        host.ok(&format!("ip link set eth0 mtu {UNDERLAY_MTU}"));
    }
    eventually(SOON, "connections of 4096 bytes", || {
        heals(a, b);
        let all = [path_mtus(a, b), path_mtus(b, a)];
        let are_large = |of_one: &Vec<u64>| !of_one.is_empty() && !of_one.contains(&2048);
        all.iter().all(are_large).then_some(())
    });
    heals(a, b);
}
