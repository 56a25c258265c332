//! A namespace that routes between two partitions, with two interfaces of one daemon.

use super::{await_place, beside, carry, meet};
use crate::lab::{Lab, SOON, eventually};

/// `ip tuntap add` beside a parent in another namespace.
#[test]
fn children_are_made_and_deleted_where_their_parent_is() {
    let Some(mut lab) = Lab::pair() else { return };
    let (blue, green) = (beside("blue"), beside("green"));
    let (a, b) = lab.two();
    a.start(&[]);
    b.start(&[]);
    carry("ib0", a, &blue);
    await_place(a, "ib0", Some(&blue));
    blue.ok("ip link set ib0 up");
    b.ok("ip tuntap add dev ib0.8001 mode tap");
    b.configure("ib0.8001");
    // One command after the other, as users type them.
    let (v4, v6) = (a.v4(), a.v6());
    let script = format!(
        "ip tuntap add dev ib0.8001 mode tap && ip addr add {v4}/24 dev ib0.8001 && \
         ip addr add {v6}/64 dev ib0.8001 nodad && ip link set ib0.8001 up && \
         ip route add 10.77.0.0/16 via {} dev ib0.8001",
        b.v4()
    );
    let done = blue.run_script(&script);
    assert_eq!(done.code, Some(0), "{done:?}");
    await_place(a, "ib0.8001", Some(&blue));
    blue.await_carrier("ib0.8001", true);
    assert!(
        blue.ok("ip route show dev ib0.8001")
            .contains("10.77.0.0/16")
    );
    meet(&blue, a, b);
    let added = a.ibtap("child add ib0 0x8002");
    assert_eq!(added.code, Some(0), "{added:?}");
    await_place(a, "ib0.8002", Some(&blue));
    assert!(blue.has_link("ib0.8002") && !a.has_link("ib0.8002"));
    blue.ok("ip link del ib0.8001");
    eventually(SOON, "the child to be forgotten", || {
        (a.ask("show").len() == 2).then_some(())
    });
    // A child elsewhere.
    let name = green.namespace().name();
    let added = a.ibtap(&format!("child add ib0 0x8003 --name far --netns {name}"));
    assert_eq!(added.out, "far\n", "{added:?}");
    await_place(a, "far", Some(&green));
    assert_eq!(a.show("far")["parent"], "ib0");
    assert!(green.has_link("far"));
    // The parent's children are deleted with it, in all namespaces.
    blue.ok("ip link del ib0");
    eventually(SOON, "all of them to go", || {
        let gone = !blue.has_link("ib0.8002") && !green.has_link("far");
        (a.ask("show").is_empty() && gone).then_some(())
    });
}

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
    // Only the router connects them.
    router.ok("sysctl -qw net.ipv4.ip_forward=0");
    assert!(!b.pings("10.2.0.2"));
}
