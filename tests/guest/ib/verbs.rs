//! A daemon over verbs on an InfiniBand port, beside the kernel's `ib_ipoib`. MLIDs matter in all of these tests.

use std::net::Ipv6Addr;

use serde_json::{Value, json};

use super::{
    BROADCAST, BROADCAST_OF_CHILD, Kernel, LARGE, beside_a_kernel, child_v4, children_reach,
    is_member, reach_afresh,
};
use crate::lab::{
    CLIENT_REREGISTER, Framing, Machine, Node, P_KEY_CHANGE, SOON, Sa, Side, VERBS, all_arrives,
    carrier, eventually, goes_on, on_subnet, reach, traffic,
};

/// Starts a daemon in connected mode that manages connections itself: the kernel's connection manager is not loaded.
fn start_managing(machine: &Machine) -> Side<'_> {
    machine.ok("modprobe ib_umad");
    Side::start(machine, &format!("{VERBS} --mode connected --cm umad"))
}

/// Connections of a role that are established.
fn established(ours: &Side, role: &str) -> Vec<Value> {
    let mut all = ours.node.ask("conn ib0");
    all.retain(|c| c["role"] == role && c["state"] == "ESTABLISHED");
    all
}

#[test]
fn verbs_reach_the_kernel_with_datagrams_and_on_children() {
    beside_a_kernel(|subnet, sa, kernel, ours| {
        let machine = &subnet.machine;
        is_member(sa, machine, BROADCAST, 1);
        all_arrives(machine, kernel.machine);

        children_reach(machine, kernel, 0x8001);
        is_member(sa, machine, BROADCAST_OF_CHILD, 1);

        ours.stop("ib0");
        is_member(sa, machine, BROADCAST, 0);
        is_member(sa, machine, BROADCAST_OF_CHILD, 0);
        kernel.is_sound();
    });
}

#[test]
fn a_restarted_administrator_gets_its_groups_again() {
    beside_a_kernel(|subnet, sa, kernel, _| {
        let machine = &subnet.machine;
        let ping = traffic(machine, kernel.machine);
        sa.restart(0xc180);
        for port in [machine, kernel.machine] {
            port.port_event(CLIENT_REREGISTER);
            is_member(sa, port, BROADCAST, 1);
        }
        goes_on(&ping);
        reach_afresh(machine, kernel.machine);
        kernel.is_sound();
    });
}

#[test]
fn a_moved_subnet_manager_is_followed() {
    beside_a_kernel(|subnet, sa, kernel, _| {
        let machine = &subnet.machine;
        let ping = traffic(machine, kernel.machine);
        // The first one answers nothing any more.
        sa.rule(&json!({"answer": false, "apply": false}));
        let moved = subnet.move_sa(&format!("{LARGE} --mlid 0xc140"));
        for port in [machine, kernel.machine] {
            is_member(&moved, port, BROADCAST, 1);
        }
        goes_on(&ping);
        reach_afresh(machine, kernel.machine);
    });
}

#[test]
fn a_p_key_is_taken_and_given_back_and_the_port_goes_down_and_up() {
    beside_a_kernel(|subnet, sa, kernel, _| {
        let machine = &subnet.machine;
        let ping = traffic(kernel.machine, machine);

        for pkeys in ["0x8001", "0x8001,0xffff"] {
            machine.set_port("pkeys", pkeys);
            machine.port_event(P_KEY_CHANGE);
            carrier(machine, pkeys.contains("0xffff"));
        }
        goes_on(&ping);
        is_member(sa, machine, BROADCAST, 1);
        reach_afresh(machine, kernel.machine);

        machine.ok("ip link set eth0 down");
        carrier(machine, false);
        machine.ok("ip link set eth0 up");
        carrier(machine, true);
        goes_on(&ping);
        is_member(sa, machine, BROADCAST, 1);
        reach_afresh(machine, kernel.machine);
    });
}

