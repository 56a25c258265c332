//! Commands with a stream of replies: `ibtap monitor` and `ibtap ping`.

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::time::Duration;

use control::api::{EchoAnswer, PingReply, PingRequest, PingSummary, Selection, methods};
use control::exit::{EXIT_OK, EXIT_USAGE};
use control::signals::{SIGINT, SIGTERM, Signals};
use control::{ControlClient, Next};

use crate::ask::TIMEOUT;
use crate::cli::{Milliseconds, PingArgs};
use crate::output::{Failure, Format, after, print_line};
use crate::text;

/// Prints events until Ctrl-C.
pub fn monitor(
    client: ControlClient,
    interface: Option<&str>,
    format: Format,
) -> Result<u8, Failure> {
    let interrupt = interrupt()?;
    let mut events = client.stream(methods::MONITOR, &Selection::of(interface))?;
    // The first event is the daemon's greeting. Later ones may take any time.
    let mut patience = Some(TIMEOUT);
    loop {
        match events.next(interrupt.as_fd(), patience)? {
            Next::Reply(reply) | Next::Last(reply) => {
                print_line(format, &reply.event, text::event)?;
            }
            Next::Interrupted => return Ok(EXIT_OK),
        }
        patience = None;
    }
}

/// Prints answers, and a summary at the end, at Ctrl-C, or when the reader has closed the output. Status 1 without
/// answers.
pub fn ping(client: ControlClient, args: &PingArgs, format: Format) -> Result<u8, Failure> {
    let interrupt = interrupt()?;
    let mut replies = client.stream(methods::PING, &request(args))?;
    if format == Format::Text {
        let printed = print_line(format, args, |args| {
            let (target, interface) = (&args.target, &args.interface);
            format!("PING {target} on {interface}: {} bytes\n", args.size)
        });
        after(printed, EXIT_OK)?;
    }
    let mut seen = Seen::default();
    let summary = loop {
        match replies.next(interrupt.as_fd(), Some(patience(args)))? {
            Next::Reply(reply) => {
                seen.add(&reply);
                match print_line(format, &reply, text::ping_reply) {
                    Err(Failure::Closed) => break seen.summary(),
                    printed => printed?,
                }
            }
            Next::Last(PingReply::Summary(summary)) => break summary,
            Next::Last(reply) => {
                seen.add(&reply);
                break seen.summary();
            }
            Next::Interrupted => break seen.summary(),
        }
    };
    let printed = print_line(format, &PingReply::Summary(summary), |_| {
        text::ping_summary(&args.target, &summary)
    });
    let status = match summary.answers {
        0 => EXIT_USAGE,
        _ => EXIT_OK,
    };
    after(printed, status)
}

/// The longest time between two replies: the next request, and its timeout, which the daemon reports.
fn patience(args: &PingArgs) -> Duration {
    let time = |of: Milliseconds| Duration::from_millis(of.0.into());
    time(args.interval) + time(args.timeout) + TIMEOUT
}

fn request(args: &PingArgs) -> PingRequest {
    PingRequest {
        interface: args.interface.clone(),
        target: args.target.clone(),
        count: args.count,
        size: Some(args.size),
        interval_ms: Some(args.interval.0),
        timeout_ms: Some(args.timeout.0),
    }
}

/// SIGINT and SIGTERM, which end a stream.
pub fn interrupt() -> Result<Signals, Failure> {
    catch(&[SIGINT, SIGTERM])
}

/// Catches these signals.
pub fn catch(signals: &[i32]) -> Result<Signals, Failure> {
    let caught = |e| Failure::System(format!("cannot catch signals: {e}"));
    Signals::catch(signals).map_err(caught)
}

/// Maximum number of requests that wait for answers: for a minute, each 10 ms.
const WAITING_MAX: usize = 6000;

/// Totals of the replies so far, for the summary at Ctrl-C, which the daemon does not send. Unanswered
/// requests count as sent only after their timeout.
#[derive(Debug, Default)]
struct Seen {
    tally: PingSummary,
    /// Sequence numbers of answered requests that may get another answer.
    answered: BTreeSet<u32>,
    lost: u32,
    total_ns: u128,
}

impl Seen {
    fn add(&mut self, reply: &PingReply) {
        match reply {
            PingReply::Answer(answer) => self.answer(answer),
            PingReply::Timeout(_) => self.lost += 1,
            PingReply::Summary(_) => {}
        }
    }

    fn answer(&mut self, answer: &EchoAnswer) {
        let (tally, ns) = (&mut self.tally, answer.round_trip_ns);
        // With many hosts, answers to one request arrive between those to others.
        tally.answered += u32::from(self.answered.insert(answer.sequence));
        if self.answered.len() > WAITING_MAX {
            self.answered.pop_first();
        }
        tally.min_ns = if tally.answers == 0 {
            ns
        } else {
            tally.min_ns.min(ns)
        };
        tally.max_ns = tally.max_ns.max(ns);
        tally.answers += 1;
        self.total_ns += u128::from(ns);
    }

    fn summary(&self) -> PingSummary {
        let mean = self.total_ns / u128::from(self.tally.answers.max(1));
        PingSummary {
            sent: self.tally.answered + self.lost,
            mean_ns: u64::try_from(mean).unwrap_or(u64::MAX),
            ..self.tally
        }
    }
}

#[cfg(test)]
mod tests {
    use control::api::EchoTimeout;

    use super::*;

    #[test]
    fn the_summary_of_an_interrupted_ping_counts_the_replies() {
        let mut seen = Seen::default();
        assert_eq!(seen.summary(), PingSummary::default());
        let answer = |sequence, round_trip_ns| {
            PingReply::Answer(EchoAnswer {
                sequence,
                gid: "fe80::2".parse().unwrap(),
                qpn: fabric::Qpn::new(0x12),
                ips: vec![],
                bytes: 64,
                round_trip_ns,
            })
        };
        let timeout = PingReply::Timeout(EchoTimeout { sequence: 2 });
        // Another host answers late.
        let replies = [answer(1, 300), timeout, answer(3, 200), answer(1, 100)];
        replies.iter().for_each(|reply| seen.add(reply));
        let expected = PingSummary {
            sent: 3,
            answered: 2,
            answers: 3,
            min_ns: 100,
            mean_ns: 200,
            max_ns: 300,
        };
        assert_eq!(seen.summary(), expected);
    }
}
