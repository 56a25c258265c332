//! Manual changes survive the daemon if the interface does.

use rustix::process::Signal;

use super::*;
use crate::lab::{CONNECTED_MTU, Lab};
use crate::offloads::feature;

#[test]
fn children_come_back_with_what_was_changed_by_hand() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    for host in [&mut *a, &mut *b] {
        host.start(&["--persist"]);
        tuntap(host, "ib0.8001");
        tuntap(host, "ib0.8002");
        tuntap(host, "ib0.8003");
        for (name, subnet) in [("ib0.8001", 1), ("ib0.8002", 2), ("ib0.8003", 3)] {
            configure(host, name, subnet);
        }
    }
    reaches(a, b, 1);
    b.ok("ip link set ib0.8001 mtu 1500 address 02:00:00:00:00:42");
    b.ok("ip link set ib0.8002 name storage0");
    await_child(b, "storage0");
    done(&b.ibtap("mode storage0 connected"));
    b.ok("ip link set ib0.8003 mtu 1500");
    for killed in [false, true, false] {
        match killed {
            true => b.kill_daemon(),
            false => b.stop(),
        }
        for name in ["ib0", "ib0.8001", "storage0", "ib0.8003"] {
            assert!(b.has_link(name), "{name}");
        }
        assert!(!a.pings(&address(b, 1)));
        b.start(&["--persist"]);
        // They exist before the daemon reports that it is ready.
        let names: Vec<_> = b.ask("child list");
        assert_eq!(names.len(), 3, "{names:?}");
        for subnet in [1, 2, 3] {
            reaches(a, b, subnet);
            reaches(b, a, subnet);
        }
        let first = b.show("ib0.8001");
        assert_eq!(
            (first["mtu"].as_u64(), first["mac"].as_str()),
            (Some(1500), Some("02:00:00:00:00:42"))
        );
        let renamed = b.show("storage0");
        assert_eq!(
            (renamed["pkey"].as_u64(), renamed["mode"].as_str()),
            (Some(0x8002), Some("connected"))
        );
        assert_eq!(b.mtu("storage0"), u64::from(CONNECTED_MTU));
        assert_eq!(b.mtu("ib0.8003"), 1500);
    }
    // Their creator made them persistent; they are deleted all the same.
    done(&b.ibtap("child del storage0"));
    assert!(!b.has_link("storage0"));
}

#[test]
fn what_ethtool_and_aliases_say_stays() {
    let Some(mut lab) = Lab::pair() else { return };
    let a = lab.host(0);
    a.start(&["--persist"]);
    tuntap(a, "ib0.8001");
    a.run_script("ip link set ib0 alias 'the backbone'");
    a.ok("ip link set ib0 mtu 1700");
    a.ok("ethtool -K ib0 tso off");
    a.ok("ethtool -K ib0.8001 gro off");
    a.ok("ethtool -C ib0.8001 rx-frames 8");
    a.ok("ip link property add dev ib0.8001 altname fast");
    a.ok("ip link set ib0.8001 up");
    a.ok("ip link set ib0 down");
    let states = |a: &Host| {
        let shown = |name, feature_name| feature(a, name, feature_name);
        assert_eq!(shown("ib0", "tcp-segmentation-offload"), "off");
        assert_eq!(shown("ib0", "generic-receive-offload"), "on");
        assert_eq!(shown("ib0.8001", "tcp-segmentation-offload"), "on");
        assert_eq!(shown("ib0.8001", "generic-receive-offload"), "off");
        eventually(SOON, "the moderation", || {
            (a.ask("coalesce ib0")[0]["rx_frames"] == 8).then_some(())
        });
        assert_eq!(
            (a.mtu("ib0"), alias(a, "ib0").as_str()),
            (1700, "the backbone")
        );
        assert_eq!(a.link("ib0.8001")["altnames"][0], "fast");
        assert!(!a.is_up("ib0") && a.is_up("ib0.8001"));
        assert_eq!(a.show("ib0.8001")["reason"], "its parent ib0 is down");
    };
    states(a);
    for killed in [false, true] {
        match killed {
            true => a.kill_daemon(),
            false => a.stop(),
        }
        a.start(&["--persist"]);
        states(a);
    }
    // A configured value comes before the one that the TAP has kept.
    a.stop();
    a.start(&["--persist", "--rx-usecs", "50", "--rx-frames", "16"]);
    assert_eq!(a.ask("coalesce ib0")[0]["rx_usecs"], 50);
    assert_eq!(a.ask("coalesce ib0.8001")[0]["rx_frames"], 16);
    // A setting that was turned off can be turned on.
    a.ok("ethtool -K ib0 tso on");
    assert_eq!(feature(a, "ib0", "tcp-segmentation-offload"), "on");
}

#[test]
fn taps_that_were_there_first_are_children_from_the_start() {
    let Some(mut lab) = Lab::pair() else { return };
    let a = lab.host(0);
    a.ok("ip tuntap add dev ib0.8001 mode tap");
    a.ok("ip tuntap add dev ib1.8001 mode tap");
    a.start(&[]);
    assert_eq!(a.show("ib0.8001")["parent"], "ib0");
    assert!(!is_served(a, "ib1.8001"));
}

/// A program may end long after the start, and the daemon serves the child then.
#[test]
fn stored_queues_that_cannot_be_taken_over_leave_the_store() {
    let Some(mut lab) = Lab::pair() else { return };
    let a = lab.host(0);
    let service = a.start_service(64, &["--queues", "2"]);
    a.ok("ip tuntap add dev ib0.8001 mode tap multi_queue");
    await_child(a, "ib0.8001");
    a.ok("ip link set ib0.8001 up");
    let holder = a.hold_queue("ib0.8001");
    service.restart_by(Signal::TERM);
    assert!(!is_served(a, "ib0.8001"));
    drop(holder);
    await_child(a, "ib0.8001");
    assert_eq!(a.show("ib0.8001")["queues"], 2);
}
