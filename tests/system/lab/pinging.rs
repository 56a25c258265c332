//! A ping that goes on while something else happens, and for how long it had no answer.

use std::fs::File;
use std::time::{Duration, SystemTime};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::NamedTempFile;

use super::{Background, SOON, Station, eventually};

/// A running ping(8), twenty requests a second.
pub struct Pinging {
    ping: Background,
    said: NamedTempFile,
    what: String,
}

const INTERVAL: Duration = Duration::from_millis(50);
const ANSWERS_OF_A_SECOND: usize = 20;

/// What ping says of each answer.
const ANSWER: &str = "bytes from";

/// What it saw.
#[derive(Debug)]
pub struct Answers {
    /// Who pinged whom.
    pub what: String,
    /// Requests sent. Those that the kernel refused for want of a neighbour are not all among them.
    pub sent: usize,
    /// Requests that were answered.
    pub answered: usize,
    /// The longest time without an answer, between two of them or after the last.
    pub longest_gap: Duration,
}

impl Answers {
    /// Checks that nearly every request was answered.
    pub fn lost_at_most(&self, limit: usize) {
        let lost = self.sent.saturating_sub(self.answered);
        assert!(lost <= limit, "{}: lost {lost}: {self:?}", self.what);
        assert!(self.answered > 10, "{}: too short: {self:?}", self.what);
    }

    /// Checks that answers never stayed away for so long.
    pub fn gap_below(&self, limit: Duration) {
        assert!(self.longest_gap < limit, "{}: {self:?}", self.what);
        assert!(self.answered > 10, "{}: too short: {self:?}", self.what);
    }
}

impl Pinging {
    /// Starts it; the first answer must have been seen before, by [`Station::pings`].
    pub fn start(from: &Station, address: &str) -> Pinging {
        let said = NamedTempFile::new().expect("a scratch file");
        let out = File::create(said.path()).expect("a scratch file");
        let words = format!("ping -n -D -i {} -W 1 {address}", INTERVAL.as_secs_f32());
        Pinging {
            ping: from.spawn_to(&words, out.into()),
            said,
            what: format!("{} to {address}", from.name()),
        }
    }

    /// Waits until answers have come for another second; how long they stayed away before is for
    /// [`Answers::gap_below`] to tell.
    pub fn goes_on(&self) {
        let before = self.answers();
        eventually(SOON, &format!("{}: answers", self.what), || {
            (self.answers() >= before + ANSWERS_OF_A_SECOND).then_some(())
        });
    }

    fn answers(&self) -> usize {
        let said = std::fs::read_to_string(self.said.path()).expect("what it said");
        said.matches(ANSWER).count()
    }

    /// Ends it as Ctrl-C does.
    pub fn stop(mut self) -> Answers {
        kill_process(Pid::from_child(&self.ping.0), Signal::INT).expect("a child");
        self.ping.0.wait().expect("a child");
        let ended = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .expect("after 1970");
        let said = std::fs::read_to_string(self.said.path()).expect("what it said");
        read(self.what, &said, ended)
    }
}

/// Reads lines "[1700000000.123456] 64 bytes from 10.9.0.1: icmp_seq=1 ttl=64 time=0.2 ms" and the
/// last one, "120 packets transmitted, 118 received, …".
fn read(what: String, said: &str, ended: Duration) -> Answers {
    let mut times: Vec<f64> = said
        .lines()
        .filter(|line| line.contains(ANSWER) && !line.contains("DUP!"))
        .filter_map(|line| line.strip_prefix('[')?.split(']').next()?.parse().ok())
        .collect();
    let answered = times.len();
    times.push(ended.as_secs_f64());
    let sent = said
        .lines()
        .find_map(|line| line.split(" packets transmitted").next()?.parse().ok())
        .unwrap_or_else(|| panic!("no summary: {said}"));
    let longest = times
        .windows(2)
        .map(|pair| pair[1] - pair[0])
        .fold(0.0, f64::max);
    Answers {
        what,
        sent,
        answered,
        longest_gap: Duration::from_secs_f64(longest),
    }
}
