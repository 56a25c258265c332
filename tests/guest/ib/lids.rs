//! Ports whose LID changes while a daemon serves.

use serde_json::json;

use super::connections::large;
use super::{CONNECTED_MTU, Kernel, LARGE, reach_afresh};
use crate::lab::{
    CLIENT_REREGISTER, Framing, Machine, Node, SOON, Sa, Side, VERBS, eventually, gid_of, goes_on,
    on_subnet, reach, traffic,
};

/// The subnet administrator knows another LID of a machine's port.
fn announce(sa: &Sa, machine: &Machine, lid: usize) {
    let gid = gid_of(machine.number());
    sa.ask(&json!({"do": "lid", "gid": gid, "lid": lid}));
}

/// The kernel's port has the LID `first`, then the daemon's, whose LID was `lid`, the next one. Reports tell the daemon;
/// the kernel registers again.
fn both_change(
    sa: &Sa,
    ours: &Side,
    (machine, lid): (&Machine, usize),
    kernel: &Machine,
    first: usize,
) {
    let ping = traffic(machine, kernel);
    let back = traffic(kernel, machine);
    announce(sa, kernel, first);
    kernel.change_lid(first);
    let peer = gid_of(kernel.number());
    for trap in [65, 64] {
        sa.ask(&json!({"do": "report", "trap": trap, "gid": peer, "lid": lid}));
    }
    eventually(SOON, "the path to the peer's other LID", || {
        let paths = ours.node.ask("path ib0");
        let mut to_peer = paths.iter().filter(|path| path["gid"] == peer.as_str());
        to_peer.any(|path| path["dlid"] == first).then_some(())
    });
    goes_on(&ping);
    goes_on(&back);

    // The kernel's event comes before the change. Its connection would otherwise fail first, and ib_cm would repeat a
    // REQ to the old LID for more than a minute.
    announce(sa, machine, first + 1);
    kernel.port_event(CLIENT_REREGISTER);
    machine.change_lid(first + 1);
    eventually(SOON, "the other LID", || {
        let shown = ours.node.ask("show ib0").remove(0);
        (shown["lid"] == first + 1).then_some(())
    });
    goes_on(&ping);
    goes_on(&back);
    reach_afresh(machine, kernel);
}

#[test]
fn c117_changed_lids_of_a_peer_and_of_the_port_are_followed() {
    on_subnet(Framing::Mgid, LARGE, |subnet, sa| {
        let (kernel, machine) = (Kernel::start(&subnet.kernel, "datagram"), &subnet.machine);
        machine.ok("modprobe ib_umad");
        let ours = Side::start(machine, &format!("{VERBS} --cm umad"));
        reach(machine, kernel.machine);
        let lid = machine.number();
        both_change(sa, &ours, (machine, lid), kernel.machine, 0x31);

        kernel.machine.ok(&format!(
            "echo connected >/sys/class/net/ib0/mode && ip link set ib0 mtu {CONNECTED_MTU}"
        ));
        machine.ok(&format!("{} mode ib0 connected", machine.ibtap()));
        reach_afresh(machine, kernel.machine);
        ours.connects_to(kernel.machine);
        both_change(sa, &ours, (machine, 0x32), kernel.machine, 0x33);
        ours.connects_to(kernel.machine);
        large(machine, kernel.machine);
        large(kernel.machine, machine);
        kernel.is_sound();
    });
}
