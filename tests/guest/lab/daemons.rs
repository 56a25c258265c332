//! Daemons on two nodes, and the traffic between them.

use std::time::Duration;

use serde_json::Value;

use super::{Node, Running, SOON, eventually};

/// Options for the software fabric and for verbs.
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
    /// Starts a daemon, and adds addresses to its interface.
    pub fn start(node: &'a dyn Node, options: &str) -> Side<'a> {
        let daemon = node.start_daemon(options);
        node.configure("ib0");
        Side {
            node,
            daemon,
            options: options.to_owned(),
        }
    }

    /// Ends the daemon by SIGTERM, and waits until its interface is gone.
    pub fn stop(&mut self, interface: &str) {
        self.node.ok(&format!(
            "kill $(cat {}.pid); while ip link show {interface} >/dev/null 2>&1; do sleep 0.1; done",
            self.node.socket()
        ));
    }

    /// Kills the daemon, and starts another one.
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
        reach(self.node, other.node);
    }

    /// The connections on which this side sends.
    pub fn connections(&self) -> Vec<Value> {
        let mut all = self.node.ask("conn ib0");
        all.retain(|c| c["role"] == "active" && c["state"] == "ESTABLISHED");
        all
    }

    /// Waits until this side sends on a connection.
    pub fn connects_to(&self, other: &dyn Node) {
        let what = format!("{}: a connection", self.node.name());
        eventually(SOON, &what, || {
            self.node.run(&format!("ping -c 1 -W 1 {}", other.v4()));
            (!self.connections().is_empty()).then_some(())
        });
    }
}

/// The work of two data threads.
impl Side<'_> {
    /// Trains of datagrams, and messages on connections, that each of two data threads has sent.
    fn sent_by_threads(&self) -> [u64; 2] {
        let stats = &self.node.ask("stats ib0")[0];
        let workers = stats["workers"].as_array().expect("an array");
        assert_eq!(workers.len(), 2, "{stats}");
        let mut sent = [0, 0];
        let mut add = |worker: &Value, count: &Value| {
            let number = worker.as_u64().expect("a number") as usize;
            sent[number] += count.as_u64().expect("a number");
        };
        for worker in workers {
            add(&worker["worker"], &worker["counters"]["tx_trains"]);
        }
        for connection in self.connections() {
            add(&connection["worker"], &connection["tx_messages"]);
        }
        sent
    }

    /// Waits until both data threads have sent streams to `to` at a time.
    pub fn both_threads_send(&self, to: &dyn Node) {
        let mut server = to.spawn("exec iperf3 -s --forceflush");
        server.await_output("Server listening");
        eventually(SOON, "streams of both data threads", || {
            let before = self.sent_by_threads();
            iperf(self.node, &to.v4(), "-P 8 -n 4M -w 128K");
            let after = self.sent_by_threads();
            println!("trains and messages of the threads: {before:?}, then {after:?}");
            // More than the first packets of all streams, whose thread the kernel chooses.
            let both = before.iter().zip(&after).all(|(b, a)| *a > b + 20);
            both.then_some(())
        });
    }

    /// Both data threads send on connections.
    pub fn each_thread_has_a_connection(&self) {
        eventually(SOON, "a connection of each data thread", || {
            let all = self.connections();
            let of = |thread: u64| all.iter().any(|c| c["worker"] == thread);
            (of(0) && of(1)).then_some(())
        });
    }
}

/// Waits until `to` answers `from` over both families.
pub fn reach(from: &dyn Node, to: &dyn Node) {
    from.reaches(&to.v4());
    from.reaches(&to.v6());
}

/// Checks address resolution, echoes of all sizes, multicast and streams from `a` to `b` and back.
pub fn all_arrives(a: &dyn Node, b: &dyn Node) {
    for (from, to) in [(a, b), (b, a)] {
        echoes(from, to);
        multicast(from, to);
    }
    streams(a, b);
}

/// Small packets, full unfragmentable packets, and fragmented packets.
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

