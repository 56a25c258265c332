//! Network namespaces for tests.

#![allow(dead_code, reason = "no test file uses all of it")]

use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{PoisonError, RwLock};
use std::thread;
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

/// Runs `test` on a new thread in a new network namespace. The namespace ends with the thread and its
/// descriptors. Needs root, or a user namespace with CAP_NET_ADMIN.
pub fn in_namespace(test: impl FnOnce() + Send + 'static) {
    let thread = kit::helper_thread().spawn(|| {
        enter_fresh();
        test();
    });
    let thread = thread.expect("a thread");
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

fn enter_fresh() {
    // SAFETY: there is no safe wrapper, because some flags take file descriptors away from a thread. NEWNET
    // alone changes nothing that Rust relies on.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }
        .expect("a network namespace needs root");
}

/// Another namespace. It lives as long as this value and its open descriptors.
pub struct Elsewhere(pub File);

impl Elsewhere {
    pub fn new() -> Elsewhere {
        let made = thread::spawn(|| {
            enter_fresh();
            File::open("/proc/thread-self/ns/net").unwrap()
        });
        Elsewhere(made.join().unwrap())
    }

    /// Runs `ask` in the namespace, on another thread.
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

    /// Runs a command in the namespace; returns its output.
    pub fn run(&self, command: &str) -> String {
        self.visit(|| run(command))
    }
}

/// Locked while a program starts: until it runs, its process has copies of all descriptors.
static STARTING: RwLock<()> = RwLock::new(());

/// Starts a program and does not wait for its end.
pub fn start(command: &mut Command) -> io::Result<Child> {
    let _starting = STARTING.read().unwrap_or_else(PoisonError::into_inner);
    let child = command.spawn()?;
    // The parent continues before the child's copies are closed. The child's name is set after that (kernel
    // fs/exec.c, `begin_new_exec`), and the descriptors are released a moment later, before user space.
    let path = Path::new(command.get_program());
    let name = path.file_name().unwrap_or_default().as_bytes();
    let name = &name[..name.len().min(15)];
    let comm = format!("/proc/{}/comm", child.id());
    while fs::read(&comm).is_ok_and(|comm| comm.trim_ascii_end() != name) {
        thread::yield_now();
    }
    thread::sleep(Duration::from_millis(5));
    Ok(child)
}

/// Closes descriptors for certain: no program that another test starts has copies of them.
pub fn close<T>(held: T) {
    drop(held);
    drop(STARTING.write().unwrap_or_else(PoisonError::into_inner));
}

/// Runs a command in the thread's namespace; returns its output.
pub fn run(command: &str) -> String {
    let mut words = command.split_whitespace();
    let mut program = Command::new(words.next().expect("a command"));
    program.args(words);
    let starting = STARTING.read().unwrap_or_else(PoisonError::into_inner);
    let output = program.output().expect(command);
    drop(starting);
    assert!(output.status.success(), "{command}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
