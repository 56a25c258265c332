//! 802.1Q tags on `ib0` that select partitions. They need no 802.1Q in the kernel: a VLAN link is a program
//! here (`lab/vlan_link.py`); [`kernel`] uses the kernel's links.

mod kernel;

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Duration;

use crate::lab::frame::{BROADCAST, Mac, arp_request, mac, udp4};
use crate::lab::{Alone, Background, Host, Lab, SOON, Sniffer, Station, eventually, iperf};

/// `ib0` on `eth0` with tags for partitions, with further keys of the port and more interfaces.
fn config(port: &str, more: &str) -> String {
    format!(
        "[port.eth0]\n{port}\n[[ipoib]]\nname = \"ib0\"\nunderlay = \"eth0\"\nvlan_pkey = true\n{more}"
    )
}

/// An interface in the partition of VLAN 5.
const PARTITION_5: &str = "[[ipoib]]\nname = \"p5\"\nunderlay = \"eth0\"\npkey = 0x8005\n";

impl Host {
    fn serve(&mut self, text: &str) {
        self.start_config(text);
        self.configure("ib0");
    }

    /// A VLAN link on `ib0` with addresses of this host in 10.`vid`.0.0/24.
    fn vlan_link(&self, vid: u16) -> VlanLink {
        let name = format!("v{vid}");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/system/lab/vlan_link.py");
        let link = VlanLink {
            _relay: self.spawn(&format!("python3 {script} ib0 {name} {vid}")),
            name,
            vid,
        };
        eventually(SOON, "the VLAN link", || {
            self.has_link(&link.name).then_some(())
        });
        self.ok(&format!(
            "ip link set {} mtu {}",
            link.name,
            self.mtu("ib0")
        ));
        self.number_in(&link.name, vid);
        link
    }

    /// Adds the addresses of this host in the network of a VLAN to an interface.
    fn number_in(&self, interface: &str, vid: u16) {
        self.ok(&format!(
            "ip addr add {}/24 dev {interface}",
            self.v4_in(vid)
        ));
        self.ok(&format!(
            "ip addr add {}/64 dev {interface} nodad",
            self.v6_in(vid)
        ));
        self.ok(&format!("ip link set {interface} up"));
        self.await_carrier(interface, true);
    }

    fn v4_in(&self, vid: u16) -> String {
        self.v4().replace("10.9.", &format!("10.{vid}."))
    }

    fn v6_in(&self, vid: u16) -> String {
        self.v6().replace("fd09", &format!("fd{vid:02x}"))
    }

    /// Waits until another host answers in the network of a VLAN.
    fn reaches_in(&self, vid: u16, other: &Host) {
        for address in [other.v4_in(vid), other.v6_in(vid)] {
            eventually(SOON, &format!("an answer from {address}"), || {
                self.pings(&address).then_some(())
            });
        }
    }
}

struct VlanLink {
    _relay: Background,
    name: String,
    vid: u16,
}

impl VlanLink {
    /// A counter of its partition.
    fn counter(&self, host: &Host, name: &str) -> u64 {
        host.counter(&format!("ib0:vlan{}", self.vid), name)
    }
}

fn mac_of(host: &Station, interface: &str) -> Mac {
    mac(host.link(interface)["address"].as_str().expect("a MAC"))
}

/// Inserts a tag into a frame.
fn tagged(frame: &[u8], control: u16) -> Vec<u8> {
    let mut tagged = frame[..12].to_vec();
    tagged.extend([0x81, 0]);
    tagged.extend(control.to_be_bytes());
    tagged.extend(&frame[12..]);
    tagged
}

