//! A host of this machine: a namespace.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::{Done, Node, Running, Station, UNDERLAY_MTU, programs};

/// See the module. Its interface on the Ethernet is `eth0`.
pub struct Local {
    station: Station,
    number: usize,
    scratch: PathBuf,
}

impl Local {
    /// Host `number` (1 to 9, on a subnet its LID, 0x20 to 0x22), at a bridge called `br0`.
    pub(super) fn at(switch: &Station, number: usize, scratch: &Path) -> Local {
        let station = Station::create(&format!("host {number}"));
        station.ok(&format!(
            "ip link add eth0 mtu {UNDERLAY_MTU} type veth \
             peer name port{number} mtu {UNDERLAY_MTU} netns {}",
            switch.namespace().name()
        ));
        switch.ok(&format!("ip link set port{number} master br0 up"));
        let local = Local {
            station,
            number,
            scratch: scratch.to_owned(),
        };
        local.station.bring_up("eth0");
        let (v4, v6) = (local.underlay_v4(), local.underlay_v6());
        local.station.ok(&format!("ip addr add {v4}/24 dev eth0"));
        local.station.ok(&format!("ip addr add {v6}/64 dev eth0"));
        local
    }

    /// Its namespace, with queries.
    pub fn station(&self) -> &Station {
        &self.station
    }

    fn shell(&self, script: &str) -> Command {
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "ip", "netns", "exec"])
            .arg(self.station.namespace().name())
            .args(["bash", "-c", script]);
        command
    }
}

impl Node for Local {
    fn name(&self) -> &str {
        self.station.name()
    }

    fn number(&self) -> usize {
        self.number
    }

    fn run_for(&self, script: &str, limit: Duration) -> Done {
        let mut command = Command::new("timeout");
        let shell = self.shell(script);
        command
            .arg("--kill-after=2")
            .arg(limit.as_secs().to_string())
            .arg(shell.get_program())
            .args(shell.get_args());
        Done::of(&mut command)
    }

    fn spawn(&self, script: &str) -> Running {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let output = self.scratch.join(format!("host{}-{number}", self.number));
        let what = format!("{}: {script}", self.name());
        Running::start(self.shell(script), output, what)
    }

    fn program(&self, name: &str) -> String {
        let path = programs::ibtapd().with_file_name(name);
        path.to_str().expect("an ASCII path").to_owned()
    }

    fn socket(&self) -> String {
        let path = self.scratch.join(format!("host{}.sock", self.number));
        path.to_str().expect("an ASCII path").to_owned()
    }
}
