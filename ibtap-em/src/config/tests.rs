use super::*;

const SWITCH: &str = "[[vesw]]\nname = \"a\"\nid = 2\nmembers = [\"*\"]\n";

fn parse(text: &str) -> Result<Config, String> {
    Config::parse(text, "t.toml").map_err(|error| error.to_string())
}

/// The error of a file whose switch table ends with `tail`.
fn fault(tail: &str) -> String {
    parse(&format!("{SWITCH}{tail}\n")).unwrap_err()
}

#[test]
fn a_switch_has_defaults() {
    let config = parse(SWITCH).unwrap();
    assert_eq!(config.em, ManagerConfig::default());
    let switch = config.switch(2).unwrap();
    assert_eq!(switch.u_mcast_dlid, Lid::new(0xf0_0002));
    assert_eq!(switch.pkey, PKey::DEFAULT);
    assert_eq!((switch.fabric_id, switch.eth_mtu), (0, None));
    assert_eq!(switch.macs, MacSource::Generate);
    assert!(switch.default_ports.is_empty());
}

#[test]
fn every_key_is_read() {
    let text = r#"
[em]
priority = 3
elevated_priority = 9
poll_interval = 10
lease = 20
grace = 60
state_dir = "/tmp/s"
socket = "/tmp/em.sock"
ibtapd_socket = "/tmp/d.sock"
port = "eth0"
log_level = "debug"

[[vesw]]
name = "storage"
id = 2
fabric_id = 0x301
pkey = "0x8001"
eth_mtu = 2005
u_mcast_dlid = 0xF00002
default_ports = [{ slot = 0, port = "gw1:1:0" }, { slot = 15, port = "gw2:1:0" }]
rc = { default = 1, ipv4 = 2, ipv4_tcp = 4, ipv4_udp = 3, ipv6 = 5, ipv6_tcp = 6, ipv6_udp = 7 }
sc = { untagged = [0, 4], pcp_unicast = [0,0,1,1,2,2,3,3], pcp_multicast = [4,4,4,4,5,5,5,31] }
members = ["node*:1:0", "0x00117501016fbe21:1:1"]
mac = "list"
macs = ["02:00:00:00:00:01", "02:00:00:00:01:00-02:00:00:00:01:ff"]
pinned_macs = [{ mac = "02:00:00:00:02:00", port = "gw1:1:0" }]
static_macs = [{ mac = "00:02:c9:11:22:33", port = "gw1:1:0" }]
groups = [{ mac = "01:00:5e:00:00:fb", lid = 0xf00100 }, { mac = "33:33:00:00:00:fb", lid = "0xf7ffff" }]
"#;
    let config = parse(text).unwrap();
    assert_eq!(config.em.poll_interval, 10_000);
    assert_eq!(config.em.lease, 20_000);
    assert_eq!((config.em.priority, config.em.elevated_priority), (3, 9));
    assert_eq!(config.em.port.as_deref(), Some("eth0"));
    let switch = &config.switches[0];
    // opa_vnic_encap.h: with IPv6, UDP and TCP are in reverse order.
    assert_eq!(switch.rc, 0x0765_4321);
    assert_eq!(switch.pkey.get(), 0x8001);
    assert_eq!(switch.eth_mtu, Some(2005));
    assert_eq!(switch.default_ports[&15].to_string(), "gw2:1:0");
    assert_eq!((switch.classes.unicast, switch.classes.multicast), (0, 4));
    assert_eq!(switch.classes.pcp_multicast[7], 31);
    assert_eq!(switch.static_macs[0].mac, [0, 2, 0xc9, 0x11, 0x22, 0x33]);
    assert_eq!(switch.groups[0].mac, [1, 0, 0x5e, 0, 0, 0xfb]);
    let lids = [0xf0_0100, 0xf7_ffff].map(Lid::new);
    assert_eq!([0, 1].map(|at| switch.groups[at].lid), lids);
    let MacSource::List(ranges) = &switch.macs else {
        panic!("{:?}", switch.macs)
    };
    assert_eq!(ranges.len(), 2);
}

