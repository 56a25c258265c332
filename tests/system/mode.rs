//! The mode of an interface and its consequences: MTU, address, output of `ip link`. Other modules test
//! traffic over connections.

use serde_json::{Value, json};

use crate::lab::{Host, LINK_MTU, Lab, SOON, eventually};

/// The largest MTU of connected mode.
const CONNECTED_MTU: u64 = 65_520;

/// The first byte of the interface's IPoIB address: it indicates whether the interface accepts connections.
fn flags(host: &Host) -> String {
    let address = host.show("ib0")["address"].clone();
    address.as_str().expect("an address")[..2].to_owned()
}

/// Waits until a peer has the interface under an address with these flags. Peers keep an address until they
/// receive another.
fn await_seen(from: &Host, host: &Host, flags: &str) {
    let gid = host.show("ib0")["gid"].clone();
    eventually(SOON, &format!("an address with the flags {flags}"), || {
        let neighbours = from.ask("neigh ib0");
        let seen = neighbours.iter().find(|n| n["gid"] == gid)?["address"].clone();
        seen.as_str()?.starts_with(flags).then_some(())
    });
}

fn alias(host: &Host) -> String {
    let alias = host.link("ib0")["ifalias"].clone();
    alias.as_str().expect("an alias").to_owned()
}

fn gso_max(host: &Host) -> Value {
    host.json("ip -d -j link show dev ib0")[0]["gso_max_size"].clone()
}

/// Changes the mode with `ibtap`, which must print nothing.
fn set(host: &Host, mode: &str) {
    let done = host.ibtap(&format!("mode ib0 {mode}"));
    assert_eq!((done.code, done.out.as_str()), (Some(0), ""), "{done:?}");
}

/// The mode and both places that show the MTU.
fn assert_is(host: &Host, mode: &str, mtu: u64) {
    assert_eq!(host.ibtap("mode ib0").out, format!("{mode}\n"));
    let shown = host.show("ib0");
    assert_eq!((&shown["mode"], &shown["mtu"]), (&mode.into(), &mtu.into()));
    assert_eq!(host.mtu("ib0"), mtu);
}

#[test]
fn connected_mode_from_the_start() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    a.start(&["--mode", "connected"]);
    assert_is(a, "connected", CONNECTED_MTU);
    assert_eq!(flags(a), "80");
    let shown = a.show("ib0");
    assert_eq!(
        shown["link_mtu"],
        LINK_MTU + 4,
        "datagrams stay as they are"
    );
    let connections = (&shown["connections"], &shown["connections_max"]);
    assert_eq!(connections, (&json!(0), &json!(4096)));
    assert!(a.ibtap("show ib0").out.contains("Connections: 0 of 4096"));
    assert!(alias(a).ends_with(" connected"), "{}", alias(a));
    assert_eq!(gso_max(a), 65_536, "one send holds the largest packet");
    assert!(a.ask("conn").is_empty());
    assert_eq!(a.ibtap("conn ib0").out, "");
    let other = a.ibtap("conn ib9");
    assert_eq!(other.code, Some(1), "{other:?}");

    // Without the flag, peers request no connection; packets still travel.
    b.start(&["--mode", "connected", "--connections", "0"]);
    assert_is(b, "connected", CONNECTED_MTU);
    assert_eq!(
        (flags(b).as_str(), b.show("ib0")["connections_max"].clone()),
        ("00", json!(0))
    );
    a.configure("ib0");
    b.configure("ib0");
    a.reaches(b);
    b.reaches(a);
}

#[test]
fn c112_c113_c114_the_mode_changes_while_it_runs() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    assert_is(a, "datagram", u64::from(LINK_MTU));
    assert_eq!(flags(a), "00");
    assert_eq!(a.show("ib0").get("connections"), None);
    let groups = |host: &Host| host.groups("ib0", |g| g["send_only"] == false);
    let changes = |host: &Host| host.ok("cat /sys/class/net/ib0/carrier_changes");
    let (groups_before, changes_before) = (groups(a), changes(a));
    let monitor = a.follow("--json monitor ib0");
    monitor.await_object("the first event", |e| e["event"] == "watching");

    set(a, "connected");
    assert_is(a, "connected", CONNECTED_MTU);
    assert_eq!(flags(a), "80");
    assert!(alias(a).ends_with(" connected"), "{}", alias(a));
    assert_eq!(gso_max(a), 65_536);
    let mode = |e: &Value| e["event"] == "mode-changed" && e["mode"] == "connected";
    monitor.await_object("the mode", mode);
    monitor.await_object("the MTU", |e| e["mtu"] == CONNECTED_MTU);
    await_seen(b, a, "80");
    a.reaches(b);
    b.reaches(a);

    // The same mode again changes nothing, also not the administrator's later changes.
    a.ok("ip link set ib0 mtu 9000");
    eventually(SOON, "the administrator's MTU", || {
        (a.show("ib0")["mtu"] == 9000).then_some(())
    });
    set(a, "connected");
    assert_is(a, "connected", 9000);
    let events = monitor.objects();
    assert_eq!(events.iter().filter(|e| mode(e)).count(), 1, "{events:?}");

    set(a, "datagram");
    assert_is(a, "datagram", u64::from(LINK_MTU));
    assert_eq!(flags(a), "00");
    assert!(alias(a).ends_with(" datagram"), "{}", alias(a));
    assert_eq!(gso_max(a), 60_000);
    assert_eq!((groups(a), changes(a)), (groups_before, changes_before));
    await_seen(b, a, "00");
    a.reaches(b);
    b.reaches(a);

    // A smaller MTU stays after the change back.
    set(a, "connected");
    a.ok("ip link set ib0 mtu 1400");
    eventually(SOON, "the smaller MTU", || {
        (a.show("ib0")["mtu"] == 1400).then_some(())
    });
    set(a, "datagram");
    assert_is(a, "datagram", 1400);
    assert!(a.daemon().is_running());
}

