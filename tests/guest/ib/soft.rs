//! The software fabric beside the kernel's `ib_ipoib`.

use super::faults::{counter, faults_of_tables_end_no_membership, join_ten_groups};
use super::{
    BROADCAST, BROADCAST_OF_CHILD, CONNECTED_MTU, Kernel, LARGE, children_reach, is_member,
};
use crate::lab::{
    CLIENT_REREGISTER, Framing, Node, SOFT, SOON, Sa, Side, Subnet, all_arrives, eventually,
    gid_of, on_subnet, reach,
};

#[test]
fn the_software_fabric_reaches_the_kernel_with_datagrams() {
    on_subnet(Framing::Mgid, LARGE, |subnet, _| {
        let kernel = Kernel::start(&subnet.kernel, "datagram");
        let ours = Side::start(&subnet.host, SOFT);
        reach(ours.node, kernel.machine);
        all_arrives(ours.node, kernel.machine);
        children_reach(ours.node, &kernel, 0x8001);
        kernel.is_sound();
    });
}

#[test]
fn the_software_fabric_reaches_the_kernel_over_connections() {
    on_subnet(Framing::Mgid, LARGE, |subnet, _| {
        let kernel = Kernel::start(&subnet.kernel, "connected");
        let ours = Side::start(&subnet.host, &format!("{SOFT} --mode connected"));
        assert_eq!(ours.node.mtu("ib0"), CONNECTED_MTU);
        ours.node.reaches(&kernel.machine.v4());
        ours.connects_to(kernel.machine);
        all_arrives(ours.node, kernel.machine);
        kernel.is_sound();
    });
}

/// Starts a daemon whose groups are those of the subnet administrator, asked by QP1.
fn start_administered(subnet: &Subnet) -> Side<'_> {
    let host = &subnet.host;
    let (config, administrator) = (format!("{}.toml", host.socket()), gid_of(1));
    host.ok(&format!(
        "cat >{config} <<'END'
[port.eth0]
sa = \"{administrator}\"
[[ipoib]]
name = \"ib0\"
underlay = \"eth0\"
END"
    ));
    Side::start(host, &format!("--config {config}"))
}

/// Runs a test with a daemon of [`start_administered`] and the kernel, which reach each other with datagrams.
fn with_an_administrator(test: impl FnOnce(&Sa, &Kernel, &mut Side)) {
    on_subnet(Framing::Mgid, LARGE, |subnet, sa| {
        let kernel = Kernel::start(&subnet.kernel, "datagram");
        let mut ours = start_administered(subnet);
        reach(ours.node, kernel.machine);
        test(sa, &kernel, &mut ours);
        kernel.is_sound();
    });
}

#[test]
fn groups_of_the_administrator_are_those_of_the_kernel() {
    with_an_administrator(|sa, kernel, ours| {
        is_member(sa, ours.node, BROADCAST, 1);
        // The MTU is that of the group.
        assert_eq!(ours.node.mtu("ib0"), kernel.machine.mtu("ib0"));
        all_arrives(ours.node, kernel.machine);

        children_reach(ours.node, kernel, 0x8001);
        is_member(sa, ours.node, BROADCAST_OF_CHILD, 1);

        // The administrator has forgotten all members. No event tells the software fabric.
        sa.restart(0xc180);
        kernel.machine.port_event(CLIENT_REREGISTER);
        for mgid in [BROADCAST, BROADCAST_OF_CHILD] {
            is_member(sa, ours.node, mgid, 1);
            is_member(sa, kernel.machine, mgid, 1);
        }
        eventually(SOON, "the other MLID", || {
            let shown = ours.node.ask("show ib0").remove(0);
            (shown["broadcast_record"]["mlid"].as_u64() >= Some(0xc180)).then_some(())
        });
        ours.node.ok("ip neigh flush dev ib0");
        reach(ours.node, kernel.machine);
        ours.stop("ib0");
        is_member(sa, ours.node, BROADCAST, 0);
    });
}

/// The software fabric puts the segments together itself.
#[test]
fn faults_of_the_software_fabrics_tables_end_no_membership() {
    with_an_administrator(|sa, kernel, ours| {
        ours.node.ok(&join_ten_groups("ib0"));
        faults_of_tables_end_no_membership(sa, ours.node, &mut ours.daemon);
        assert!(counter(ours.node, "ib0", "sa_rmpp_aborted") > 0);
        reach(ours.node, kernel.machine);
    });
}
