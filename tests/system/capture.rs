//! What goes over the wire, in the eyes of tshark and of `ibtap decode`.

use std::time::Duration;

use serde_json::Value;

use crate::lab::{Host, Lab, Pinging, SOON, eventually, ibtap, iperf};

/// Bytes of a pcap file's own header.
const PCAP_HEADER: u64 = 24;

/// Captures the underlay of `b` while traffic between the two runs; gives back the file.
fn capture(a: &Host, b: &Host) -> String {
    let file = b.file("underlay.pcap");
    let path = file.to_str().expect("an ASCII path").to_owned();
    let tcpdump = b.spawn(&format!(
        "tcpdump -i eth0 -U -s 0 -B 65536 -w {path} udp port 4791"
    ));
    eventually(SOON, "tcpdump to begin", || {
        let written = std::fs::metadata(&file).ok()?.len();
        (written >= PCAP_HEADER).then_some(())
    });
    mixed_traffic(a, b);
    // tcpdump writes each packet as it comes (-U); it may be a moment behind.
    std::thread::sleep(Duration::from_millis(500));
    drop(tcpdump);
    path
}

/// All kinds of traffic: ARP, neighbour discovery, small and full packets, fragments, multicast,
/// trains of segments both ways.
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

fn tshark(host: &Host, path: &str, filter: &str) -> Vec<String> {
    let done = host.run_script(&format!(
        "exec tshark -n -r {path} -Y '{filter}' -T fields -e frame.number"
    ));
    assert_eq!(done.code, Some(0), "tshark: {done:?}");
    done.out.lines().map(str::to_owned).collect()
}

/// `layers` is a display filter that every packet must satisfy.
fn dissects_cleanly(lab: &mut Lab, layers: &str) {
    let (a, b) = lab.two();
    for host in [&*a, &*b] {
        // Cut trains before the capture sees them.
        host.ok("ethtool -K eth0 tx-udp-segmentation off");
    }
    let path = capture(a, b);
    let all = tshark(b, &path, "udp.dstport == 4791");
    assert!(all.len() > 1000, "{} packets", all.len());
    assert_eq!(tshark(b, &path, "_ws.malformed"), [""; 0]);
    assert_eq!(tshark(b, &path, "infiniband.deth").len(), all.len());
    assert_eq!(tshark(b, &path, layers).len(), all.len());

    let decoded = b.run(&format!("{} decode --json {path}", ibtap().display()));
    assert_eq!(decoded.code, Some(0), "{}", decoded.err);
    let packets: Value = serde_json::from_str(&decoded.out).expect("JSON");
    let packets = packets.as_array().expect("an array");
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
}

#[test]
fn packets_over_ipv6_dissect_cleanly_and_every_icrc_is_good() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    dissects_cleanly(&mut lab, "ipv6 and infiniband");
}

#[test]
fn packets_over_ipv4_dissect_cleanly_and_every_icrc_is_good() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    let (at_a, at_b) = (a.underlay_v4(), b.underlay_v4());
    a.start(&["--gid", "ipv4", "--peers", &at_b]);
    b.start(&["--gid", "ipv4", "--peers", &at_a]);
    a.configure("ib0");
    b.configure("ib0");
    a.reaches(b);
    dissects_cleanly(&mut lab, "ip and infiniband");
}

/// A capture makes the interface promiscuous, which looks as if something were stacked on it: what
/// comes for the host goes on without a question.
#[test]
fn a_capture_costs_the_host_no_packet() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    let held = a.counter("ib0", "frames_held");
    let pings = [Pinging::start(b, &a.v4()), Pinging::start(b, &a.v6())];
    for _ in 0..3 {
        let capture = a.spawn("tcpdump -n -i ib0 -w /dev/null");
        eventually(SOON, "a promiscuous interface", || {
            a.daemon().log().contains("it is promiscuous").then_some(())
        });
        std::thread::sleep(Duration::from_millis(300));
        drop(capture);
        std::thread::sleep(Duration::from_millis(300));
    }
    for ping in pings {
        ping.stop().lost_at_most(0);
    }
    assert_eq!(a.counter("ib0", "frames_held"), held);
}
