//! RDMA devices that the suite was given.

use std::fs;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::lab::End;

/// Names them: `rxe0`, `mlx5_0/2`, or two with a comma between them.
const VARIABLE: &str = "IBTAP_SUITE_DEVICE";

/// One test at a time has the devices.
static TAKEN: Mutex<()> = Mutex::new(());

/// See the module. On drop they are as they were: there, with the interface's link up.
pub struct Devices {
    a: Device,
    b: Device,
    /// Deletions that wait until nobody has the device open.
    leaving: Mutex<Vec<Child>>,
    _alone: MutexGuard<'static, ()>,
}

struct Device {
    name: String,
    port: u8,
    /// The interface under it.
    interface: String,
    mtu: String,
}

impl Devices {
    /// Those of the environment variable; waits until no other test has them.
    pub fn asked_for() -> Option<Devices> {
        let text = std::env::var(VARIABLE).ok().filter(|t| !t.is_empty())?;
        let alone = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        let (a, b) = text.split_once(',').unwrap_or((&text, &text));
        Some(Devices {
            a: Device::named(a.trim()),
            b: Device::named(b.trim()),
            leaving: Mutex::default(),
            _alone: alone,
        })
    }

    fn device(&self, end: End) -> &Device {
        match end {
            End::A => &self.a,
            End::B => &self.b,
        }
    }

    /// The device and the port of an end.
    pub fn at(&self, end: End) -> (&str, u8) {
        let device = self.device(end);
        (&device.name, device.port)
    }

    /// Whether both ends are on one.
    pub fn is_one(&self) -> bool {
        self.a.name == self.b.name
    }

    /// Runs `ip`, `u0` standing for the interface under an end.
    pub fn ip(&self, end: End, words: &str) {
        let interface = self.device(end).interface.as_str();
        let word = |w| if w == "u0" { interface } else { w };
        run("ip", &words.split(' ').map(word).collect::<Vec<_>>());
    }

    /// Whether they can be deleted and made again.
    pub fn are_software(&self) -> bool {
        [&self.a, &self.b].iter().all(|d| d.is_software())
    }

    fn all(&self) -> impl Iterator<Item = &Device> {
        let second = (!self.is_one()).then_some(&self.b);
        std::iter::once(&self.a).chain(second)
    }

    /// Has them deleted, which happens as soon as nobody has them open.
    pub fn unplug(&self) {
        let mut leaving = self.leaving.lock().unwrap_or_else(PoisonError::into_inner);
        leaving.extend(self.all().map(|device| {
            let mut rdma = Command::new("rdma");
            rdma.args(["link", "del", &device.name]);
            rdma.spawn().expect("iproute2 is installed")
        }));
    }

    /// Whether they are deleted.
    pub fn are_gone(&self) -> bool {
        let mut leaving = self.leaving.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = leaving.iter_mut();
        all.all(|rdma| rdma.try_wait().expect("a child").is_some())
    }

    /// Makes them again.
    pub fn plug(&self) {
        self.await_deletions();
        self.all().for_each(Device::make);
    }

    fn await_deletions(&self) {
        let mut leaving = self.leaving.lock().unwrap_or_else(PoisonError::into_inner);
        for mut rdma in leaving.drain(..) {
            let status = rdma.wait().expect("a child");
            assert!(status.success() || std::thread::panicking(), "{status}");
        }
    }
}

impl Drop for Devices {
    fn drop(&mut self) {
        self.await_deletions();
        for device in self.all() {
            let set = |words: &[&str]| {
                let _ = Command::new("ip")
                    .args(["link", "set"])
                    .args(words)
                    .status();
            };
            set(&[&device.interface, "mtu", &device.mtu]);
            set(&[&device.interface, "up"]);
            // The next test needs it, whatever became of this one.
            if !device.is_there() {
                let words = ["link", "add", &device.name, "type", "rxe", "netdev"];
                let mut rdma = Command::new("rdma");
                let _ = rdma.args(words).arg(&device.interface).status();
            }
        }
    }
}

impl Device {
    /// Panics with a sentence if there is no such device on Ethernet.
    fn named(text: &str) -> Device {
        let (name, port) = text.split_once('/').unwrap_or((text, "1"));
        let port = port.parse().expect("the number of a port");
        let base = format!("/sys/class/infiniband/{name}");
        let path = format!("{base}/ports/{port}/gid_attrs/ndevs/0");
        let interface = fs::read_to_string(&path)
            .unwrap_or_else(|e| panic!("{VARIABLE}={text}: no interface in {path}: {e}"));
        let interface = interface.trim().to_owned();
        let mtu = format!("/sys/class/net/{interface}/mtu");
        let mtu = fs::read_to_string(mtu).expect("an interface of this network namespace");
        Device {
            name: name.to_owned(),
            port,
            interface,
            mtu: mtu.trim().to_owned(),
        }
    }

    fn is_there(&self) -> bool {
        Path::new("/sys/class/infiniband").join(&self.name).exists()
    }

    /// `rdma_rxe` and siw name what they stand on.
    fn is_software(&self) -> bool {
        let parent = format!("/sys/class/infiniband/{}/parent", self.name);
        Path::new(&parent).exists()
    }

    fn make(&self) {
        let words = ["link", "add", &self.name, "type", "rxe", "netdev"];
        run("rdma", &[&words[..], &[&self.interface]].concat());
        let end = Instant::now() + Duration::from_secs(10);
        while !self.is_there() {
            assert!(Instant::now() < end, "{} does not appear", self.name);
            sleep(Duration::from_millis(10));
        }
    }
}

fn run(program: &str, words: &[&str]) {
    let out = Command::new(program).args(words).output();
    let out = out.unwrap_or_else(|e| panic!("{program} (iproute2): {e}"));
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{program} {words:?}: {said}");
}
