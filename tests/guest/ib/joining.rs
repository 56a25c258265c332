//! Joining as the kernel's `ib_ipoib` does: the broadcast group comes first, and refusals stay quiet.

use serde_json::{Value, json};

use super::{BROADCAST, Kernel, LARGE, beside_a_kernel, is_member, reach_afresh, start};
use crate::lab::{
    Framing, Machine, Node, SOON, Sa, carrier, eventually, goes_on, on_subnet, reach, traffic,
};

/// The status of a request that is not valid (IBA vol. 1, 15.4.7).
const REQ_INVALID: u16 = 0x0200;

/// The SA refuses the machine's joins of a group.
fn refuse(sa: &Sa, machine: &Machine, mgid: &str) {
    sa.rule(&json!({
        "method": "Set", "attribute": "MCMemberRecord", "mgid": mgid, "lid": machine.number(),
        "status": REQ_INVALID,
    }));
}

/// Number of the machine's joins of the broadcast group so far that [`refuse`] applied to, or of the others.
fn joins_of_broadcast(sa: &Sa, machine: &Machine, refused: bool) -> usize {
    let mut joins = sa.requests(machine.number(), "Set", "MCMemberRecord");
    joins.retain(|join| join["mgid"] == BROADCAST && (join["rule"] != 0) == refused);
    joins.len()
}

fn path_queries(sa: &Sa, machine: &Machine) -> usize {
    sa.requests(machine.number(), "Get", "PathRecord").len()
}

/// Waits until the SA has refused the broadcast group three times more.
fn is_refused(sa: &Sa, machine: &Machine) {
    let before = joins_of_broadcast(sa, machine, true);
    eventually(SOON, "three refusals", || {
        (joins_of_broadcast(sa, machine, true) >= before + 3).then_some(())
    });
}

#[test]
fn c64_the_first_path_is_asked_for_after_the_broadcast_group() {
    on_subnet(Framing::Mlid, "", |subnet, sa| {
        let (machine, other) = (&subnet.machine, &subnet.kernel);
        let _theirs = start(other, "");
        refuse(sa, machine, BROADCAST);
        let _ours = start(machine, "");
        let _ping = machine.spawn(&format!("exec ping -i 0.2 {}", other.v4()));
        is_refused(sa, machine);
        carrier(machine, false);
        assert_eq!(path_queries(sa, machine), 0);
        sa.clear();
        reach(machine, other);
        assert_eq!(joins_of_broadcast(sa, machine, false), 1);
        assert!(path_queries(sa, machine) > 0);
    });
}

/// The host knows its neighbours already, and the daemon their paths.
#[test]
fn c64_c116_after_the_port_was_down_the_broadcast_group_comes_first() {
    beside_a_kernel(|subnet, sa, kernel, _| {
        let machine = &subnet.machine;
        let ping = traffic(machine, kernel.machine);
        refuse(sa, machine, BROADCAST);
        let before = path_queries(sa, machine);
        machine.ok("ip link set eth0 down");
        carrier(machine, false);
        machine.ok("ip link set eth0 up");
        // Without the group, an ACTIVE port gives no carrier.
        let shown = || machine.ask("show").remove(0);
        let reason = |shown: &Value| shown["reason"].as_str().unwrap_or_default().to_owned();
        eventually(SOON, "the reason", || {
            let shown = shown();
            assert_eq!(shown["carrier"], false, "{shown}");
            reason(&shown).contains("broadcast group").then_some(())
        });
        is_refused(sa, machine);
        assert_eq!(shown()["carrier"], false);
        assert_eq!(path_queries(sa, machine), before);
        sa.clear();
        carrier(machine, true);
        is_member(sa, machine, BROADCAST, 1);
        goes_on(&ping);
        reach_afresh(machine, kernel.machine);
    });
}

/// The administrator says that it has no SendOnlyFullMember: nobody asks for it.
#[test]
fn c79_refused_senders_do_not_fill_the_log() {
    on_subnet(Framing::Mlid, LARGE, |subnet, sa| {
        sa.rule(&json!({
            "method": "Get", "attribute": "ClassPortInfo", "set": {"capabilities2": 0},
        }));
        let kernel = Kernel::start(&subnet.kernel, "datagram");
        let machine = &subnet.machine;
        let ours = start(machine, "");
        reach(machine, kernel.machine);
        let group = |n: usize| format!("ff12:401b:ffff::f07:{n:x}01");
        (1..=20).for_each(|n| refuse(sa, machine, &group(n)));
        let lines = ours.daemon.output().lines().count();
        // One packet after the other: a packet for a group that was refused long ago asks again.
        machine.ok("ip route replace 239.0.0.0/8 dev ib0
            for turn in $(seq 40); do
                for group in $(seq 20); do echo x >/dev/udp/239.7.$group.1/9; done
            done");
        let mut asked = sa.requests(machine.number(), "Set", "MCMemberRecord");
        asked.retain(|join| join["rule"] != 0);
        let groups = asked
            .iter()
            .map(|join| join["mgid"].as_str().expect("text"));
        let groups: std::collections::BTreeSet<&str> = groups.collect();
        assert_eq!(groups.len(), 20, "{groups:?}");
        let states = asked.iter().filter_map(|join| join["join_state"].as_u64());
        let states: std::collections::BTreeSet<u64> = states.collect();
        assert_eq!(states.into_iter().collect::<Vec<_>>(), [1, 4]);
        let output = ours.daemon.output();
        let new: Vec<&str> = output.lines().skip(lines).collect();
        assert!(new.len() <= 1, "{new:#?}");
        let warnings = new.iter().filter(|line| line.contains("WARN"));
        assert_eq!(warnings.count(), 0, "{new:#?}");
    });
}