/// Packets to groups that only the receiver has joined arrive at its interface, over both families. (An
/// answer would need a sender whose host accepts a group's address as source.)
pub fn multicast(from: &dyn Node, to: &dyn Node) {
    let groups = ["239.1.2.3", "ff15::1:2:3"];
    let [v4, v6] = groups;
    to.ok(&format!(
        "ip addr add {v4}/32 dev ib0 autojoin && ip addr add {v6}/128 dev ib0 autojoin"
    ));
    let mut seen = to.spawn(&format!(
        "exec tcpdump -p -n -l -i ib0 dst host {v4} or dst host {v6}"
    ));
    seen.await_output("listening on");
    // Packets are lost until the sender has joined, which takes a moment.
    eventually(SOON, "packets to groups of both families", || {
        let ping = "ping -q -c 2 -i 0.2 -W 1 -I ib0";
        from.run(&format!("{ping} {v4} & {ping} {v6}; wait"));
        let output = seen.output();
        groups
            .iter()
            .all(|group| output.contains(group))
            .then_some(())
    });
    to.ok(&format!(
        "ip addr del {v4}/32 dev ib0; ip addr del {v6}/128 dev ib0"
    ));
}

/// TCP both ways and UDP, over both families.
fn streams(a: &dyn Node, b: &dyn Node) {
    let mut server = b.spawn("exec iperf3 -s --forceflush");
    server.await_output("Server listening");
    for address in [b.v4(), b.v6()] {
        for options in ["-n 1M -w 128K", "-n 1M -w 128K -R"] {
            // The receiver stops counting when the sender has handed over everything: a window is missing.
            let received = iperf(a, &address, options)["end"]["sum_received"]["bytes"].as_u64();
            assert!(
                received.is_some_and(|bytes| bytes >= 1 << 19),
                "{address} {options}: {received:?} bytes"
            );
        }
    }
    // Nothing repeats lost datagrams, and a busy machine drops some.
    eventually(SOON, "a UDP stream with few losses", || {
        let udp = iperf(a, &b.v4(), "-u -b 2M -l 1000 -n 200K");
        let lost = udp["end"]["sum"]["lost_percent"].as_f64();
        lost.filter(|lost| *lost < 5.0)
    });
}

fn iperf(client: &dyn Node, address: &str, options: &str) -> Value {
    let run = format!("iperf3 -J -c {address} {options}");
    eventually(SOON, &format!("{}: {run}", client.name()), || {
        let done = client.run_for(&run, Duration::from_secs(60));
        let report: Value = serde_json::from_str(&done.out)
            .unwrap_or_else(|e| panic!("{}: {run}: {e}: {done:?}", client.name()));
        let error = report["error"].as_str();
        // The server ends a run a moment after the client. Then it closes its socket, and listens with another one.
        let between = [
            "server is busy",
            "control message",
            "Connection refused",
            "Connection reset",
        ];
        if error.is_some_and(|error| between.iter().any(|words| error.contains(words))) {
            return None;
        }
        // A UDP stream begins with one datagram and one answer. If one of these is lost, the client waits for 30 s.
        let unanswered = |error: &str| error.contains("unable to read from stream socket");
        if options.starts_with("-u ") && error.is_some_and(unanswered) {
            return None;
        }
        // With -J, iperf3 may exit with 0 also when the server refuses.
        assert_eq!(error, None, "{run}: {report}");
        Some(report)
    })
}

/// Waits until `ib0` has its carrier, or has lost it.
pub fn carrier(node: &dyn Node, on: bool) {
    let what = format!("{}: carrier {on} on ib0", node.name());
    eventually(SOON, &what, || {
        // It cannot be read while the interface is down.
        let read = node.run("cat /sys/class/net/ib0/carrier").out;
        ((read.trim() == "1") == on).then_some(())
    });
}

/// A ping from one node to another, five requests a second until its end.
pub fn traffic(from: &dyn Node, to: &dyn Node) -> Running {
    let mut ping = from.spawn(&format!("exec ping -n -O -i 0.2 {}", to.v4()));
    ping.await_output("bytes from");
    ping
}

/// Waits for more answers.
pub fn goes_on(ping: &Running) {
    let answers = || ping.output().matches("bytes from").count();
    let before = answers();
    eventually(SOON, "answers to a ping that goes on", || {
        (answers() > before + 5).then_some(())
    });
}
