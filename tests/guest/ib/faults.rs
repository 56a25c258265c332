//! Reports of the subnet administrator, and tables whose transfer fails (RMPP; IBA volume 1, 13.6).

use serde_json::{Value, json};

use super::beside::{Joins, PEER, beside_ib0};
use super::{BROADCAST, beside_a_kernel, is_member, reach_afresh};
use crate::lab::{
    CLIENT_REREGISTER, Machine, Node, Running, SOON, Sa, eventually, gid_of, goes_on, reach,
    traffic,
};

/// A counter of the daemon's subnet.
pub(super) fn counter(node: &dyn Node, interface: &str, name: &str) -> u64 {
    let stats = node.ask(&format!("stats {interface}")).remove(0);
    let counter = stats["subnet"][name].as_u64();
    counter.unwrap_or_else(|| panic!("{name} of {stats}"))
}

/// The machine's requests so far that contain these values.
fn asked(sa: &Sa, machine: &Machine, values: &Value) -> usize {
    let values = values.as_object().expect("an object");
    let mut log = sa.log();
    log.retain(|r| r["lid"] == machine.number() && values.iter().all(|(key, v)| r[key] == *v));
    log.len()
}

/// Waits until the machine has subscribed to the Reports of the four traps.
fn has_subscribed(sa: &Sa, machine: &Machine) {
    for trap in 64..=67 {
        eventually(SOON, &format!("a subscription to trap {trap}"), || {
            let request = json!({"attribute": "InformInfo", "trap": trap, "status": 0});
            (asked(sa, machine, &request) > 0).then_some(())
        });
    }
}

/// Sends a Report to the machine. A Report without an answer is repeated.
fn report(sa: &Sa, machine: &Machine, trap: u16, gid: &str) {
    let lid = machine.number();
    sa.ask(&json!({"do": "report", "trap": trap, "gid": gid, "lid": lid}));
}

/// Expected answers to Reports so far.
fn answers(sa: &Sa, machine: &Machine) -> usize {
    asked(sa, machine, &json!({"event": "answer", "expected": true}))
}

#[test]
fn reports_of_ports_and_groups_are_followed() {
    beside_a_kernel(|subnet, sa, kernel, ours| {
        let machine = &subnet.machine;
        has_subscribed(sa, machine);
        let ping = traffic(machine, kernel.machine);
        let peer = gid_of(kernel.machine.number());
        let path = json!({"method": "Get", "attribute": "PathRecord", "dgid": peer, "status": 0});
        let join = json!({"method": "Set", "mgid": BROADCAST, "join_state": 1, "status": 0});
        for (trap, gid, request) in [
            (64, &*peer, &path),
            (65, &*peer, &path),
            (66, BROADCAST, &join),
            (67, BROADCAST, &join),
        ] {
            let before = (asked(sa, machine, request), answers(sa, machine));
            report(sa, machine, trap, gid);
            eventually(SOON, &format!("trap {trap}: {request}, an answer"), || {
                let now = (asked(sa, machine, request), answers(sa, machine));
                (now.0 > before.0 && now.1 > before.1).then_some(())
            });
            goes_on(&ping);
        }
        is_member(sa, machine, BROADCAST, 1);

        // Reports of others, and what is no Notice: only the latter has no answer.
        let (known, malformed) = (
            answers(sa, machine),
            counter(machine, "ib0", "sa_rx_malformed"),
        );
        for (trap, gid) in [(65, "fe80::1"), (67, "ff12:401b:ffff::77"), (128, &*peer)] {
            report(sa, machine, trap, gid);
        }
        sa.ask(&json!({
            "do": "report", "trap": 65, "gid": peer, "lid": machine.number(), "patch": [[16, "7777"]],
        }));
        eventually(SOON, "three answers, a malformed Report", || {
            let now = counter(machine, "ib0", "sa_rx_malformed");
            (answers(sa, machine) >= known + 3 && now > malformed).then_some(())
        });
        assert!(counter(machine, "ib0", "sa_reports") >= 7);
        goes_on(&ping);
        assert!(ours.daemon.is_running(), "{}", ours.daemon.output());
    });
}

