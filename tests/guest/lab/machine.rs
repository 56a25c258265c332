//! A virtual machine with `rdma_rxe`, driven by `scripts/rxe-guest`.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::{Done, Node, Running, Station, UNDERLAY_MTU};

/// See the module. Its interface on the Ethernet is `eth0`, its RDMA device there `rxe0`; the folder
/// with the programs is `/host`.
pub struct Machine {
    number: usize,
    name: String,
    scratch: PathBuf,
}

/// Mebibytes of a virtual machine: its root file system lies in them, too.
const MEMORY: u32 = 768;

impl Machine {
    /// Boots virtual machine `number` (11 to 99) at a bridge called `br0`; `share` is its `/host`.
    pub(super) fn boot(
        switch: &Station,
        number: usize,
        share: &Path,
        scratch: &Path,
    ) -> Result<Machine, ExitStatus> {
        let tap = format!("tap{number}");
        switch.ok(&format!("ip tuntap add {tap} mode tap"));
        switch.ok(&format!(
            "ip link set {tap} mtu {UNDERLAY_MTU} master br0 up"
        ));
        let machine = Machine {
            number,
            name: format!("ibt{}-{number}", std::process::id()),
            scratch: scratch.to_owned(),
        };
        let status = rxe_guest(&["boot", &machine.name])
            .args(["--netns", switch.namespace().name(), "--tap", &tap])
            .args(["--addr", &format!("{}/24", machine.underlay_v4())])
            .args(["--addr", &format!("{}/64", machine.underlay_v6())])
            .args(["--mtu", &UNDERLAY_MTU.to_string()])
            .args(["--memory", &MEMORY.to_string()])
            .args(["--owner", &std::process::id().to_string()])
            .arg("--rxe")
            .arg("--share")
            .arg(share)
            .stdin(Stdio::null())
            .status()
            .expect("bash is there");
        if status.success() {
            Ok(machine)
        } else {
            Err(status)
        }
    }

    /// The name of its port at the bridge.
    pub fn port(&self) -> String {
        format!("tap{}", self.number)
    }

    /// Ends whatever runs in it, and makes its network as it was at first.
    pub(super) fn reset(&self) {
        self.ok(&format!(
            "
            for group in /run/*-*; do
                [ \"$(cat \"$group\")\" = $$ ] || kill -KILL -- \"-$(cat \"$group\")\" 2>/dev/null
            done
            ip -all netns del 2>/dev/null
            ip link del u0 2>/dev/null
            tc qdisc del dev eth0 root 2>/dev/null
            tc qdisc del dev eth0 ingress 2>/dev/null
            ip link set eth0 up mtu {UNDERLAY_MTU}
            # An interface that was down has lost its IPv6 addresses.
            ip addr replace {v4}/24 dev eth0
            ip addr replace {v6}/64 dev eth0 nodad
            rdma link show rxe0/1 >/dev/null 2>&1 || {{ modprobe rdma_rxe; rdma link add rxe0 type rxe netdev eth0; }}
            modprobe tun
            until rdma link show rxe0/1 | grep -q ACTIVE; do sleep 0.1; done
            ",
            v4 = self.underlay_v4(),
            v6 = self.underlay_v6(),
        ));
    }

    fn exec(&self, script: &str, limit: Duration) -> Command {
        let limit = limit.as_secs().to_string();
        rxe_guest(&["exec", &self.name, "--limit", &limit, script])
    }
}

impl Node for Machine {
    fn name(&self) -> &str {
        &self.name
    }

    fn number(&self) -> usize {
        self.number
    }

    fn run_for(&self, script: &str, limit: Duration) -> Done {
        Done::of(&mut self.exec(script, limit))
    }

    fn spawn(&self, script: &str) -> Running {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let said = self
            .scratch
            .join(format!("machine{}-{number}", self.number));
        let what = format!("{}: {script}", self.name());
        Running::start(self.exec(script, Duration::from_secs(3600)), said, what)
    }

    fn program(&self, name: &str) -> String {
        format!("/host/{name}")
    }

    fn socket(&self) -> String {
        "/run/ibtapd.sock".to_owned()
    }
}

/// A command of the script, which ends with this process.
pub(super) fn rxe_guest(words: &[&str]) -> Command {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/rxe-guest");
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "TERM"])
        .arg(script)
        .args(words);
    command
}
