//! A named network namespace; dropping it removes it.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::sweep::Sweep;

/// A network namespace named after this process and a number.
pub struct Namespace {
    name: String,
    _sweep: Sweep,
}

impl Namespace {
    /// Creates a namespace with `lo` up.
    pub fn create() -> Namespace {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Namespace::called(&format!("ibt{}-{number}", std::process::id()))
    }

    /// Creates a namespace with a name that no other test uses meanwhile.
    pub fn called(name: &str) -> Namespace {
        let namespace = Namespace {
            name: name.to_owned(),
            _sweep: Sweep::register(&format!("ip netns del {name}")),
        };
        ip(&["netns", "add", &namespace.name]);
        namespace.ip("link set lo up");
        namespace
    }

    /// Its name in `ip netns`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs `ip` in it.
    pub fn ip(&self, words: &str) {
        let mut all = vec!["-n", &self.name];
        all.extend(words.split_whitespace());
        ip(&all);
    }

    /// Runs a closure in the namespace on a separate thread. Sockets created there stay there.
    pub fn within<T: Send>(&self, run: impl FnOnce() -> T + Send) -> T {
        let file = File::open(Path::new("/run/netns").join(&self.name)).expect("the namespace");
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
                    .expect("root may enter a namespace");
                run()
            });
            match thread.join() {
                Ok(value) => value,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // Printed, not asserted: a panic while a test's panic unwinds would abort the whole run.
        match Command::new("ip")
            .args(["netns", "del", &self.name])
            .status()
        {
            Ok(status) if status.success() => {}
            other => eprintln!("cannot remove the namespace {}: {other:?}", self.name),
        }
    }
}

fn ip(words: &[&str]) {
    let done = Command::new("ip")
        .args(words)
        .output()
        .expect("iproute2 is installed");
    assert!(
        done.status.success(),
        "ip {}: {}",
        words.join(" "),
        String::from_utf8_lossy(&done.stderr)
    );
}
