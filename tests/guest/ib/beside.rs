//! A daemon over verbs beside the kernel's `ib0` on the same port. The subnet administrator has one membership for
//! each port and group, whose end is the end for both.

use super::{BROADCAST, Kernel, LARGE, is_member, reach_afresh};
use crate::lab::{
    CLIENT_REREGISTER, Framing, Machine, Node, Running, SOON, Sa, Subnet, VERBS, eventually,
    gid_of, goes_on, on_subnet, reach,
};

/// The address of the peer that the daemon's interface `ib1` reaches.
pub(super) const PEER: &str = "10.10.0.17";

/// How the daemon joins groups.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Joins {
    /// By `rdma_cm`, on the address of `ib0`: the kernel counts the members.
    RdmaCm,
    /// Over umad, because `ib0` has no IPv4 address.
    Umad,
}

/// Runs a test with the kernel's `ib0` on both machines, and a daemon with `ib1` on one of them.
pub(super) fn beside_ib0(joins: Joins, test: impl FnOnce(&Subnet, &Sa, &Kernel, &mut Running)) {
    on_subnet(Framing::Mlid, LARGE, |subnet, sa| {
        let kernel = Kernel::start(&subnet.kernel, "datagram");
        let machine = &subnet.machine;
        Kernel::start(machine, "datagram");
        reach(machine, kernel.machine);
        machine.ok("modprobe -a ib_umad rdma_ucm");
        if joins == Joins::Umad {
            machine.ok(&format!("ip addr del {}/24 dev ib0", machine.v4()));
        }
        let mut daemon = machine.start_daemon(&format!("{VERBS} --name ib1"));
        machine.ok("ip addr add 10.10.0.18/24 dev ib1 && ip link set ib1 up");
        kernel.machine.ok(&format!("ip addr add {PEER}/24 dev ib0"));
        machine.ok(&format!("ip route add {PEER} dev ib1"));
        machine.reaches(PEER);
        test(subnet, sa, &kernel, &mut daemon);
    });
}

/// Ends of the port's membership in the broadcast group, by a request of the port.
fn ends(sa: &Sa, machine: &Machine) -> usize {
    let mut deleted = sa.requests(machine.number(), "Delete", "MCMemberRecord");
    deleted.retain(|r| r["mgid"] == BROADCAST && r["member"] == 0);
    deleted.len()
}

#[test]
fn the_kernels_interface_on_the_same_port_keeps_its_groups() {
    beside_ib0(Joins::RdmaCm, |subnet, sa, kernel, daemon| {
        let machine = &subnet.machine;
        machine.ok(&format!("kill $(cat {}.pid)", machine.socket()));
        daemon.succeeds(SOON);
        // Groups that both had joined, as the log says.
        assert_eq!(ends(sa, machine), 0);
        assert_eq!(sa.membership(&gid_of(machine.number()), BROADCAST) & 1, 1);
        reach_afresh(machine, kernel.machine);
    });
}

/// The kernel reports an error of each group that was joined by `rdma_cm`. The groups have other MLIDs afterwards.
#[test]
fn a_reregistration_refuses_no_group_of_rdma_cm() {
    beside_ib0(Joins::RdmaCm, |subnet, sa, kernel, daemon| {
        let machine = &subnet.machine;
        let changes = || machine.ok("cat /sys/class/net/ib1/carrier_changes");
        let before = changes();
        sa.restart(0xc180);
        for machine in [kernel.machine, machine] {
            machine.port_event(CLIENT_REREGISTER);
            is_member(sa, machine, BROADCAST, 1);
        }
        eventually(SOON, "the group's other MLID", || {
            let shown = machine.ask("show ib1").remove(0);
            (shown["broadcast_record"]["mlid"].as_u64() >= Some(0xc180)).then_some(())
        });
        machine.ok("ip neigh flush dev ib1");
        machine.reaches(PEER);
        let output = daemon.output();
        // Also if the daemon is faster than the kernel's interface.
        assert!(!output.contains("rdma_cm refused"), "{output}");
        assert_eq!(changes(), before);
    });
}

/// `ib0` goes down and up beside a ping by the daemon's interface. Returns how often the port's membership ended.
fn takes_ib0_down_and_up(subnet: &Subnet, sa: &Sa, kernel: &Kernel) -> usize {
    let machine = &subnet.machine;
    let ping = machine.spawn(&format!("exec ping -n -O -i 0.2 {PEER}"));
    let before = ends(sa, machine);
    for state in ["down", "up"] {
        machine.ok(&format!("ip link set ib0 {state}"));
        // The kernel has left the group by then, if it leaves it at all.
        goes_on(&ping);
        is_member(sa, machine, BROADCAST, 1);
        machine.ok("ip neigh flush dev ib1");
        machine.reaches(PEER);
    }
    goes_on(&ping);
    // An interface that was down has lost its IPv6 addresses.
    machine.ok(&format!(
        "ip addr replace {}/64 dev ib0 nodad",
        machine.v6()
    ));
    machine.reaches(&kernel.machine.v6());
    kernel.is_sound();
    ends(sa, machine) - before
}

/// The kernel counts the members that join by `rdma_cm`.
#[test]
fn the_kernels_interface_goes_down_and_keeps_the_groups_of_rdma_cm() {
    beside_ib0(Joins::RdmaCm, |subnet, sa, kernel, _| {
        assert_eq!(takes_ib0_down_and_up(subnet, sa, kernel), 0);
    });
}

/// The kernel knows nothing of members that join over umad: it ends the membership, and no event says so.
#[test]
fn groups_that_the_kernels_interface_has_ended_are_joined_again() {
    beside_ib0(Joins::Umad, |subnet, sa, kernel, daemon| {
        let machine = &subnet.machine;
        let joins = || {
            let mut joins = sa.requests(machine.number(), "Set", "MCMemberRecord");
            joins.retain(|join| join["mgid"] == BROADCAST);
            joins.len()
        };
        let before = joins();
        machine.ok("ip link set ib0 down");
        eventually(SOON, "the end of the membership, and a join", || {
            (ends(sa, machine) == 1 && joins() > before).then_some(())
        });
        machine.ok("ip link set ib0 up");
        takes_ib0_down_and_up(subnet, sa, kernel);
        assert!(daemon.is_running(), "{}", daemon.output());
    });
}
