//! A ping in the background, and its gaps.

use std::collections::BTreeSet;
use std::fs::File;
use std::time::{Duration, SystemTime};

use tempfile::NamedTempFile;

use super::{Background, SOON, Station, eventually, sent};

/// A running ping(8), twenty requests a second.
pub struct Pinging {
    ping: Background,
    output: NamedTempFile,
    what: String,
}

const INTERVAL: Duration = Duration::from_millis(50);
const ANSWERS_OF_A_SECOND: usize = 20;

/// Part of ping's line about an answer.
const ANSWER: &str = "bytes from";

/// Results.
#[derive(Debug)]
pub struct Answers {
    /// Source and destination.
    pub what: String,
    /// Number of answered requests.
    pub answered: usize,
    /// Sequence numbers of requests without an answer. Requests that the kernel refused for want of a neighbour may be
    /// missing, and so are those that were under way when ping was stopped.
    pub unanswered: Vec<usize>,
    /// Longest time without an answer, between two answers or after the last.
    pub longest_gap: Duration,
}

impl Answers {
    /// Checks that nearly every request was answered.
    pub fn lost_at_most(&self, limit: usize) {
        let lost = self.unanswered.len();
        assert!(lost <= limit, "{}: lost {lost}: {self:?}", self.what);
        assert!(self.answered > 10, "{}: too short: {self:?}", self.what);
    }

    /// Checks that no gap was as long as this.
    pub fn gap_below(&self, limit: Duration) {
        assert!(self.longest_gap < limit, "{}: {self:?}", self.what);
        assert!(self.answered > 10, "{}: too short: {self:?}", self.what);
    }
}

impl Pinging {
    /// Starts a ping; [`Station::pings`] must have succeeded before.
    pub fn start(from: &Station, address: &str) -> Pinging {
        let output = NamedTempFile::new().expect("a scratch file");
        let out = File::create(output.path()).expect("a scratch file");
        let words = format!("ping -n -D -i {} -W 1 {address}", INTERVAL.as_secs_f32());
        Pinging {
            ping: from.spawn_to(&words, out.into()),
            output,
            what: format!("{} to {address}", from.name()),
        }
    }

    /// Waits for answers during another second; [`Answers::gap_below`] checks the gaps before.
    pub fn goes_on(&self) {
        Pinging::all_go_on(std::slice::from_ref(self));
    }

    /// The same for several pings during the same second.
    pub fn all_go_on(pings: &[Pinging]) {
        let before: Vec<usize> = pings.iter().map(Pinging::answers).collect();
        for (ping, before) in pings.iter().zip(before) {
            eventually(SOON, &format!("{}: answers", ping.what), || {
                (ping.answers() >= before + ANSWERS_OF_A_SECOND).then_some(())
            });
        }
    }

    fn answers(&self) -> usize {
        let output = std::fs::read_to_string(self.output.path()).expect("what it output");
        output.matches(ANSWER).count()
    }

    /// Ends the ping with SIGINT.
    pub fn stop(self) -> Answers {
        self.ping.interrupt();
        let ended = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .expect("after 1970");
        let output = std::fs::read_to_string(self.output.path()).expect("what it output");
        read(self.what, &output, ended)
    }
}

/// An answer may take this long, when it is still awaited as ping is stopped.
const UNDER_WAY: f64 = 1.0;

/// Parses lines "[1700000000.123456] 64 bytes from 10.9.0.1: icmp_seq=1 ttl=64 time=0.2 ms" and the last one
/// ([`sent`]).
fn read(what: String, output: &str, ended: Duration) -> Answers {
    let lines: Vec<(f64, usize)> = output
        .lines()
        .filter(|line| line.contains(ANSWER) && !line.contains("DUP!"))
        .filter_map(|line| {
            let (time, rest) = line.strip_prefix('[')?.split_once(']')?;
            let (_, number) = rest.split_once("icmp_seq=")?;
            let number = number.split_whitespace().next()?;
            Some((time.parse().ok()?, number.parse().ok()?))
        })
        .collect();
    let mut times: Vec<f64> = lines.iter().map(|(time, _)| *time).collect();
    let numbers: BTreeSet<usize> = lines.iter().map(|(_, number)| *number).collect();
    let ended = ended.as_secs_f64();
    let last = match (times.last(), numbers.last()) {
        (Some(time), Some(highest)) if ended - time < UNDER_WAY => *highest,
        _ => sent(output),
    };
    times.push(ended);
    let longest = times
        .windows(2)
        .map(|pair| pair[1] - pair[0])
        .fold(0.0, f64::max);
    let unanswered = (1..=last).filter(|number| !numbers.contains(number));
    Answers {
        what,
        answered: lines.len(),
        unanswered: unanswered.collect(),
        longest_gap: Duration::from_secs_f64(longest),
    }
}
