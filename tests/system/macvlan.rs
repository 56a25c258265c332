//! Macvlans on `ib0` in separate namespaces, as for containers.

use std::ops::Deref;

use crate::lab::group::{V4, V6, each_once, heard, is_full_member, receiver, sender};
use crate::lab::{
    Host, Lab, Pinging, SOON, Station, arrives_whole, eventually, is_duplicate, neighbour,
};

/// A macvlan on a host's `ib0`, called `eth0` in its namespace.
struct Container {
    station: Station,
    number: usize,
}

impl Deref for Container {
    type Target = Station;

    fn deref(&self) -> &Station {
        &self.station
    }
}

impl Container {
    /// Creates it, with an address of each family.
    fn create(host: &Host, number: usize, mode: &str) -> Container {
        let container = Container {
            station: Station::create(&format!("{mode} container {number}")),
            number,
        };
        let namespace = container.namespace().name();
        let name = format!("mv{number}");
        host.ok(&format!(
            "ip link add link ib0 name {name} type macvlan mode {mode}"
        ));
        host.ok(&format!("ip link set {name} netns {namespace} name eth0"));
        container.ok(&format!("ip addr add {}/24 dev eth0", container.v4()));
        container.ok(&format!("ip addr add {}/64 dev eth0 nodad", container.v6()));
        container.ok("ip link set eth0 up");
        container.await_carrier("eth0", true);
        container
    }

    fn v4(&self) -> String {
        format!("10.9.0.{}", 100 + self.number)
    }

    fn v6(&self) -> String {
        format!("fd09::{}", 100 + self.number)
    }

    fn addresses(&self) -> [String; 2] {
        [self.v4(), self.v6()]
    }
}

fn addresses(host: &Host) -> [String; 2] {
    [host.v4(), host.v6()]
}

/// Requirements of every mode: each container and the other host reach each other by unicast and multicast,
/// and detect duplicate addresses.
fn serves(b: &Host, containers: &[Container]) {
    for container in containers {
        container.reaches_all(&addresses(b));
        b.reaches_all(&container.addresses());
        b.ok("ip neigh flush dev ib0");
        b.reaches_all(&container.addresses());
        arrives_whole(container, b, &b.v4());
        arrives_whole(b, container, &container.v6());
    }
}

#[test]
fn macvlans_in_bridge_mode() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    let containers = [1, 2].map(|number| Container::create(a, number, "bridge"));
    serves(b, &containers);
    // The kernel switches frames between them without the fabric.
    let [one, two] = &containers;
    one.reaches_all(&two.addresses());
    two.reaches_all(&one.addresses());
    a.reaches(b);
    b.reaches(a);
}

#[test]
fn macvlans_in_private_mode() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    let containers = [1, 2].map(|number| Container::create(a, number, "private"));
    serves(b, &containers);
    let [one, two] = &containers;
    assert!(!one.pings(&two.v4()), "private means private");
    a.reaches(b);
}

#[test]
fn macvlans_in_vepa_mode_reach_each_other_by_reflection() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    a.start(&["--reflect"]);
    b.start(&[]);
    a.configure("ib0");
    b.configure("ib0");
    a.reaches(b);
    // The host's own probes come back; it recognizes them by their nonce (RFC 7527).
    a.await_link_local("ib0");
    let containers = [1, 2].map(|number| Container::create(a, number, "vepa"));
    serves(b, &containers);
    let [one, two] = &containers;
    one.reaches_all(&two.addresses());
    two.reaches_all(&one.addresses());
    arrives_whole(one, two, &two.v4());
    for group in [&V4, &V6] {
        let listening = receiver(two, "eth0", group);
        let sending = sender(one, "eth0", group);
        heard(&sending, &listening, "a reflected packet");
        each_once(&sending, &listening, "reflected packets");
    }
}

#[test]
fn macvlans_in_vepa_mode_are_apart_without_reflection() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    let containers = [1, 2].map(|number| Container::create(a, number, "vepa"));
    serves(b, &containers);
    let [one, two] = &containers;
    assert!(!one.pings(&two.v4()));
}

/// The only macvlan has the interface and its Ethernet address.
#[test]
fn a_macvlan_in_passthru_mode() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    let container = Container::create(a, 1, "passthru");
    assert_eq!(
        container.link("eth0")["address"],
        a.link("ib0")["address"],
        "passthru shares the address"
    );
    serves(b, &[container]);
}

#[test]
fn a_macvlan_in_passthru_mode_with_another_ethernet_address() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    let container = Container::create(a, 1, "passthru");
    container.ok("ip link set eth0 address 52:54:00:09:01:01");
    serves(b, &[container]);
}

/// It listens to configured Ethernet addresses; the address of a peer works like any other.
#[test]
fn a_macvlan_in_source_mode() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    a.reaches(b);
    let peer = neighbour(a, "ib0", &b.v4());
    let container = Container::create(a, 1, "source");
    container.ok(&format!("ip link set eth0 type macvlan macaddr add {peer}"));
    serves(b, &[container]);
}

#[test]
fn a_duplicate_is_found_by_a_macvlan_and_of_a_macvlan() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    let [one, two] = [1, 2].map(|number| Container::create(a, number, "private"));
    one.reaches_all(&addresses(b));
    two.reaches_all(&addresses(b));
    assert!(is_duplicate(&one, "eth0", &b.v6()));
    assert!(is_duplicate(b, "ib0", &two.v6()));
    assert!(!is_duplicate(&one, "eth0", "fd09::a1"));
    assert!(!is_duplicate(b, "ib0", "fd09::b1"));
    let used = one.run(&format!("arping -D -c 2 -w 3 -I eth0 {}", b.v4()));
    assert_eq!(used.code, Some(1), "{used:?}");
    let used = b.run(&format!("arping -D -c 2 -w 3 -I ib0 {}", two.v4()));
    assert_eq!(used.code, Some(1), "{used:?}");
    let free = one.run("arping -D -c 2 -w 3 -I eth0 10.9.0.250");
    assert_eq!(free.code, Some(0), "{free:?}");
}

#[test]
fn a_macvlan_joins_and_leaves_groups() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    let container = Container::create(a, 1, "bridge");
    for group in [&V4, &V6] {
        let listening = receiver(&container, "eth0", group);
        eventually(SOON, "the container's group", || {
            is_full_member(a, group).then_some(())
        });
        let sending = sender(b, "ib0", group);
        heard(&sending, &listening, "a packet at the container");
        drop(listening);
        eventually(SOON, "the container to leave", || {
            (!is_full_member(a, group)).then_some(())
        });
    }
}

#[test]
fn macvlans_come_and_go_beside_a_ping() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    let pinging = Pinging::start(a, &b.v4());
    for _ in 0..10 {
        let container = Container::create(a, 1, "bridge");
        container.reaches_all(&addresses(b));
        container.ok("ip link del eth0");
    }
    pinging.stop().lost_at_most(2);
    assert!(!b.pings("10.9.0.101"), "the address is unused now");
}
