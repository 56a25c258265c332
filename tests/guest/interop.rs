//! The software fabric and the kernel's `rdma_rxe`: rdma-core's programs run in a virtual machine. The host
//! is the other side of each of them, with `ibtap-peer`, which checks every payload.

use std::net::Ipv6Addr;
use std::time::Duration;

use crate::lab::{Local, Machine, Node, Running, Stage, eventually, ibtap_peer, on_stage};

/// Time limit of one run in an emulated machine on a busy host: a program starts in seconds.
const LIMIT: Duration = Duration::from_secs(90);

/// The addresses that both sides use as GIDs.
#[derive(Clone, Copy, Debug)]
enum Family {
    V4,
    V6,
}

/// The two sides with GIDs of one family.
struct Sides<'a> {
    host: &'a Local,
    machine: &'a Machine,
    host_gid: String,
    machine_gid: String,
    /// Index of the virtual machine's GID in the table of its port.
    index: usize,
}

impl<'a> Sides<'a> {
    fn of(stage: &'a Stage, family: Family) -> Sides<'a> {
        let (host, machine) = (&stage.host, &stage.machine);
        let [host_gid, machine_gid] = match family {
            Family::V4 => [host.underlay_v4(), machine.underlay_v4()],
            Family::V6 => [host.underlay_v6(), machine.underlay_v6()],
        };
        let index = gid_index(machine, &machine_gid);
        Sides {
            host,
            machine,
            host_gid,
            machine_gid,
            index,
        }
    }

    /// Starts `ibtap-peer` on the host.
    fn peer(&self, words: &str) -> Running {
        self.host.spawn(&format!(
            "exec {} {words} --underlay eth0 --gid {} --timeout 60",
            ibtap_peer().display(),
            self.host_gid
        ))
    }

    /// A ping-pong program of rdma-core, without the server's address.
    fn pingpong(&self, program: &str, options: &str) -> String {
        let index = self.index;
        format!("{program} -d rxe0 -g {index} {options}")
    }

    /// The virtual machine's program is the client of `ibtap-peer`.
    fn machine_asks(&self, command: &str, ready: &str, client: &str) -> String {
        let mut server = self.peer(command);
        server.await_output(ready);
        let output = self.machine.run_for(client, LIMIT);
        assert!(
            output.code == Some(0),
            "{client}: {output:?}; {}",
            server.output()
        );
        let output = output.out;
        server.succeeds(LIMIT);
        output
    }

    /// The virtual machine's program is the server of `ibtap-peer`.
    fn host_asks(&self, server: &str, command: &str) -> String {
        let mut server = self.machine.spawn(&format!("exec {server}"));
        self.peer(command).succeeds(LIMIT);
        server.succeeds(LIMIT)
    }
}

/// Index of a GID in the table of the virtual machine's port.
fn gid_index(machine: &Machine, address: &str) -> usize {
    let wanted: Ipv6Addr = match address.parse().expect("an address") {
        std::net::IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        std::net::IpAddr::V6(v6) => v6,
    };
    let listed = || machine.ok("cd /sys/class/infiniband/rxe0/ports/1/gids; cat 0 1 2 3 4 5 6 7");
    eventually(
        LIMIT,
        &format!("{address} among the machine's GIDs"),
        || listed().lines().position(|gid| gid.parse() == Ok(wanted)),
    )
}

/// Datagrams of these sizes back and forth; each side is the client once.
fn datagrams(family: Family, sizes: &[usize]) {
    on_stage(|stage| {
        let sides = Sides::of(stage, family);
        for size in sizes {
            let options = format!("-s {size} -n 5");
            let program = sides.pingpong("ibv_ud_pingpong", &options);
            let peer = format!("ud-pingpong --size {size} --count 5");
            let client = format!("{program} {}", stage.host.underlay_v4());
            let output = sides.machine_asks(&peer, "waiting for a client", &client);
            assert!(output.contains("5 iters"), "{output}");
            let to = stage.machine.underlay_v4();
            let output = sides.host_asks(&program, &format!("{peer} --connect {to}"));
            assert!(output.contains("5 iters"), "{output}");
        }
    });
}

#[test]
fn datagrams_go_to_and_fro_over_ipv4() {
    datagrams(Family::V4, &[1, 1023, 4096]);
}

#[test]
fn datagrams_go_to_and_fro_over_ipv6() {
    datagrams(Family::V6, &[2, 4096]);
}

/// Makes the virtual machine lose packets in both directions.
fn lose(machine: &Machine, percent: u32) {
    machine.ok(&format!(
        "set -e
        modprobe -a sch_netem ifb sch_ingress cls_matchall act_mirred
        ip link show ifb0 >/dev/null 2>&1 || ip link add ifb0 type ifb
        ip link set ifb0 up
        tc qdisc replace dev ifb0 root netem loss {percent}%
        tc qdisc add dev eth0 ingress
        tc filter add dev eth0 parent ffff: matchall action mirred egress redirect dev ifb0
        tc qdisc replace dev eth0 root netem loss {percent}%"
    ));
}

/// Number of packets that a queue of the virtual machine has lost.
fn lost(machine: &Machine, interface: &str) -> u64 {
    let queues = machine.json(&format!("tc -s -j qdisc show dev {interface} root"));
    queues[0]["drops"].as_u64().expect("a number")
}

/// Messages of all sizes over reliable connections on a network that loses packets both ways; each side is
/// the client in turn.
fn messages(family: Family, sizes: &[usize]) {
    on_stage(|stage| {
        let sides = Sides::of(stage, family);
        // A lost neighbour solicitation is repeated after 1 s; a connection gives up after 0.5 s.
        sides.host.reaches(&sides.machine_gid);
        lose(&stage.machine, 3);
        for (&size, number) in sizes.iter().zip(0..) {
            let count = if size > 10_000 { 4 } else { 8 };
            let options = format!("-c -m 1024 -s {size} -n {count}");
            let program = sides.pingpong("ibv_rc_pingpong", &options);
            let peer = format!("rc-pingpong --size {size} --count {count}");
            let output = if number % 2 == 0 {
                let client = format!("{program} {}", stage.host.underlay_v4());
                sides.machine_asks(&peer, "waiting for a client", &client)
            } else {
                let to = stage.machine.underlay_v4();
                sides.host_asks(&program, &format!("{peer} --connect {to}"))
            };
            assert!(output.contains(&format!("{count} iters")), "{output}");
            assert!(!output.contains("invalid data"), "{output}");
        }
        for interface in ["eth0", "ifb0"] {
            let lost = lost(&stage.machine, interface);
            assert!(lost > 0, "{interface} has lost nothing");
        }
    });
}

#[test]
fn messages_go_to_and_fro_over_ipv4_whatever_is_lost() {
    messages(
        Family::V4,
        &[1, 64, 1023, 1024, 4001, 4096, 65_536, 100_000],
    );
}

#[test]
fn messages_go_to_and_fro_over_ipv6_whatever_is_lost() {
    messages(Family::V6, &[1025, 65_536, 2048, 65_535]);
}

/// Connections by rdma_cm; each side is the server once.
fn connections(family: Family, sizes: &[usize]) {
    on_stage(|stage| {
        let sides = Sides::of(stage, family);
        let own = &sides.machine_gid;
        for size in sizes {
            let program = format!("ucmatose -b {own} -c 1 -C 4 -S {size}");
            let peer = format!("cmatose --size {size} --count 4");
            let client = format!("{program} -s {}", sides.host_gid);
            let output = sides.machine_asks(&peer, "waiting for a connection", &client);
            assert!(output.contains("data transfers complete"), "{output}");
            let output = sides.host_asks(&program, &format!("{peer} --connect {own}"));
            assert!(output.contains("data transfers complete"), "{output}");
        }
    });
}

#[test]
fn connections_by_rdma_cm_over_ipv4() {
    connections(Family::V4, &[100, 5000]);
}

#[test]
fn connections_by_rdma_cm_over_ipv6() {
    connections(Family::V6, &[5000]);
}

/// Queue pairs found by SIDR; each side is the server once.
fn services(family: Family) {
    on_stage(|stage| {
        let sides = Sides::of(stage, family);
        let own = &sides.machine_gid;
        let program = format!("udaddy -b {own} -c 1 -C 4 -S 1000");
        let peer = "udaddy --size 1000 --count 4";
        let client = format!("{program} -s {}", sides.host_gid);
        let output = sides.machine_asks(peer, "waiting for requests", &client);
        assert!(output.contains("data transfers complete"), "{output}");
        let output = sides.host_asks(&program, &format!("{peer} --connect {own}"));
        assert!(output.contains("data transfers complete"), "{output}");
    });
}

#[test]
fn datagram_services_of_rdma_cm_over_ipv4() {
    services(Family::V4);
}

#[test]
fn datagram_services_of_rdma_cm_over_ipv6() {
    services(Family::V6);
}

/// (The kernel of the virtual machine refuses `mckey` over IPv6 on RoCE.)
#[test]
fn multicast_goes_both_ways() {
    on_stage(|stage| {
        let sides = Sides::of(stage, Family::V4);
        let program = format!("mckey -m 239.1.2.3 -b {} -C 4 -S 100", sides.machine_gid);
        let peer = "mckey --group 239.1.2.3 --count 4";
        sides.machine_asks(peer, "joined", &format!("{program} -s"));

        let mut receiver = stage.machine.spawn(&format!("exec {program}"));
        // Nothing tells when its queue pair is attached.
        eventually(LIMIT, "the receiver to get all packets", || {
            sides.peer(&format!("{peer} --send")).succeeds(LIMIT);
            (!receiver.is_running()).then_some(())
        });
        let output = receiver.succeeds(LIMIT);
        assert!(output.contains("data transfers complete"), "{output}");
    });
}
