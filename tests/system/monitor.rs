//! `ibtap monitor`: events at the time when they occur.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::lab::{Host, Lab, SOON, Station, eventually};

fn is(event: &Value, kind: &str) -> bool {
    event["event"] == kind
}

#[test]
fn events_of_interface_port_neighbours_and_groups_are_reported() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let a = lab.host(0);
    let pid = a.daemon().pid();
    let mut monitor = a.follow("--json monitor");
    let first = monitor.await_object("the first event", |e| is(e, "watching"));
    assert_eq!(first["pid"], pid);
    let time = first["time"].as_str().expect("a time");
    assert!(time.len() == 24 && time.ends_with('Z'), "{time}");

    a.ok("ip link set ib0 mtu 1400");
    let changed = monitor.await_object("the MTU", |e| is(e, "mtu-changed"));
    assert_eq!(
        (&changed["interface"], &changed["mtu"]),
        (&json!("ib0"), &json!(1400))
    );

    a.ok("ip link set ib0 down");
    monitor.await_object("down", |e| is(e, "down"));
    a.ok("ip link set ib0 address 02:00:00:00:99:01");
    let mac = monitor.await_object("the MAC", |e| is(e, "mac-changed"));
    assert_eq!(mac["mac"], "02:00:00:00:99:01");
    a.ok("ip link set ib0 name st0");
    let renamed = monitor.await_object("the name", |e| is(e, "renamed"));
    assert_eq!(
        (&renamed["interface"], &renamed["was"]),
        (&json!("st0"), &json!("ib0"))
    );
    a.ok("ip link set st0 name ib0");
    a.ok("ip link set ib0 up");
    monitor.await_object("up", |e| is(e, "up"));

    let python = "import socket,time; s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); \
                  s.setsockopt(0,35,socket.inet_aton('239.7.7.7')+socket.inet_aton('0.0.0.0')+\
                  socket.if_nametoindex('ib0').to_bytes(4,'little')); time.sleep(1)";
    let joined = a.run_script(&format!("python3 -c \"{python}\""));
    assert_eq!(joined.code, Some(0), "{joined:?}");
    let mgid = "ff12:401b:ffff::f07:707";
    monitor.await_object("the group joined", |e| {
        is(e, "group-joined") && e["mgid"] == mgid
    });
    monitor.await_object("the group left", |e| {
        is(e, "group-left") && e["mgid"] == mgid
    });

    let before = monitor.objects().len();
    let next = |kind: &str| {
        eventually(SOON, kind, || {
            let objects = monitor.objects();
            objects[before..].iter().find(|e| is(e, kind)).cloned()
        })
    };
    a.ok("ip link set eth0 down");
    let down = next("port-down");
    assert!(
        down["port"] == "soft/eth0" && down["reason"].is_string(),
        "{down}"
    );
    next("carrier-off");
    a.ok("ip link set eth0 up");
    next("port-active");
    next("carrier-on");

    a.ok("ip link del ib0");
    monitor.await_object("the end of the interface", |e| is(e, "gone"));
    assert!(monitor.end_by(Signal::INT).success());
    assert_eq!(monitor.complaints(), "");
}

#[test]
fn neighbours_are_reported_while_a_client_watches() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    a.start(&[]);
    a.configure("ib0");
    let monitor = a.follow("--json monitor ib0");
    monitor.await_object("the first event", |e| is(e, "watching"));
    b.start(&[]);
    b.configure("ib0");
    a.reaches(b);
    let there = b.show("ib0");
    let learned = monitor.await_object("the neighbour", |e| {
        is(e, "neighbour-learned") && e["ip"] == b.v4()
    });
    assert_eq!(learned["gid"], there["gid"]);
    assert_eq!(learned["qpn"], there["qpn"]);
}

#[test]
fn it_is_text_for_people_and_ends_when_the_daemon_does() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let a = lab.host(0);
    let mut monitor = a.follow("monitor ib0");
    eventually(SOON, "the first line", || {
        monitor.text().contains("reports events").then_some(())
    });
    a.ok("ip link set ib0 down");
    eventually(SOON, "a line for it", || {
        let line = monitor
            .text()
            .lines()
            .find(|l| l.ends_with(" ib0 down"))?
            .to_owned();
        // 12:03:04.123 ib0 down
        assert_eq!(line.find(' '), Some(12), "{line}");
        Some(())
    });
    let unknown = a.ibtap("monitor nosuch0");
    assert_eq!(unknown.code, Some(1), "{unknown:?}");
    a.stop();
    assert_eq!(monitor.ended().code(), Some(3));
    assert!(monitor.complaints().contains("has closed the connection"));
}

fn call_for_more(host: &Host) -> UnixStream {
    let mut stream = UnixStream::connect(host.socket()).expect("a control socket");
    stream
        .write_all(b"{\"method\":\"org.ibtap.Daemon.Monitor\",\"more\":true}\0")
        .expect("a call");
    stream.set_read_timeout(Some(SOON)).expect("a timeout");
    stream
}

/// Reads messages until one matches.
fn read_until(stream: UnixStream, found: impl Fn(&Value) -> bool) -> Value {
    let messages = BufReader::new(stream).split(0);
    let mut parsed = messages.map(|message| {
        let text = message.expect("more events");
        serde_json::from_slice::<Value>(&text).expect("JSON")
    });
    parsed.find(found).expect("such an event")
}

/// Changes the MAC of `ib0` `times` times, and waits until the daemon has seen it. (A change of the name
/// takes milliseconds for an RCU grace period on a busy machine.)
fn change_macs(host: &Host, times: u32) {
    let mac = |i: u32| format!("02:00:00:00:{:02x}:{:02x}", i >> 8, i & 0xff);
    let path = host.file("macs");
    let line = |i| format!("link set ib0 address {}\n", mac(i));
    std::fs::write(&path, (1..=times).map(line).collect::<String>()).expect("written");
    host.ok(&format!("ip -batch {}", path.display()));
    eventually(SOON, "an answer, with the MAC as it is", || {
        (host.show("ib0")["mac"] == mac(times)).then_some(())
    });
}

