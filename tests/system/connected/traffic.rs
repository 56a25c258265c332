//! Ordinary traffic between two hosts in connected mode.

use crate::lab::group::{V4, V6, heard, is_full_member, receiver, sender};
use crate::lab::{
    CONNECTED, CONNECTED_MTU, Connection, Host, Lab, SOON, arrives_whole, eventually, iperf,
    iperf_above, udp_arrives,
};

use super::{full_packets_pass, v4_payload, v6_payload};

/// Only a broken data path is slower.
const FLOOR: f64 = 200e6;

#[test]
fn c100_65520_bytes_pass_and_65521_do_not() {
    let Some(mut lab) = Lab::connected_pair() else {
        return;
    };
    let (a, b) = lab.two();
    for (from, to) in [(&*a, &*b), (&*b, &*a)] {
        assert_eq!(from.mtu("ib0"), u64::from(CONNECTED_MTU));
        full_packets_pass(from, to, CONNECTED_MTU);
        for (payload, address) in [
            (v4_payload(CONNECTED_MTU + 1), to.v4()),
            (v6_payload(CONNECTED_MTU + 1), to.v6()),
        ] {
            let done = from.run(&format!("ping -M do -c 1 -W 1 -s {payload} {address}"));
            assert_ne!(done.code, Some(0), "{done:?}");
        }
    }
    // The kernel allows a TAP one byte more.
    a.run("ip link set ib0 mtu 65521");
    eventually(SOON, "an MTU that connected mode has", || {
        (a.mtu("ib0") <= u64::from(CONNECTED_MTU)).then_some(())
    });
}

/// There was no packet before, so there is no connection, and no datagram can hold this one.
#[test]
fn the_first_packet_waits_for_its_connection() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    for host in [&mut *a, &mut *b] {
        host.start(&CONNECTED);
        host.configure("ib0");
    }
    let payload = v4_payload(CONNECTED_MTU);
    let output = a.ok(&format!("ping -M do -c 1 -W 10 -s {payload} {}", b.v4()));
    assert!(output.contains(" 0% packet loss"), "{output}");
    assert_eq!(a.counter("ib0", "too_big_answered"), 0);
}

/// Both ends of each connection from `from` to `to` report the same values.
fn ends_agree(from: &Host, to: &Host) {
    eventually(SOON, "both ends to agree", || {
        let sends = from.connections_with(to, true);
        let receives = to.connections_with(from, false);
        let matching = sends.iter().filter(|active| {
            receives.iter().any(|passive| {
                passive.text("gid") == active.text("peer_gid")
                    && passive.number("qpn") == active.number("peer_qpn")
                    && passive.number("peer_qpn") == active.number("qpn")
                    && passive.number("rx_bytes") == active.number("tx_bytes")
                    && passive.number("rx_messages") == active.number("tx_messages")
                    && passive.number("tx_messages") == 0
                    && active.number("rx_messages") == 0
            })
        });
        (!sends.is_empty() && matching.count() == sends.len()).then_some(())
    });
}

#[test]
fn tcp_runs_both_ways_over_both_families_in_connections_that_count_it() {
    let Some(mut lab) = Lab::connected_pair() else {
        return;
    };
    let (a, b) = lab.two();
    for address in [b.v4(), b.v6()] {
        for options in ["-n 64M", "-n 64M -R", "-n 64M -P 4"] {
            let (sender, receiver) = match options.contains("-R") {
                true => (&*b, &*a),
                false => (&*a, &*b),
            };
            let before = [
                sender.of_connections("tx_bytes"),
                receiver.of_connections("rx_bytes"),
            ];
            let report = iperf_above(a, b, &address, options, FLOOR);
            let after = [
                sender.of_connections("tx_bytes"),
                receiver.of_connections("rx_bytes"),
            ];
            for (before, after) in before.into_iter().zip(after) {
                assert!(
                    after - before > report.bytes,
                    "{options}: {before} to {after}"
                );
            }
        }
    }
    ends_agree(a, b);
    ends_agree(b, a);
    for host in [a, b] {
        assert_eq!(host.counter("ib0", "rx_icrc_errors"), 0);
    }
}

