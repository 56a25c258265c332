//! Findings of checks, and their output.

use std::fmt::Write;

use control::output::printable_lines;
use serde::Serialize;

/// Severity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// No fault.
    Ok,
    /// Useful information.
    Note,
    /// A problem or a risk.
    Warn,
    /// A fault that keeps ibtap from working.
    Fail,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The check, such as `underlay`.
    pub check: &'static str,
    /// The severity.
    pub level: Level,
    /// The subject: an interface, a file, a process.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subject: String,
    /// The observation.
    pub found: String,
    /// The remedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl Finding {
    /// A finding without advice.
    pub fn new(
        check: &'static str,
        level: Level,
        subject: impl Into<String>,
        found: impl Into<String>,
    ) -> Finding {
        Finding {
            check,
            level,
            subject: subject.into(),
            found: found.into(),
            advice: None,
        }
    }

    /// Adds advice.
    pub fn advise(mut self, advice: impl Into<String>) -> Finding {
        self.advice = Some(advice.into());
        self
    }

    /// Adds the network namespace of the subject, in which the advice applies.
    pub fn happens_in(&mut self, netns: &str) {
        self.subject = format!("{netns}/{}", self.subject);
        if let Some(advice) = &mut self.advice {
            *advice = format!("in the network namespace {netns}: {advice}");
        }
    }
}

/// Whether a fault keeps ibtap from working.
pub fn any_failed(findings: &[Finding]) -> bool {
    findings.iter().any(|f| f.level == Level::Fail)
}

/// A line for each finding, and a line for its advice. Names cannot control the terminal.
pub fn text(findings: &[Finding], colour: bool) -> String {
    let mut text = String::new();
    for f in findings {
        let (word, code) = match f.level {
            Level::Ok => ("ok", "32"),
            Level::Note => ("note", "36"),
            Level::Warn => ("warn", "33"),
            Level::Fail => ("FAIL", "31;1"),
        };
        let word = format!("{word:<4}");
        let word = if colour {
            format!("\x1b[{code}m{word}\x1b[m")
        } else {
            word
        };
        let space = if f.subject.is_empty() { "" } else { " " };
        let (subject, found) = (printable_lines(&f.subject), printable_lines(&f.found));
        // Writing to a String does not fail.
        let _ = writeln!(text, "{word}  {}{space}{subject}: {found}", f.check);
        if let Some(advice) = &f.advice {
            let _ = writeln!(text, "      -> {}", printable_lines(advice));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings() -> Vec<Finding> {
        vec![
            Finding::new("underlay", Level::Ok, "eth0", "up"),
            Finding::new("rights", Level::Warn, "", "not root").advise("sudo"),
        ]
    }

    #[test]
    fn a_line_and_what_to_do_below_it() {
        assert_eq!(
            text(&findings(), false),
            "ok    underlay eth0: up\nwarn  rights: not root\n      -> sudo\n"
        );
        let coloured = text(&findings(), true);
        assert!(
            coloured.contains("\x1b[33mwarn\x1b[m  rights"),
            "{coloured}"
        );
    }

    #[test]
    fn a_name_cannot_control_the_terminal() {
        let finding = Finding::new("interface", Level::Ok, "ib\x1b[2J", "\x1b[A").advise("\x1b[B");
        let text = text(&[finding], true);
        let expected = "\x1b[32mok  \x1b[m  interface ib?[2J: ?[A\n      -> ?[B\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn json_leaves_out_what_does_not_apply() {
        let json = serde_json::to_value(findings()).unwrap();
        assert_eq!(json[0]["level"], "ok");
        assert!(json[0].get("advice").is_none());
        assert!(json[1].get("subject").is_none());
    }

    #[test]
    fn advice_is_to_be_followed_where_the_subject_is() {
        let mut finding =
            Finding::new("host", Level::Fail, "ib0", "it is down").advise("ip link set ib0 up");
        finding.happens_in("blue");
        assert_eq!(
            text(&[finding], false),
            "FAIL  host blue/ib0: it is down\n      -> in the network namespace blue: ip link set \
             ib0 up\n"
        );
    }

    #[test]
    fn only_a_failure_fails() {
        let mut all = findings();
        assert!(!any_failed(&all));
        all[0].level = Level::Fail;
        assert!(any_failed(&all));
    }
}
