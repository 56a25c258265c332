//! A ping that goes on while something else happens, and for how long it had no answer.

use std::fs::File;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::NamedTempFile;

use super::{Background, Station};

/// A running ping(8), twenty requests a second.
pub struct Pinging {
    ping: Background,
    said: NamedTempFile,
}

/// What it saw.
#[derive(Debug)]
pub struct Answers {
    /// Requests sent.
    pub sent: usize,
    /// Requests that were answered.
    pub answered: usize,
    /// The longest time between two answers.
    pub longest_gap: Duration,
}

impl Answers {
    /// Requests without an answer.
    pub fn lost(&self) -> usize {
        self.sent.saturating_sub(self.answered)
    }
}

impl Pinging {
    /// Starts it; the first answer must have been seen before, by [`Station::pings`].
    pub fn start(from: &Station, address: &str) -> Pinging {
        let said = NamedTempFile::new().expect("a scratch file");
        let out = File::create(said.path()).expect("a scratch file");
        let words = format!("ping -n -D -i 0.05 -W 1 {address}");
        Pinging {
            ping: from.spawn_to(&words, out.into()),
            said,
        }
    }

    /// Ends it as Ctrl-C does.
    pub fn stop(mut self) -> Answers {
        kill_process(Pid::from_child(&self.ping.0), Signal::INT).expect("a child");
        self.ping.0.wait().expect("a child");
        let said = std::fs::read_to_string(self.said.path()).expect("what it said");
        read(&said)
    }
}

/// Reads lines "[1700000000.123456] 64 bytes from 10.9.0.1: icmp_seq=1 ttl=64 time=0.2 ms" and the
/// last one, "120 packets transmitted, 118 received, …".
fn read(said: &str) -> Answers {
    let times: Vec<f64> = said
        .lines()
        .filter(|line| line.contains("bytes from") && !line.contains("DUP!"))
        .filter_map(|line| line.strip_prefix('[')?.split(']').next()?.parse().ok())
        .collect();
    let sent = said
        .lines()
        .find_map(|line| line.split(" packets transmitted").next()?.parse().ok())
        .unwrap_or_else(|| panic!("no summary: {said}"));
    let longest = times
        .windows(2)
        .map(|pair| pair[1] - pair[0])
        .fold(0.0, f64::max);
    Answers {
        sent,
        answered: times.len(),
        longest_gap: Duration::from_secs_f64(longest),
    }
}
