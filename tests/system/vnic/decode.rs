//! Output of `ibtap` about VNICs, live and from captures.

use serde_json::Value;

use super::{await_known, count, lid, managed_pair, pair};
use crate::lab::{Guest, Host, SOON, Sniffer, eventually, iperf_above};

/// The driver's counters in its order (kernel opa_vnic_ethtool.c).
const DRIVER: &str = "rx_packets tx_packets rx_bytes tx_bytes rx_errors tx_errors rx_dropped \
    tx_dropped tx_unicast tx_mcastbcast tx_untagged tx_vlan tx_64_size tx_65_127 tx_128_255 tx_256_511 \
    tx_512_1023 tx_1024_1518 tx_1519_max rx_unicast rx_mcastbcast rx_untagged rx_vlan rx_64_size \
    rx_65_127 rx_128_255 rx_256_511 rx_512_1023 rx_1024_1518 rx_1519_max rx_fifo_errors \
    rx_length_errors tx_fifo_errors tx_carrier_errors tx_dlid_zero tx_drop_state rx_drop_state \
    rx_oversize rx_runt";

#[test]
fn vr11_stats_have_the_drivers_names_in_its_order() {
    let Some(mut lab) = pair() else { return };
    let (a, b) = lab.two();
    a.ok(&format!("ping -q -c 3 -i 0.05 -W 5 {}", b.v4()));
    let text = a.ibtap("stats --zeros vnic0").out;
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut at = 0;
    for name in DRIVER.split_whitespace() {
        let found = words[at..]
            .iter()
            .position(|word| word.trim_end_matches(':') == name);
        at += found.unwrap_or_else(|| panic!("{name} is not behind the one before: {text}"));
    }
    for name in DRIVER.split_whitespace() {
        count(a, name);
    }
    for (name, least) in [("tx_packets", 3), ("rx_unicast", 3), ("tx_untagged", 3)] {
        assert!(count(a, name) >= least, "{name}");
    }
    // All counters of the driver, as ethtool prints them; of ibtap's own only nonzero ones.
    let short = a.ibtap("stats vnic0").out;
    assert!(
        short.contains("rx_runt") && !short.contains("rx_truncated"),
        "{short}"
    );
    assert!(text.contains("rx_truncated"), "{text}");
}

#[test]
fn show_and_mac_print_the_state() {
    let Some(mut lab) = pair() else { return };
    let (a, b) = lab.two();
    b.bridge_over("vnic0");
    let guest = Guest::attach(b, 2);
    a.reaches_all(&[guest.v4()]);
    let shown = a.show("vnic0");
    let link = a.link("vnic0");
    assert_eq!(shown["mac"], link["address"]);
    assert_eq!(shown["mtu"], link["mtu"]);
    assert_eq!(
        (&shown["vesw"], &shown["carrier"]),
        (&1.into(), &true.into())
    );
    for key in ["gid", "qpn", "lid", "pkey", "port"] {
        assert!(!shown[key].is_null(), "{key}: {shown}");
    }
    let text = a.ibtap("show").out;
    assert!(text.contains("vnic0"), "{text}");
    let text = a.ibtap("show vnic0").out;
    let of_a = format!("{:#08x}", lid(a, "vnic0"));
    assert!(text.contains(&of_a), "{of_a}: {text}");

    let there = lid(b, "vnic0");
    let entry = await_known(a, "vnic0", &guest.mac(), there);
    assert_eq!(entry["source"], "learned", "{entry}");
    let text = a.ibtap("vnic mac vnic0").out;
    let line = text.lines().find(|line| line.contains(&guest.mac()));
    let line = line.unwrap_or_else(|| panic!("{text}"));
    assert!(line.contains(&format!("{there:#08x}")), "{line}");

    for words in [
        "vnic mac vnic9",
        "vnic mac ib0",
        "show vnic9",
        "stats vnic9",
    ] {
        let done = a.ibtap(words);
        assert_eq!(done.code, Some(1), "{words}: {done:?}");
        assert_eq!(done.err.lines().count(), 1, "{words}: {}", done.err);
    }
    // Commands for IPoIB interfaces must not panic with a VNIC.
    for words in ["neigh vnic0", "mode vnic0", "mcg vnic0"] {
        let done = a.ibtap(words);
        assert_ne!(done.code, Some(3), "{words}: {done:?}");
        assert!(!done.err.contains("panicked"), "{words}: {}", done.err);
    }
    let queue_pairs = a.ask("res")[0]["queue_pairs"].clone();
    let all = queue_pairs.as_array().expect("an array");
    assert!(
        all.iter()
            .any(|qp| qp["interface"] == "vnic0" && qp["qpn"] == shown["qpn"]),
        "{queue_pairs}"
    );
}

