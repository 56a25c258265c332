//! IPv4 GIDs; multicast travels as unicast copies to a list of peers.

use crate::lab::{Host, Lab, iperf_above};

fn run(here: &mut Host, peers: &str) {
    here.start(&["--gid", "ipv4", "--peers", peers]);
    here.configure("ib0");
    let gid = here.show("ib0")["gid"].clone();
    assert_eq!(gid, format!("::ffff:{}", here.underlay_v4()));
}

#[test]
fn arp_nd_ping_and_tcp_work_between_ipv4_gids() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    run(a, &b.underlay_v4());
    run(b, &a.underlay_v4());
    a.reaches(b);
    b.reaches(a);
    // Full packets and trains of them: the ICRC covers the IPv4 identification of each.
    let size = a.mtu("ib0") - 28;
    a.ok(&format!(
        "ping -M do -q -c 50 -i 0.01 -W 2 -s {size} {}",
        b.v4()
    ));
    for options in ["-n 64M", "-n 64M -R"] {
        iperf_above(a, b, &b.v6(), options, 100e6);
    }
    for host in [a, b] {
        assert_eq!(host.counter("ib0", "rx_icrc_errors"), 0);
    }
}

#[test]
fn peers_replace_multicast_over_ipv6_too() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    let (gid_a, gid_b) = (a.await_link_local("eth0"), b.await_link_local("eth0"));
    a.start(&["--peers", &gid_b]);
    b.start(&["--peers", &gid_a]);
    for host in [&*a, &*b] {
        host.configure("ib0");
        let groups = host.ok("ip -6 maddr show dev eth0");
        assert!(
            !groups.contains("ff12:401b"),
            "no group is needed: {groups}"
        );
    }
    a.reaches(b);
    b.reaches(a);
}

#[test]
fn ipv4_without_peers_is_refused() {
    let Some(mut lab) = Lab::pair() else { return };
    let refusal = lab
        .host(0)
        .refused(&["--underlay", "eth0", "--gid", "ipv4"]);
    assert_eq!(refusal.code, Some(1), "{refusal:?}");
    assert!(refusal.err.contains("peers"), "{refusal:?}");
}
