//! VNICs over verbs: to the software fabric, to each other, and with the VLANs of a kernel that has them.
//! Their name is `ib0`, for the shared traffic checks.

use crate::lab::{Node, SOFT, Side, VERBS, all_arrives, echoes, on_both_stages, on_stage, pair};

const VNIC: &str = "--vnic ib0=1";
/// MTU of Ethernet with a tag in a UD payload of 4096 bytes.
const VNIC_MTU: u64 = 4053;

/// A counter of the virtual port.
fn count(side: &Side, name: &str) -> u64 {
    let stats = &side.node.ask("stats ib0")[0];
    let value = stats["driver"][name]
        .as_u64()
        .or(stats["port"][name].as_u64());
    value.unwrap_or_else(|| panic!("{name}: {stats}"))
}

/// Checks that the traffic was Ethernet in 16B packets, and that none was refused.
/// Not `rx_errors`: this sum has the frames that arrived before the interface was up (`rx_drop_state`, `rx_fifo_errors`).
fn carried(side: &Side) {
    assert_eq!(side.node.mtu("ib0"), VNIC_MTU);
    let shown = &side.node.ask("show ib0")[0];
    assert_eq!(shown["vesw"], 1, "{shown}");
    for name in ["rx_unicast", "tx_unicast", "rx_mcastbcast", "tx_mcastbcast"] {
        assert!(count(side, name) > 0, "{name} of {}", side.node.name());
    }
    for name in [
        "rx_runt",
        "rx_oversize",
        "rx_truncated",
        "rx_bad_veswid",
        "rx_bad_tail",
        "rx_length_mismatch",
        "tx_carrier_errors",
    ] {
        assert_eq!(count(side, name), 0, "{name} of {}", side.node.name());
    }
}

#[test]
fn a_vnic_over_verbs_reaches_one_of_the_software_fabric() {
    on_stage(|stage| {
        let (a, b) = pair((&stage.machine, VERBS), (&stage.host, SOFT), VNIC);
        all_arrives(a.node, b.node);
        carried(&a);
        carried(&b);
    });
}

/// A killed daemon returns with another queue pair, which its peer learns.
#[test]
fn a_killed_daemon_comes_back_with_its_vnic() {
    on_stage(|stage| {
        let (mut a, b) = pair((&stage.machine, VERBS), (&stage.host, SOFT), VNIC);
        let lid = |side: &Side| side.node.ask("show ib0")[0]["lid"].clone();
        let before = lid(&a);
        a.kill_and_restart();
        b.reaches(&a);
        a.reaches(&b);
        assert_eq!(lid(&a), before);
    });
}

#[test]
fn vnics_over_verbs_reach_each_other_in_vlans_too() {
    on_both_stages(|one, other| {
        let sides = [one, other].map(|stage| (&stage.machine as &dyn Node, VERBS));
        let [a, b] = sides;
        let (a, b) = pair(a, b, VNIC);
        echoes(a.node, b.node);
        for side in [&a, &b] {
            let number = side.node.number();
            side.node.ok(&format!(
                "set -e
                ip link add link ib0 name lan5 type vlan id 5
                ip addr add 10.5.0.{number}/24 dev lan5
                ip addr add fd05::{number}/64 dev lan5 nodad
                ip link set lan5 up"
            ));
        }
        let there = b.node.number();
        for to in [format!("10.5.0.{there}"), format!("fd05::{there}")] {
            a.node.reaches(&to);
            a.node.ok(&format!("ping -q -c 2 -i 0.2 -W 5 -s 9001 {to}"));
        }
        let full = VNIC_MTU - 28;
        a.node.ok(&format!(
            "ping -q -c 2 -i 0.2 -W 5 -M do -s {full} 10.5.0.{there}"
        ));
        assert!(count(&b, "rx_vlan") > 0 && count(&a, "tx_vlan") > 0);
        carried(&b);
    });
}
