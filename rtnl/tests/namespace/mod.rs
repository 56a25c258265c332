//! Fresh network namespaces for a test.

#![allow(dead_code, reason = "no test file uses all of it")]

use std::fs::File;
use std::process::Command;
use std::thread;

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

/// Runs `test` on a thread of its own in a network namespace of its own, which is gone when the
/// thread and what it opened are. Needs root, or a user namespace with CAP_NET_ADMIN.
pub fn in_namespace(test: impl FnOnce() + Send + 'static) {
    let thread = thread::spawn(|| {
        enter_fresh();
        test();
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

fn enter_fresh() {
    // SAFETY: there is no safe wrapper, because some flags leave a thread without the file
    // descriptors that others count on; NEWNET alone touches nothing that Rust relies on.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }
        .expect("a network namespace needs root");
}

/// Another namespace, which lives as long as this and what was left open or moved there.
pub struct Elsewhere(pub File);

impl Elsewhere {
    pub fn new() -> Elsewhere {
        let made = thread::spawn(|| {
            enter_fresh();
            File::open("/proc/thread-self/ns/net").unwrap()
        });
        Elsewhere(made.join().unwrap())
    }

    /// Does something there, on another thread.
    pub fn visit<T: Send>(&self, ask: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let visit = scope.spawn(|| {
                move_into_link_name_space(
                    std::os::fd::AsFd::as_fd(&self.0),
                    Some(LinkNameSpaceType::Network),
                )
                .unwrap();
                ask()
            });
            match visit.join() {
                Ok(answer) => answer,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    /// Runs a command there; its output.
    pub fn run(&self, command: &str) -> String {
        self.visit(|| run(command))
    }
}

/// Runs a command in the thread's namespace; its output.
pub fn run(command: &str) -> String {
    let mut words = command.split_whitespace();
    let output = Command::new(words.next().expect("a command"))
        .args(words)
        .output()
        .expect(command);
    assert!(output.status.success(), "{command}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
