//! IP over InfiniBand between daemons, with one or both of them in a virtual machine.

use serde_json::Value;

use crate::lab::{
    Node, SOFT, SOON, Side, Stage, VERBS, all_arrives, eventually, on_both_stages, on_stage, pair,
};

/// The MTU of connected mode.
const CONNECTED_MTU: u64 = 65_520;

/// Over connections requested by the virtual machine, and over connections requested by the host.
fn connected(a: &Side, b: &Side) {
    for side in [a, b] {
        assert_eq!(side.node.mtu("ib0"), CONNECTED_MTU);
    }
    a.connects_to(b.node);
    b.connects_to(a.node);
    all_arrives(a.node, b.node);
}

#[test]
fn verbs_reach_the_software_fabric_with_datagrams() {
    on_stage(|stage| {
        let (a, b) = pair((&stage.machine, VERBS), (&stage.host, SOFT), "");
        all_arrives(a.node, b.node);
    });
}

#[test]
fn verbs_reach_the_software_fabric_over_connections() {
    on_stage(|stage| {
        let connections = "--mode connected";
        let (a, b) = pair((&stage.machine, VERBS), (&stage.host, SOFT), connections);
        connected(&a, &b);
        listed_alike(&a, &b);
    });
}

/// Resources of either provider: each connection's queue pair, connected to one that the other side lists,
/// and its counters.
fn listed_alike(a: &Side, b: &Side) {
    let [of_a, of_b] = [a, b].map(queue_pairs);
    for (side, mine, theirs) in [(a, &of_a, &of_b), (b, &of_b, &of_a)] {
        let name = side.node.name();
        let connections = side.connections();
        assert!(!connections.is_empty(), "{name}");
        for c in connections {
            let ends = |qp: &Value, end, peer| qp[end] == c["qpn"] && qp[peer] == c["peer_qpn"];
            let here = mine.iter().any(|qp| ends(qp, "qpn", "peer_qpn"));
            let there = theirs.iter().any(|qp| ends(qp, "peer_qpn", "qpn"));
            assert!(here && there, "{name}: {c}: {mine:?} {theirs:?}");
            let positive = |key: &str| c[key].as_u64().is_some_and(|n| n > 0);
            assert!(
                positive("tx_messages") && positive("path_mtu"),
                "{name}: {c}"
            );
        }
        let stats = &side.node.ask("stats ib0")[0];
        for counter in ["rx_packets", "tx_packets", "rx_bytes", "tx_bytes"] {
            assert!(stats[counter].as_u64() > Some(0), "{name}: {stats}");
        }
    }
}

/// The listed RC queue pairs, all of `ib0`.
fn queue_pairs(side: &Side) -> Vec<Value> {
    let port = &side.node.ask("res")[0];
    let all = port["queue_pairs"].as_array().expect("an array");
    let rc = all.iter().filter(|qp| qp["type"] == "RC").cloned();
    let rc: Vec<Value> = rc.collect();
    let sound = |qp: &Value| qp["state"] == "RTS" && qp["interface"] == "ib0";
    assert!(!rc.is_empty() && rc.iter().all(sound), "{port}");
    rc
}

#[test]
fn verbs_reach_verbs_with_datagrams() {
    on_both_stages(|one, other| {
        let (a, b) = pair((&one.machine, VERBS), (&other.machine, VERBS), "");
        all_arrives(a.node, b.node);
    });
}

#[test]
fn verbs_reach_verbs_over_connections() {
    on_both_stages(|one, other| {
        let [a, b] = [one, other].map(|stage| (&stage.machine as &dyn Node, VERBS));
        let (a, b) = pair(a, b, "--mode connected");
        connected(&a, &b);
    });
}

/// Two data threads send, each from its own queue pair; the first one receives. Nothing is received twice, and the peer
/// sees one neighbour.
fn two_threads(mode: &str) {
    on_stage(|stage| {
        let options = format!("{VERBS} --queues 2 --mode {mode}");
        let a = Side::start(&stage.machine, &options);
        let b = Side::start(&stage.host, &format!("{SOFT} --mode {mode}"));
        a.reaches(&b);
        all_arrives(a.node, b.node);
        a.both_threads_send(b.node);
        for (from, to) in [(&a, &b), (&b, &a)] {
            let ping = format!("ping -c 20 -i 0.05 -W 5 {}", to.node.v4());
            let output = from.node.ok(&ping);
            assert!(!output.contains("DUP"), "{output}");
        }
        let port = &a.node.ask("res")[0];
        let mut pairs = port["queue_pairs"].as_array().expect("an array").clone();
        pairs.retain(|qp| qp["type"] == "UD" && qp["interface"] == "ib0" && qp["state"] == "RTS");
        assert_eq!(pairs.len(), 2, "{port}");

        let known = |side: &Side| {
            let mut all = side.node.ask("neigh ib0");
            all.retain(|n| n["state"] == "confirmed");
            all
        };
        let (of_a, of_b) = (known(&a), known(&b));
        assert_eq!((of_a.len(), of_b.len()), (1, 1), "{of_a:?} {of_b:?}");
        // Own multicast of either thread has not come back.
        let gid = &of_b[0]["gid"];
        let back = a.node.ask("neigh ib0");
        assert!(back.iter().all(|n| &n["gid"] != gid), "{gid}: {back:?}");
        if mode == "connected" {
            a.each_thread_has_a_connection();
        }
    });
}

#[test]
fn two_data_threads_over_verbs_send_datagrams() {
    two_threads("datagram");
}

#[test]
fn two_data_threads_over_verbs_have_connections() {
    two_threads("connected");
}

/// The script of udhcpc: configures the address, and writes it to a file.
const LEASE: &str = r#"#!/bin/sh
case $1 in
bound | renew) ip addr replace "$ip/24" dev "$interface"; echo "$ip" >/tmp/lease ;;
esac
"#;

fn leases(stage: &Stage) {
    let (machine, host) = (&stage.machine, &stage.host);
    let (a, b) = pair((machine, VERBS), (host, SOFT), "");
    let leases = stage.scratch().join("leases");
    let mut server = host.spawn(&format!(
        "exec dnsmasq --keep-in-foreground --conf-file=/dev/null --user=root --group=root --port=0 \
         --interface=ib0 --bind-interfaces --log-dhcp --log-facility=- --dhcp-authoritative --no-ping \
         --dhcp-leasefile={} --pid-file= --dhcp-range=10.9.0.150,10.9.0.159,255.255.255.0,2m",
        leases.display()
    ));
    server.await_output("DHCP, IP range");
    machine.ok("ip -4 addr flush dev ib0");
    machine.ok(&format!(
        "printf '%s' '{LEASE}' >/tmp/lease.sh; chmod +x /tmp/lease.sh; rm -f /tmp/lease"
    ));
    let client =
        machine.ok("udhcpc -i ib0 -f -q -n -t 5 -T 3 -s /tmp/lease.sh 2>&1; cat /tmp/lease");
    assert!(client.contains("10.9.0.15"), "{client}");
    let leased = client.lines().last().expect("an address").to_owned();
    eventually(SOON, "the leased address to answer", || {
        let ping = host.run(&format!("ping -c 1 -W 2 {leased}"));
        (ping.code == Some(0)).then_some(())
    });
    drop((a, b));
}

#[test]
fn a_guest_leases_its_address_over_verbs() {
    on_stage(leases);
}
