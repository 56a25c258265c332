//! The log: one line for each record, to stderr.
//!
//! Under systemd a line starts with its priority, `<6>` for info (sd-daemon(3)), and the journal adds the time.
//! Otherwise it starts with the time (UTC) and the level:
//!
//! ```text
//! 2026-11-20T14:00:57.123Z INFO ibtapd::device: ib0 joined ff12:401b:ffff::ffff:ffff qpn=0x000012
//! ```

use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use log::{Level, LevelFilter, Log, Metadata, Record};

use crate::api::LogLevel;
use crate::output::printable_lines;

/// The start of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    /// Priority, for the journal.
    Journal,
    /// Time and level.
    Plain,
}

/// The style of this process.
static STYLE: OnceLock<Style> = OnceLock::new();

struct Stderr {
    style: Style,
}

/// Room for a line of [`warn_in_signal_handler`], in bytes.
const SIGNAL_LINE: usize = 256;

impl Log for Stderr {
    /// All records: [`log::max_level`] has filtered them.
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let line = Line {
            style: self.style,
            time: SystemTime::now(),
            record,
        };
        // One write, so that lines of threads do not mix. A failure cannot be reported.
        let _ = std::io::stderr().write_all(line.to_string().as_bytes());
    }

    fn flush(&self) {}
}

/// Starts logging to stderr, with `level`. Later calls only set the level.
pub fn init(level: LogLevel) {
    let style = style();
    // Fails if a logger is set; that logger stays.
    let _ = log::set_boxed_logger(Box::new(Stderr { style }));
    set_level(level);
}

/// Writes the error that ends `program`, also before [`init`]. Under systemd the journal gets it with the priority of
/// errors. On a terminal, names in the error cannot control the terminal.
pub fn report_end(program: &str, error: &dyn fmt::Display) {
    let text = end_line(style(), program, error);
    let _ = std::io::stderr().write_all(text.as_bytes());
}

fn end_line(style: Style, program: &str, error: &dyn fmt::Display) -> String {
    match style {
        Style::Journal => Line {
            style,
            time: SystemTime::now(),
            record: &Record::builder()
                .level(Level::Error)
                .target(program)
                .args(format_args!("{error}"))
                .build(),
        }
        .to_string(),
        Style::Plain => format!("{program}: {}\n", printable_lines(&error.to_string())),
    }
}

fn style() -> Style {
    *STYLE.get_or_init(|| {
        if stderr_is_journal() {
            Style::Journal
        } else {
            Style::Plain
        }
    })
}

/// Writes a warning without memory and locks, so that a signal handler may call it. A long line is cut. Does nothing
/// before [`init`].
pub fn warn_in_signal_handler(target: &str, args: fmt::Arguments<'_>) {
    let Some(style) = STYLE.get() else { return };
    let record = Record::builder()
        .level(Level::Warn)
        .target(target)
        .args(args)
        .build();
    let line = Line {
        style: *style,
        time: SystemTime::now(),
        record: &record,
    };
    let mut room = [0; SIGNAL_LINE];
    let mut rest = &mut room[..];
    // An error means that the line is longer than the room.
    let _ = write!(rest, "{line}");
    let used = SIGNAL_LINE - rest.len();
    if let Some(last) = room[..used].last_mut() {
        *last = b'\n';
    }
    // Not std's `write`: it takes a lock, which the interrupted code may hold.
    let _ = rustix::io::write(std::io::stderr(), &room[..used]);
}

/// Sets the level, for all threads.
pub fn set_level(level: LogLevel) {
    log::set_max_level(level.into());
}

/// The current level.
pub fn level() -> LogLevel {
    match log::max_level() {
        LevelFilter::Off | LevelFilter::Error => LogLevel::Error,
        LevelFilter::Warn => LogLevel::Warn,
        LevelFilter::Info => LogLevel::Info,
        LevelFilter::Debug => LogLevel::Debug,
        LevelFilter::Trace => LogLevel::Trace,
    }
}

/// Whether stderr is the stream in `$JOURNAL_STREAM`, which systemd sets. A process with redirected stderr
/// inherits the variable, too.
fn stderr_is_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else {
        return false;
    };
    rustix::fs::fstat(std::io::stderr())
        .is_ok_and(|stat| stream == format!("{}:{}", stat.st_dev, stat.st_ino))
}

