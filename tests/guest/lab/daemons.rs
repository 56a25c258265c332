//! Daemons on two nodes, and what passes between them.

use std::time::Duration;

use serde_json::Value;

use super::{Node, Running, SOON, eventually};

/// How the software fabric is asked for, and how verbs are.
pub const SOFT: &str = "--underlay eth0";
/// See [`SOFT`].
pub const VERBS: &str = "--provider verbs --device rxe0";

/// A node and the daemon on it, whose interface is `ib0`.
pub struct Side<'a> {
    /// The node.
    pub node: &'a dyn Node,
    /// Its daemon.
    pub daemon: Running,
    options: String,
}

/// Starts a daemon on each of two nodes with these options, and waits until they reach each other.
pub fn pair<'a>(
    (a, a_options): (&'a dyn Node, &str),
    (b, b_options): (&'a dyn Node, &str),
    options: &str,
) -> (Side<'a>, Side<'a>) {
    let a = Side::start(a, &format!("{a_options} {options}"));
    let b = Side::start(b, &format!("{b_options} {options}"));
    a.reaches(&b);
    (a, b)
}

impl<'a> Side<'a> {
    /// Starts a daemon, and gives its interface addresses.
    pub fn start(node: &'a dyn Node, options: &str) -> Side<'a> {
        let daemon = node.start_daemon(options);
        node.configure("ib0");
        Side {
            node,
            daemon,
            options: options.to_owned(),
        }
    }

    /// Kills the daemon without a word, and starts another one.
    pub fn kill_and_restart(&mut self) {
        self.node.kill_daemon();
        self.daemon.end();
        let gone = "while ip link show ib0 >/dev/null 2>&1; do sleep 0.1; done";
        self.node.ok(gone);
        self.daemon = self.node.start_daemon(&self.options);
        self.node.configure("ib0");
    }

    /// Waits until the other side answers over both families.
    pub fn reaches(&self, other: &Side) {
        self.node.reaches(&other.node.v4());
        self.node.reaches(&other.node.v6());
    }

    /// The connections that this side sends on.
    pub fn connections(&self) -> Vec<Value> {
        let mut all = self.node.ask("conn ib0");
        all.retain(|c| c["role"] == "active" && c["state"] == "ESTABLISHED");
        all
    }

    /// Waits until it has one.
    pub fn connects_to(&self, other: &Side) {
        let what = format!("{}: a connection", self.node.name());
        eventually(SOON, &what, || {
            self.node
                .run(&format!("ping -c 1 -W 1 {}", other.node.v4()));
            (!self.connections().is_empty()).then_some(())
        });
    }
}

/// Address resolution, echoes of all sizes, multicast and streams pass from `a` to `b` and back.
pub fn all_arrives(a: &Side, b: &Side) {
    for (from, to) in [(a, b), (b, a)] {
        echoes(from.node, to.node);
        multicast(from.node, to.node);
    }
    streams(a.node, b.node);
}

/// Small ones, full ones that nobody may cut, and ones that are cut.
pub fn echoes(from: &dyn Node, to: &dyn Node) {
    let mtu = from.mtu("ib0");
    let (v4, v6) = (to.v4(), to.v6());
    from.ok(&format!(
        "set -e
        ip neigh flush dev ib0
        for to in {v4} {v6}; do
            ping -q -c 3 -i 0.1 -W 5 $to
            ping -q -c 2 -i 0.2 -W 5 -s 9001 $to
        done
        ping -q -c 2 -i 0.1 -W 5 -M do -s {} {v4}
        ping -q -c 2 -i 0.1 -W 5 -M do -s {} {v6}
        ping -q -c 2 -i 0.2 -W 5 ff02::1%ib0",
        mtu - 20 - 8,
        mtu - 40 - 8
    ));
}

/// Groups that only the receiver has joined, over both families: what is sent to them arrives at its
/// interface. (That it is answered would ask for a sender whose host takes a group's address as source.)
pub fn multicast(from: &dyn Node, to: &dyn Node) {
    let groups = ["239.1.2.3", "ff15::1:2:3"];
    let [v4, v6] = groups;
    to.ok(&format!(
        "ip addr add {v4}/32 dev ib0 autojoin && ip addr add {v6}/128 dev ib0 autojoin"
    ));
    let mut seen = to.spawn(&format!(
        "exec tcpdump -p -n -l -i ib0 dst host {v4} or dst host {v6}"
    ));
    seen.says("listening on");
    // The sender's own joining takes a moment, in which what it sends reaches nobody.
    eventually(SOON, "packets to groups of both families", || {
        let ping = "ping -q -c 2 -i 0.2 -W 1 -I ib0";
        from.run(&format!("{ping} {v4} & {ping} {v6}; wait"));
        let said = seen.said();
        groups
            .iter()
            .all(|group| said.contains(group))
            .then_some(())
    });
    to.ok(&format!(
        "ip addr del {v4}/32 dev ib0; ip addr del {v6}/128 dev ib0"
    ));
}

/// TCP both ways and UDP, over both families.
fn streams(a: &dyn Node, b: &dyn Node) {
    let mut server = b.spawn("exec iperf3 -s --forceflush");
    server.says("Server listening");
    for address in [b.v4(), b.v6()] {
        for options in ["-n 1M -w 128K", "-n 1M -w 128K -R"] {
            // The receiver stops counting when the sender has handed over all: a window is missing.
            let received = iperf(a, &address, options)["end"]["sum_received"]["bytes"].as_u64();
            assert!(
                received.is_some_and(|bytes| bytes >= 1 << 19),
                "{address} {options}: {received:?} bytes"
            );
        }
    }
    let udp = iperf(a, &b.v4(), "-u -b 2M -l 1000 -n 200K");
    let lost = udp["end"]["sum"]["lost_percent"].as_f64();
    assert!(lost.is_some_and(|lost| lost < 5.0), "{udp}");
}

fn iperf(client: &dyn Node, address: &str, options: &str) -> Value {
    let run = format!("iperf3 -J -c {address} {options}");
    let done = client.run_for(&run, Duration::from_secs(60));
    let report: Value = serde_json::from_str(&done.out)
        .unwrap_or_else(|e| panic!("{}: {run}: {e}: {done:?}", client.name()));
    // With -J, iperf3 may end with 0 even when it was refused.
    assert_eq!(report["error"], Value::Null, "{run}: {report}");
    report
}
