use super::*;
use crate::api::{MacOrigin, Role};
use crate::runtime::tests as samples;

fn status_info(role: Role) -> StatusInfo {
    StatusInfo {
        pid: 42,
        id: 0x1234,
        role,
        priority: 8,
        lease_ms: 15_000,
        port: Some("soft/eth0".into()),
        gid: Some(samples::gid(1)),
        qpn: Some(proto::Qpn::new(0x34)),
        ibtapd: "/run/ibtap/ibtapd.sock".into(),
        detached: None,
        managers: vec![OtherManager {
            id: 0x99,
            gid: samples::gid(2),
            priority: 5,
            active: false,
            heard_ms: 1230,
        }],
        agents: 3,
        agents_away: 1,
        switches: 1,
        members: 3,
        forwarding: 2,
        outstanding: 0,
        problems: vec!["the state cannot be written to /var/lib/ibtap-em/state".into()],
        counters: Default::default(),
    }
}

#[test]
fn status_of_one_that_manages_and_of_one_without_a_port() {
    assert_eq!(
        of(&Reply::Status(status_info(Role::Active)), false),
        "ibtap-em 0000000000001234 (process 42)
    role:     active
    priority: 8
    lease:    15.0 s
    port:     soft/eth0 fe80::1 queue pair 0x000034
    ibtapd:   /run/ibtap/ibtapd.sock
    agents:   3, 1 away
    switches: 1
    members:  3, 2 forwarding
    requests: 0 outstanding
    problem:  the state cannot be written to /var/lib/ibtap-em/state

MANAGER           GID      PRIORITY  ROLE     HEARD
0000000000000099  fe80::2  5         standby  1.2 s
"
    );
    let detached = StatusInfo {
        port: None,
        detached: Some("cannot reach ibtapd".into()),
        managers: vec![],
        problems: vec![],
        agents_away: 0,
        ..status_info(Role::Detached)
    };
    let text = of(&Reply::Status(detached), false);
    assert!(text.contains("port:     none\n"), "{text}");
    assert!(text.contains("because:  cannot reach ibtapd\n"), "{text}");
    assert!(!text.contains("MANAGER"), "{text}");
}

#[test]
fn tables_have_a_line_for_each_and_problems_below() {
    assert_eq!(
        of(&Reply::Vesws(vec![samples::vesw()]), false),
        "SWITCH   ID  PKEY    MTU   MULTICAST  GROUPS  FORWARDING  MACS  STATE
storage  2   0x8001  2005  0xf00002   1       2/3         5     up

storage: node3:1:0 carries 1500 bytes only
"
    );
    assert_eq!(
        of(&Reply::Ports(vec![samples::port()]), false),
        "PORT                    NAME       IF     SWITCH   LID       MAC                CONDITION   HEARD
0x00117501016fbe21:1:0  node1:1:0  vnic0  storage  0x000005  06:2c:00:05:00:00  forwarding  2.5 s

node1:1:0: two ports have one of its addresses
"
    );
    assert_eq!(
        of(&Reply::Macs(vec![samples::mac()]), false),
        "SWITCH   MAC                LID       PORT       ORIGIN    FOUND BY
storage  52:54:00:12:34:56  0x000005  node1:1:0  reported  table
"
    );
    let group = MacInfo {
        port: None,
        name: None,
        origin: MacOrigin::Group,
        ..samples::mac()
    };
    let text = of(&Reply::Macs(vec![group]), false);
    assert!(text.contains("0x000005  -     group   table\n"), "{text}");
    assert_eq!(of(&Reply::Macs(vec![]), false), "");
}

#[test]
fn counters_that_are_zero_are_left_out_unless_asked_for() {
    let reply = Reply::Counters(vec![samples::counters()]);
    let head = "node1:1:0 (0x00117501016fbe21:1:0) on storage\n    it does not answer\n";
    assert_eq!(of(&reply, false), format!("{head}    tx_packets: 4\n"));
    let all = format!("{head}    tx_packets: 4\n    rx_packets: 0\n");
    assert_eq!(of(&reply, true), all);
}

#[test]
fn explanations_say_where_to_and_why() {
    let text = of(&Reply::Explanation(samples::explanation()), false);
    assert_eq!(
        text,
        "52:54:00:12:34:56 on storage
    goes to:       LID 0x000005, node1:1:0
    service class: 0, routing control 1
    because:       in the MAC table
"
    );
    for (dlid, listeners_only, words) in [
        (0, false, "nowhere"),
        (0xf0_0002, false, "all members"),
        (
            0xf0_0100,
            true,
            "LID 0xf00100, members that listen to the group",
        ),
        (9, false, "no port"),
    ] {
        let one = Explanation {
            dlid: vnic::Lid::new(dlid),
            port: None,
            listeners_only,
            ..samples::explanation()
        };
        let text = of(&Reply::Explanation(one), false);
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn a_drain_reports_its_changes() {
    for (drained, in_force, words) in [
        (true, true, "storage: drained\n"),
        (false, true, "storage: forwards again\n"),
        (true, false, "storage: drained once this manager is active"),
        (
            false,
            false,
            "storage: forwards once this manager is active",
        ),
    ] {
        let one = Drained {
            targets: vec!["storage".into()],
            drained,
            in_force,
            still_drained: Vec::new(),
        };
        let text = of(&Reply::Drain(one), false);
        assert!(text.starts_with(words), "{text}");
    }
}

#[test]
fn a_port_that_another_drain_holds_does_not_forward_again() {
    let one = Drained {
        targets: vec!["node1:1:0".into(), "node2:1:0".into()],
        drained: false,
        in_force: true,
        still_drained: vec![StillDrained {
            port: "node1:1:0".into(),
            by: "storage".into(),
        }],
    };
    assert_eq!(
        of(&Reply::Drain(one), false),
        "node2:1:0: forwards again\n\
         node1:1:0: still drained; ibtap-em drain storage --undo ends that\n"
    );
}