#[test]
fn c31_another_mtu_q_key_and_service_level_are_followed() {
    beside_a_kernel(|subnet, sa, kernel, _| {
        let machine = &subnet.machine;
        let ping = traffic(machine, kernel.machine);
        for (code, mtu, qkey, sl) in [(4, 2044, 0x1234, 3), (5, 4092, 0xb1b, 0)] {
            let values = json!({"mtu": code, "qkey": qkey, "sl": sl});
            sa.ask(&json!({"do": "set", "values": values}));
            for port in [machine, kernel.machine] {
                port.port_event(CLIENT_REREGISTER);
            }
            eventually(SOON, &format!("{values}"), || {
                let shown = machine.ask("show ib0").remove(0);
                let record = &shown["broadcast_record"];
                let is_new = record["sl"] == sl && shown["qkey"] == qkey;
                (is_new && machine.mtu("ib0") == mtu).then_some(())
            });
            goes_on(&ping);
            reach_afresh(machine, kernel.machine);
        }
        kernel.is_sound();
    });
}

/// Gives all groups of a partition another Q_Key.
fn set_qkey(sa: &Sa, pkey: u16, qkey: u32) {
    let groups = &sa.ask(&json!({"do": "groups"}))["groups"];
    for group in groups.as_array().into_iter().flatten() {
        let mgid: Ipv6Addr = group["mgid"]
            .as_str()
            .and_then(|m| m.parse().ok())
            .expect("an MGID");
        if mgid.segments()[2] == pkey {
            sa.ask(&json!({"do": "group", "mgid": group["mgid"], "values": {"qkey": qkey}}));
        }
    }
}

/// RFC 4391, section 4.1, recommends controlled Q_Keys. Linux 6.1 gives them to processes with CAP_NET_RAW.
#[test]
fn a_partition_with_a_controlled_q_key_works_beside_another() {
    beside_a_kernel(|subnet, sa, kernel, ours| {
        let machine = &subnet.machine;
        let ping = traffic(machine, kernel.machine);
        children_reach(machine, kernel, 0x8001);
        for qkey in [0x8000_0b1b, 0xb1b] {
            set_qkey(sa, 0x8001, qkey);
            for port in [machine, kernel.machine] {
                port.port_event(CLIENT_REREGISTER);
            }
            eventually(SOON, &format!("the Q_Key {qkey:#x}"), || {
                let shown = machine.ask("show ib0.8001").remove(0);
                (shown["qkey"] == qkey && shown["carrier"] == true).then_some(())
            });
            machine.ok("ip neigh flush dev ib0.8001");
            machine.reaches(&child_v4(kernel.machine, 0x8001));
            let shown = machine.ask("show ib0").remove(0);
            assert_eq!(shown["qkey"], 0xb1b, "the other partition");
            goes_on(&ping);
        }
        assert!(ours.daemon.is_running());
        kernel.is_sound();
    });
}

/// Meanwhile the administrator forgets all members.
#[test]
fn a_removed_device_comes_back_and_its_groups_are_joined_again() {
    beside_a_kernel(|subnet, sa, kernel, ours| {
        let machine = &subnet.machine;
        let ping = traffic(machine, kernel.machine);
        // rdma_rxe waits until umad and the verbs are closed.
        let removed = machine.run_for("rdma link del rxe0", SOON);
        let output = ours.daemon.output();
        assert_eq!(removed.code, Some(0), "{removed:?}\n{output}");
        carrier(machine, false);
        assert!(ours.daemon.is_running(), "{output}");
        sa.restart(0xc180);
        kernel.machine.port_event(CLIENT_REREGISTER);
        machine.ok("rdma link add rxe0 type rxe netdev eth0");
        carrier(machine, true);
        is_member(sa, machine, BROADCAST, 1);
        goes_on(&ping);
        reach_afresh(machine, kernel.machine);
        ours.stop("ib0");
        is_member(sa, machine, BROADCAST, 0);
    });
}

