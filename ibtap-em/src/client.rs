//! Client of a running manager.

use std::io;
use std::path::Path;
use std::time::Duration;

use control::exit::{EXIT_REFUSED, EXIT_UNREACHABLE, EXIT_USAGE};
use control::{ClientError, ControlClient};
use serde::Serialize;

use crate::api::INTERFACE;
use crate::server::Reply;

/// The manager answers from memory within milliseconds, except for counters: it gives agents up after some
/// seconds. A machine under load may take longer.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A failed request; the text is a sentence.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    message: String,
    /// Exit status for this failure.
    pub status: u8,
}

/// Calls a method of the manager at `socket`.
///
/// # Errors
/// [`Failure`]
pub fn ask(socket: &Path, method: &str, parameters: impl Serialize) -> Result<Reply, Failure> {
    ControlClient::connect(socket, TIMEOUT)
        .and_then(|mut client| client.ask(&format!("{INTERFACE}.{method}"), parameters))
        .map_err(|error| failure(socket, error))
}

/// Translates a [`ClientError`], whose text is about ibtapd, for the manager.
fn failure(socket: &Path, error: ClientError) -> Failure {
    let at = socket.display();
    let (message, status) = match error {
        ClientError::Unreachable { source, .. } => {
            let advice = match source.kind() {
                io::ErrorKind::PermissionDenied => {
                    "run the program as root or as a member of the socket's group"
                }
                _ => "start ibtap-em with \"ibtap-em run\"",
            };
            let message = format!(
                "cannot reach ibtap-em at {at}: {source}; {advice}, or name the socket of ibtap-em with --em-socket"
            );
            (message, EXIT_UNREACHABLE)
        }
        ClientError::Silent { source, .. } | ClientError::Ended { source, .. } => (
            format!("ibtap-em at {at} does not answer: {source}"),
            EXIT_UNREACHABLE,
        ),
        ClientError::Busy => ("ibtap-em is busy; try again".into(), EXIT_REFUSED),
        ClientError::Protocol(what) => (
            format!(
                "the program at {at} sent an unexpected answer: {what}; name an ibtap-em socket with --em-socket"
            ),
            EXIT_REFUSED,
        ),
        ClientError::BadArgument(message) => (message, EXIT_USAGE),
        other => (other.to_string(), EXIT_REFUSED),
    };
    Failure { message, status }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_of_others_is_opened_by_root_and_its_group() {
        let socket = Path::new("/s");
        let failure = |kind: io::ErrorKind| {
            let (path, source) = (socket.into(), kind.into());
            failure(socket, ClientError::Unreachable { path, source }).to_string()
        };
        assert_eq!(
            failure(io::ErrorKind::PermissionDenied),
            "cannot reach ibtap-em at /s: permission denied; run the program as root or as a member of the socket's \
             group, or name the socket of ibtap-em with --em-socket"
        );
        assert!(failure(io::ErrorKind::NotFound).contains("start ibtap-em with \"ibtap-em run\""));
    }
}
