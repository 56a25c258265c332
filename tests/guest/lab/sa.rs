//! The scripted subnet administrator of a subnet (`tests/guest/ib/sa`): its control socket, and its log, by which tests
//! judge memberships.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::machine::script;
use super::{Running, SOON, eventually};

/// A running subnet administrator.
pub struct Sa {
    _process: Running,
    socket: PathBuf,
    log: PathBuf,
}

impl Sa {
    /// Starts it in a namespace that has a port: `br0`, or another with options that name it.
    pub(super) fn start(namespace: &str, options: &str, scratch: &Path) -> Sa {
        let socket = scratch.join(format!("{namespace}.sa"));
        let log = scratch.join(format!("{namespace}.sa.log"));
        // Either may be left of the one before.
        let _ = std::fs::remove_file(&socket);
        let _ = std::fs::remove_file(&log);
        let mut command = script("ib-guest");
        command
            .args(["sa", namespace, "--log"])
            .arg(&log)
            .arg("--control")
            .arg(&socket)
            .args(options.split_whitespace());
        let output = scratch.join(format!("{namespace}.sa.out"));
        let mut process = Running::start(command, output, format!("the SA {options}"));
        eventually(SOON, "the SA", || {
            assert!(process.is_running(), "{}", process.output());
            UnixStream::connect(&socket).ok()
        });
        Sa {
            _process: process,
            socket,
            log,
        }
    }

    /// Sends a request to the control socket; returns the answer.
    pub fn ask(&self, request: &Value) -> Value {
        let mut stream = UnixStream::connect(&self.socket).expect("the SA listens");
        writeln!(stream, "{request}").expect("the SA reads");
        let mut line = String::new();
        BufReader::new(stream)
            .read_line(&mut line)
            .expect("the SA answers");
        let answer: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(answer["error"], Value::Null, "{request}: {answer}");
        answer
    }

    /// Adds a rule for requests (`script.py`).
    pub fn rule(&self, rule: &Value) {
        self.ask(&json!({"do": "rule", "rule": rule}));
    }

    /// Removes all rules.
    pub fn clear(&self) {
        self.ask(&json!({"do": "clear"}));
    }

    /// Forgets all groups; later MLIDs begin with `mlid`.
    pub fn restart(&self, mlid: u16) {
        self.ask(&json!({"do": "restart", "mlid": mlid}));
    }

    /// The log so far. The last line may be incomplete.
    pub fn log(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.log).expect("the log");
        let complete = text.rsplit_once('\n').map_or("", |(complete, _)| complete);
        let lines = complete.lines().map(serde_json::from_str);
        lines.map(|line| line.expect("JSON")).collect()
    }

    /// Requests of a port for an attribute, by a method.
    pub fn requests(&self, lid: usize, method: &str, attribute: &str) -> Vec<Value> {
        let mut all = self.log();
        all.retain(|r| r["lid"] == lid && r["method"] == method && r["attribute"] == attribute);
        all
    }

    /// JoinState bits of a port in a group; 0 if the port is no member, or there is no such group.
    pub fn membership(&self, gid: &str, mgid: &str) -> u64 {
        let groups = &self.ask(&json!({"do": "groups"}))["groups"];
        let group = groups.as_array().into_iter().flatten();
        let mut group = group.filter(|group| group["mgid"] == mgid);
        group
            .next()
            .and_then(|group| group["members"][gid].as_u64())
            .unwrap_or(0)
    }
}
