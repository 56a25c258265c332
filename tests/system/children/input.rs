//! Impossible requests: one clear sentence with the kernel's error number, and nothing half-made.

use rustix::io::Errno;
use serde_json::json;

use super::*;
use crate::lab::Lab;

/// Holds a TAP of this name until it ends.
const HOLDER: &str = "import fcntl, struct, sys, time\n\
tun = open('/dev/net/tun', 'r+b', buffering=0)\n\
fcntl.ioctl(tun, 0x400454ca, struct.pack('16sH22s', sys.argv[1].encode(), 0x1002, b''))\n\
fcntl.ioctl(tun, 0x400454cb, 1)\n\
time.sleep(600)\n";

#[test]
fn c83_requests_that_cannot_be_are_refused_with_the_kernels_numbers() {
    let Some(mut lab) = Lab::pair() else { return };
    let a = lab.host(0);
    a.start(&[]);
    add(a, "ib0 0x8001");
    a.ok("ip link add other type veth peer name other1");
    let (before, links) = (a.ibtap("res").out, a.link_names());
    let number = |errno: Errno| i64::from(errno.raw_os_error());
    for (parent, pkey, name, errno) in [
        ("ib0", 0, None, Errno::INVAL),
        ("ib0", 0x8000, None, Errno::INVAL),
        ("ib0", 0x1_0000, None, Errno::INVAL),
        ("ib0", -1, None, Errno::INVAL),
        ("ib0", 0x8001, None, Errno::NOTUNIQ),
        ("ib0", 0x0001, None, Errno::NOTUNIQ),
        ("ib0", 0x8001, Some("twin"), Errno::NOTUNIQ),
        ("ib0", 0xffff, None, Errno::NOTUNIQ),
        ("ib0", 0x7fff, None, Errno::NOTUNIQ),
        ("ib0.8001", 0x8002, None, Errno::INVAL),
        ("ib9", 0x8002, None, Errno::NODEV),
        ("ib0", 0x8002, Some("other"), Errno::EXIST),
        ("ib0", 0x8002, Some("ib0"), Errno::EXIST),
        ("ib0", 0x8002, Some("a name"), Errno::INVAL),
        ("ib0", 0x8002, Some("sixteen-bytes-no"), Errno::INVAL),
        ("ib0", 0x8002, Some(""), Errno::INVAL),
    ] {
        let mut asked = json!({ "parent": parent, "pkey": pkey });
        if let Some(name) = name {
            asked["name"] = name.into();
        }
        let found = refused(a, "ChildAdd", asked.clone());
        assert_eq!(found, number(errno), "{asked}");
    }
    for (asked, errno) in [
        (
            json!({ "parent": "ib0", "pkey": 2, "mtu": 9000 }),
            Errno::INVAL,
        ),
        (
            json!({ "parent": "ib0", "pkey": 2, "mtu": 1 }),
            Errno::INVAL,
        ),
        (
            json!({ "parent": "ib0", "pkey": 2, "queues": 0 }),
            Errno::INVAL,
        ),
        (
            json!({ "parent": "ib0", "pkey": 2, "queues": 257 }),
            Errno::INVAL,
        ),
    ] {
        assert_eq!(
            refused(a, "ChildAdd", asked.clone()),
            number(errno),
            "{asked}"
        );
    }
    for (asked, errno) in [
        (json!({ "interface": "ib0", "pkey": 0x8002 }), Errno::NODEV),
        (json!({ "interface": "ib0", "pkey": -1 }), Errno::INVAL),
        (
            json!({ "interface": "ib0", "pkey": 0x1_0000 }),
            Errno::INVAL,
        ),
        (json!({ "interface": "ib0" }), Errno::INVAL),
        (json!({ "interface": "ib9" }), Errno::NODEV),
        (json!({ "interface": "other" }), Errno::NODEV),
    ] {
        assert_eq!(
            refused(a, "ChildDel", asked.clone()),
            number(errno),
            "{asked}"
        );
    }
    // The sentences for the administrator have one line.
    let twice = a.ibtap("child add ib0 0x8001");
    assert!(
        twice
            .err
            .contains("ib0 has a child of P_Key 0x8001 already: ib0.8001"),
        "{twice:?}"
    );
    assert_eq!(twice.err.lines().count(), 1, "{twice:?}");
    assert_eq!((a.ibtap("res").out, a.link_names()), (before, links));
    // With or without bit 15, it is the same child.
    done(&a.ibtap("child del ib0 0x0001"));
    assert!(!a.has_link("ib0.8001"));
}

