//! Two network namespaces with a veth pair between them, removed when dropped.

use std::fs::File;
use std::os::fd::AsFd;
use std::process::{Command, id};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

static COUNT: AtomicU32 = AtomicU32::new(0);

/// A namespace made by `ip netns add`.
pub struct Namespace {
    name: String,
}

impl Namespace {
    fn new() -> Namespace {
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("soft-{}-{n}", id());
        ip(&["netns", "add", &name]);
        let ns = Namespace { name };
        // Disables duplicate address detection, so addresses are usable at once.
        ns.run(|| std::fs::write("/proc/sys/net/ipv6/conf/default/accept_dad", "0").unwrap());
        ns.ip(&["link", "set", "lo", "up"]);
        ns
    }

    /// Runs `ip` in the namespace.
    pub fn ip(&self, args: &[&str]) {
        ip(&[&["-n", &self.name], args].concat());
    }

    /// Runs another program in the namespace; `args` are split at spaces.
    pub fn tool(&self, program: &str, args: &str) {
        let args: Vec<&str> = args.split(' ').collect();
        ip(&[&["netns", "exec", &self.name, program], &args[..]].concat());
    }

    /// Runs `f` on a thread in the namespace.
    pub fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> T {
        let file = File::open(format!("/run/netns/{}", self.name)).unwrap();
        thread::scope(|s| {
            s.spawn(|| {
                move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
                f()
            })
            .join()
            .unwrap_or_else(|e| std::panic::resume_unwind(e))
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip")
            .args(["netns", "del", &self.name])
            .status();
    }
}

fn ip(args: &[&str]) {
    let out = Command::new("ip").args(args).output().unwrap();
    assert!(
        out.status.success(),
        "ip {args:?}: {}",
        String::from_utf8_lossy(&out.stderr)
    );
}

/// The two ends of a cable, both interfaces named `u0`.
pub struct Cable {
    pub a: Namespace,
    pub b: Namespace,
}

impl Cable {
    /// Creates the cable with this MTU, up, with the addresses 192.0.2.1 and .2 besides the link-local
    /// ones.
    pub fn new(mtu: u32) -> Cable {
        let (a, b) = (Namespace::new(), Namespace::new());
        let cable = Cable { a, b };
        cable.plug(mtu);
        cable
    }

    /// Creates the veth pair.
    pub fn plug(&self, mtu: u32) {
        let mtu = mtu.to_string();
        ip(&[
            "link",
            "add",
            "u0",
            "mtu",
            &mtu,
            "netns",
            &self.a.name,
            "type",
            "veth",
            "peer",
            "u0",
            "mtu",
            &mtu,
            "netns",
            &self.b.name,
        ]);
        for (ns, last) in [(&self.a, 1), (&self.b, 2)] {
            let address = format!("192.0.2.{last}/24");
            ns.ip(&["address", "add", &address, "dev", "u0"]);
            ns.ip(&["link", "set", "u0", "up"]);
        }
    }
}
