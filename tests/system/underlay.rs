//! Changes of the underlay: it goes down, changes its MTU or address, disappears, returns.

use crate::lab::{Host, Lab, Load, SOON, UNDERLAY_MTU, eventually, iperf_server, more_arrives};

fn await_state(host: &Host, state: &str) {
    eventually(SOON, &format!("state {state}"), || {
        (host.show("ib0")["state"] == state).then_some(())
    });
}

#[test]
fn carrier_follows_the_underlay_and_traffic_heals() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    a.ok("ip link set eth0 down");
    // Both ends of a veth lose their carrier.
    for host in [&*a, &*b] {
        await_state(host, "DOWN");
        host.await_carrier("ib0", false);
        assert!(host.show("ib0")["reason"].is_string());
    }
    assert!(!a.pings(&b.v4()));
    a.ok("ip link set eth0 up");
    for host in [&*a, &*b] {
        await_state(host, "ACTIVE");
        host.await_carrier("ib0", true);
    }
    a.reaches(b);
    b.reaches(a);
}

#[test]
fn the_underlays_mtu_shrinks_and_grows_under_load() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    a.reaches(b);
    let _turn = Load::begin();
    let (_server, port) = iperf_server(b);
    let _client = a.spawn(&format!("iperf3 -c {} -p {port} -t 60", b.v4()));
    for mtu in [2400, UNDERLAY_MTU, 2400, UNDERLAY_MTU] {
        more_arrives(b, port);
        for host in [&*a, &*b] {
            host.ok(&format!("ip link set eth0 mtu {mtu}"));
        }
        for host in [&*a, &*b] {
            let answered = host.ask("stats ib0")[0]["workers"].as_array().map(Vec::len);
            let threads = host.show("ib0")["queues"].as_u64().expect("a number");
            assert_eq!(
                answered.map(|n| n as u64),
                Some(threads),
                "no data thread is caught in a packet that no longer fits"
            );
        }
    }
    more_arrives(b, port);
    a.reaches(b);
}

#[test]
fn the_link_mtu_follows_the_underlays() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    let before = a.show("ib0")["link_mtu"].as_u64().expect("bytes");
    for host in [&*a, &*b] {
        host.ok("ip link set eth0 mtu 2400");
        let after = eventually(SOON, "a smaller link MTU", || {
            let now = host.show("ib0")["link_mtu"].as_u64()?;
            (now < before).then_some(now)
        });
        assert!(host.mtu("ib0") <= after);
    }
    eventually(SOON, "a full packet over the smaller link", || {
        let size = a.mtu("ib0") - 28;
        let done = a.run(&format!("ping -M do -c 1 -W 1 -s {size} {}", b.v4()));
        (done.code == Some(0)).then_some(())
    });
    for host in [&*a, &*b] {
        host.ok(&format!("ip link set eth0 mtu {UNDERLAY_MTU}"));
        eventually(SOON, "the former link MTU", || {
            (host.show("ib0")["link_mtu"] == before).then_some(())
        });
    }
    a.reaches(b);
}

/// IPv6 needs 1280 bytes (RFC 8200, 5).
#[test]
fn the_host_is_found_again_after_an_mtu_too_small_for_ipv6() {
    let Some(mut lab) = Lab::running_segment(3) else {
        return;
    };
    let (_, a, b) = lab.three();
    a.ok("ip link set eth0 mtu 1200");
    await_state(a, "DOWN");
    a.ok(&format!("ip link set eth0 mtu {UNDERLAY_MTU}"));
    await_state(a, "ACTIVE");
    a.await_carrier("ib0", true);
    // `b` has not spoken to `a` yet: ARP and ND ask a group.
    b.reaches(a);
}

#[test]
fn an_underlay_that_vanishes_is_waited_for() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    a.ok("ip link del eth0");
    for host in [&mut *a, &mut *b] {
        await_state(host, "DOWN");
        host.await_carrier("ib0", false);
        assert!(host.daemon().is_running());
    }
    let peer = b.namespace().name().to_owned();
    a.ok(&format!(
        "ip link add eth0 mtu {UNDERLAY_MTU} type veth peer name eth0 mtu {UNDERLAY_MTU} netns {peer}"
    ));
    for host in [&*a, &*b] {
        host.bring_up_underlay();
    }
    for host in [&*a, &*b] {
        await_state(host, "ACTIVE");
    }
    // A new veth has a new MAC, hence a new GID: neighbours learn it.
    a.reaches(b);
    b.reaches(a);
}

#[test]
fn a_changed_link_local_address_is_the_new_gid() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    let old = a.show("ib0")["gid"].clone();
    a.ok("ip link set eth0 down");
    a.ok("ip link set eth0 address 02:00:00:00:77:01");
    a.ok("ip link set eth0 up");
    eventually(SOON, "the new GID", || {
        (a.show("ib0")["gid"] == "fe80::ff:fe00:7701").then_some(())
    });
    assert_ne!(old, "fe80::ff:fe00:7701");
    b.reaches(a);
    a.reaches(b);
}

#[test]
fn the_daemon_waits_for_a_tentative_address() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    b.start(&[]);
    a.ok("ip link set eth0 down");
    a.ok("sysctl -qw net.ipv6.conf.eth0.accept_dad=1 net.ipv6.conf.eth0.dad_transmits=2");
    a.ok("ip link set eth0 up");
    a.start(&[]);
    assert_eq!(a.show("ib0")["state"], "ACTIVE");
    a.configure("ib0");
    b.configure("ib0");
    a.reaches(b);
}
