//! VNICs of two daemons over verbs on InfiniBand ports. The subnet administrator creates the groups of their switches
//! with the first member. MLIDs matter.

use std::net::Ipv6Addr;

use serde_json::{Value, json};

use super::LARGE;
use crate::lab::{
    CLIENT_REREGISTER, Framing, Machine, Node, P_KEY_CHANGE, SOON, Sa, Side, all_arrives, carrier,
    eventually, gid_of, on_subnet, reach,
};

/// Switch 1 in the default partition, switch 2 in partition 0x8001. `ib0` is the name that the shared checks use.
const SWITCHES: &str = r#"
[[vnic]]
name = "ib0"
rdma = "rxe0/1"
vesw = 1
[[vnic]]
name = "red0"
rdma = "rxe0/1"
vesw = 2
pkey = 0x8001
"#;

fn start(machine: &Machine) -> Side<'_> {
    let config = "/run/switches.toml";
    machine.ok(&format!(
        "modprobe ib_umad; cat >{config} <<'END'{SWITCHES}END"
    ));
    let side = Side::start(machine, &format!("--config {config}"));
    machine.ok(&format!(
        "ip addr add {}/24 dev red0 && ip link set red0 up",
        red(machine)
    ));
    side
}

/// Address on switch 2.
fn red(machine: &Machine) -> String {
    format!("10.3.0.{}", machine.number())
}

/// Whether the subnet administrator has a group of a switch with both machines as members.
fn has_group(sa: &Sa, machines: [&Machine; 2], pkey: u16, vesw: u16) -> bool {
    let groups = &sa.ask(&json!({"do": "groups"}))["groups"];
    let is_of_switch = |group: &&Value| {
        let mgid = group["mgid"].as_str().expect("text");
        let mgid: Ipv6Addr = mgid.parse().expect("an MGID");
        let s = mgid.segments();
        s[..3] == [0xff12, 0x5645, pkey] && s[4] == vesw
    };
    let mut groups = groups.as_array().into_iter().flatten().filter(is_of_switch);
    groups.any(|group| {
        let is_member = |m: &Machine| group["members"][gid_of(m.number())] == 1;
        machines.into_iter().all(is_member)
    })
}

/// The groups of the switches get another MTU: of the interface's, and of the largest that `ibtap show` names.
fn follows_the_groups(sa: &Sa, machines: [&Machine; 2]) {
    for (code, mtu) in [(4, 2005), (5, 4053)] {
        sa.ask(&json!({"do": "set", "values": {"mtu": code}}));
        for machine in machines {
            machine.port_event(CLIENT_REREGISTER);
        }
        for machine in machines {
            eventually(SOON, &format!("an MTU of {mtu}"), || {
                let shown = machine.ask("show ib0").remove(0);
                (machine.mtu("ib0") == mtu && shown["mtu_max"] == mtu).then_some(())
            });
        }
        let [a, b] = machines;
        reach(a, b);
        let full = mtu - 20 - 8;
        a.ok(&format!(
            "ping -q -c 2 -i 0.2 -W 5 -M do -s {full} {}",
            b.v4()
        ));
    }
}

#[test]
fn switches_in_two_partitions_carry_ethernet() {
    on_subnet(Framing::Mlid, LARGE, |subnet, sa| {
        let (a, b) = (&subnet.machine, &subnet.kernel);
        let _sides = [start(a), start(b)];
        reach(a, b);
        all_arrives(a, b);
        a.reaches(&red(b));
        for (pkey, vesw) in [(0xffff, 1), (0x8001, 2)] {
            let what = format!("both in a group of switch {vesw}");
            eventually(SOON, &what, || {
                has_group(sa, [a, b], pkey, vesw).then_some(())
            });
        }
        follows_the_groups(sa, [a, b]);
        // Without the partition, switch 2 is gone, and switch 1 goes on.
        let red_carrier = |on: &str| {
            eventually(SOON, &format!("carrier {on} on red0"), || {
                let read = a.run("cat /sys/class/net/red0/carrier").out;
                (read.trim() == on).then_some(())
            });
        };
        a.set_port("pkeys", "0xffff");
        a.port_event(P_KEY_CHANGE);
        red_carrier("0");
        carrier(a, true);
        reach(a, b);
        a.set_port("pkeys", "0xffff,0x8001");
        a.port_event(P_KEY_CHANGE);
        red_carrier("1");
        a.reaches(&red(b));
    });
}