#[test]
fn tagged_ends_reach_each_other_and_large_sends_stay_whole() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    a.serve(&config("", ""));
    b.serve(&config("", ""));
    let (one, other) = (a.vlan_link(5), b.vlan_link(5));
    a.reaches_in(5, b);
    b.reaches_in(5, a);
    a.reaches(b);
    // Large packets, and fragments.
    for size in [1400, 4064, 9000] {
        a.ok(&format!("ping -c 2 -i 0.05 -W 5 -s {size} {}", b.v4_in(5)));
    }
    let output = a.ok("ping -n -c 3 -i 0.3 -w 5 ff02::1%v5");
    let known = [b.await_link_local("v5"), b.v6_in(5)];
    assert!(
        known.iter().any(|ip| output.contains(ip)),
        "multicast: {output}"
    );
    let reads = one.counter(a, "tap_reads");
    let (packets, writes) = (
        other.counter(b, "rx_packets"),
        other.counter(b, "tap_writes"),
    );
    let sent = one.counter(a, "tx_packets");
    iperf(a, b, &b.v4_in(5), "-n 40M");
    iperf(b, a, &a.v6_in(5), "-n 20M");
    let reads = one.counter(a, "tap_reads") - reads;
    let sent = one.counter(a, "tx_packets") - sent;
    assert!(sent > 2 * reads, "{sent} packets of {reads} large sends");
    let packets = other.counter(b, "rx_packets") - packets;
    let writes = other.counter(b, "tap_writes") - writes;
    assert!(packets > 2 * writes, "{packets} packets in {writes} frames");
    assert_eq!(one.counter(a, "tap_write_errors"), 0);
    assert_eq!(other.counter(b, "tap_write_errors"), 0);
    assert_eq!(other.counter(b, "tx_bad_frame"), 0);
    // The VLAN's own values are shown.
    let neighbours = a.ask("neigh ib0:vlan5");
    assert!(!neighbours.is_empty());
    let groups = a.groups("ib0:vlan5", |_| true);
    assert!(
        groups.iter().all(|g| g.contains("8005")) && groups.len() > 2,
        "{groups:?}"
    );
}

#[test]
fn a_tagged_end_reaches_an_interface_of_the_partition_and_no_other() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    a.serve(&config("", ""));
    b.serve(&config("", PARTITION_5));
    b.number_in("p5", 5);
    b.ok(&format!("ip addr add 10.6.0.{}/24 dev p5", 2));
    let _five = a.vlan_link(5);
    let six = a.vlan_link(6);
    a.reaches_in(5, b);
    b.reaches_in(5, a);
    iperf(a, b, &b.v4_in(5), "-n 10M");
    iperf(b, a, &a.v4_in(5), "-n 10M");
    // VLAN 6 is another partition: its requests reach no host, though the other host could answer them.
    let heard = Sniffer::start(b, "any", "arp and (host 10.6.0.2 or host 10.5.0.77)");
    let done = a.run("arping -c 3 -w 3 -I v6 10.6.0.2");
    assert_ne!(done.code, Some(0), "{done:?}");
    eventually(SOON, "VLAN 6's own packets", || {
        (six.counter(a, "tx_packets") >= 3).then_some(())
    });
    std::thread::sleep(Duration::from_millis(500));
    assert!(heard.is_empty(), "something crossed partitions");
    // In its own partition a request arrives.
    a.run("arping -c 1 -w 1 -I v5 10.5.0.77");
    eventually(SOON, "a question", || (!heard.is_empty()).then_some(()));
}

#[test]
fn a_priority_is_the_traffic_class_on_the_wire() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    a.serve(&config("", ""));
    b.serve(&config("", PARTITION_5));
    b.number_in("p5", 5);
    let _link = a.vlan_link(5);
    a.reaches_in(5, b);
    let wire = Sniffer::start(b, "eth0", "udp port 4791");
    let path = wire.file().to_str().expect("an ASCII path");
    let to_peer = mac(a
        .json("ip -j neigh show dev v5")
        .as_array()
        .expect("a list")
        .iter()
        .find(|n| n["dst"] == b.v4_in(5).as_str())
        .expect("a neighbour")["lladdr"]
        .as_str()
        .expect("a MAC"));
    let source: Ipv4Addr = a.v4_in(5).parse().expect("IPv4");
    let own = mac_of(a, "ib0");
    let marked = |priority: u16, vid: u16, destination: &str, to: Mac| {
        let destination = destination.parse().expect("IPv4");
        let data = [b"priority ", &[b'0' + priority as u8][..], &[0; 40]].concat();
        tagged(
            &udp4((own, to), source, destination, &data),
            priority << 13 | vid,
        )
    };
    let mut frames: Vec<Vec<u8>> = [5, 0, 7, 5]
        .map(|priority| marked(priority, 5, &b.v4_in(5), to_peer))
        .to_vec();
    // A priority tag without a VLAN selects the interface's own partition; groups have priorities, too.
    frames.push(marked(3, 0, "255.255.255.255", BROADCAST));
    frames.push(marked(6, 5, "255.255.255.255", BROADCAST));
    a.send_frames("ib0", 100, &frames);
    let count = |filter: &str| {
        let done = b.run_script(&format!(
            "exec tshark -n -r {path} -Y '{filter}' -T fields -e frame.number 2>/dev/null"
        ));
        done.out.lines().count()
    };
    // Answered errors quote the original packet.
    let shown = a.show("ib0");
    let gid = shown["gid"].as_str().expect("a GID");
    let expected = [
        ("priority 5", "8005", 0xa0, 2),
        ("priority 7", "8005", 0xe0, 1),
        ("priority 0", "8005", 0, 1),
        ("priority 3", "ffff", 0x60, 1),
        ("priority 6", "8005", 0xc0, 1),
    ];
    for (data, pkey, class, times) in expected {
        let filter = format!(
            "ipv6.src == {gid} && frame contains \"{data}\" && ipv6.tclass == {class} && infiniband.bth.p_key == 0x{pkey}"
        );
        eventually(SOON, &filter, || (count(&filter) == times).then_some(()));
    }
}

