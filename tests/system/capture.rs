//! Packets on the wire, checked by tshark and by `ibtap decode`.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::lab::{
    Alone, CONNECTED_MTU, Host, Lab, Pinging, SOON, Sniffer, eventually, ibtap, iperf,
};

/// Contents of the last packet.
const LAST: &[u8] = b"last packet";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

type Traffic = fn(&Host, &Host);

/// Captures the underlay of `b` during traffic between the two hosts.
fn capture(a: &Host, b: &Host, traffic: Traffic) -> Sniffer {
    let mut wire = Sniffer::of_bulk(b, "eth0", "udp port 4791");
    traffic(a, b);
    // All packets of the traffic are in the file when one that was sent later is.
    eventually(SOON, "the last packet in the file", || {
        a.run(&format!("ping -c 1 -W 1 -p {} {}", hex(LAST), b.v4()));
        let captured = std::fs::read(wire.file()).expect("a capture");
        captured
            .windows(LAST.len())
            .any(|part| part == LAST)
            .then_some(())
    });
    wire.end();
    wire
}

/// All kinds of traffic: ARP, neighbour discovery, small and full packets, fragments, multicast, trains of
/// segments both ways.
fn mixed_traffic(a: &Host, b: &Host) {
    let size = a.mtu("ib0") - 28;
    a.ok("ip neigh flush dev ib0");
    a.reaches(b);
    a.ok(&format!("ping -c 3 -i 0.05 -W 2 -s {size} {}", b.v4()));
    a.ok(&format!("ping -c 3 -i 0.05 -W 2 -s 9001 {}", b.v6()));
    a.ok("ping -c 2 -i 0.2 -w 3 ff02::1%ib0");
    iperf(a, b, &b.v4(), "-n 2M");
    iperf(a, b, &b.v6(), "-n 2M -R");
    iperf(a, b, &b.v4(), "-u -b 5M -l 1000 -t 1");
}

/// Connections start, carry all that, and end.
fn traffic_over_connections(a: &Host, b: &Host) {
    for host in [a, b] {
        assert_eq!(host.ibtap("mode ib0 connected").code, Some(0));
    }
    for (from, to) in [(a, b), (b, a)] {
        eventually(SOON, "the MTU of connected mode", || {
            (from.mtu("ib0") == u64::from(CONNECTED_MTU)).then_some(())
        });
        from.connects_to(to);
    }
    mixed_traffic(a, b);
    for host in [a, b] {
        assert_eq!(host.ibtap("mode ib0 datagram").code, Some(0));
    }
    for host in [a, b] {
        eventually(SOON, "the end of a connection", || {
            (host.counter("ib0", "cm_rx_msgs_drep") > 0).then_some(())
        });
    }
}

fn tshark(host: &Host, path: &str, filter: &str) -> Vec<String> {
    let options: Vec<&str> = kit::tshark_any_payload().collect();
    let done = host.run_script(&format!(
        "exec tshark -n {} -r {path} -Y '{filter}' -T fields -e frame.number -e frame.protocols",
        options.join(" ")
    ));
    assert_eq!(done.code, Some(0), "tshark: {done:?}");
    done.out.lines().map(str::to_owned).collect()
}

/// `layers` is a display filter that every packet must match. Returns the output of `ibtap decode` about the
/// packets.
fn dissects_cleanly(lab: &mut Lab, layers: &str, traffic: Traffic) -> Vec<Value> {
    let (a, b) = lab.two();
    for host in [&*a, &*b] {
        // Splits trains before the capture.
        host.ok("ethtool -K eth0 tx-udp-segmentation off");
    }
    let wire = capture(a, b, traffic);
    let path = wire.file().to_str().expect("an ASCII path");
    let all = tshark(b, path, "udp.dstport == 4791");
    assert!(all.len() > 1000, "{} packets", all.len());
    assert_eq!(tshark(b, path, "_ws.malformed"), [""; 0]);
    assert_eq!(tshark(b, path, layers).len(), all.len());

    let decoded = b.run(&format!("{} decode --json {path}", ibtap().display()));
    assert_eq!(decoded.code, Some(0), "{}", decoded.err);
    let packets: Vec<Value> = serde_json::from_str(&decoded.out).expect("JSON");
    assert_eq!(packets.len(), all.len());
    let bad: Vec<_> = packets
        .iter()
        .filter(|p| p["icrc"]["verdict"] != "good")
        .collect();
    assert!(
        bad.is_empty(),
        "{} with a wrong ICRC: {:?}",
        bad.len(),
        bad[0]
    );
    packets
}

