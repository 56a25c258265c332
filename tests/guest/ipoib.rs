//! IP over InfiniBand between daemons, one of them or both in a guest.

use crate::lab::{Node, SOFT, SOON, Side, Stage, VERBS, all_arrives, eventually, on_stage, pair};

/// The MTU of connected mode.
const CONNECTED_MTU: u64 = 65_520;

/// Over connections that the guest has asked for, and others that it has been asked for.
fn connected(a: &Side, b: &Side) {
    for side in [a, b] {
        assert_eq!(side.node.mtu("ib0"), CONNECTED_MTU);
    }
    a.connects_to(b);
    b.connects_to(a);
    all_arrives(a, b);
}

#[test]
fn the_software_fabric_in_a_guest_reaches_that_of_the_host() {
    on_stage(|stage| {
        stage.guests[0].remove_rxe();
        let (a, b) = pair((&stage.guests[0], SOFT), (&stage.host, SOFT), "");
        all_arrives(&a, &b);
    });
}

#[test]
fn verbs_reach_the_software_fabric_with_datagrams() {
    on_stage(|stage| {
        let (a, b) = pair((&stage.guests[0], VERBS), (&stage.host, SOFT), "");
        all_arrives(&a, &b);
    });
}

#[test]
fn verbs_reach_the_software_fabric_over_connections() {
    on_stage(|stage| {
        let connections = "--mode connected";
        let (a, b) = pair((&stage.guests[0], VERBS), (&stage.host, SOFT), connections);
        connected(&a, &b);
    });
}

#[test]
fn verbs_reach_verbs_with_datagrams() {
    on_stage(|stage| {
        let [one, other] = &stage.guests;
        let (a, b) = pair((one, VERBS), (other, VERBS), "");
        all_arrives(&a, &b);
    });
}

#[test]
fn verbs_reach_verbs_over_connections() {
    on_stage(|stage| {
        let [one, other] = &stage.guests;
        let (a, b) = pair((one, VERBS), (other, VERBS), "--mode connected");
        connected(&a, &b);
    });
}

/// What udhcpc calls: the address is the interface's, and in a file.
const LEASE: &str = r#"#!/bin/sh
case $1 in
bound | renew) ip addr replace "$ip/24" dev "$interface"; echo "$ip" >/tmp/lease ;;
esac
"#;

fn leases(stage: &Stage, guest_options: &str) {
    let (guest, host) = (&stage.guests[0], &stage.host);
    let (a, b) = pair((guest, guest_options), (host, SOFT), "");
    let leases = stage.scratch().join("leases");
    let mut server = host.spawn(&format!(
        "exec dnsmasq --keep-in-foreground --conf-file=/dev/null --user=root --group=root --port=0 \
         --interface=ib0 --bind-interfaces --log-dhcp --log-facility=- --dhcp-authoritative --no-ping \
         --dhcp-leasefile={} --pid-file= --dhcp-range=10.9.0.150,10.9.0.159,255.255.255.0,2m",
        leases.display()
    ));
    server.says("DHCP, IP range");
    guest.ok("ip -4 addr flush dev ib0");
    guest.ok(&format!(
        "printf '%s' '{LEASE}' >/tmp/lease.sh; chmod +x /tmp/lease.sh; rm -f /tmp/lease"
    ));
    let client = guest.ok("udhcpc -i ib0 -f -q -n -t 5 -T 3 -s /tmp/lease.sh 2>&1; cat /tmp/lease");
    assert!(client.contains("10.9.0.15"), "{client}");
    let leased = client.lines().last().expect("an address").to_owned();
    eventually(SOON, "the leased address to answer", || {
        let ping = host.run(&format!("ping -c 1 -W 2 {leased}"));
        (ping.code == Some(0)).then_some(())
    });
    drop((a, b));
}

#[test]
fn a_guest_leases_its_address_over_the_software_fabric() {
    on_stage(|stage| {
        stage.guests[0].remove_rxe();
        leases(stage, SOFT);
    });
}

#[test]
fn a_guest_leases_its_address_over_verbs() {
    on_stage(|stage| leases(stage, VERBS));
}
