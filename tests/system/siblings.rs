//! Interfaces of one daemon in one partition, each in its own namespace: they reach each other without the
//! wire, and only if the partition allows it.

use crate::doctor::{doctor, finding};
use crate::lab::{Host, Lab, SOON, Station, eventually, iperf_above};

const BLUE: [&str; 2] = ["10.77.0.1", "fd77::1"];
const GREEN: [&str; 2] = ["10.77.0.2", "fd77::2"];

/// `ib0` in both namespaces, with further keys for each.
fn config(blue: (&Station, &str), green: (&Station, &str)) -> String {
    let device = |(station, more): (&Station, &str)| {
        let place = station.namespace().name();
        format!("[[ipoib]]\nname = \"ib0\"\nunderlay = \"eth0\"\nnetns = \"{place}\"\n{more}\n")
    };
    device(blue) + &device(green)
}

fn configure(station: &Station, addresses: [&str; 2]) {
    let [v4, v6] = addresses;
    station.ok(&format!("ip addr add {v4}/24 dev ib0"));
    station.ok(&format!("ip addr add {v6}/64 dev ib0 nodad"));
    station.ok("ip link set ib0 up");
    station.await_carrier("ib0", true);
}

/// The interface's name for `ibtap`.
fn of(station: &Station) -> String {
    format!("{}/ib0", station.namespace().name())
}

fn to_siblings(host: &Host, station: &Station) -> u64 {
    host.counter(&of(station), "tx_to_siblings")
}

/// Number of packets on the underlay.
fn on_the_wire(host: &Host) -> u64 {
    let stats = host.json("ip -s -j link show dev eth0")[0]["stats64"].clone();
    stats["tx"]["packets"].as_u64().expect("a number")
}

#[test]
fn siblings_talk_without_the_wire() {
    let Some(mut lab) = Lab::pair() else { return };
    let (blue, green) = (Station::create("blue"), Station::create("green"));
    let (a, b) = lab.two();
    a.start_config(&config((&blue, ""), (&green, "mode = \"connected\"")));
    configure(&blue, BLUE);
    configure(&green, GREEN);
    blue.reaches_all(&GREEN);
    green.reaches_all(&BLUE);

    let (frames, before) = (to_siblings(a, &blue), on_the_wire(a));
    for address in GREEN {
        iperf_above(&blue, &green, address, "-n 50M", 200e6);
    }
    let carried = on_the_wire(a) - before;
    assert!(carried < 500, "{carried} packets for 100 MB");
    assert!(to_siblings(a, &blue) > frames + 1000);
    assert!(a.ask("conn").is_empty(), "siblings need no connection");

    // A sibling has the same GID, and is no other host.
    let (findings, _) = doctor(a, &of(&blue));
    assert_eq!(finding(&findings, "gid", "fail"), None, "{findings:#?}");

    // The other host is reachable, and reaches both.
    b.start(&[]);
    b.ok("ip addr add 10.77.0.3/24 dev ib0");
    b.ok("ip link set ib0 up");
    b.reaches_all(&[BLUE[0], GREEN[0]]);
    assert!(b.counter("ib0", "tx_to_siblings") == 0);
}

#[test]
fn a_packet_that_the_sibling_does_not_take_is_answered() {
    let Some(mut lab) = Lab::pair() else { return };
    let (blue, green) = (Station::create("blue"), Station::create("green"));
    let (a, _) = lab.two();
    let connected = "mode = \"connected\"";
    a.start_config(&config((&blue, connected), (&green, connected)));
    configure(&blue, BLUE);
    configure(&green, GREEN);
    blue.reaches_all(&GREEN);
    blue.ok(&format!("ping -c 1 -W 5 -M do -s 60000 {}", GREEN[0]));
    green.ok("ip link set ib0 mtu 3000");
    eventually(SOON, "an error with the smaller MTU", || {
        let ping = blue.run(&format!("ping -c 1 -W 1 -M do -s 4000 {}", GREEN[0]));
        ping.out.contains("mtu = 3000").then_some(())
    });
    blue.ok(&format!("ping -c 1 -W 5 -M do -s 2972 {}", GREEN[0]));
    // Packets that may be fragmented are fragmented.
    iperf_above(&blue, &green, GREEN[0], "-n 10M", 50e6);
}

#[test]
fn limited_members_do_not_talk_and_a_full_one_talks_to_both() {
    let Some(mut lab) = Lab::pair() else { return };
    let (blue, green) = (Station::create("blue"), Station::create("green"));
    let (a, b) = lab.two();
    let table = "[port.eth0]\npkeys = [\"0x0001\"]\n";
    let pkey = "pkey = \"0x8001\"";
    let devices = config((&blue, pkey), (&green, pkey));
    a.start_config(&format!("{table}{devices}"));
    b.start(&["--pkey", "0x8001"]);
    configure(&blue, BLUE);
    configure(&green, GREEN);
    b.ok("ip addr add 10.77.0.3/24 dev ib0");
    b.ok("ip link set ib0 up");
    b.reaches_all(&[BLUE[0], GREEN[0]]);
    assert!(!blue.pings(GREEN[0]) && !green.pings(BLUE[0]));
    assert_eq!((to_siblings(a, &blue), to_siblings(a, &green)), (0, 0));
}
