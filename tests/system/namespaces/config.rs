//! `netns` in the configuration.

use super::{await_place, beside, configure, meet};
use crate::lab::{Host, Lab, SOON, Station, eventually};

/// `ib0` at home and in two other namespaces, each in its own partition.
fn three_places(blue: &Station, green: &Station) -> String {
    let (blue, green) = (blue.namespace().name(), green.namespace().name());
    format!(
        "[[ipoib]]\nname = \"ib0\"\nunderlay = \"eth0\"\n\
         [[ipoib]]\nname = \"ib0\"\nunderlay = \"eth0\"\npkey = \"0x8001\"\nnetns = \"{blue}\"\n\
         [[ipoib]]\nname = \"ib0\"\nunderlay = \"eth0\"\npkey = \"0x8002\"\nnetns = \"{green}\"\n"
    )
}

#[test]
fn one_daemon_serves_equal_names_in_several_namespaces() {
    let Some(mut lab) = Lab::segment(3) else {
        return;
    };
    let (blue, green) = (beside("blue"), beside("green"));
    let (a, b, c) = lab.three();
    a.start_config(&three_places(&blue, &green));
    b.start(&["--pkey", "0x8001"]);
    b.configure("ib0");
    c.start(&["--pkey", "0x8002"]);
    c.configure("ib0");
    configure(&blue, "ib0", a);
    configure(&green, "ib0", a);
    meet(&blue, a, b);
    meet(&green, a, c);
    assert!(!a.pings(&b.v4()) && !blue.pings(&c.v4()) && !green.pings(&b.v4()));

    assert_eq!(a.show("ib0")["pkey"], 0xffff, "the one at home");
    for (place, pkey) in [(&blue, 0x8001), (&green, 0x8002)] {
        let name = place.namespace().name();
        let shown = a.show(&format!("{name}/ib0"));
        assert_eq!(
            (&shown["pkey"], &shown["netns"]),
            (&pkey.into(), &name.into())
        );
    }
    let own = format!("{}/ib0", a.namespace().name());
    assert_eq!(a.show(&own)["pkey"], 0xffff);
    let unknown = a.ibtap("show nowhere/ib0");
    assert_ne!(unknown.code, Some(0));
    a.ok("ip link del ib0");
    let name = blue.namespace().name();
    eventually(SOON, "a question which one is meant", || {
        let asked = a.ibtap("show ib0");
        asked.err.contains(&format!("{name}/ib0")).then_some(())
    });
    a.stop();
    assert!(!blue.has_link("ib0") && !green.has_link("ib0"));
}

#[test]
fn what_persists_in_a_namespace_is_taken_up_there() {
    let Some(mut lab) = Lab::pair() else { return };
    let blue = beside("blue");
    let (a, b) = lab.two();
    let name = blue.namespace().name();
    let text = format!(
        "[[ipoib]]\nname = \"ib0\"\nunderlay = \"eth0\"\nnetns = \"{name}\"\npersist = true\n"
    );
    let path = a.write_config(&text);
    a.start_with(&["--config", &path]);
    b.start(&[]);
    b.configure("ib0");
    configure(&blue, "ib0", a);
    meet(&blue, a, b);
    let index = blue.link("ib0")["ifindex"].clone();
    a.stop();
    assert!(blue.has_link("ib0"));
    a.start_with(&["--config", &path]);
    await_place(a, "ib0", Some(&blue));
    assert_eq!(blue.link("ib0")["ifindex"], index);
    meet(&blue, a, b);
}

#[test]
fn equal_names_in_one_partition_are_distinguished_and_found_again() {
    let Some(mut lab) = Lab::pair() else { return };
    let places = [beside("blue"), beside("green")];
    let (a, b) = lab.two();
    let device = |place: &Station| {
        let name = place.namespace().name();
        format!(
            "[[ipoib]]\nname = \"ib0\"\nunderlay = \"eth0\"\nnetns = \"{name}\"\n\
             persist = true\nqueues = 1\n"
        )
    };
    let path = a.write_config(&places.each_ref().map(device).concat());
    a.start_with(&["--config", &path]);
    b.start(&[]);
    b.configure("ib0");
    let shown = |a: &Host| {
        places.each_ref().map(|place| {
            let shown = a.show(&format!("{}/ib0", place.namespace().name()));
            ["mac", "qpn", "ifindex"].map(|key| shown[key].clone())
        })
    };
    let before = shown(a);
    for key in [0, 1] {
        assert_ne!(before[0][key], before[1][key]);
    }
    for place in &places {
        place.ok("ip link set ib0 up");
    }
    // By name if the MAC differs, and one place after the other in either order.
    places[0].ok("ip link set ib0 address 02:00:00:00:00:77");
    eventually(SOON, "the MAC", || {
        (shown(a)[0][0] == "02:00:00:00:00:77").then_some(())
    });
    let before = shown(a);
    for order in [[0, 1], [1, 0]] {
        a.write_config(&order.map(|i| device(&places[i])).concat());
        a.stop();
        a.start_with(&["--config", &path]);
        assert_eq!(shown(a), before);
    }
    configure(&places[0], "ib0", a);
    meet(&places[0], a, b);
}

