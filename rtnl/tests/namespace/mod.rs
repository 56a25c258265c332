//! A fresh network namespace for a test.

use std::process::Command;
use std::thread;

use rustix::thread::UnshareFlags;

/// Runs `test` on a thread of its own in a network namespace of its own, which is gone when the
/// thread and what it opened are. Needs root, or a user namespace with CAP_NET_ADMIN.
pub fn in_namespace(test: impl FnOnce() + Send + 'static) {
    let thread = thread::spawn(|| {
        // SAFETY: there is no safe wrapper, because some flags leave a thread without the file
        // descriptors that others count on; NEWNET alone touches nothing that Rust relies on.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }
            .expect("a network namespace needs root");
        test();
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Runs a command in the namespace; its output.
pub fn run(command: &str) -> String {
    let mut words = command.split_whitespace();
    let output = Command::new(words.next().expect("a command"))
        .args(words)
        .output()
        .expect(command);
    assert!(output.status.success(), "{command}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
