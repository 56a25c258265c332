//! A running Ethernet Manager.

use std::path::PathBuf;
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use super::{Daemon, Done, Host, programs};

/// `ibtap-em` on a host, whose daemon is running. Killed when this value goes.
pub struct Em {
    daemon: Option<Daemon>,
    files: [PathBuf; 3],
}

impl Em {
    /// Starts it with a configuration that has no state directory, which is given a place of this host's
    /// own, and waits until it is ready.
    pub fn start(host: &Host, em: &str, switches: &str) -> Em {
        Em::start_as(host, "em", em, switches)
    }

    /// The same of a second one on a host, behind the same daemon.
    pub fn start_second(host: &Host, em: &str, switches: &str) -> Em {
        Em::start_as(host, "em2", em, switches)
    }

    fn start_as(host: &Host, name: &str, em: &str, switches: &str) -> Em {
        let files = ["toml", "sock", "state"].map(|end| host.file(&format!("{name}.{end}")));
        let [config, _, state] = &files;
        let text = format!("[em]\nstate_dir = {state:?}\n{em}\n{switches}");
        std::fs::write(config, text).expect("written");
        let mut em = Em {
            daemon: None,
            files,
        };
        em.start_again(host);
        em
    }

    /// Starts it with the configuration and the state that are there.
    pub fn start_again(&mut self, host: &Host) {
        let [config, socket, _] = &self.files;
        let daemon = host.socket();
        let options = [
            "run".as_ref(),
            "--config".as_ref(),
            config.as_os_str(),
            "--socket".as_ref(),
            daemon.as_os_str(),
            "--em-socket".as_ref(),
            socket.as_os_str(),
        ];
        let started = Daemon::start_program(host, "ibtap-em", programs::ibtap_em(), &options);
        self.daemon = Some(started);
    }

    /// Ends it by a signal.
    pub fn end_by(&mut self, signal: Signal) {
        let mut daemon = self.daemon.take().expect("it was started");
        let status = daemon.end_by(signal);
        assert!(status.success() || signal == Signal::KILL, "{status}");
    }

    /// What it has logged since it was started last.
    pub fn log(&self) -> String {
        self.daemon.as_ref().expect("it was started").log()
    }

    /// Writes another configuration, which it is not told of.
    pub fn reconfigure(&self, change: impl FnOnce(&str) -> String) {
        let config = &self.files[0];
        let text = std::fs::read_to_string(config).expect("the configuration");
        std::fs::write(config, change(&text)).expect("written");
    }

    /// Has it read the configuration again.
    pub fn reload(&self) {
        let pid = self.daemon.as_ref().expect("it was started").pid();
        let pid = rustix::process::Pid::from_raw(pid as i32).expect("a process id");
        rustix::process::kill_process(pid, Signal::HUP).expect("it is alive");
    }

    /// Runs one of its commands.
    pub fn run(&self, words: &str) -> Done {
        let mut command = Command::new(programs::ibtap_em());
        command
            .arg("--em-socket")
            .arg(&self.files[1])
            .args(words.split_whitespace());
        Done::of(&mut command)
    }

    /// Runs one of its commands with `--json`, which must succeed and print an array of objects.
    pub fn ask(&self, words: &str) -> Vec<Value> {
        let done = self.run(&format!("--json {words}"));
        assert!(done.code == Some(0), "ibtap-em {words}: {done:?}");
        match serde_json::from_str(&done.out) {
            Ok(Value::Array(objects)) => objects,
            other => panic!("ibtap-em --json {words}: not an array: {other:?}"),
        }
    }
}
