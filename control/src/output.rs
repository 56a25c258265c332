//! What programs write for their user: text or JSON on stdout, one sentence on stderr.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

use serde::Serialize;

/// Errors of output, each a sentence.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// A value has no JSON.
    #[error("cannot write JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// Stdout takes no text.
    #[error("cannot write to stdout: {0}")]
    Stdout(io::Error),
}

/// Writes text to stdout, at once. Returns false if the reader has closed it, for example `head`: this is no error, but
/// nobody reads further text. (`print!` panics.)
///
/// # Errors
/// [`OutputError::Stdout`]
pub fn print(text: impl Display) -> Result<bool, OutputError> {
    write(&mut io::stdout().lock(), text)
}

/// Writes a line to stdout, at once. A reader that has closed it is no error.
///
/// # Errors
/// [`OutputError::Stdout`]
pub fn print_line(line: impl Display) -> Result<(), OutputError> {
    print(format_args!("{line}\n")).map(drop)
}

fn write(to: &mut impl Write, text: impl Display) -> Result<bool, OutputError> {
    match write!(to, "{text}").and_then(|()| to.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(OutputError::Stdout(error)),
    }
}

/// A value as one line of JSON, or as indented lines.
///
/// # Errors
/// [`OutputError::Json`]
pub fn json<T: Serialize + ?Sized>(value: &T, indented: bool) -> Result<String, OutputError> {
    let text = match indented {
        true => serde_json::to_string_pretty(value),
        false => serde_json::to_string(value),
    };
    Ok(text? + "\n")
}

/// Writes a sentence of a program to stderr. Without stderr, the exit status is the only report. (`eprintln!` panics.)
/// Names in the sentence cannot control the terminal.
pub fn complain(program: &str, sentence: impl Display) {
    let sentence = printable_lines(&sentence.to_string());
    let _ = writeln!(io::stderr(), "{program}: {sentence}");
}

/// Replaces what could control a terminal or change the direction of its text. The kernel allows escape
/// sequences in names of interfaces, and any host of a subnet chooses its names there.
pub fn printable(text: &str) -> String {
    text.replace(is_control, "?")
}

/// The same for a text of several lines: line feeds and tabs stay.
pub fn printable_lines(text: &str) -> String {
    text.replace(|c| is_control(c) && !matches!(c, '\n' | '\t'), "?")
}

fn is_control(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_closed_reader_is_no_error() {
        let (reader, mut writer) = io::pipe().unwrap();
        assert!(write(&mut writer, "read").unwrap());
        drop(reader);
        assert!(!write(&mut writer, "not read").unwrap());
        let mut full = std::fs::File::create("/dev/full").unwrap();
        let error = write(&mut full, "no room").unwrap_err().to_string();
        assert!(error.starts_with("cannot write to stdout: "), "{error}");
    }

    #[test]
    fn names_cannot_control_a_terminal() {
        let name = "ib\x1b[2J\u{9b}0\u{202e}x\r\n\t";
        assert_eq!(printable(name), "ib?[2J?0?x???");
        assert_eq!(printable_lines(name), "ib?[2J?0?x?\n\t");
    }
}