#[test]
fn taps_that_cannot_be_children_are_left_alone_and_logged_once() {
    let Some(mut lab) = Lab::pair() else { return };
    let a = lab.host(0);
    let file = configuration(a, "", "");
    a.start_with(&["--config", &file]);
    tuntap(a, "ib0.8001");
    let names = [
        "ib0.8000",
        "ib0.0000",
        "ib0.0001",
        "ib0.ffff",
        "ib0.7fff",
        "ib9.8002",
        "ib0.8001.8002",
    ];
    let others = ["ib0.802", "ib0.08002", "ib0x8002", "ib0.", "tap0"];
    for name in names.iter().chain(&others) {
        a.ok(&format!("ip tuntap add dev {name} mode tap"));
    }
    // No TAP, whatever its name.
    a.ok("ip tuntap add dev ib0.8003 mode tun");
    a.ok("ip link add ib0.8004 type veth peer name other1");
    let lines = |host: &mut Host, name: &str| {
        let line = format!("{name}: not used as a child: ");
        host.daemon().log().matches(&line).count()
    };
    for name in names {
        eventually(SOON, &format!("a line on {name}"), || {
            (lines(a, name) == 1).then_some(())
        });
    }
    for name in names.iter().chain(&others) {
        a.ok(&format!("ip link set {name} mtu 1400"));
        assert!(!is_served(a, name), "{name}");
        assert_eq!(alias(a, name), "", "{name}");
    }
    // A new parent makes the daemon check all of them again.
    let another = "[[ipoib]]\nname = \"ib1\"\nunderlay = \"eth0\"\npkey = 0x8009";
    configuration(a, "", another);
    done(&a.ibtap("reload"));
    await_child(a, "ib1");
    // When this one is in service, the daemon has seen everything before it.
    tuntap(a, "ib0.8005");
    for name in names {
        assert_eq!((name, lines(a, name)), (name, 1));
    }
    for name in others.iter().chain(&["ib0.8003", "ib0.8004"]) {
        assert_eq!((*name, lines(a, name)), (*name, 0));
    }
    assert_eq!(a.ask("child list").len(), 2);
}

#[test]
fn a_tap_that_another_program_holds_is_not_taken() {
    let Some(mut lab) = Lab::pair() else { return };
    let a = lab.host(0);
    a.start(&[]);
    let script = a.file("holder.py");
    std::fs::write(&script, HOLDER).expect("written");
    let holder = a.spawn(&format!("python3 {} ib0.8001", script.display()));
    eventually(SOON, "a line on it", || {
        a.daemon()
            .log()
            .contains("ib0.8001: not used as a child: ")
            .then_some(())
    });
    assert!(!is_served(a, "ib0.8001"));
    assert!(a.has_link("ib0.8001"));
    for asked in [
        json!({ "parent": "ib0", "pkey": 0x8001 }),
        json!({ "parent": "ib0", "pkey": 0x8002, "name": "ib0.8001" }),
    ] {
        let number = refused(a, "ChildAdd", asked);
        assert_eq!(number, i64::from(Errno::BUSY.raw_os_error()));
    }
    let lines = a
        .daemon()
        .log()
        .matches("ib0.8001: not used as a child: ")
        .count();
    assert_eq!(lines, 1);
    // A TAP left behind can be taken over.
    drop(holder);
    a.ok("ip link set ib0.8001 up");
    await_child(a, "ib0.8001");
    assert_eq!(a.show("ib0.8001")["pkey"], 0x8001);
}

#[test]
fn a_tap_that_was_left_alone_is_taken_when_what_was_in_the_way_is_gone() {
    let Some(mut lab) = Lab::pair() else { return };
    let a = lab.host(0);
    a.start(&[]);
    done(&a.ibtap("child add ib0 0x8001 --name storage"));
    a.ok("ip tuntap add dev ib0.8001 mode tap");
    let script = a.file("holder.py");
    std::fs::write(&script, HOLDER).expect("written");
    let holder = a.spawn(&format!("python3 {} ib0.8002", script.display()));
    for name in ["ib0.8001", "ib0.8002"] {
        eventually(SOON, &format!("a line on {name}"), || {
            let line = format!("{name}: not used as a child: ");
            a.daemon().log().contains(&line).then_some(())
        });
    }
    // `ip link set up` is enough; the TAP need not be deleted and created again.
    done(&a.ibtap("child del storage"));
    drop(holder);
    for name in ["ib0.8001", "ib0.8002"] {
        a.ok(&format!("ip link set {name} up"));
        await_child(a, name);
    }
}
