//! Two interfaces of one daemon on one RDMA device, each in a namespace of the virtual machine: multicast
//! reaches the other interface and the wire, and each interface is reachable from both.

use std::time::Duration;

use serde_json::Value;

use crate::lab::{
    Done, Machine, Node, Running, SOFT, SOON, Side, echoes, eventually, multicast, on_stage,
};

/// A namespace of a virtual machine.
struct Inner<'a> {
    machine: &'a Machine,
    name: &'static str,
}

impl<'a> Inner<'a> {
    fn create(machine: &'a Machine, name: &'static str) -> Inner<'a> {
        machine.ok(&format!("ip netns add {name}; ip -n {name} link set lo up"));
        Inner { machine, name }
    }

    fn within(&self, script: &str) -> String {
        let name = self.name;
        format!("exec ip netns exec {name} bash -c \"$(cat <<'SCRIPT'\n{script}\nSCRIPT\n)\"")
    }

    /// A counter of the interface.
    fn counter(&self, name: &str) -> u64 {
        let stats = self.machine.ask(&format!("stats {}/ib0", self.name));
        let value = &stats[0]["device"][name];
        value
            .as_u64()
            .unwrap_or_else(|| panic!("{name}: {stats:?}"))
    }
}

impl Node for Inner<'_> {
    fn name(&self) -> &str {
        self.name
    }

    fn number(&self) -> usize {
        match self.name {
            "blue" => 21,
            _ => 22,
        }
    }

    fn run_for(&self, script: &str, limit: Duration) -> Done {
        self.machine.run_for(&self.within(script), limit)
    }

    fn spawn(&self, script: &str) -> Running {
        self.machine.spawn(&self.within(script))
    }

    fn program(&self, name: &str) -> String {
        self.machine.program(name)
    }

    fn socket(&self) -> String {
        self.machine.socket()
    }
}

/// The link-local address of `ib0`.
fn link_local(node: &dyn Node) -> String {
    let shown = node.json("ip -6 -j addr show dev ib0 scope link");
    let address = shown[0]["addr_info"].as_array();
    let address = address.and_then(|all| all.iter().find_map(|a| a["local"].as_str()));
    address.unwrap_or_else(|| panic!("{shown}")).to_owned()
}

const CONFIG: &str = r#"
[[ipoib]]
name = "ib0"
rdma = "rxe0"
netns = "blue"

[[ipoib]]
name = "ib0"
rdma = "rxe0"
netns = "green"
"#;

#[test]
fn siblings_over_verbs_reach_each_other_and_the_wire() {
    on_stage(|stage| {
        let machine = &stage.machine;
        let [blue, green] = ["blue", "green"].map(|name| Inner::create(machine, name));
        machine.ok(&format!("printf '%s' '{CONFIG}' >/tmp/siblings.toml"));
        let _daemon = machine.start_daemon("--config /tmp/siblings.toml");
        blue.configure("ib0");
        green.configure("ib0");
        let host = Side::start(&stage.host, SOFT);

        for (from, to) in [(&blue, &green), (&green, &blue)] {
            from.reaches(&to.v4());
            from.reaches(&to.v6());
        }
        echoes(&blue, &green);
        multicast(&green, &blue);
        assert!(blue.counter("tx_to_siblings") > 0 && green.counter("tx_to_siblings") > 0);
        for inner in [&blue, &green] {
            inner.reaches(&host.node.v4());
            host.node.reaches(&inner.v6());
        }
        // Both are members of one group, and so is the host.
        multicast(&blue, host.node);
        let all = [&blue as &dyn Node, &green].map(link_local);
        eventually(SOON, "an answer of each to all nodes", || {
            let output = host.node.run("ping -c 2 -i 0.5 -W 2 ff02::1%ib0").out;
            all.iter().all(|one| output.contains(one)).then_some(())
        });
        listed(machine);
    });
}

/// Each has its queue pair on the device, attached to the groups that it has joined.
fn listed(machine: &Machine) {
    let port = &machine.ask("res")[0];
    let of = |kind: &str| port[kind].as_array().expect("an array").clone();
    let mut pairs = of("queue_pairs");
    pairs.retain(|qp| qp["type"] == "UD" && qp["state"] == "RTS");
    let interfaces: Vec<&Value> = pairs.iter().map(|qp| &qp["interface"]).collect();
    assert_eq!(interfaces.len(), 2, "{port}");
    for qp in &pairs {
        assert!(of("groups").iter().any(|g| g["qpn"] == qp["qpn"]), "{port}");
    }
}