/// C96: the acceptor of a connection sends nothing on it, so each direction has its own.
#[test]
fn c96_each_direction_has_a_connection_of_its_own() {
    let Some(mut lab) = Lab::connected_pair() else {
        return;
    };
    let (a, b) = lab.two();
    a.connects_to(b);
    b.connects_to(a);
    full_packets_pass(a, b, CONNECTED_MTU);
    full_packets_pass(b, a, CONNECTED_MTU);
    ends_agree(a, b);
    ends_agree(b, a);
}

#[test]
fn c46_c97_arp_and_multicast_stay_off_the_connections() {
    let Some(mut lab) = Lab::connected_pair() else {
        return;
    };
    let (a, b) = lab.two();
    a.connects_to(b);
    b.connects_to(a);
    let groups = [&V4, &V6].map(|group| {
        let listening = receiver(b, "ib0", group);
        eventually(SOON, "the group", || is_full_member(b, group).then_some(()));
        (group, listening)
    });
    let messages = |host: &Host| host.of_connections("tx_messages");
    let before = [messages(a), messages(b)];
    a.ok(&format!("arping -c 5 -w 10 -I ib0 {}", b.v4()));
    for (group, listening) in &groups {
        heard(&sender(a, "ib0", group), listening, "a packet of the group");
    }
    assert_eq!([messages(a), messages(b)], before);
}

#[test]
fn bytes_arrive_as_they_were_sent() {
    let Some(mut lab) = Lab::connected_pair() else {
        return;
    };
    let (a, b) = lab.two();
    for address in [b.v4(), b.v6()] {
        arrives_whole(a, b, &address);
    }
    for address in [a.v4(), a.v6()] {
        arrives_whole(b, a, &address);
    }
}

#[test]
fn udp_of_one_packet_and_of_a_whole_message_arrives() {
    let Some(mut lab) = Lab::connected_pair() else {
        return;
    };
    let (a, b) = lab.two();
    udp_arrives(a, b, 20, &[64, 1400, 12_000, 65_000]);
}

#[test]
fn one_queue_and_four_queues_carry_tcp() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    a.start(&["--mode", "connected", "--queues", "1"]);
    b.start(&["--mode", "connected", "--queues", "4"]);
    for host in [&*a, &*b] {
        host.configure("ib0");
    }
    a.reaches(b);
    for options in ["-n 64M -P 4", "-n 64M -P 4 -R"] {
        iperf_above(a, b, &b.v4(), options, FLOOR);
    }
    ends_agree(a, b);
    ends_agree(b, a);
}

/// The ICRC covers the kernel's identification of each IPv4 packet.
#[test]
fn connections_between_ipv4_gids_carry_full_packets_and_tcp() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    for (host, peer) in [(&mut *a, "10.8.0.2"), (&mut *b, "10.8.0.1")] {
        host.start(&["--mode", "connected", "--gid", "ipv4", "--peers", peer]);
        host.configure("ib0");
    }
    a.connects_to(b);
    b.connects_to(a);
    full_packets_pass(a, b, CONNECTED_MTU);
    for options in ["-n 64M", "-n 64M -R"] {
        iperf_above(a, b, &b.v6(), options, FLOOR / 2.0);
    }
    for host in [&*a, &*b] {
        assert_eq!(host.counter("ib0", "rx_icrc_errors"), 0);
    }
}

/// The IPoIB MTU may be smaller than that of the mode.
#[test]
fn a_small_mtu_of_the_administrators_uses_connections_too() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    for host in [&mut *a, &mut *b] {
        host.start(&["--mode", "connected", "--mtu", "2044"]);
        host.configure("ib0");
        assert_eq!(host.mtu("ib0"), 2044);
    }
    a.connects_to(b);
    let before = a.of_connections("tx_bytes");
    iperf(a, b, &b.v4(), "-n 40M");
    // The rest are datagrams: the other data thread may have had no connection yet.
    let carried = a.of_connections("tx_bytes") - before;
    assert!(carried > 20 << 20, "{carried} bytes");
}