#[test]
fn e04_ids_have_12_bits_and_are_not_0() {
    for (id, right) in [
        (0, false),
        (1, true),
        (4095, true),
        (4096, false),
        (-1, false),
    ] {
        let text = format!("[[vesw]]\nname = \"a\"\nid = {id}\nmembers = [\"*\"]\n");
        let got = parse(&text);
        assert_eq!(got.is_ok(), right, "{id}");
        if let Err(error) = got {
            assert_eq!(
                error,
                format!("t.toml:3:6: id = {id} is not a number from 1 to 4095")
            );
        }
    }
}

#[test]
fn faults_name_the_place_the_key_the_value_and_what_is_allowed() {
    for (tail, error_text) in [
        (
            "fabric_id = 1024",
            "t.toml:5:13: fabric_id = 1024 is not a number from 0 to 1023",
        ),
        ("pkey = 0x8000", "t.toml:5:8: pkey = 0x8000 is not a P_Key"),
        (
            "eth_mtu = 67",
            "eth_mtu = 67 is not a number from 68 to 16333",
        ),
        (
            "eth_mtu = \"big\"",
            "eth_mtu = \"big\" is not a number from 68 to 16333",
        ),
        (
            "u_mcast_dlid = 0xF0000002",
            "u_mcast_dlid = 4026531842 is not a number from 0xf00000 to 0xf7ffff",
        ),
        ("speed = 1", "t.toml:5:1: unknown key `speed`"),
        (
            "default_ports = [{ slot = 16, port = \"a:1:0\" }]",
            "slot = 16 is not a number from 0 to 15",
        ),
        (
            "default_ports = [{ slot = 1, port = \"a*:1:0\" }]",
            "port = \"a*:1:0\" may match several ports",
        ),
        (
            "default_ports = [{ slot = 1, port = \"a:1:0\" }, { slot = 1, port = \"b:1:0\" }]",
            "slot = 1 appears twice",
        ),
        ("rc = { ipv4 = 8 }", "ipv4 = 8 is not a number from 0 to 7"),
        (
            "sc = { untagged = [1] }",
            "untagged has 1 service classes; it needs 2",
        ),
        (
            "sc = { untagged = [1, 32] }",
            "untagged = 32 is not a number from 0 to 31",
        ),
        (
            "sc = { untagged = [1, 15] }",
            "untagged = 15 is the service class of management",
        ),
        (
            "mac = \"random\"",
            "mac = \"random\" is not \"generate\" or \"list\"",
        ),
        ("mac = \"list\"", "mac = \"list\" needs addresses"),
        (
            "macs = [\"02:00:00:00:00:01\"]",
            "macs needs mac = \"list\"",
        ),
        (
            "mac = \"list\"\nmacs = [\"02:00:00:00:00:05-02:00:00:00:00:01\"]",
            "ends before it begins",
        ),
        (
            "mac = \"list\"\nmacs = [\"03:00:00:00:00:05\"]",
            "is a multicast address or zero",
        ),
        (
            "static_macs = [{ mac = \"2:0:0:0:0:1\", port = \"a:1:0\" }]",
            "is not an Ethernet address",
        ),
        (
            "static_macs = [{ mac = \"02:00:00:00:00:01\", port = \"a:1\" }]",
            "port: \"a:1\" does not name virtual ports",
        ),
        (
            "pinned_macs = [{ mac = \"02:00:00:00:00:01\", port = \"A:1:0\" }, \
             { mac = \"02:00:00:00:00:02\", port = \"a:1:0\" }]",
            "port = \"a:1:0\" already has 02:00:00:00:00:01 in pinned_macs",
        ),
        (
            "groups = [{ mac = \"02:00:00:00:00:01\", lid = 0xf00100 }]",
            "t.toml:5:19: mac = \"02:00:00:00:00:01\" is not a multicast address",
        ),
        (
            "groups = [{ mac = \"ff:ff:ff:ff:ff:ff\", lid = 0xf00100 }]",
            "is the broadcast address, which always goes to u_mcast_dlid",
        ),
        (
            "groups = [{ mac = \"01:00:5e:00:00\", lid = 0xf00100 }]",
            "is not an Ethernet address such as \"01:00:5e:00:00:fb\"",
        ),
        (
            "groups = [{ mac = \"01:00:5e:00:00:fb\", lid = 0xefffff }]",
            "t.toml:5:46: lid = 15728639 is not a number from 0xf00000 to 0xf7ffff",
        ),
        (
            "groups = [{ mac = \"01:00:5e:00:00:fb\", lid = 0xf00100 }, \
             { mac = \"01:00:5E:00:00:FB\", lid = 0xf00101 }]",
            "appears twice in groups",
        ),
        (
            "groups = [{ mac = \"01:00:5e:00:00:fb\", lid = 0xf00002 }]",
            "lid = 0xf00002 is already used by the switch \"a\"",
        ),
        (
            "groups = [{ mac = \"01:00:5e:00:00:fb\", lid = 0xf00100 }, \
             { mac = \"01:00:5e:00:00:fc\", lid = 0xf00100 }]",
            "lid = 0xf00100 is already used by the group 01:00:5e:00:00:fb of \"a\"",
        ),
        (
            "groups = [{ mac = \"01:00:5e:00:00:fb\", lid = 0xf00003 }]\n\
             [[vesw]]\nname = \"b\"\nid = 3\nmembers = [\"*\"]",
            "t.toml:8:6: u_mcast_dlid = 0xf00003 is already used by the group 01:00:5e:00:00:fb of \"a\"",
        ),
        (
            "[[vesw]]\nname = \"b\"\nid = 3\nmembers = [\"*\"]\nu_mcast_dlid = 0xf00002",
            "t.toml:9:16: u_mcast_dlid = 0xf00002 is already used by the switch \"a\"",
        ),
        (
            "[[vesw]]\nname = \"b\"\nid = 3\nmembers = [\"*\"]\n\
             groups = [{ mac = \"01:00:5e:00:00:fb\", lid = 0xf00002 }]",
            "lid = 0xf00002 is already used by the switch \"a\"",
        ),
        (
            "[[vesw]]\nname = \"b\"\nid = 2\nmembers = [\"*\"]",
            "t.toml:7:6: id = 2 is already used by the switch \"a\"",
        ),
        (
            "[[vesw]]\nname = \"a\"\nid = 3\nmembers = [\"*\"]",
            "name = \"a\" is already used by the switch 2",
        ),
        (
            "[[vesw]]\nname = \"7\"\nid = 3\nmembers = [\"*\"]",
            "name = \"7\" is a number",
        ),
        (
            "[[vesw]]\nname = \"b\"\nid = 3\nmembers = []",
            "members is empty",
        ),
        ("[[vesw]]\nname = \"b\"\nid = 3", "missing key `members`"),
        (
            "[em]\npriority = 16",
            "priority = 16 is not a number from 0 to 15",
        ),
        (
            "[em]\npriority = 9\nelevated_priority = 8",
            "elevated_priority = 8 is below priority",
        ),
        (
            "[em]\npoll_interval = 0",
            "poll_interval = 0 is not a number from 1 to",
        ),
        (
            "[em]\nstate_dir = 7",
            "state_dir = 7 is not a non-empty string",
        ),
    ] {
        let error = fault(tail);
        assert!(error.contains(error_text), "{tail}: {error}");
        assert!(error.starts_with("t.toml:"), "{tail}: {error}");
        assert!(!error.contains('\n'), "{tail}: {error}");
    }
}

#[test]
fn a_high_priority_alone_is_its_own_elevated_one() {
    let config = parse("[em]\npriority = 12\n").unwrap();
    assert_eq!(config.em.elevated_priority, 12);
}

/// Agents accept one manager for at most five minutes: a longer lease would be a false promise.
#[test]
fn a_lease_is_one_that_agents_hold_to() {
    for (lease, right) in [(0, false), (1, true), (300, true), (301, false)] {
        let parsed = parse(&format!("[em]\nlease = {lease}\n"));
        match right {
            true => assert_eq!(parsed.unwrap().em.lease, lease * 1000),
            false => {
                let error = parsed.unwrap_err();
                assert!(
                    error.contains(&format!(
                        "t.toml:2:9: lease = {lease} is not a number from 1 to 300"
                    )),
                    "{error}"
                );
            }
        }
    }
}