#[test]
fn tags_without_a_partition_are_counted_and_hostile_ones_do_no_harm() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    let table = |pkeys: &str| config(&format!("pkeys = [{pkeys}]"), "");
    a.serve(&table("0xffff, 0x8005"));
    b.serve(&config("", ""));
    let (_one, _two) = (a.vlan_link(5), b.vlan_link(5));
    a.reaches_in(5, b);
    let own = mac_of(a, "ib0");
    let asks = arp_request(
        (own, Ipv4Addr::new(10, 7, 0, 1)),
        Ipv4Addr::new(10, 7, 0, 2),
    );
    let unserved = |a: &Host| a.counter("ib0", "tx_vlan_unserved");
    let before = unserved(a);
    a.send_frames("ib0", 100, &vec![tagged(&asks, 7); 10]);
    eventually(SOON, "ten frames without a partition", || {
        (unserved(a) == before + 10).then_some(())
    });
    let logged = |a: &mut Host| a.daemon().log().matches("VLAN 7 is not served").count();
    eventually(SOON, "one line in the log", || {
        (logged(a) > 0).then_some(())
    });
    assert_eq!(logged(a), 1);
    // Reserved, tagged twice, service provider's tag, truncated.
    let mut provider = tagged(&asks, 5);
    provider[12..14].copy_from_slice(&[0x88, 0xa8]);
    let mut hostile = vec![
        tagged(&asks, 0xfff),
        tagged(&tagged(&asks, 6), 5),
        tagged(&tagged(&asks, 6), 0),
        provider,
    ];
    hostile.extend((14..24).map(|len| tagged(&asks, 5)[..len].to_vec()));
    hostile.extend((14..24).map(|len| tagged(&asks, 0)[..len].to_vec()));
    let dropped = |a: &Host| a.counter("ib0", "tx_dropped") + a.counter("ib0:vlan5", "tx_dropped");
    let before = dropped(a);
    a.send_frames("ib0", 100, &hostile);
    eventually(SOON, "all of them dropped", || {
        (dropped(a) >= before + hostile.len() as u64).then_some(())
    });
    let dump = a.ask("stats");
    let names: Vec<&str> = dump.iter().filter_map(|s| s["name"].as_str()).collect();
    assert_eq!(names, ["ib0", "ib0:vlan5"]);
    assert!(a.daemon().is_running());
    a.reaches_in(5, b);
    a.reaches(b);
    // After an added key the VLAN is served without another frame; after a removed key it is not.
    a.write_config(&table("0xffff, 0x8007"));
    assert_eq!(a.ibtap("reload").code, Some(0));
    eventually(SOON, "VLAN 7 instead of VLAN 5", || {
        let all = a.ask("stats");
        let names: Vec<&str> = all.iter().filter_map(|s| s["name"].as_str()).collect();
        (names == ["ib0", "ib0:vlan7"]).then_some(())
    });
    assert!(!a.pings(&b.v4_in(5)));
    a.reaches(b);
}

/// The number of partitions that tags of an interface select.
#[test]
fn a_vlan_beyond_the_limit_is_served_when_another_ends() {
    const MOST: u16 = 128;
    let Some(mut lab) = Lab::pair() else { return };
    let a = lab.host(0);
    let table = |from: u16| {
        let pkeys: Vec<_> = (from..=MOST + 1)
            .map(|vid| (0x8000 | vid).to_string())
            .collect();
        config(&format!("pkeys = [0xffff, {}]", pkeys.join(", ")), "")
    };
    a.serve(&table(1));
    let asks = arp_request(
        (mac_of(a, "ib0"), Ipv4Addr::new(10, 7, 0, 1)),
        Ipv4Addr::new(10, 7, 0, 2),
    );
    let frames: Vec<_> = (1..=MOST + 1).map(|vid| tagged(&asks, vid)).collect();
    a.send_frames("ib0", 100, &frames);
    let serves = |vids: std::ops::RangeInclusive<u16>| {
        let wanted: BTreeSet<_> = vids.map(|vid| format!("ib0:vlan{vid}")).collect();
        eventually(SOON, "the VLANs", || {
            let all = a.ask("stats");
            let names = all.iter().filter_map(|s| s["name"].as_str());
            let names = names
                .filter(|name| name.contains(":vlan"))
                .map(str::to_owned);
            (names.collect::<BTreeSet<_>>() == wanted).then_some(())
        });
    };
    serves(1..=MOST);
    a.write_config(&table(2));
    assert_eq!(a.ibtap("reload").code, Some(0));
    serves(2..=MOST + 1);
}

