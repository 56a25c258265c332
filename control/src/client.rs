//! A blocking client with a time limit.

mod member;
mod posts;
mod replies;

use std::io::{self, Read, Write};
use std::marker::PhantomData;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde::de::{DeserializeOwned, DeserializeSeed, IgnoredAny};
use serde::{Deserialize, Serialize};

use super::service::REPLY_MAX;
use crate::api::INTERFACE;
use crate::api::methods::{Method, StreamMethod};
use member::Member;
pub use posts::Posts;
pub use replies::{Next, Replies};

/// Errors of a client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Connecting fails.
    #[error(
        "cannot reach ibtapd at {}: {source}; {}, or name the socket of ibtapd with --socket",
        path.display(),
        advice(source)
    )]
    Unreachable {
        /// The socket.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The daemon does not answer.
    #[error("ibtapd at {} does not answer: {source}", path.display())]
    Silent {
        /// The socket.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The daemon ended during a stream.
    #[error("ibtapd at {} has closed the connection: {source}", path.display())]
    Ended {
        /// The socket.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The daemon serves no interface of this name.
    #[error("ibtapd serves no interface named {interface:?}; see \"ibtap show\"")]
    NoSuchInterface {
        /// The name.
        interface: String,
    },
    /// A parameter has an unusable value; the text is a whole sentence.
    #[error("{0}")]
    BadArgument(String),
    /// The daemon is busy.
    #[error("ibtapd is busy; try again")]
    Busy,
    /// The daemon refuses; the text is a whole sentence.
    #[error("{0}")]
    Refused(String),
    /// The daemon refuses with an error number of the kernel's IPoIB.
    #[error("{message}")]
    Errno {
        /// The error number (errno(3)).
        errno: i32,
        /// The reason, a whole sentence.
        message: String,
    },
    /// The client does not understand the reply.
    #[error("this program does not understand the reply of ibtapd: {0}")]
    Protocol(String),
}

fn advice(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => {
            "run the program as root or as a member of the socket's group"
        }
        _ => "start ibtapd (systemctl start ibtapd, or ibtapd --underlay IF)",
    }
}

impl ClientError {
    /// Whether the socket exists and no process listens on it.
    pub(super) fn is_refused(&self) -> bool {
        matches!(self, ClientError::Unreachable { source, .. }
            if source.kind() == io::ErrorKind::ConnectionRefused)
    }
}

#[derive(Serialize)]
struct Call<'a, P> {
    method: &'a str,
    parameters: P,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    more: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    oneway: bool,
}

impl<'a, P> Call<'a, P> {
    /// A call with one reply. `method` includes its interface's name.
    fn once(method: &'a str, parameters: P) -> Call<'a, P> {
        Call {
            method,
            parameters,
            more: false,
            oneway: false,
        }
    }
}

/// The kind of a reply. A second pass reads the parameters, because their type depends on the kind. (A map of
/// parameters would lose the order of counters.)
#[derive(Deserialize)]
struct Verdict {
    error: Option<String>,
    #[serde(default)]
    continues: bool,
    #[serde(rename = "parameters")]
    _parameters: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Parameters<P> {
    parameters: P,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ErrorDetails {
    errno: i32,
    interface: String,
    message: String,
    method: String,
    parameter: String,
}

/// A connection to a daemon.
#[derive(Debug)]
pub struct ControlClient {
    stream: UnixStream,
    path: PathBuf,
    timeout: Duration,
}

impl ControlClient {
    /// Connects. `timeout` limits connecting and each call.
    ///
    /// # Errors
    /// [`ClientError::Unreachable`]; [`ClientError::Silent`] if so many clients wait for a daemon that hangs that the
    /// kernel lets no other connect.
    pub fn connect(path: &Path, timeout: Duration) -> Result<ControlClient, ClientError> {
        let stream = connect(path, timeout);
        let path = path.to_owned();
        match stream {
            Ok(stream) => Ok(ControlClient {
                stream,
                path,
                timeout,
            }),
            Err(source) if source.kind() == io::ErrorKind::TimedOut => {
                Err(ClientError::Silent { path, source })
            }
            Err(source) => Err(ClientError::Unreachable { path, source }),
        }
    }

    /// The daemon's process, if this process namespace has it. (The process id in [`VersionInfo`] is of the daemon's
    /// process namespace.)
    ///
    /// [`VersionInfo`]: crate::api::VersionInfo
    pub fn process(&self) -> Option<u32> {
        let peer = getsockopt(&self.stream, PeerCredentials).ok()?;
        u32::try_from(peer.pid()).ok().filter(|pid| *pid != 0)
    }

    /// Calls a method.
    ///
    /// # Errors
    /// [`ClientError`]
    pub fn call<P: Serialize, R: DeserializeOwned>(
        &mut self,
        method: Method<P, R>,
        parameters: &P,
    ) -> Result<R, ClientError> {
        let reply = self.reply(&qualified(method.name), parameters)?;
        match method.member {
            None => decode(&reply).map(|(reply, _)| reply),
            Some(member) => decode_with(&reply, Member::named(member)).map(|(reply, _)| reply),
        }
    }

    /// Calls a method with a stream of replies.
    ///
    /// # Errors
    /// [`ClientError`]
    pub fn stream<P: Serialize, R: DeserializeOwned>(
        mut self,
        method: StreamMethod<P, R>,
        parameters: &P,
    ) -> Result<Replies<R>, ClientError> {
        let method = qualified(method.name);
        let call = encode(&Call {
            more: true,
            ..Call::once(&method, parameters)
        })?;
        self.send(&call).map_err(|source| self.silent(source))?;
        Ok(Replies::new(self))
    }

    /// Uses the connection for calls without replies.
    pub fn posts(self) -> Posts {
        Posts::new(self)
    }

    /// Calls a method of any interface, such as that of `ibtap-em`; `method` includes the interface's name.
    ///
    /// # Errors
    /// [`ClientError`]
    pub fn ask<P: Serialize, R: DeserializeOwned>(
        &mut self,
        method: &str,
        parameters: P,
    ) -> Result<R, ClientError> {
        let reply = self.reply(method, parameters)?;
        decode(&reply).map(|(reply, _)| reply)
    }

    fn reply<P: Serialize>(&mut self, method: &str, parameters: P) -> Result<Vec<u8>, ClientError> {
        let call = encode(&Call::once(method, parameters))?;
        self.exchange(&call).map_err(|source| self.silent(source))
    }

    fn silent(&self, source: io::Error) -> ClientError {
        ClientError::Silent {
            path: self.path.clone(),
            source,
        }
    }

    fn send(&mut self, call: &[u8]) -> io::Result<()> {
        self.stream.set_write_timeout(Some(self.timeout))?;
        self.stream.write_all(call).map_err(plainly)
    }

    /// Writes a call and reads one reply, without its NUL.
    fn exchange(&mut self, call: &[u8]) -> io::Result<Vec<u8>> {
        let deadline = Instant::now() + self.timeout;
        self.send(call)?;
        let mut reply = Vec::new();
        let mut chunk = [0; 64 * 1024];
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.stream.set_read_timeout(Some(left))?;
            let n = match self.stream.read(&mut chunk) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(plainly(e)),
            };
            if let Some(end) = chunk[..n].iter().position(|&byte| byte == 0) {
                reply.extend_from_slice(&chunk[..end]);
                return Ok(reply);
            }
            reply.extend_from_slice(&chunk[..n]);
            if reply.len() > REPLY_MAX {
                return Err(io::Error::other("the reply does not end"));
            }
        }
    }
}

/// Replaces "would block", the error of a socket after its timeout, by "timed out".
fn plainly(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    }
}

