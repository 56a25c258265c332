//! An underlay that loses packets, by nftables in the namespace that forwards them.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{Host, Lab, Station, UNDERLAY_MTU, iperf};

/// The rules of the forwarding namespace.
///
/// All packets there are single: the hosts' interfaces do not segment, so the kernel segments trains before
/// they leave, and no port merges packets.
pub struct Loss<'a> {
    switch: &'a Station,
    ports: usize,
}

impl<'a> Loss<'a> {
    /// Prepares a segment's hosts and its switch; no packet is lost yet.
    pub fn on(hosts: &[Host], switch: &'a Station) -> Loss<'a> {
        for (i, host) in hosts.iter().enumerate() {
            host.ok("ethtool -K eth0 tx-udp-segmentation off");
            switch.ok(&format!("ethtool -K port{i} gro off"));
        }
        Loss {
            switch,
            ports: hosts.len(),
        }
    }

    /// From now on, loses this many of 1000 RoCE packets that arrive at any port.
    pub fn per_mille(&self, lost: u32) {
        let ports: Vec<String> = (0..self.ports).map(|i| format!("\"port{i}\"")).collect();
        // A packet longer than the underlay's MTU is a train, which would be lost as a whole.
        self.switch.nft(&format!(
            "table netdev ibtap\n\
             delete table netdev ibtap\n\
             table netdev ibtap {{\n\
               counter trains {{ }}\n\
               counter lost {{ }}\n\
               chain ingress {{\n\
                 type filter hook ingress devices = {{ {} }} priority 0;\n\
                 meta length > {UNDERLAY_MTU} counter name trains\n\
                 udp dport 4791 numgen random mod 1000 < {lost} counter name lost drop\n\
               }}\n\
             }}\n",
            ports.join(", ")
        ));
    }

    /// Number of lost packets since the last change. Fails if one was not single.
    pub fn lost(&self) -> u64 {
        let [trains, lost] = ["trains", "lost"].map(|name| {
            let listed = self
                .switch
                .json(&format!("nft -j list counter netdev ibtap {name}"));
            let counters = listed["nftables"].as_array().expect("an array");
            let found = counters.iter().find(|item| item["counter"] != Value::Null);
            let packets = found.and_then(|item| item["counter"]["packets"].as_u64());
            packets.unwrap_or_else(|| panic!("no packets: {listed}"))
        });
        assert_eq!(
            trains, 0,
            "trains passed where single packets were to be lost"
        );
        lost
    }
}

impl Station {
    /// Runs nft(8) with these rules.
    pub fn nft(&self, rules: &str) {
        let mut file = tempfile::tempfile().expect("a scratch file");
        file.write_all(rules.as_bytes()).expect("a scratch file");
        rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0)).expect("a scratch file");
        let done = Command::new("ip")
            .args(["netns", "exec", self.namespace().name(), "nft", "-f", "-"])
            .stdin(Stdio::from(file))
            .output()
            .expect("nftables is installed");
        assert!(
            done.status.success(),
            "{}: nft: {}{rules}",
            self.name(),
            String::from_utf8_lossy(&done.stderr)
        );
    }
}

/// Also for trains, which carry streams.
#[test]
fn single_packets_of_a_stream_are_lost() {
    let Some(mut lab) = Lab::running_segment(2) else {
        return;
    };
    let (hosts, switch) = lab.hosts_and_switch();
    let loss = Loss::on(hosts, switch);
    let stream = || iperf(&hosts[0], &hosts[1], &hosts[1].v4(), "-n 20M");
    loss.per_mille(0);
    stream();
    assert_eq!(loss.lost(), 0);
    loss.per_mille(10);
    stream();
    // 20 MiB are 5000 packets.
    assert!(loss.lost() > 10, "{} packets lost", loss.lost());
}