/// The groups have other MLIDs afterwards. Nothing but Reports says so.
#[test]
fn reported_groups_that_were_deleted_are_joined_again() {
    beside_a_kernel(|subnet, sa, kernel, _| {
        let machine = &subnet.machine;
        let gid = gid_of(machine.number());
        let groups = sa.ask(&json!({"do": "groups"}))["groups"].clone();
        let mut groups = groups.as_array().expect("an array").clone();
        groups.retain(|group| group["members"][&gid] == 1);
        assert!(groups.len() > 2, "{groups:?}");
        let mut mgids: Vec<&str> = groups.iter().filter_map(|g| g["mgid"].as_str()).collect();
        mgids.sort_by_key(|mgid| *mgid != BROADCAST);
        sa.restart(0xc180);
        kernel.machine.port_event(CLIENT_REREGISTER);
        for mgid in mgids {
            report(sa, machine, 67, mgid);
            is_member(sa, machine, mgid, 1);
        }
        is_member(sa, kernel.machine, BROADCAST, 1);
        reach_afresh(machine, kernel.machine);
    });
}

/// Faults of a table's transfer: of some the daemon sees no answer, of others an answer that lacks records.
fn faults() -> [Value; 8] {
    [
        // Repeated after a second, as the only one.
        json!({"lose": [2]}),
        json!({"stop": 1}),
        json!({"abort": [2, 4, 0x7a]}),
        json!({"abort": [1, 3, 1]}),
        // Segment 0; a table of 4 GiB.
        json!({"patch": [[28, "00000000"]]}),
        json!({"patch": [[32, "ffffffff"]]}),
        // Records without a length.
        json!({"patch": [[44, "0000"]]}),
        // Segments without their last bytes.
        json!({"length": 100}),
    ]
}

/// Faults of the tables in which the daemon looks for its memberships, every 10 s; then a sound table. The daemon's
/// interface must be a member of ten groups at least: a segment has three records.
pub(super) fn faults_of_tables_end_no_membership(sa: &Sa, ours: &dyn Node, daemon: &mut Running) {
    let lid = ours.number();
    let tables = || {
        let mut all = sa.requests(lid, "GetTable", "MCMemberRecord");
        // Of a port: the component mask says so.
        all.retain(|t| t["mask"] == "0x2" && t["records"].as_u64() > Some(10));
        all
    };
    eventually(SOON, "a long table", || {
        (!tables().is_empty()).then_some(())
    });
    for mut rule in faults() {
        rule["method"] = json!("GetTable");
        rule["attribute"] = json!("MCMemberRecord");
        rule["lid"] = json!(lid);
        rule["times"] = json!(1);
        sa.rule(&rule);
    }
    eventually(SOON * 3, "a sound table after the faults", || {
        let tables = tables();
        let last = tables.iter().position(|t| t["rule"] == faults().len())?;
        (tables.len() > last + 1).then_some(())
    });
    is_member(sa, ours, BROADCAST, 1);
    let output = daemon.output();
    assert!(daemon.is_running(), "{output}");
    // Only a table without some of its bytes lacks memberships.
    let losses = output.matches("(client reregister)").count();
    assert!(losses <= 1, "{output}");
}

/// The kernel puts the segments together.
#[test]
fn faults_of_the_kernels_tables_end_no_membership() {
    beside_ib0(Joins::RdmaCm, |subnet, sa, kernel, daemon| {
        let machine = &subnet.machine;
        machine.ok(&join_ten_groups("ib1"));
        let ping = machine.spawn(&format!("exec ping -n -O -i 0.2 {PEER}"));
        faults_of_tables_end_no_membership(sa, machine, daemon);
        goes_on(&ping);
        // To the daemon, a table that the kernel could not put together is an answer that did not come.
        assert!(counter(machine, "ib1", "sa_retries") > 0);
        reach(machine, kernel.machine);
        kernel.is_sound();
    });
}

/// A shell command.
pub(super) fn join_ten_groups(interface: &str) -> String {
    format!("for n in $(seq 10); do ip addr add 239.1.1.$n/32 dev {interface} autojoin; done")
}