/// Ports change places when an earlier port closes.
#[test]
fn a_vlan_stays_with_its_port_when_another_is_closed() {
    let Some(mut lab) = Lab::pair() else { return };
    lab.add_second_underlay();
    let (a, _) = lab.two();
    let trunk = "[[ipoib]]\nname = \"ib0\"\nunderlay = \"eth1\"\nvlan_pkey = true\n";
    let other = "[[ipoib]]\nname = \"ib1\"\nunderlay = \"eth0\"\n";
    a.serve(&format!("{trunk}{other}"));
    let own = mac_of(a, "ib0");
    let asks = arp_request(
        (own, Ipv4Addr::new(10, 7, 0, 1)),
        Ipv4Addr::new(10, 7, 0, 2),
    );
    let serves = |a: &Host, wanted: &[&str]| {
        eventually(SOON, "the VLANs", || {
            let all = a.ask("stats");
            let names: Vec<&str> = all.iter().filter_map(|s| s["name"].as_str()).collect();
            (names == wanted).then_some(())
        });
    };
    a.send_frames("ib0", 100, &[tagged(&asks, 5)]);
    serves(a, &["ib1", "ib0", "ib0:vlan5"]);
    a.write_config(trunk);
    assert_eq!(a.ibtap("reload").code, Some(0));
    a.send_frames("ib0", 100, &[tagged(&asks, 6)]);
    serves(a, &["ib0", "ib0:vlan5", "ib0:vlan6"]);
    a.ok("ip link set ib0 down");
    eventually(SOON, "no group of VLAN 5", || {
        attached(a, "ib0:vlan5").is_empty().then_some(())
    });
    assert!(a.daemon().is_running());
}

#[test]
fn a_vlan_follows_its_interface() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    a.serve(&config("", ""));
    b.serve(&config("", ""));
    let (_one, _two) = (a.vlan_link(5), b.vlan_link(5));
    a.reaches_in(5, b);
    // Down: no groups. Up: all of them again.
    a.ok("ip link set ib0 down");
    eventually(SOON, "no group of VLAN 5", || {
        attached(a, "ib0:vlan5").is_empty().then_some(())
    });
    a.ok("ip link set ib0 up");
    a.reaches_in(5, b);
    // Another mode, with another MTU.
    for host in [&*a, &*b] {
        assert_eq!(host.ibtap("mode ib0 connected").code, Some(0));
        eventually(SOON, "the MTU of connected mode", || {
            (host.mtu("ib0") == 65_520).then_some(())
        });
        host.ok("ip link set v5 mtu 65520");
        // Its own addresses are not announced: peers learn them from the next request.
        host.ok("ip neigh flush dev v5");
    }
    eventually(SOON, "a packet of 40000 bytes", || {
        let ping = format!("ping -M do -c 1 -W 1 -s 40000 {}", b.v4_in(5));
        (a.run(&ping).code == Some(0)).then_some(())
    });
    // Another MAC.
    a.ok("ip link set ib0 address 02:00:00:00:12:34");
    a.ok("ip link set v5 address 02:00:00:00:12:34");
    a.ok("ip neigh flush dev v5");
    a.reaches_in(5, b);
    // The interface is deleted, with all queue pairs.
    a.ok("ip link del ib0");
    eventually(SOON, "no queue pair", || {
        let all = a.ask("res");
        let pairs = all[0]["queue_pairs"].as_array().expect("a list");
        pairs.iter().all(|qp| qp["type"] != "UD").then_some(())
    });
    assert!(a.daemon().is_running());
}

