//! Connected mode of a daemon over verbs on an InfiniBand port: with the kernel's `ib_ipoib`, and with another daemon.

use serde_json::Value;

use super::{CONNECTED_MTU, Kernel, LARGE};
use crate::lab::{
    Framing, Machine, Node, SOON, Side, VERBS, all_arrives, eventually, on_subnet, reach,
};

/// A packet that is too large for a datagram, answered.
pub(super) fn large(from: &Machine, to: &Machine) {
    from.ok(&format!(
        "ping -q -c 3 -i 0.1 -W 5 -M do -s 60000 {}",
        to.v4()
    ));
}

/// Starts a daemon in connected mode. `manager` is the one that it is expected to choose; the kernel's is loaded for
/// that.
fn start<'a>(machine: &'a Machine, manager: &str) -> Side<'a> {
    let modules = match manager {
        "umad" => "ib_umad",
        _ => "-a ib_umad rdma_ucm",
    };
    machine.ok(&format!("modprobe {modules}"));
    let side = Side::start(machine, &format!("{VERBS} --mode connected"));
    let output = side.daemon.output();
    let chosen = match manager {
        "umad" => "managed by ibtapd, over umad",
        _ => "managed by the kernel, over rdma_cm",
    };
    assert!(output.contains(chosen), "{output}");
    side
}

/// The connections that peers requested.
fn accepted(side: &Side) -> Vec<Value> {
    let mut all = side.node.ask("conn ib0");
    all.retain(|c| c["role"] == "passive" && c["state"] == "ESTABLISHED");
    all
}

/// Waits until the kernel's interface has a connection to this side. Nothing was and nothing can be sent on it: the
/// peer's kernel would panic.
fn receives_only(side: &Side, kernel: &Kernel) {
    let what = format!("{}: a connection of the peer", side.node.name());
    let all = eventually(SOON, &what, || {
        // ib_ipoib repeats nothing (retry count 0), and rdma_rxe does not stop its timer when an answer comes: a
        // message that is under way when the timer ends is taken for lost. The next packet requests a connection.
        kernel
            .machine
            .run(&format!("ping -q -c 1 -W 1 {}", side.node.v4()));
        let all = accepted(side);
        (!all.is_empty()).then_some(all)
    });
    for c in &all {
        assert_eq!(
            (&c["tx_messages"], &c["qp_state"]),
            (&0.into(), &"RTR".into())
        );
    }
}

#[test]
fn c96_over_umad_the_kernel_and_a_daemon_connect_to_each_other() {
    on_subnet(Framing::Mlid, LARGE, |subnet, _| {
        let kernel = Kernel::start(&subnet.kernel, "connected");
        let machine = &subnet.machine;
        let mut ours = start(machine, "umad");
        reach(machine, kernel.machine);
        assert_eq!(machine.mtu("ib0"), CONNECTED_MTU);
        large(machine, kernel.machine);
        large(kernel.machine, machine);
        ours.connects_to(kernel.machine);
        receives_only(&ours, &kernel);
        all_arrives(machine, kernel.machine);
        receives_only(&ours, &kernel);
        kernel.is_sound();
        // The next daemon has other communication ids and queue pairs, and the peer knows of the last one's end.
        ours.stop("ib0");
        let ours = start(machine, "umad");
        large(kernel.machine, machine);
        large(machine, kernel.machine);
        receives_only(&ours, &kernel);
        kernel.is_sound();
    });
}

/// With our own communication management, each data thread requests connections, and takes those that the ids of
/// peers assign to it.
#[test]
fn two_data_threads_connect_to_the_kernel_over_umad() {
    on_subnet(Framing::Mlid, LARGE, |subnet, _| {
        let kernel = Kernel::start(&subnet.kernel, "connected");
        let machine = &subnet.machine;
        machine.ok("modprobe ib_umad");
        let mut ours = Side::start(machine, &format!("{VERBS} --mode connected --queues 2"));
        reach(machine, kernel.machine);
        all_arrives(machine, kernel.machine);
        ours.both_threads_send(kernel.machine);
        ours.each_thread_has_a_connection();
        large(machine, kernel.machine);
        large(kernel.machine, machine);
        receives_only(&ours, &kernel);
        kernel.is_sound();
        ours.stop("ib0");
        kernel.is_sound();
    });
}

/// The kernel's interface takes datagrams of both queue pairs for those of one neighbour.
#[test]
fn two_data_threads_send_datagrams_to_the_kernel() {
    on_subnet(Framing::Mlid, LARGE, |subnet, _| {
        let kernel = Kernel::start(&subnet.kernel, "datagram");
        let machine = &subnet.machine;
        machine.ok("modprobe -a ib_umad rdma_ucm");
        let ours = Side::start(machine, &format!("{VERBS} --queues 2"));
        reach(machine, kernel.machine);
        all_arrives(machine, kernel.machine);
        ours.both_threads_send(kernel.machine);
        let output = kernel
            .machine
            .ok(&format!("ping -c 20 -i 0.05 -W 5 {}", machine.v4()));
        assert!(!output.contains("DUP"), "{output}");
        kernel.is_sound();
    });
}

#[test]
fn c105_beside_ib_cm_the_kernel_gets_messages_and_sends_datagrams() {
    on_subnet(Framing::Mlid, LARGE, |subnet, _| {
        let kernel = Kernel::start(&subnet.kernel, "connected");
        let machine = &subnet.machine;
        let ours = start(machine, "rdma_cm");
        reach(machine, kernel.machine);
        ours.connects_to(kernel.machine);
        // The kernel drops the first large answer, which goes as a datagram, and sends smaller ones then.
        eventually(SOON, "an answer to a large packet", || {
            let ping = format!("ping -c 1 -W 1 -M do -s 60000 {}", kernel.machine.v4());
            (machine.run(&ping).code == Some(0)).then_some(())
        });
        let address = "ip -br neigh show dev ib0 | grep -q ' 00:'";
        kernel.machine.ok(address);
        reach(kernel.machine, machine);
        assert_eq!(accepted(&ours), Vec::<Value>::new());
        kernel.is_sound();
    });
}

#[test]
fn daemons_connect_to_each_other_with_either_manager() {
    for (one, other) in [("rdma_cm", "rdma_cm"), ("umad", "rdma_cm")] {
        on_subnet(Framing::Mlid, LARGE, |subnet, _| {
            let a = start(&subnet.kernel, one);
            let b = start(&subnet.machine, other);
            a.reaches(&b);
            for (from, to) in [(&a, &subnet.machine), (&b, &subnet.kernel)] {
                from.connects_to(to);
                eventually(SOON, "a connection of the peer", || {
                    (!accepted(from).is_empty()).then_some(())
                });
            }
            large(&subnet.kernel, &subnet.machine);
            large(&subnet.machine, &subnet.kernel);
        });
    }
}
