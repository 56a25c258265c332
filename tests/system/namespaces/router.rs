//! A namespace that routes between two partitions, as one with two interfaces of one daemon.

use super::{await_place, beside, carry};
use crate::lab::Lab;

#[test]
fn a_router_namespace_forwards_between_two_partitions() {
    let Some(mut lab) = Lab::segment(3) else {
        return;
    };
    let router = beside("the router");
    let (a, b, c) = lab.three();
    a.start(&[]);
    for (host, partition) in [(&mut *b, 1), (&mut *c, 2)] {
        host.start(&[]);
        host.ok(&format!("ip tuntap add dev ib0.800{partition} mode tap"));
        host.ok(&format!(
            "ip addr add 10.{partition}.0.2/24 dev ib0.800{partition}"
        ));
        host.ok(&format!("ip link set ib0.800{partition} up"));
        host.ok(&format!("ip route add 10.0.0.0/8 via 10.{partition}.0.1"));
    }
    for partition in [1, 2] {
        let name = format!("ib0.800{partition}");
        a.ok(&format!("ip tuntap add dev {name} mode tap"));
        await_place(a, &name, None);
        carry(&name, a, &router);
        await_place(a, &name, Some(&router));
        router.ok(&format!("ip addr add 10.{partition}.0.1/24 dev {name}"));
        router.ok(&format!("ip link set {name} up"));
    }
    router.ok("sysctl -qw net.ipv4.ip_forward=1");
    b.reaches_all(&["10.1.0.1", "10.2.0.2"]);
    c.reaches_all(&["10.2.0.1", "10.1.0.2"]);
    // Nothing but the router joins them.
    router.ok("sysctl -qw net.ipv4.ip_forward=0");
    assert!(!b.pings("10.2.0.2"));
}
