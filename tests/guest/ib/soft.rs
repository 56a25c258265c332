//! The software fabric beside the kernel's `ib_ipoib`.

use super::{CONNECTED_MTU, Kernel, LARGE, child_v4, configure_child};
use crate::lab::{Framing, Node, SOFT, Side, all_arrives, on_subnet, reach};

#[test]
fn the_software_fabric_reaches_the_kernel_with_datagrams() {
    on_subnet(Framing::Mgid, LARGE, |subnet, _| {
        let kernel = Kernel::start(&subnet.kernel, "datagram");
        let ours = Side::start(&subnet.host, SOFT);
        reach(ours.node, kernel.machine);
        all_arrives(ours.node, kernel.machine);
        kernel.add_child(0x8001);
        ours.node
            .ok(&format!("{} child add ib0 0x8001", ours.node.ibtap()));
        configure_child(ours.node, 0x8001);
        ours.node.reaches(&child_v4(kernel.machine, 0x8001));
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