/// Connects with a time limit, which the standard library does not offer. Connecting waits while the listener's
/// queue is full.
fn connect(path: &Path, timeout: Duration) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new(path)?;
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    set_socket_timeout(&socket, Timeout::Send, Some(timeout))?;
    rustix::net::connect(&socket, &address).map_err(|error| plainly(error.into()))?;
    Ok(socket.into())
}

/// The full name of a method of ibtapd's interface.
fn qualified(method: &str) -> String {
    format!("{INTERFACE}.{method}")
}

/// A call with its NUL.
fn encode<P: Serialize>(call: &Call<'_, P>) -> Result<Vec<u8>, ClientError> {
    let mut call =
        serde_json::to_vec(call).map_err(|error| ClientError::Protocol(error.to_string()))?;
    call.push(0);
    Ok(call)
}

/// A reply, and whether further replies follow.
fn decode<R: DeserializeOwned>(reply: &[u8]) -> Result<(R, bool), ClientError> {
    decode_with(reply, PhantomData)
}

/// A reply whose parameters `seed` reads, and whether further replies follow.
fn decode_with<'de, S: DeserializeSeed<'de>>(
    reply: &'de [u8],
    seed: S,
) -> Result<(S::Value, bool), ClientError> {
    let bad = |error: serde_json::Error| ClientError::Protocol(error.to_string());
    let verdict: Verdict = serde_json::from_slice(reply).map_err(bad)?;
    match verdict.error {
        None => {
            let mut reply = serde_json::Deserializer::from_slice(reply);
            let parameters = Member::of("parameters", seed).deserialize(&mut reply);
            Ok((parameters.map_err(bad)?, verdict.continues))
        }
        Some(error) => Err(refusal(&error, reply)),
    }
}

fn refusal(error: &str, reply: &[u8]) -> ClientError {
    let details = serde_json::from_slice(reply)
        .map(|reply: Parameters<ErrorDetails>| reply.parameters)
        .unwrap_or_default();
    // All interfaces of ibtap's programs use the same names of errors.
    let (interface, name) = error.rsplit_once('.').unwrap_or(("", error));
    match name {
        _ if !interface.starts_with("org.ibtap.") => refusal_of_service(error, details),
        "NoSuchInterface" => ClientError::NoSuchInterface {
            interface: details.interface,
        },
        "BadArgument" => ClientError::BadArgument(details.message),
        "Errno" => ClientError::Errno {
            errno: details.errno,
            message: details.message,
        },
        "Refused" | "BadRequest" => ClientError::Refused(details.message),
        "Busy" => ClientError::Busy,
        _ => ClientError::Protocol(error.to_owned()),
    }
}

/// Errors of every varlink service.
fn refusal_of_service(error: &str, details: ErrorDetails) -> ClientError {
    ClientError::Protocol(match error.strip_prefix("org.varlink.service") {
        Some(".MethodNotFound") => format!("it has no method {}", details.method),
        Some(".InvalidParameter") => format!("it refuses the parameter {}", details.parameter),
        _ => error.to_owned(),
    })
}