/// Decodes a capture as far as it is written; `None` while it ends within a packet.
fn decoded(host: &Host, file: &str) -> Option<Vec<Value>> {
    let done = host.ibtap(&format!("decode --json {file}"));
    // Status 1 means a malformed packet: never, at any moment.
    assert_ne!(done.code, Some(1), "{done:?}");
    serde_json::from_str(&done.out).ok()
}

/// All strings and keys of a value, for a search.
fn text_of(value: &Value) -> String {
    value.to_string()
}

#[test]
fn a_capture_is_decoded_field_by_field() {
    let Some(mut lab) = pair() else { return };
    let (a, b) = lab.two();
    for host in [&*a, &*b] {
        // Splits trains before the capture.
        host.ok("ethtool -K eth0 tx-udp-segmentation off");
    }
    let mut wire = Sniffer::start(b, "eth0", "udp port 4791");
    a.ok("ip neigh flush dev vnic0");
    a.reaches(b);
    iperf_above(a, b, &b.v4(), "-n 1M", 1e6);
    let path = wire.file().to_str().expect("an ASCII path").to_owned();
    let is_ours = |packet: &&Value| packet["vnic"].is_object();
    // tcpdump may be a moment late, and loses packets without room in its ring.
    let packets = eventually(SOON, "packets of the stream", || {
        let packets = decoded(b, &path)?;
        (packets.iter().filter(is_ours).count() > 50).then_some(packets)
    });
    wire.end();
    let ours: Vec<&Value> = packets.iter().filter(is_ours).collect();
    assert!(packets.iter().all(|p| p["icrc"]["verdict"] == "good"));
    for packet in &ours {
        let header = &packet["vnic"];
        let slid = header["slid"].as_u64();
        let ends = [&*a, &*b].map(|host| Some(u64::from(lid(host, "vnic0"))));
        assert!(ends.contains(&slid), "{packet}");
        assert_eq!(
            (&header["vesw"], &header["l4"]),
            (&1.into(), &0x78.into()),
            "{packet}"
        );
    }
    let all: String = ours.iter().map(|packet| text_of(packet)).collect();
    for word in ["arp", "tcp", "icmp"] {
        assert!(all.to_lowercase().contains(word), "no {word}");
    }
    let text = b.ibtap(&format!("decode {path}")).out;
    assert!(text.lines().count() >= packets.len(), "a line for each");
    assert!(
        text.contains("16B"),
        "{}",
        text.lines().next().unwrap_or("")
    );
}

/// Management on the wire, by names of methods and attributes.
#[test]
fn management_is_decoded_by_name() {
    let Some((mut lab, mut em)) = managed_pair("poll_interval = 1", "") else {
        return;
    };
    let (a, b) = lab.two();
    let wire = Sniffer::start(b, "eth0", "udp port 4791");
    // A restarted agent is configured again.
    b.kill_daemon();
    b.start_config(&super::managed("vnic0"));
    b.configure("vnic0");
    a.reaches(b);
    let path = wire.file().to_str().expect("an ASCII path").to_owned();
    eventually(SOON, "management of every kind", || {
        let output: String = decoded(b, &path)?.iter().map(text_of).collect();
        let words = ["ClassPortInfo", "VeswPortInfo", "LidDirectory", "NodeInfo"];
        words.iter().all(|word| output.contains(word)).then_some(())
    });
    em.end_by(rustix::process::Signal::TERM);
}