#[test]
fn c113_mtus_that_connected_mode_cannot_have_are_put_right() {
    let Some(mut lab) = Lab::pair() else { return };
    let a = lab.host(0);
    a.start(&["--mode", "connected"]);
    // The largest MTU of a TAP.
    a.ok("ip link set ib0 mtu 65521");
    eventually(SOON, "the mode's MTU again", || {
        (a.mtu("ib0") == CONNECTED_MTU).then_some(())
    });
    eventually(SOON, "a line on it", || {
        let line =
            "the MTU 65521 is above the maximum of connected mode, 65520; ibtapd has set 65520";
        a.daemon().log().contains(line).then_some(())
    });
    // The underlay's MTU only affects datagrams.
    a.ok("ip link set eth0 mtu 2400");
    eventually(SOON, "smaller datagrams", || {
        (a.show("ib0")["link_mtu"] == 2048).then_some(())
    });
    assert_is(a, "connected", CONNECTED_MTU);
    set(a, "datagram");
    assert_is(a, "datagram", 2044);
}

#[test]
fn a_configured_mtu_is_that_of_connected_mode() {
    let Some(mut lab) = Lab::pair() else { return };
    let a = lab.host(0);
    a.start(&["--mode", "connected", "--mtu", "9000"]);
    assert_is(a, "connected", 9000);
    set(a, "datagram");
    assert_is(a, "datagram", u64::from(LINK_MTU));
    set(a, "connected");
    assert_is(a, "connected", 9000);
}

#[test]
fn a_restart_keeps_the_mtu_of_the_mode_it_left() {
    let Some(mut lab) = Lab::pair() else { return };
    let a = lab.host(0);
    let connected = ["--mode", "connected", "--persist"];
    a.start(&connected);
    a.ok("ip link set ib0 mtu 9000");
    eventually(SOON, "the administrator's MTU", || {
        (a.show("ib0")["mtu"] == 9000).then_some(())
    });
    a.stop();
    a.start(&connected);
    assert_is(a, "connected", 9000);
    a.stop();
    // Another mode has another MTU.
    a.start(&["--persist"]);
    assert_is(a, "datagram", u64::from(LINK_MTU));
    a.stop();
    a.start(&connected);
    assert_is(a, "connected", CONNECTED_MTU);
}

#[test]
fn a_reload_changes_the_mode_but_not_the_number_of_connections() {
    let Some(mut lab) = Lab::pair() else { return };
    let a = lab.host(0);
    let one = "[[ipoib]]\nname = \"ib0\"\nunderlay = \"eth0\"\n";
    a.start_config(one);
    let reloaded = |host: &Host, text: &str| {
        host.write_config(text);
        let done = host.ibtap("reload");
        (done.code, done.out)
    };
    let connected = format!("{one}mode = \"connected\"\n");
    assert_eq!(
        reloaded(a, &connected),
        (Some(0), "applied  ib0: mode connected, mtu 65520\n".into())
    );
    assert_is(a, "connected", CONNECTED_MTU);
    assert_eq!(
        reloaded(a, &format!("{connected}mtu = 9000\n")),
        (Some(0), "applied  ib0: mtu 9000\n".into())
    );
    let (status, output) = reloaded(a, &format!("{one}mtu = 9000\n"));
    assert_eq!(status, Some(2));
    assert!(output.contains("refused  ib0: the MTU 9000"), "{output}");
    assert!(output.contains("use mode \"connected\""), "{output}");
    assert_is(a, "connected", 9000);
    let (status, output) = reloaded(a, &format!("{one}mtu = 2000\nconnections = 8\n"));
    assert_eq!(status, Some(2));
    assert_eq!(
        output,
        "applied  ib0: mode datagram, mtu 2000\n\
         refused  ib0: connections cannot change at run time; restart ibtapd\n"
    );
    assert_is(a, "datagram", 2000);
}

#[test]
fn a_new_gid_keeps_the_flag() {
    let Some(mut lab) = Lab::pair() else { return };
    let a = lab.host(0);
    a.start(&["--mode", "connected"]);
    a.ok("ip link set eth0 down");
    a.ok("ip link set eth0 address 02:00:00:00:77:01");
    a.ok("ip link set eth0 up");
    eventually(SOON, "the new GID", || {
        (a.show("ib0")["gid"] == "fe80::ff:fe00:7701").then_some(())
    });
    assert_eq!(flags(a), "80");
}
