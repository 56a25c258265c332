//! The kernel's unmodified `ib_ipoib` on an InfiniBand subnet with a scripted subnet administrator, as peer of itself
//! and of daemons over either provider. `README.md` describes the subnet.

mod connections;
mod soft;
mod verbs;

use crate::lab::{Machine, Node};

/// The broadcast group of the default partition.
const BROADCAST: &str = "ff12:401b:ffff::ffff:ffff";

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
        let complaint = log.lines().find(|line| {
            ["BUG:", "WARNING:", "Oops"]
                .iter()
                .any(|word| line.contains(word))
        });
        assert_eq!(complaint, None, "{log}");
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

/// Address of a node in a partition.
fn child_v4(node: &dyn Node, pkey: u16) -> String {
    format!("10.9.{}.{}", pkey & 0x7fff, node.number())
}