#[test]
fn a_tagged_end_and_an_interface_of_the_same_daemon_need_no_wire() {
    let Some(mut lab) = Lab::pair() else { return };
    let blue = Station::create("blue");
    let a = lab.host(0);
    let in_blue = format!("{PARTITION_5}netns = \"{}\"\n", blue.namespace().name());
    a.serve(&config("", &in_blue));
    let link = a.vlan_link(5);
    blue.ok("ip addr add 10.5.0.77/24 dev p5");
    blue.ok("ip link set p5 up");
    blue.await_carrier("p5", true);
    a.reaches_all(&["10.5.0.77"]);
    let on_the_wire = |a: &Host| {
        let stats = a.json("ip -s -j link show dev eth0")[0]["stats64"].clone();
        stats["tx"]["packets"].as_u64().expect("a number")
    };
    let (frames, before) = (link.counter(a, "tx_to_siblings"), on_the_wire(a));
    iperf(a, &blue, "10.5.0.77", "-n 20M");
    iperf(&blue, a, &a.v4_in(5), "-n 20M");
    let carried = on_the_wire(a) - before;
    assert!(carried < 500, "{carried} packets for 40 MB");
    assert!(link.counter(a, "tx_to_siblings") > frames + 300);
    assert!(a.counter("p5", "tx_to_siblings") > 300);
}

#[test]
fn tags_begin_and_cease_to_select_partitions_by_a_reload() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    let without = config("", "").replace("vlan_pkey = true", "vlan_pkey = false");
    a.serve(&without);
    b.serve(&config("", PARTITION_5));
    b.number_in("p5", 5);
    let _link = a.vlan_link(5);
    assert!(!a.pings(&b.v4_in(5)));
    let pairs = |a: &Host| {
        let all = a.ask("res");
        let pairs = all[0]["queue_pairs"].as_array().expect("a list");
        pairs.iter().filter(|qp| qp["type"] == "UD").count()
    };
    assert_eq!(pairs(a), 1);
    let qpn = a.show("ib0")["qpn"].clone();
    let reload = |text: &str, expected: &str| {
        a.write_config(text);
        let done = a.ibtap("reload");
        assert_eq!(done.code, Some(0), "{done:?}");
        assert!(done.out.contains(expected), "{done:?}");
    };
    for _ in 0..2 {
        reload(&config("", ""), "ib0: vlan_pkey true");
        a.reaches_in(5, b);
        assert_eq!((pairs(a), &a.show("ib0")["qpn"]), (2, &qpn));
        reload(&without, "ib0: vlan_pkey false");
        assert_eq!(pairs(a), 1);
        assert!(!a.pings(&b.v4_in(5)));
        let table = a.ask("pkey list eth0")[0]["pkeys"].clone();
        assert_eq!(table, serde_json::json!([0xffff]));
    }
}

/// The groups of an interface's queue pair.
fn attached(host: &Host, interface: &str) -> Vec<String> {
    let ports = host.ask("res");
    let list = |what: &str| ports[0][what].as_array().cloned().expect("a list");
    let own = list("queue_pairs")
        .into_iter()
        .find(|qp| qp["interface"] == interface);
    let qpn = own.expect("a queue pair")["qpn"].clone();
    let groups = list("groups").into_iter().filter(|g| g["qpn"] == qpn);
    groups.map(|g| g["mgid"].to_string()).collect()
}

#[test]
fn moderation_spares_wake_ups_and_answers_still() {
    let _alone = Alone::begin();
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    // A constant load, unlike a flood of pings, which waits for answers.
    let flood = |a: &Host| {
        let before = (b.counter("ib0", "wakeups"), b.counter("ib0", "rx_packets"));
        iperf(a, b, &b.v4(), "-u -b 8M -l 100 -t 2");
        let packets = b.counter("ib0", "rx_packets") - before.1;
        let wakeups = b.counter("ib0", "wakeups") - before.0;
        assert!(packets > 10_000, "{packets} packets");
        wakeups
    };
    let set = |words: &str| b.ibtap(&format!("coalesce ib0 {words}"));
    let mut seen = Vec::new();
    // On a busy machine the daemon wakes up less often by itself: such a round proves nothing.
    let spares = (0..3).any(|_| {
        let usual = flood(a);
        let done = set("--rx-usecs 5000 --rx-frames 64");
        assert_eq!(done.code, Some(0), "{done:?}");
        let spared = flood(a);
        a.reaches(b);
        iperf(a, b, &b.v4(), "-n 5M");
        assert_ne!(set("--rx-usecs 65536").code, Some(0));
        assert_eq!(set("--rx-usecs 0 --rx-frames 0").code, Some(0));
        let again = flood(a);
        seen.push((usual, spared, again));
        spared * 2 < usual.min(again)
    });
    assert!(spares, "wake-ups before, with moderation, after: {seen:?}");
}