/// Checks for the packets and messages of connections.
fn has_connections(packets: &[Value]) {
    let names: BTreeSet<_> = packets
        .iter()
        .flat_map(|p| [&p["bth"]["name"], &p["mad"]["summary"]])
        .filter_map(Value::as_str)
        .collect();
    for name in [
        "RC SEND_FIRST",
        "RC SEND_MIDDLE",
        "RC SEND_LAST",
        "RC SEND_ONLY",
        "RC ACKNOWLEDGE",
        "UD SEND_ONLY",
        "CM ConnectRequest",
        "CM ConnectReply",
        "CM ReadyToUse",
        "CM DisconnectRequest",
        "CM DisconnectReply",
    ] {
        assert!(names.contains(name), "{name} is not among {names:?}");
    }
}

#[test]
fn packets_over_ipv6_dissect_cleanly_and_every_icrc_is_good() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    dissects_cleanly(&mut lab, "ipv6 and infiniband.deth", mixed_traffic);
}

#[test]
fn connections_over_ipv6_dissect_cleanly_and_every_icrc_is_good() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let layers = "ipv6 and infiniband.bth";
    let packets = dissects_cleanly(&mut lab, layers, traffic_over_connections);
    has_connections(&packets);
}

/// A pair with IPv4 GIDs.
fn ipv4_pair() -> Option<Lab> {
    let mut lab = Lab::pair()?;
    let (a, b) = lab.two();
    let (at_a, at_b) = (a.underlay_v4(), b.underlay_v4());
    a.start(&["--gid", "ipv4", "--peers", &at_b]);
    b.start(&["--gid", "ipv4", "--peers", &at_a]);
    a.configure("ib0");
    b.configure("ib0");
    a.reaches(b);
    Some(lab)
}

#[test]
fn packets_over_ipv4_dissect_cleanly_and_every_icrc_is_good() {
    let Some(mut lab) = ipv4_pair() else { return };
    dissects_cleanly(&mut lab, "ip and infiniband.deth", mixed_traffic);
}

#[test]
fn connections_over_ipv4_dissect_cleanly_and_every_icrc_is_good() {
    let Some(mut lab) = ipv4_pair() else { return };
    let layers = "ip and infiniband.bth";
    let packets = dissects_cleanly(&mut lab, layers, traffic_over_connections);
    has_connections(&packets);
}

/// A capture makes the interface promiscuous, as if something were stacked on it: traffic for the host
/// continues without queries.
#[test]
fn a_capture_costs_the_host_no_packet() {
    let _alone = Alone::begin();
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    let held = a.counter("ib0", "frames_held");
    let pings = [Pinging::start(b, &a.v4()), Pinging::start(b, &a.v6())];
    for times in 1..=3 {
        let capture = a.spawn("tcpdump -n -i ib0 -w /dev/null");
        eventually(SOON, "a promiscuous interface", || {
            let logged = a
                .daemon()
                .log()
                .matches("the interface is promiscuous")
                .count();
            (logged == times).then_some(())
        });
        Pinging::all_go_on(&pings);
        drop(capture);
        Pinging::all_go_on(&pings);
    }
    for ping in pings {
        ping.stop().lost_at_most(0);
    }
    assert_eq!(a.counter("ib0", "frames_held"), held);
}
