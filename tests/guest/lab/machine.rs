//! A virtual machine, driven by `scripts/rxe-guest` and `scripts/ib-guest`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::shared::Shared;
use super::{Done, Node, Running, Station, UNDERLAY_MTU};

/// See the module. Its interface on the Ethernet is `eth0`, with the RDMA device `rxe0` if it has one; the folder with
/// the programs is `/host`.
pub struct Machine {
    number: usize,
    name: String,
    scratch: PathBuf,
    link: Link,
}

/// Link layer of a machine's RDMA device.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Link {
    /// RDMA over Ethernet: `rdma_rxe`.
    Ethernet,
    /// An InfiniBand port, whose LID is the machine's number: `rdma_rxe_ib`.
    InfiniBand,
    /// No RDMA device. Debian's systemd is the first process.
    Systemd,
}

/// A shell command that waits for the device.
const ACTIVE: &str = "until rdma link show rxe0/1 | grep -q ACTIVE; do sleep 0.1; done";

/// Memory of a virtual machine in MiB, including its root file system.
const MEMORY: u32 = 768;

/// Time limit for booting in seconds: while all boot, each has a small part of a processor.
const BOOT: u32 = 300;

impl Machine {
    /// Boots virtual machine `number` (11 to 99) at a bridge called `br0`. The error is what the script printed.
    pub(super) fn boot(
        switch: &Station,
        number: usize,
        link: Link,
        shared: &Shared,
    ) -> Result<Machine, Done> {
        let tap = format!("tap{number}");
        switch.ok(&format!("ip tuntap add {tap} mode tap"));
        switch.ok(&format!(
            "ip link set {tap} mtu {UNDERLAY_MTU} master br0 up"
        ));
        let machine = Machine {
            number,
            name: format!("ibt{}-{number}", std::process::id()),
            scratch: shared.scratch().to_owned(),
            link,
        };
        let mut boot = match link {
            Link::Ethernet | Link::Systemd => script("rxe-guest"),
            Link::InfiniBand => script("ib-guest"),
        };
        boot.args(["boot", &machine.name])
            .args(["--netns", switch.namespace().name(), "--tap", &tap])
            .args(["--mtu", &UNDERLAY_MTU.to_string()])
            .args(["--memory", &MEMORY.to_string()])
            .args(["--owner", &std::process::id().to_string()])
            .args(["--limit", &BOOT.to_string()])
            .arg("--share")
            .arg(shared.programs());
        match link {
            Link::Ethernet => machine.add_addresses(&mut boot).arg("--rxe"),
            Link::InfiniBand => boot.args(["--lid", &number.to_string()]),
            Link::Systemd => machine.add_addresses(&mut boot).arg("--systemd"),
        };
        let booted = Done::of(boot.stdin(Stdio::null()));
        if booted.code == Some(0) {
            Ok(machine)
        } else {
            Err(booted)
        }
    }