#[test]
fn a_monitor_that_does_not_read_gets_the_number_of_lost_events_and_delays_no_other() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let a = lab.host(0);
    a.ok("ip link set ib0 down");
    let lazy = call_for_more(a);
    let before = a.daemon().resident_kib();
    // Each change is an event: many more than the daemon and a socket store. Not all at once: after a netlink
    // overrun the state is read again, and that is one event.
    for _ in 0..8 {
        change_macs(a, 500);
    }
    let grown = a.daemon().resident_kib().saturating_sub(before);
    assert!(grown < 8192, "it grew by {grown} KiB");
    // Reads at last. The events are in order, and one event has the number of lost events.
    let reader =
        std::thread::spawn(move || read_until(lazy, |m| m["parameters"]["event"]["lost"].is_u64()));
    eventually(SOON, "an event with the number of lost events", || {
        a.ok("ip link set ib0 up");
        a.ok("ip link set ib0 down");
        reader.is_finished().then_some(())
    });
    let event = reader
        .join()
        .expect("an event with the number of lost events");
    assert_eq!(event["continues"], true);
}

#[test]
fn guests_are_reported_and_listed() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    let monitor = b.follow("--json monitor ib0");
    monitor.await_object("the first event", |e| is(e, "watching"));
    let mac = "52:54:00:00:00:50";
    b.ok(&format!("ip link add br0 address {mac} type bridge"));
    b.ok("ip link set ib0 master br0");
    b.ok("ip addr add 10.9.0.50/24 dev br0");
    b.ok("ip link set br0 up");
    eventually(SOON, "the guest to answer", || {
        a.pings("10.9.0.50").then_some(())
    });
    let learned = monitor.await_object("the guest", |e| {
        is(e, "guest-learned") && e["ip"] == "10.9.0.50"
    });
    assert_eq!(learned["mac"], mac);
    let listed = b.ask("guests ib0");
    let guest = listed.iter().find(|g| g["ip"] == "10.9.0.50");
    let guest = guest.unwrap_or_else(|| panic!("not listed: {listed:?}"));
    assert_eq!(guest["mac"], mac);
    assert!(b.ibtap("guests ib0").out.contains(mac));
}

#[test]
fn an_interface_is_followed_to_other_namespaces_and_distinguished_from_its_namesake() {
    let Some(mut lab) = Lab::pair() else { return };
    let (blue, green) = (Station::create("blue"), Station::create("green"));
    let a = lab.host(0);
    let [in_blue, in_green] = [&blue, &green].map(|s| s.namespace().name().to_owned());
    let device = |netns: &str| {
        format!("[[ipoib]]\nname = \"ib0\"\nunderlay = \"eth0\"\nnetns = \"{netns}\"\n")
    };
    let text = device(&in_blue) + "[[ipoib]]\nname = \"ib0\"\nunderlay = \"eth0\"\n";
    a.start_config(&text);

    let named = |listed: Value, key: &str| -> Vec<(Value, Value)> {
        let all = listed.as_array().expect("a list").iter();
        all.map(|one| (one[key].clone(), one["netns"].clone()))
            .collect()
    };
    let expected = [(json!("ib0"), json!(in_blue)), (json!("ib0"), Value::Null)];
    assert_eq!(named(Value::Array(a.ask("stats")), "name"), expected);
    let text = a.ibtap("stats").out;
    assert!(text.contains(&format!("{in_blue}/ib0\n")), "{text}");

    let one = a.follow(&format!("--json monitor {in_blue}/ib0"));
    let all = a.follow("--json monitor");
    for monitor in [&one, &all] {
        monitor.await_object("the first event", |e| is(e, "watching"));
    }
    let mtu = |e: &Value, mtu: u32| is(e, "mtu-changed") && e["mtu"] == mtu;
    a.ok("ip link set ib0 mtu 1300");
    let at_home = all.await_object("the MTU", |e| mtu(e, 1300));
    assert_eq!(at_home["netns"], Value::Null);
    blue.ok("ip link set ib0 mtu 1400");
    let elsewhere = all.await_object("the MTU", |e| mtu(e, 1400));
    // The other watcher sees it first.
    let first = one.await_object("the MTU", |e| is(e, "mtu-changed"));
    for event in [elsewhere, first] {
        assert_eq!(
            (&event["netns"], &event["mtu"]),
            (&json!(in_blue), &json!(1400))
        );
    }
    blue.ok(&format!("ip link set ib0 netns {in_green}"));
    for monitor in [&one, &all] {
        let moved = monitor.await_object("the move", |e| is(e, "moved"));
        let [interface, netns, was] = ["interface", "netns", "was"].map(|key| moved[key].clone());
        assert_eq!(
            [interface, netns, was],
            [json!("ib0"), json!(in_green), json!(in_blue)]
        );
    }
    // The watch continues after a rename.
    green.ok("ip link set ib0 name st0");
    one.await_object("the name", |e| is(e, "renamed") && e["interface"] == "st0");
    let home = a.namespace().name();
    green.ok(&format!("ip link set st0 netns {home}"));
    let back = one.await_object("the way back", |e| {
        is(e, "moved") && e["was"] == in_green.as_str()
    });
    assert_eq!(back["netns"], Value::Null);
    a.ok("ip link set st0 mtu 1500");
    let last = one.await_object("the MTU", |e| mtu(e, 1500));
    assert_eq!(last["interface"], "st0");
}
