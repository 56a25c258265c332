//! A fault in a restricted thread is reported and ends the process as without restrictions. Each test starts this
//! program again, because restrictions of a process last.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};
use std::thread;

use sandbox::{Confinement, Thread};

/// Set in the second process.
const CHILD: &str = "IBTAP_SANDBOX_CHILD";

/// Runs `body` in a new process, on a thread of this kind; `test` is the name of the calling test.
fn restricted(test: &str, kind: Thread, body: fn()) -> Option<Output> {
    if std::env::var_os(CHILD).is_none() {
        let program = std::env::current_exe().expect("this program");
        let mut command = Command::new(program);
        let output = command
            .args(["--exact", test, "--nocapture", "--test-threads", "1"])
            .env(CHILD, "1")
            .env_remove("RUST_BACKTRACE")
            .output();
        return Some(output.expect("it starts"));
    }
    sandbox::begin(
        false,
        Some(Confinement {
            files: &[],
            report: |args| eprintln!("report: {args}"),
        }),
    );
    let thread = thread::spawn(move || {
        sandbox::enter(kind);
        body();
    });
    // A panic ends the programs of a release.
    if thread.join().is_err() {
        std::process::abort();
    }
    std::process::exit(7);
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_panic_of_a_data_thread_is_reported_and_aborts() {
    let name = "a_panic_of_a_data_thread_is_reported_and_aborts";
    let done = restricted(name, Thread::Data, || panic!("the reason"));
    let Some(done) = done else { return };
    assert_eq!(done.status.signal(), Some(libc::SIGABRT), "{done:?}");
    assert!(text(&done).contains("the reason"), "{done:?}");
    assert!(!text(&done).contains("refused"), "{done:?}");
}

#[test]
fn an_abort_of_a_data_thread_is_an_abort() {
    let name = "an_abort_of_a_data_thread_is_an_abort";
    let done = restricted(name, Thread::Data, || std::process::abort());
    let Some(done) = done else { return };
    assert_eq!(done.status.signal(), Some(libc::SIGABRT), "{done:?}");
}

#[test]
fn a_refused_call_is_reported_once_and_the_process_continues() {
    let name = "a_refused_call_is_reported_once_and_the_process_continues";
    let done = restricted(name, Thread::Data, || {
        for _ in 0..3 {
            let opened = std::fs::File::create("/dev/null");
            assert!(opened.is_err());
        }
    });
    let Some(done) = done else { return };
    assert_eq!(done.status.code(), Some(7), "{done:?}");
    let call = format!(
        "report: refused system call {} of thread ",
        libc::SYS_openat
    );
    assert_eq!(text(&done).matches(&call).count(), 1, "{done:?}");
}