    fn add_addresses<'c>(&self, boot: &'c mut Command) -> &'c mut Command {
        boot.args(["--addr", &format!("{}/24", self.underlay_v4())])
            .args(["--addr", &format!("{}/64", self.underlay_v6())])
    }

    /// Reboots it, with [`Link::Systemd`] only. Its disk stays as it is.
    pub(super) fn reboot(&self) {
        let mut reboot = script("rxe-guest");
        let done = Done::of(reboot.args(["reboot", &self.name]));
        assert!(done.code == Some(0), "reboot: {done:?}");
    }

    /// Name of its port at the bridge.
    pub fn port(&self) -> String {
        format!("tap{}", self.number)
    }

    /// Ends all processes in it, and resets its network. Starting a program takes much time in an emulated guest, so
    /// each does several things.
    pub(super) fn reset(&self) {
        let mut script = format!(
            "
            ended=
            for file in /run/*-*; do
                # The file of a command that has ended is empty.
                if [ -s $file ]; then
                    group=$(<$file)
                    [ $group = $BASHPID ] || kill -KILL -- -$group 2>/dev/null
                else
                    ended+=\" $file\"
                fi
            done
            rm -f $ended
            ip -all netns del 2>/dev/null
            ip -force -batch - 2>/dev/null <<<$'link del u0\nlink set eth0 up mtu {UNDERLAY_MTU}'
            tc -force -batch - 2>/dev/null <<<$'qdisc del dev eth0 root\nqdisc del dev eth0 ingress'
            [ -e /sys/class/misc/tun ] || modprobe tun
            "
        );
        if self.link == Link::Ethernet {
            script += &format!(
                "
                # An interface that was down has lost its IPv6 addresses.
                ip -batch - <<<$'addr replace {v4}/24 dev eth0\naddr replace {v6}/64 dev eth0 nodad'
                rdma link show rxe0/1 >/dev/null 2>&1 || {{ modprobe rdma_rxe; rdma link add rxe0 type rxe netdev eth0; }}
                {ACTIVE}
                ",
                v4 = self.underlay_v4(),
                v6 = self.underlay_v6(),
            );
        }
        self.ok(&script);
    }

    /// Reloads the driver of its InfiniBand port, with `parameters`. `ib_ipoib` and the connection manager are not
    /// loaded afterwards, and the kernel's log is empty: `rdma_rxe` sometimes refuses to destroy the completion queues
    /// of an `ib_ipoib` that is unloaded, which the kernel logs as a warning.
    pub(super) fn renew_port(&self, parameters: &str) {
        self.ok(&format!(
            "
            rmmod ib_ipoib rdma_ucm rdma_cm iw_cm ib_cm 2>/dev/null
            rdma link del rxe0 2>/dev/null
            rmmod rdma_rxe_ib 2>/dev/null
            dmesg -c >/dev/null
            set -e
            modprobe rdma_rxe_ib {parameters}
            rdma link add rxe0 type rxe netdev eth0
            {ACTIVE}
            "
        ));
    }

    /// Writes a parameter of its InfiniBand port's driver: `pkeys`, `sm_lid`.
    pub fn set_port(&self, parameter: &str, value: &str) {
        let folder = "/sys/module/rdma_rxe_ib/parameters";
        self.ok(&format!("echo {value} >{folder}/{parameter}"));
    }

    /// Gives its InfiniBand port another LID, with [`Framing::Mgid`](super::Framing::Mgid) only.
    pub fn change_lid(&self, lid: usize) {
        // The neighbours find the LID at its address.
        let address = super::gid_of(lid);
        self.ok(&format!("ip addr add {address}/64 dev eth0 nodad"));
        self.set_port("lid", &format!("\"rxe0 {lid}\""));
        self.port_event(super::LID_CHANGE);
    }

    /// Causes an asynchronous event of its InfiniBand port.
    pub fn port_event(&self, event: u32) {
        self.set_port("event", &format!("\"rxe0 {event}\""));
    }

    /// Runs a test program, with arguments. All its tests must pass, and none may skip itself; returns their number.
    pub fn passes(&self, program: &str, limit: Duration) -> usize {
        let run = format!("RUST_BACKTRACE=0 {program} --test-threads 1 --show-output");
        let done = self.run_for(&run, limit);
        // The output has the reasons of skipped tests.
        eprint!("{}", done.err);
        // What failed tests printed, if a test has failed.
        let failures = done.out.split("\nfailures:\n").nth(1);
        let failures = failures.unwrap_or(&done.out);
        assert_eq!(done.code, Some(0), "{program}: {failures}");
        let skips = [&done.out, &done.err].map(|text| text.contains("SKIPPED"));
        assert_eq!(
            skips, [false; 2],
            "{program} leaves out tests: {}",
            done.out
        );
        done.out.matches("... ok").count()
    }

    fn exec(&self, script: &str, limit: Duration) -> Command {
        let limit = limit.as_secs().to_string();
        let mut command = self::script("rxe-guest");
        command.args(["exec", &self.name, "--limit", &limit, script]);
        command
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
        let output = self
            .scratch
            .join(format!("machine{}-{number}", self.number));
        let what = format!("{}: {script}", self.name());
        Running::start(self.exec(script, Duration::from_secs(3600)), output, what)
    }

    fn program(&self, name: &str) -> String {
        format!("/host/{name}")
    }

    fn socket(&self) -> String {
        "/run/ibtapd.sock".to_owned()
    }
}

/// The next try may have the same name.
impl Drop for Machine {
    fn drop(&mut self) {
        let _ = script("rxe-guest").args(["stop", &self.name]).status();
    }
}

/// A script of the project, which ends with this process.
pub(super) fn script(name: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "TERM"]).arg(
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("scripts")
            .join(name),
    );
    command
}
