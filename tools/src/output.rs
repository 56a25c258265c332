//! What goes to the user: text or JSON on stdout, one sentence on stderr, an exit status.

use std::io::{self, Write};

use control::ClientError;
use control::exit::{EXIT_OK, EXIT_REFUSED, EXIT_UNREACHABLE, EXIT_USAGE};
use serde::Serialize;

use crate::cli::Cli;

const ENODEV: i32 = rustix::io::Errno::NODEV.raw_os_error();
const EINVAL: i32 = rustix::io::Errno::INVAL.raw_os_error();

/// Why a command fails.
#[derive(Debug)]
pub enum Failure {
    /// The daemon said no, or nothing.
    Client(ClientError),
    /// The system refused; the text is a sentence.
    System(String),
    /// Whoever reads our output has gone; nothing is wrong.
    Closed,
}

impl Failure {
    /// Tells the user, and gives the exit status.
    pub fn report(&self) -> u8 {
        let (message, status) = match self {
            Failure::Closed => return EXIT_OK,
            Failure::System(message) => (message.clone(), EXIT_REFUSED),
            Failure::Client(error) => (error.to_string(), client_status(error)),
        };
        // With stderr closed too, the exit status is all there is.
        let _ = writeln!(io::stderr(), "ibtap: {message}");
        status
    }
}

fn client_status(error: &ClientError) -> u8 {
    match error {
        ClientError::Unreachable { .. }
        | ClientError::Silent { .. }
        | ClientError::Ended { .. } => EXIT_UNREACHABLE,
        ClientError::NoSuchInterface { .. } | ClientError::BadArgument(_) => EXIT_USAGE,
        // No such thing, and what makes no sense; the rest is refused.
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

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For people.
    Text,
    /// An array in one line.
    Json,
    /// An array, indented.
    PrettyJson,
}

impl Format {
    /// What the command line asks for.
    pub fn of(cli: &Cli) -> Format {
        match (cli.json, cli.pretty) {
            (false, _) => Format::Text,
            (true, false) => Format::Json,
            (true, true) => Format::PrettyJson,
        }
    }
}

/// Prints `items` as JSON, or the text made from them.
pub fn print<T: Serialize>(
    format: Format,
    items: &[T],
    text: impl FnOnce(&[T]) -> String,
) -> Result<(), Failure> {
    write(match format {
        Format::Text => Ok(text(items)),
        Format::Json => serde_json::to_string(items).map(|json| json + "\n"),
        Format::PrettyJson => serde_json::to_string_pretty(items).map(|json| json + "\n"),
    })
}

/// Prints one of many things that come one by one: an object in a line of its own, or the text made
/// from it. It is out when this returns.
pub fn print_line<T: Serialize>(
    format: Format,
    item: &T,
    text: impl FnOnce(&T) -> String,
) -> Result<(), Failure> {
    write(match format {
        Format::Text => Ok(text(item)),
        Format::Json => serde_json::to_string(item).map(|json| json + "\n"),
        Format::PrettyJson => serde_json::to_string_pretty(item).map(|json| json + "\n"),
    })
}

fn write(rendered: serde_json::Result<String>) -> Result<(), Failure> {
    let rendered = rendered.map_err(|e| Failure::System(format!("cannot write JSON: {e}")))?;
    let mut stdout = io::stdout().lock();
    stdout
        .write_all(rendered.as_bytes())
        .and_then(|()| stdout.flush())
        .map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::Closed,
            _ => Failure::System(format!("cannot write to stdout: {error}")),
        })
}
