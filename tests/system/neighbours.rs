//! ARP, neighbour discovery and duplicate address detection through the translator.

use serde_json::Value;

use crate::lab::{Host, Lab, SOON, eventually, neighbour};

/// The daemon's entry for the neighbour that has `address`.
fn entry(host: &Host, address: &str) -> Option<Value> {
    host.ask("neigh ib0").into_iter().find(|entry| {
        entry["ips"]
            .as_array()
            .is_some_and(|ips| ips.iter().any(|ip| ip == address))
    })
}

#[test]
fn kernel_and_daemon_agree_about_a_neighbour() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    let there = b.show("ib0");
    a.reaches(b);
    for address in [b.v4(), b.v6()] {
        let entry = entry(a, &address).unwrap_or_else(|| panic!("no entry for {address}"));
        assert_eq!(entry["mac"], neighbour(a, "ib0", &address));
        assert_eq!(entry["address"], there["address"]);
        assert_eq!(entry["gid"], there["gid"]);
        assert_eq!(entry["qpn"], there["qpn"]);
    }
}

#[test]
fn the_mac_of_a_neighbour_is_local_and_the_same_for_both_families() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    a.reaches(b);
    let mac = neighbour(a, "ib0", &b.v4());
    assert_eq!(mac, neighbour(a, "ib0", &b.v6()));
    let first = u8::from_str_radix(&mac[..2], 16).expect("hexadecimal");
    assert_eq!(first & 3, 2, "locally administered, unicast: {mac}");
}

#[test]
fn arping_is_answered_with_the_neighbours_mac() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    let output = a.ok(&format!("arping -c 2 -w 5 -I ib0 {}", b.v4()));
    a.reaches(b);
    let mac = neighbour(a, "ib0", &b.v4());
    assert!(
        output.to_lowercase().contains(&format!("[{mac}]")),
        "{mac} is not in {output}"
    );
}

#[test]
fn ndisc6_is_answered_with_the_neighbours_mac() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    let output = a.ok(&format!("ndisc6 -1 -r 3 -w 2000 {} ib0", b.v6()));
    a.reaches(b);
    let mac = neighbour(a, "ib0", &b.v6());
    assert!(
        output.to_lowercase().contains(&mac),
        "{mac} is not in {output}"
    );
}

#[test]
fn neighbours_flushed_from_the_kernel_are_found_again() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    for _ in 0..3 {
        a.ok("ip neigh flush dev ib0");
        a.reaches(b);
    }
}

#[test]
fn an_ipv6_address_in_use_is_found_to_be_a_duplicate() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    a.ok("ip addr add fd09::77/64 dev ib0");
    eventually(SOON, "the first owner's address to be usable", || {
        let flags = address_flags(a, "fd09::77");
        assert!(!flags.duplicate, "its own probe came back to it");
        (!flags.tentative).then_some(())
    });
    b.ok("ip addr add fd09::77/64 dev ib0");
    eventually(SOON, "the second owner to see the duplicate", || {
        let flags = address_flags(b, "fd09::77");
        assert!(
            flags.tentative || flags.duplicate,
            "a duplicate address became usable"
        );
        flags.duplicate.then_some(())
    });
}

#[test]
fn an_ipv4_address_in_use_is_found_by_arping() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    let used = a.run(&format!("arping -D -c 2 -w 3 -I ib0 {}", b.v4()));
    assert_eq!(used.code, Some(1), "{used:?}");
    let free = a.run("arping -D -c 2 -w 3 -I ib0 10.9.0.200");
    assert_eq!(free.code, Some(0), "{free:?}");
}

/// With `--reflect`, the probe comes back, and the kernel takes its own address for a duplicate.
#[test]
fn ones_own_probe_does_not_come_back() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    for (host, options) in [(&mut *a, &["--reflect"][..]), (&mut *b, &[])] {
        // Otherwise the kernel knows its own probe by a nonce (RFC 7527).
        host.ok("sysctl -qw net.ipv6.conf.all.enhanced_dad=0 net.ipv6.conf.default.enhanced_dad=0");
        host.start(options);
        host.ok("ip link set ib0 up");
    }
    b.await_link_local("ib0");
    eventually(SOON, "a's probe to come back", || {
        let shown = a.link_local("ib0")?;
        (shown["dadfailed"] == true).then_some(())
    });
}

struct AddressFlags {
    tentative: bool,
    duplicate: bool,
}

fn address_flags(host: &Host, address: &str) -> AddressFlags {
    let shown = host.json("ip -6 -j addr show dev ib0");
    let info = shown[0]["addr_info"]
        .as_array()
        .expect("addresses")
        .iter()
        .find(|info| info["local"] == address)
        .unwrap_or_else(|| panic!("{address} is gone: {shown}"));
    AddressFlags {
        tentative: info["tentative"] == true,
        duplicate: info["dadfailed"] == true,
    }
}

/// An address that moves from the interface to its bridge stays reachable through it. After the interface
/// leaves the bridge, the bridge's addresses do not.
#[test]
fn what_is_announced_follows_the_addresses_of_interface_and_bridge() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    a.start(&["--log-level", "debug"]);
    b.start(&[]);
    b.configure("ib0");
    a.ok("ip link set ib0 up");
    a.ok("ip link add br0 type bridge mcast_snooping 0");
    a.ok("ip link set ib0 master br0");
    a.ok("ip link set br0 up");
    let v4 = a.v4();
    let await_lines = |a: &mut Host, what: &str, count: usize| {
        eventually(SOON, &format!("{count} times {what:?}"), || {
            (a.daemon().log().matches(what).count() == count).then_some(())
        });
    };
    let announced = format!("ib0: announces {v4}");
    a.ok(&format!("ip addr add {v4}/24 dev ib0"));
    await_lines(a, &announced, 1);
    a.ok(&format!("ip addr add {v4}/24 dev br0"));
    a.ok(&format!("ip addr del {v4}/24 dev ib0"));
    await_lines(a, &announced, 2);
    b.reaches_all(&[&v4]);
    let no_more = format!("ib0: no longer announces {v4}");
    await_lines(a, &no_more, 1);
    a.ok("ip link set ib0 nomaster");
    await_lines(a, &no_more, 2);
}
