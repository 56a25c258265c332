//! Events and echo answers, one line each.

use control::api::{EchoAnswer, Event, PingReply, PingSummary};

use super::qualified;

/// `ibtap monitor`: time of day (UTC), subject, event.
pub fn event(event: &Event) -> String {
    let time = event.time.split_once('T').map_or(&*event.time, |(_, t)| t);
    let interface = event.interface.as_deref();
    let interface = interface.map(|name| qualified(name, event.netns.as_deref()));
    let subject = interface.or_else(|| event.port.clone());
    let mut line = time.trim_end_matches('Z').to_owned();
    if let Some(subject) = subject {
        line += &format!(" {subject}");
    }
    line += &format!(" {}", event.what);
    if let Some(lost) = event.lost {
        line += &format!(" (after {lost} lost events)");
    }
    line.push('\n');
    line
}

/// A line of `ibtap ping`, in the format of ping(8).
pub fn ping_reply(reply: &PingReply) -> String {
    match reply {
        PingReply::Answer(answer) => ping_answer(answer),
        PingReply::Timeout(timeout) => format!("no answer: seq={}\n", timeout.sequence),
        PingReply::Summary(_) => String::new(),
    }
}

fn ping_answer(a: &EchoAnswer) -> String {
    let ips: Vec<_> = a.ips.iter().map(ToString::to_string).collect();
    let ips = if ips.is_empty() {
        String::new()
    } else {
        format!(" ({})", ips.join(", "))
    };
    format!(
        "{} bytes from {} qpn {}{ips}: seq={} time={} ms\n",
        a.bytes,
        a.gid,
        a.qpn,
        a.sequence,
        milliseconds(a.round_trip_ns)
    )
}

/// The summary of `ibtap ping`, in the format of ping(8).
pub fn ping_summary(target: &str, s: &PingSummary) -> String {
    let lost = u64::from(s.sent.saturating_sub(s.answered));
    let mut text = format!(
        "\n--- {target} echo statistics ---\n{} sent, {} answered, {}% loss",
        s.sent,
        s.answered,
        lost * 100 / u64::from(s.sent.max(1))
    );
    if s.answers > s.answered {
        text += &format!(", {} answers", s.answers);
    }
    text.push('\n');
    if s.answers > 0 {
        let [min, mean, max] = [s.min_ns, s.mean_ns, s.max_ns].map(milliseconds);
        text += &format!("rtt min/avg/max = {min}/{mean}/{max} ms\n");
    }
    text
}

fn milliseconds(ns: u64) -> String {
    let us = ns.saturating_add(500) / 1000;
    format!("{}.{:03}", us / 1000, us % 1000)
}
