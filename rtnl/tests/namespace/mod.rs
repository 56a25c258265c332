//! Fresh network namespaces for a test.

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

/// Held while a program is being started: until it runs, its process has copies of all descriptors.
static STARTING: RwLock<()> = RwLock::new(());

/// Starts a program that goes on.
pub fn start(command: &mut Command) -> io::Result<Child> {
    let _starting = STARTING.read().unwrap_or_else(PoisonError::into_inner);
    let child = command.spawn()?;
    // The parent goes on before the descriptors are closed, and the name is set after that (kernel
    // fs/exec.c, `begin_new_exec`); they are let go of a moment later, on the way to user space.
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

/// Closes descriptors so that nobody has them any more, not even a program that another test is starting.
pub fn close<T>(held: T) {
    drop(held);
    drop(STARTING.write().unwrap_or_else(PoisonError::into_inner));
}

/// Runs a command in the thread's namespace; its output.
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
