//! The RDMA devices of the environment variable.

use std::fs;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::lab::End;

/// Names of the devices: `rxe0`, `mlx5_0/2`, or two separated by a comma.
const VARIABLE: &str = "IBTAP_SUITE_DEVICE";

/// Only one test at a time has the devices.
static TAKEN: Mutex<()> = Mutex::new(());

/// The devices. Dropping restores them, with the interface's link up.
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
    /// The interface of the device.
    interface: String,
    mtu: String,
}

impl Devices {
    /// The devices of the environment variable; waits until no other test has them.
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

    /// Whether both ends are on one device.
    pub fn is_one(&self) -> bool {
        self.a.name == self.b.name
    }

    /// Runs `ip`; `u0` is replaced by the name of the interface at an end.
    pub fn ip(&self, end: End, words: &str) {
        let interface = self.device(end).interface.as_str();
        let word = |w| if w == "u0" { interface } else { w };
        run("ip", &words.split(' ').map(word).collect::<Vec<_>>());
    }

    /// Whether the devices can be deleted and created again.
    pub fn are_software(&self) -> bool {
        [&self.a, &self.b].iter().all(|d| d.is_software())
    }

    fn all(&self) -> impl Iterator<Item = &Device> {
        let second = (!self.is_one()).then_some(&self.b);
        std::iter::once(&self.a).chain(second)
    }

    /// Deletes the devices as soon as nobody has them open.
    pub fn unplug(&self) {
        let mut leaving = self.leaving.lock().unwrap_or_else(PoisonError::into_inner);
        leaving.extend(self.all().map(|device| {
            let mut rdma = Command::new("rdma");
            rdma.args(["link", "del", &device.name]);
            rdma.spawn().expect("iproute2 is installed")
        }));
    }

    /// Whether the devices are deleted.
    pub fn are_gone(&self) -> bool {
        let mut leaving = self.leaving.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = leaving.iter_mut();
        all.all(|rdma| rdma.try_wait().expect("a child").is_some())
    }

    /// Creates the devices again.
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
            // The next test needs the device, even if this one failed.
            if !device.is_there() {
                let words = ["link", "add", &device.name, "type", "rxe", "netdev"];
                let mut rdma = Command::new("rdma");
                let _ = rdma.args(words).arg(&device.interface).status();
            }
        }
    }
}

impl Device {
    /// Panics with a message if there is no such device on Ethernet.
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

    /// `rdma_rxe` and siw report their underlying interface.
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
    let error = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{program} {words:?}: {error}");
}
