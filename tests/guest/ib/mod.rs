//! The kernel's unmodified `ib_ipoib` on an InfiniBand subnet with a scripted subnet administrator, as peer of itself
//! and of daemons over either provider. `README.md` describes the subnet.

mod beside;
mod connections;
mod faults;
mod joining;
mod lids;
mod soft;
mod verbs;
mod vnic;

use crate::lab::{
    Framing, Machine, Node, SOON, Sa, Side, Subnet, VERBS, eventually, gid_of, on_subnet, reach,
};

/// The broadcast group of the default partition.
const BROADCAST: &str = "ff12:401b:ffff::ffff:ffff";

/// The broadcast group of partition 0x8001.
const BROADCAST_OF_CHILD: &str = "ff12:401b:8001::ffff:ffff";

/// The MTU of connected mode.
const CONNECTED_MTU: u64 = 65_520;

/// Group MTU 4096: interfaces of both providers have the same MTU as the kernel's.
const LARGE: &str = "--mtu 5";

/// The kernel's IPoIB interface `ib0` of a virtual machine.
struct Kernel<'a> {
    machine: &'a Machine,
}

impl<'a> Kernel<'a> {
    /// Loads `ib_ipoib`, and brings up `ib0` in a mode.
    fn start(machine: &'a Machine, mode: &str) -> Kernel<'a> {
        machine.ok(&format!(
            "modprobe ib_ipoib && echo {mode} >/sys/class/net/ib0/mode"
        ));
        if mode == "connected" {
            machine.ok(&format!("ip link set ib0 mtu {CONNECTED_MTU}"));
        }
        machine.configure("ib0");
        Kernel { machine }
    }

    /// Creates the child of a partition, with addresses 10.9.N.M and fd09:N::M, where N is the partition.
    fn add_child(&self, pkey: u16) {
        self.machine.ok(&format!(
            "echo {pkey:#06x} >/sys/class/net/ib0/create_child"
        ));
        configure_child(self.machine, pkey);
    }

    /// The kernel has neither crashed nor complained.
    fn is_sound(&self) {
        let log = self.machine.ok("dmesg");
        let is_complaint = |line: &&str| {
            ["BUG:", "WARNING:", "Oops"]
                .iter()
                .any(|word| line.contains(word))
        };
        let mut after = log.lines().skip_while(|line| !is_complaint(line));
        if let Some(complaint) = after.next() {
            let more: Vec<&str> = after.take(40).collect();
            panic!("the kernel complains: {complaint}\n{}", more.join("\n"));
        }
    }
}

/// Starts a daemon over verbs on a machine whose kernel has a connection manager.
fn start<'a>(machine: &'a Machine, options: &str) -> Side<'a> {
    machine.ok("modprobe -a ib_umad rdma_ucm");
    Side::start(machine, &format!("{VERBS} {options}"))
}

/// Runs a test with the kernel's `ib_ipoib` on one machine and a daemon over verbs on the other, which reach each other
/// with datagrams. MLIDs matter.
fn beside_a_kernel(test: impl FnOnce(&Subnet, &Sa, &Kernel, &mut Side)) {
    on_subnet(Framing::Mlid, LARGE, |subnet, sa| {
        let kernel = Kernel::start(&subnet.kernel, "datagram");
        let mut ours = start(&subnet.machine, "");
        reach(&subnet.machine, kernel.machine);
        test(subnet, sa, &kernel, &mut ours);
    });
}

/// Waits until the node's port has these JoinState bits in a group.
fn is_member(sa: &Sa, node: &dyn Node, mgid: &str, state: u64) {
    let gid = gid_of(node.number());
    eventually(SOON, &format!("{gid}: JoinState {state} in {mgid}"), || {
        (sa.membership(&gid, mgid) == state).then_some(())
    });
}

/// Both reach each other without what they knew before.
fn reach_afresh(a: &Machine, b: &Machine) {
    for (from, to) in [(a, b), (b, a)] {
        from.ok("ip neigh flush dev ib0");
        reach(from, to);
    }
}

/// Gives `ib0.PKEY` its addresses and brings it up.
fn configure_child(node: &dyn Node, pkey: u16) {
    let (partition, number) = (pkey & 0x7fff, node.number());
    node.ok(&format!(
        "set -e
        ip addr replace 10.9.{partition}.{number}/24 dev ib0.{pkey:04x}
        ip link set ib0.{pkey:04x} up"
    ));
}

/// Adds a child to both, and pings the kernel's.
fn children_reach(ours: &dyn Node, kernel: &Kernel, pkey: u16) {
    kernel.add_child(pkey);
    ours.ok(&format!("{} child add ib0 {pkey:#06x}", ours.ibtap()));
    configure_child(ours, pkey);
    ours.reaches(&child_v4(kernel.machine, pkey));
}

/// Address of a node in a partition.
fn child_v4(node: &dyn Node, pkey: u16) -> String {
    format!("10.9.{}.{}", pkey & 0x7fff, node.number())
}
