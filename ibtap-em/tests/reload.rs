//! SIGHUP reads the configuration again.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// Ends with the test.
struct Manager(Child);

impl Drop for Manager {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn each_reload_names_the_values_that_need_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ibtap-em.toml");
    let write = |suffix: &str| {
        let path = |name: &str| folder.path().join(format!("{name}{suffix}"));
        let (socket, state, ibtapd) = (path("socket"), path("state"), folder.path().join("none"));
        let text = format!(
            "[em]\nsocket = {socket:?}\nstate_dir = {state:?}\nibtapd_socket = {ibtapd:?}\n"
        );
        fs::write(&file, text).unwrap();
    };
    write("");
    let manager = Command::new(env!("CARGO_BIN_EXE_ibtap-em"))
        .args(["run", "--config"])
        .arg(&file)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut manager = Manager(manager);
    let pid = Pid::from_child(&manager.0);
    let mut log = BufReader::new(manager.0.stderr.take().unwrap()).lines();
    let mut until = |end: &str| {
        let mut lines = Vec::new();
        while !lines.last().is_some_and(|line: &String| line.contains(end)) {
            lines.push(log.next().expect("the log goes on").unwrap());
        }
        lines.join("\n")
    };
    until("cannot reach ibtapd");
    write("2");
    for _ in 0..2 {
        kill_process(pid, Signal::HUP).unwrap();
        let lines = until(": reloaded");
        for value in ["socket", "state_dir"] {
            let warning = format!("{value} not reloaded: restart ibtap-em to change it");
            assert!(lines.contains(&warning), "{lines}");
        }
    }
    write("");
    kill_process(pid, Signal::HUP).unwrap();
    let lines = until(": reloaded");
    assert!(!lines.contains("not reloaded"), "{lines}");
}