#[test]
fn conn_lists_connections_for_people_and_for_programs() {
    let Some(mut lab) = Lab::connected_pair() else {
        return;
    };
    let (a, b) = lab.two();
    a.connects_to(b);
    b.connects_to(a);
    let gids = [&*a, &*b].map(|host| host.show("ib0")["gid"].clone());
    // Each data thread makes connections of its own, also meanwhile.
    let listed = eventually(SOON, "connections that carry messages both ways", || {
        let listed = a.connections("ib0");
        let sends = |c: &Connection| c.is_active() && c.number("tx_messages") > 0;
        let receives = |c: &Connection| !c.is_active() && c.number("rx_messages") > 0;
        let both = listed.iter().any(sends) && listed.iter().any(receives);
        (both && listed.iter().all(Connection::is_established)).then_some(listed)
    });
    for connection in &listed {
        assert_eq!(connection.text("interface"), "ib0");
        assert_eq!(gids[0], connection.text("gid"));
        assert_eq!(gids[1], connection.text("peer_gid"));
        assert_eq!(connection.number("path_mtu"), 4096);
        assert_eq!(connection.number("pid"), u64::from(a.daemon().pid()));
        for number in ["qpn", "peer_qpn"] {
            assert!((2..0xff_ffff).contains(&connection.number(number)));
        }
        for number in [
            "tx_bytes",
            "rx_bytes",
            "tx_messages",
            "rx_messages",
            "retransmits",
        ] {
            connection.number(number);
        }
    }
    let text = a.ibtap("conn ib0");
    assert_eq!(text.code, Some(0), "{text:?}");
    for word in ["ib0", "active", "passive", "ESTABLISHED"] {
        assert!(text.out.contains(word), "{word}: {}", text.out);
    }
    // Without a name: all interfaces; with the name of a missing one: none.
    assert!(a.ask("conn").len() >= listed.len());
    assert_eq!(a.ibtap("conn ib7").code, Some(1));
    // The same connections are resources of the port.
    let qpn = listed[0].number("qpn");
    let found = a.ask(&format!("res lqpn {qpn}"));
    let ids = &found[0]["cm_ids"];
    assert_eq!(ids.as_array().map(Vec::len), Some(1), "{found:?}");
    assert_eq!(
        (&ids[0]["qpn"], &ids[0]["peer_gid"]),
        (&qpn.into(), &gids[1])
    );
    assert_eq!(found[0]["queue_pairs"][0]["type"], "RC");
    assert_eq!(found[0]["queue_pairs"].as_array().map(Vec::len), Some(1));
}

/// The counters explained in docs/connected-mode.md.
#[test]
fn stats_have_the_counters_that_are_documented() {
    let Some(mut lab) = Lab::connected_pair() else {
        return;
    };
    let (a, b) = lab.two();
    a.connects_to(b);
    for name in [
        "connections_made",
        "cm_tx_msgs_req",
        "cm_rx_msgs_rep",
        "cm_tx_msgs_rtu",
        "sent_pkts",
        "rcvd_pkts",
    ] {
        assert!(a.counter("ib0", name) > 0, "{name}");
    }
    let others = [
        "connections_refused",
        "connections_rejected",
        "connections_failed",
        "connections_reaped",
        "connections_evicted",
        "too_big_answered",
        "too_big_held",
        "packet_seq_err",
        "retransmitted",
        "out_of_sequence",
        "duplicate_request",
        "local_ack_timeout_err",
        "retry_exceeded_err",
        "rnr_nak_retry_err",
        "send_rnr_err",
        "retry_rnr_exceeded_err",
        "srq_limit_reached",
        "resp_invalid_request",
        "resp_local_length_error",
        "rx_not_peer",
        "cm_rx_msgs_rej",
    ];
    a.counters("ib0", &others);
}