/// Bad answers to the join of the broadcast group, each given once.
fn bad_answers(lid: usize) -> Vec<Value> {
    let mut rules: Vec<Value> = [0x0001, 0x0200]
        .into_iter()
        .map(|status| json!({"status": status}))
        .collect();
    rules.extend([
        json!({"answer": false}),
        json!({"delay": 1.5}),
        json!({"copies": 2}),
        json!({"set": {"mlid": 0}}),
        json!({"set": {"mlid": 0x11}}),
        json!({"set": {"mtu": 7}}),
        // Without most of the record; the kernel fills the rest with zeros.
        json!({"length": 80}),
        json!({"tid": "0102030405060708"}),
    ]);
    for rule in &mut rules {
        rule["method"] = json!("Set");
        rule["attribute"] = json!("MCMemberRecord");
        rule["mgid"] = json!(BROADCAST);
        rule["lid"] = json!(lid);
        rule["times"] = json!(1);
    }
    rules
}

#[test]
fn bad_answers_of_the_administrator_are_survived() {
    beside_a_kernel(|subnet, sa, kernel, ours| {
        let machine = &subnet.machine;
        for rule in bad_answers(machine.number()) {
            sa.rule(&rule);
            let joins = || {
                let mut joins = sa.requests(machine.number(), "Set", "MCMemberRecord");
                joins.retain(|join| join["mgid"] == BROADCAST);
                joins
            };
            let before = joins().len();
            machine.port_event(CLIENT_REREGISTER);
            eventually(
                SOON,
                &format!("{rule}: a bad answer, then a good one"),
                || {
                    let answers: Vec<_> = joins().split_off(before);
                    let bad = answers.iter().position(|join| join["rule"] != 0)?;
                    let late_or_double = ["delay", "copies"]
                        .iter()
                        .any(|key| rule.get(key).is_some());
                    (late_or_double || answers.len() > bad + 1).then_some(())
                },
            );
            machine.reaches(&kernel.machine.v4());
            assert!(ours.daemon.is_running(), "{rule}: {}", ours.daemon.output());
        }
        reach_afresh(machine, kernel.machine);
    });
}

/// Loses the requests for connections that a machine receives from `from`.
fn lose_requests(machine: &Machine, from: &Machine) {
    // From the start of the IPv4 header: 20 bytes of IPv4, 8 of UDP, 12 of BTH and 8 of DETH, then the MAD with its
    // class at 1 and its attribute at 16 (REQ: 0x0010).
    machine.ok(&format!(
        "set -e
        modprobe -a dummy sch_ingress cls_u32 act_mirred
        ip link add u0 type dummy
        ip link set u0 up
        tc qdisc add dev eth0 ingress
        tc filter add dev eth0 parent ffff: protocol ip u32 match ip src 10.99.0.{}/32 \
            match u8 7 0xff at 49 match u16 0x0010 0xffff at 64 action mirred egress redirect dev u0",
        from.number()
    ));
}

/// A packet on a connection that the kernel opened panics the kernel.
#[test]
fn c96_nothing_is_sent_on_a_connection_that_the_kernel_opened() {
    on_subnet(Framing::Mlid, LARGE, |subnet, _| {
        let kernel = Kernel::start(&subnet.kernel, "connected");
        lose_requests(kernel.machine, &subnet.machine);
        let ours = start_managing(&subnet.machine);
        reach(kernel.machine, ours.node);
        eventually(SOON, "a connection that the kernel opened", || {
            kernel
                .machine
                .run(&format!("ping -c 3 -i 0.2 -W 2 {}", ours.node.v4()));
            (!established(&ours, "passive").is_empty()).then_some(())
        });
        let ping = format!("ping -q -c 5 -i 0.2 -W 5 {}", ours.node.v4());
        kernel.machine.ok(&ping);
        assert_eq!(established(&ours, "active"), Vec::<Value>::new());
        let accepted = established(&ours, "passive");
        assert!(
            accepted.iter().all(|c| c["tx_messages"] == 0),
            "{accepted:?}"
        );
        kernel.is_sound();
    });
}
