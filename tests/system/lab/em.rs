//! A running Ethernet Manager.

use std::path::PathBuf;
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use super::{Daemon, Done, Host, programs};

/// `ibtap-em` on a host with a running daemon. Killed when dropped.
pub struct Em {
    daemon: Option<Daemon>,
    files: [PathBuf; 3],
}

impl Em {
    /// Starts the manager with a configuration, to which a state directory of this host is added, and waits
    /// until it is ready.
    pub fn start(host: &Host, em: &str, switches: &str) -> Em {
        Em::start_as(host, "em", em, switches)
    }

    /// The same for a second manager on a host, with the same daemon.
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

    /// Starts the manager with the present configuration and state.
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

    /// Ends the manager by a signal.
    pub fn end_by(&mut self, signal: Signal) {
        let mut daemon = self.daemon.take().expect("it was started");
        let status = daemon.end_by(signal);
        assert!(status.success() || signal == Signal::KILL, "{status}");
    }

    /// The log since the last start.
    pub fn log(&self) -> String {
        self.daemon.as_ref().expect("it was started").log()
    }

    /// Writes another configuration, without a reload.
    pub fn reconfigure(&self, change: impl FnOnce(&str) -> String) {
        let config = &self.files[0];
        let text = std::fs::read_to_string(config).expect("the configuration");
        std::fs::write(config, change(&text)).expect("written");
    }

    /// Makes the manager read the configuration again.
    pub fn reload(&self) {
        let pid = self.daemon.as_ref().expect("it was started").pid();
        let pid = rustix::process::Pid::from_raw(pid as i32).expect("a process id");
        rustix::process::kill_process(pid, Signal::HUP).expect("it is alive");
    }

    /// Runs a command of `ibtap-em`.
    pub fn run(&self, words: &str) -> Done {
        let mut command = Command::new(programs::ibtap_em());
        command
            .arg("--em-socket")
            .arg(&self.files[1])
            .args(words.split_whitespace());
        Done::of(&mut command)
    }

    /// Runs a command with `--json`, which must succeed and print an array of objects.
    pub fn ask(&self, words: &str) -> Vec<Value> {
        let done = self.run(&format!("--json {words}"));
        assert!(done.code == Some(0), "ibtap-em {words}: {done:?}");
        match serde_json::from_str(&done.out) {
            Ok(Value::Array(objects)) => objects,
            other => panic!("ibtap-em --json {words}: not an array: {other:?}"),
        }
    }
}