struct Line<'a> {
    style: Style,
    time: SystemTime,
    record: &'a Record<'a>,
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = self.record.level();
        match self.style {
            Style::Journal => write!(f, "<{}>", priority(level))?,
            Style::Plain => write!(f, "{} {level} ", Utc(self.time))?,
        }
        write!(f, "{}: ", self.record.target())?;
        // Text from the network or from a file must not forge a second line.
        write!(OneLine(f), "{}", self.record.args())?;
        f.write_char('\n')
    }
}

/// The priorities of syslog(3).
fn priority(level: Level) -> u8 {
    match level {
        Level::Error => 3,
        Level::Warn => 4,
        Level::Info => 6,
        Level::Debug | Level::Trace => 7,
    }
}

/// Writes control characters as escapes.
struct OneLine<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl fmt::Write for OneLine<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            if c.is_control() {
                write!(self.0, "{}", c.escape_default())?;
            } else {
                self.0.write_char(c)?;
            }
        }
        Ok(())
    }
}

/// A time in the format of RFC 3339, with milliseconds.
pub struct Utc(
    /// The time.
    pub SystemTime,
);

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since = self.0.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let seconds = since.as_secs();
        let (year, month, day) = civil_date(seconds / 86400);
        let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
        let milli = since.subsec_millis();
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z"
        )
    }
}

/// Year, month and day of a day counted from 1970-01-01, in the Gregorian calendar. Calculates with years that
/// begin in March, so that the leap day is the last day.
fn civil_date(day: u64) -> (u64, u64, u64) {
    let day = day + 719_468; // from 0000-03-01
    let (era, day) = (day / 146_097, day % 146_097); // of 400 years
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let march_month = (5 * day + 2) / 153;
    let day = day - (153 * march_month + 2) / 5 + 1;
    let (month, carry) = if march_month < 10 {
        (march_month + 3, 0)
    } else {
        (march_month - 9, 1)
    };
    (era * 400 + year + carry, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(style: Style, level: Level, args: fmt::Arguments<'_>) -> String {
        let record = Record::builder()
            .level(level)
            .target("ibtap::device")
            .args(args)
            .build();
        Line {
            style,
            time: UNIX_EPOCH + Duration::from_millis(1_795_183_257_123),
            record: &record,
        }
        .to_string()
    }

    #[test]
    fn plain_lines_carry_time_and_level() {
        assert_eq!(
            line(Style::Plain, Level::Info, format_args!("up carrier=on")),
            "2026-11-20T14:00:57.123Z INFO ibtap::device: up carrier=on\n"
        );
    }

    #[test]
    fn the_error_that_ends_a_program_has_its_priority_in_the_journal() {
        let error = "/etc/ibtap/x.toml: unknown key\n<7>y";
        assert_eq!(
            end_line(Style::Journal, "ibtapd", &error),
            "<3>ibtapd: /etc/ibtap/x.toml: unknown key\\n<7>y\n"
        );
        let on_terminal = end_line(Style::Plain, "ibtapd", &"process 7 (a\x1b[2J)\nline 2");
        assert_eq!(on_terminal, "ibtapd: process 7 (a?[2J)\nline 2\n");
    }

    #[test]
    fn journal_lines_carry_the_priority() {
        let expected = [
            (Level::Error, "<3>ibtap::device: x\n"),
            (Level::Warn, "<4>ibtap::device: x\n"),
            (Level::Info, "<6>ibtap::device: x\n"),
            (Level::Debug, "<7>ibtap::device: x\n"),
        ];
        for (level, text) in expected {
            assert_eq!(line(Style::Journal, level, format_args!("x")), text);
        }
    }

    #[test]
    fn a_record_is_one_line_whatever_it_holds() {
        let forged = "a\n<3>ibtapd: b\r\x1b[31m";
        let text = line(Style::Journal, Level::Info, format_args!("{forged}"));
        assert_eq!(text, "<6>ibtap::device: a\\n<3>ibtapd: b\\r\\u{1b}[31m\n");
    }

    #[test]
    fn dates_across_leap_years() {
        assert_eq!(civil_date(0), (1970, 1, 1));
        assert_eq!(civil_date(11_016), (2000, 2, 29));
        assert_eq!(civil_date(11_017), (2000, 3, 1));
        assert_eq!(civil_date(19_723), (2024, 1, 1));
        assert_eq!(civil_date(47_540), (2100, 2, 28));
        assert_eq!(civil_date(47_541), (2100, 3, 1));
    }

    #[test]
    fn the_level_changes_while_running() {
        set_level(LogLevel::Trace);
        assert_eq!(level(), LogLevel::Trace);
        set_level(LogLevel::Warn);
        assert_eq!(level(), LogLevel::Warn);
    }
}
