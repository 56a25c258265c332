//! Output to the user: text or JSON on stdout, one sentence on stderr, an exit status.

use std::io::IsTerminal;

use control::ClientError;
use control::exit::{EXIT_OK, EXIT_REFUSED, EXIT_UNREACHABLE, EXIT_USAGE};
use control::output::{self, OutputError};
use serde::Serialize;

use crate::cli::Cli;

const ENODEV: i32 = rustix::io::Errno::NODEV.raw_os_error();
const EINVAL: i32 = rustix::io::Errno::INVAL.raw_os_error();

/// Failure of a command.
#[derive(Debug)]
pub enum Failure {
    /// The daemon refused or did not answer.
    Client(ClientError),
    /// The command line is wrong; the text is a sentence.
    Usage(String),
    /// The system refused; the text is a sentence.
    System(String),
    /// The subnet does not answer; the text is a sentence.
    Unanswered(String),
    /// The reader of the output has closed it; this is no error.
    Closed,
}

impl Failure {
    /// Prints the error, and returns the exit status.
    pub fn report(&self) -> u8 {
        let (message, status) = match self {
            Failure::Closed => return EXIT_OK,
            Failure::Usage(message) => (message.clone(), EXIT_USAGE),
            Failure::System(message) => (message.clone(), EXIT_REFUSED),
            Failure::Unanswered(message) => (message.clone(), EXIT_UNREACHABLE),
            Failure::Client(error) => (error.to_string(), client_status(error)),
        };
        output::complain("ibtap", message);
        status
    }
}

fn client_status(error: &ClientError) -> u8 {
    match error {
        ClientError::Unreachable { .. }
        | ClientError::Silent { .. }
        | ClientError::Ended { .. } => EXIT_UNREACHABLE,
        ClientError::NoSuchInterface { .. } | ClientError::BadArgument(_) => EXIT_USAGE,
        // The object does not exist, or the argument is wrong. Other errors are refusals.
        ClientError::Errno {
            errno: ENODEV | EINVAL,
            ..
        } => EXIT_USAGE,
        ClientError::Errno { .. } => EXIT_REFUSED,
        ClientError::Busy | ClientError::Refused(_) | ClientError::Protocol(_) => EXIT_REFUSED,
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        Failure::Client(error)
    }
}

/// Format of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Text.
    Text,
    /// A JSON array in one line.
    Json,
    /// An indented JSON array.
    PrettyJson,
}

impl Format {
    /// The format of the command line.
    pub fn of(cli: &Cli) -> Format {
        match (cli.json, cli.pretty) {
            (false, _) => Format::Text,
            (true, false) => Format::Json,
            (true, true) => Format::PrettyJson,
        }
    }
}

impl From<Format> for decode::Format {
    fn from(format: Format) -> decode::Format {
        match format {
            Format::Text => decode::Format::Text,
            Format::Json => decode::Format::Json,
            Format::PrettyJson => decode::Format::PrettyJson,
        }
    }
}

/// Prints `items` as JSON, or the text made from them.
pub fn print<T: Serialize>(
    format: Format,
    items: &[T],
    text: impl FnOnce(&[T]) -> String,
) -> Result<(), Failure> {
    write(format, items, text)
}

/// The same for a text with colours, in which the caller has made the names printable.
pub fn print_coloured<T: Serialize>(
    format: Format,
    items: &[T],
    text: impl FnOnce(&[T]) -> String,
) -> Result<(), Failure> {
    finish(as_made(format, items, text))
}

/// The same for a text that programs read: only a terminal gets other names.
pub fn print_for_programs<T: Serialize>(
    format: Format,
    items: &[T],
    text: impl FnOnce(&[T]) -> String,
) -> Result<(), Failure> {
    match std::io::stdout().is_terminal() {
        true => write(format, items, text),
        false => finish(as_made(format, items, text)),
    }
}

/// The exit status of a command after its output. A reader that has closed the output, such as `head`, does not change
/// the status.
///
/// # Errors
/// Other errors of the output.
pub fn after(printed: Result<(), Failure>, status: u8) -> Result<u8, Failure> {
    match printed {
        Ok(()) | Err(Failure::Closed) => Ok(status),
        Err(failure) => Err(failure),
    }
}

/// Whether the user wants no colours (no-color.org): only a value counts.
pub fn no_color() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

/// Prints one item of a stream, as a JSON object or as text, and flushes the output.
pub fn print_line<T: Serialize>(
    format: Format,
    item: &T,
    text: impl FnOnce(&T) -> String,
) -> Result<(), Failure> {
    write(format, item, text)
}

fn write<T: Serialize + ?Sized>(
    format: Format,
    value: &T,
    text: impl FnOnce(&T) -> String,
) -> Result<(), Failure> {
    finish(rendered(format, value, text))
}

/// Names from elsewhere cannot control the terminal.
fn rendered<T: Serialize + ?Sized>(
    format: Format,
    value: &T,
    text: impl FnOnce(&T) -> String,
) -> Result<String, OutputError> {
    as_made(format, value, |value| output::printable_lines(&text(value)))
}

fn as_made<T: Serialize + ?Sized>(
    format: Format,
    value: &T,
    text: impl FnOnce(&T) -> String,
) -> Result<String, OutputError> {
    match format {
        Format::Text => Ok(text(value)),
        Format::Json => output::json(value, false),
        Format::PrettyJson => output::json(value, true),
    }
}

fn finish(rendered: Result<String, OutputError>) -> Result<(), Failure> {
    match rendered.and_then(output::print) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Failure::Closed),
        Err(error) => Err(Failure::System(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_control_the_terminal() {
        let text = |name: &str| format!("\t{name}\n");
        let shown = rendered(Format::Text, "ib\x1b[2J", text).unwrap();
        assert_eq!(shown, "\tib?[2J\n");
        let coloured = as_made(Format::Text, "\x1b[32m", text).unwrap();
        assert_eq!(coloured, "\t\x1b[32m\n");
    }

    #[test]
    fn a_reader_that_has_closed_the_output_does_not_change_the_status() {
        assert_eq!(after(Ok(()), EXIT_REFUSED).unwrap(), EXIT_REFUSED);
        assert_eq!(
            after(Err(Failure::Closed), EXIT_REFUSED).unwrap(),
            EXIT_REFUSED
        );
        after(Err(Failure::System("full".into())), EXIT_OK).unwrap_err();
    }
}