#[test]
fn a_namespace_that_is_not_there_is_named() {
    let Some(mut lab) = Lab::pair() else { return };
    let a = lab.host(0);
    let text = "[[ipoib]]\nname = \"ib0\"\nunderlay = \"eth0\"\nnetns = \"ibtap-none\"\n";
    let path = a.write_config(text);
    let refused = a.refused(&["--config", &path]);
    assert_eq!(refused.code, Some(2));
    let sentence = "there is no network namespace ibtap-none; make it: ip netns add ibtap-none";
    assert!(refused.err.contains(sentence), "{refused:?}");
    assert!(!a.has_link("ib0"));
    let text = text.replace("ib0", "ib2");

    a.start_config("[[ipoib]]\nname = \"ib0\"\nunderlay = \"eth0\"\n");
    a.write_config(&format!(
        "{}{text}",
        "[[ipoib]]\nname = \"ib1\"\nunderlay = \"eth0\"\n"
    ));
    let reload = a.ibtap("reload");
    assert!(
        format!("{}{}", reload.out, reload.err).contains(sentence),
        "{reload:?}"
    );
    assert!(a.daemon().is_running());
    let child = a.ibtap("child add ib1 0x8001 --netns ibtap-none");
    assert_eq!(child.code, Some(2), "{child:?}");
    assert!(child.err.contains(sentence), "{child:?}");
}

/// Root of a container has the name of the interface there.
#[test]
fn a_name_that_is_taken_there_keeps_no_other_interface_from_its_service() {
    let Some(mut lab) = Lab::pair() else { return };
    let blue = beside("blue");
    let a = lab.host(0);
    blue.ok("ip link add ib0 type bridge");
    let there = format!(
        "[[ipoib]]\nname = \"ib0\"\nunderlay = \"eth0\"\nnetns = \"{}\"\nchildren = [0x8001]\n",
        blue.namespace().name()
    );
    let alone = a.write_config(&there);
    let refused = a.refused(&["--config", &alone]);
    let place = format!(
        "cannot create ib0: in the network namespace {}: ",
        blue.namespace().name()
    );
    assert!(refused.err.contains(&place), "{refused:?}");
    let daemon = a.start_config(&format!(
        "{there}[[ipoib]]\nname = \"ib1\"\nunderlay = \"eth0\"\n"
    ));
    let log = daemon.log();
    for name in ["ib0", "ib0.8001"] {
        assert!(log.contains(&format!("cannot create {name}: ")), "{log}");
    }
    await_place(a, "ib1", None);
    blue.ok("ip link del ib0");
    a.ibtap("reload");
    for name in ["ib0", "ib0.8001"] {
        await_place(a, name, Some(&blue));
    }
}

/// Root of a container can hold many interfaces there.
#[test]
fn held_interfaces_share_one_waiting_time() {
    let Some(mut lab) = Lab::pair() else { return };
    let blue = beside("blue");
    let a = lab.host(0);
    let place = blue.namespace().name();
    let there = ["ib1", "ib2", "ib3"];
    let one = |name: &str| format!("[[ipoib]]\nname = {name:?}\nunderlay = \"eth0\"\n");
    let held = there.map(|name| format!("{}netns = {place:?}\npersist = true\n", one(name)));
    let path = a.write_config(&(one("ib0") + &held.concat()));
    a.start_with(&["--config", &path]);
    a.stop();
    let _holders = there.map(|name| blue.hold_queue(name));
    a.start_with(&["--config", &path]);
    await_place(a, "ib0", None);
    let log = a.daemon().log();
    for name in there {
        let refused = format!("cannot create {name}: in the network namespace {place}");
        assert!(log.contains(&refused), "{log}");
    }
    assert_eq!(log.matches("waiting: ").count(), 1, "{log}");
}
