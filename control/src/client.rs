//! A blocking client with a time limit.

mod children;
mod posts;
mod replies;

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};

use super::service::REPLY_MAX;
use crate::api::{
    ConnectionInfo, Event, GroupInfo, GuestInfo, INTERFACE, Interface, InterfaceInfo,
    InterfaceStats, Level, LogLevel, ManageReply, ManageRequest, ModeRequest, NeighbourInfo,
    PathInfo, PingReply, PingRequest, Reloaded, ResourcesInfo, Selection, SendManagementRequest,
    VersionInfo, VnicInfo, VnicMac, VnicMember, VnicStats,
};
pub use posts::Posts;
use proto::Mode;
pub use replies::{Next, Replies};

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens there, or we may not ask.
    #[error(
        "cannot reach ibtapd at {}: {source}; {}, or name its socket with --socket",
        path.display(),
        advice(source)
    )]
    Unreachable {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It listens but does not answer.
    #[error("ibtapd at {} does not answer: {source}", path.display())]
    Silent {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It went away while it was to tell more.
    #[error("ibtapd at {} has gone away: {source}", path.display())]
    Ended {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It serves no such interface.
    #[error("ibtapd serves no interface named {interface:?}; see \"ibtap show\"")]
    NoSuchInterface {
        /// The name.
        interface: String,
    },
    /// What was asked for makes no sense to it; the text is a whole sentence.
    #[error("{0}")]
    BadArgument(String),
    /// It has no time for it now.
    #[error("ibtapd is busy; try again")]
    Busy,
    /// It refuses; the text is a whole sentence.
    #[error("{0}")]
    Refused(String),
    /// It refuses as the kernel's IPoIB does; the text is a whole sentence.
    #[error("{message}")]
    Errno {
        /// The kernel's error number (errno(3)).
        errno: i32,
        /// Why.
        message: String,
    },
    /// What it says is not what this client understands.
    #[error("ibtapd answers in a way that this program does not understand: {0}")]
    Protocol(String),
}

fn advice(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => "ask as root or as a member of the socket's group",
        _ => "start it with \"ibtapd --underlay IF\"",
    }
}

impl ClientError {
    /// Whether there is a socket on which nobody listens.
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
    /// A call that is answered once. The method has its interface's name.
    fn once(method: &'a str, parameters: P) -> Call<'a, P> {
        Call {
            method,
            parameters,
            more: false,
            oneway: false,
        }
    }
}

/// What kind of reply it is; its parameters are read in a second pass, since their type is only
/// known then. (Reading them into a map in between would lose the order of counters.)
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

#[derive(Serialize, Deserialize)]
struct Empty {}

/// What [`ControlClient::monitor`] gives again and again.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Monitored {
    /// What happened.
    pub event: Event,
}

/// Asks a daemon.
#[derive(Debug)]
pub struct ControlClient {
    stream: UnixStream,
    path: PathBuf,
    timeout: Duration,
}

/// Makes a method that asks and gives the one member of the reply.
macro_rules! listing {
    ($(#[$doc:meta])* $name:ident($($parameter:ident: $type:ty)?) -> $member:ident: $item:ty,
     $method:literal, $parameters:expr) => {
        $(#[$doc])*
        ///
        /// # Errors
        /// [`ClientError`]
        pub fn $name(&mut self, $($parameter: $type)?) -> Result<Vec<$item>, ClientError> {
            #[derive(Deserialize)]
            struct Reply {
                $member: Vec<$item>,
            }
            let reply: Reply = self.call($method, $parameters)?;
            Ok(reply.$member)
        }
    };
}

impl ControlClient {
    /// Connects. Every call, connecting included, may take `timeout`.
    ///
    /// # Errors
    /// [`ClientError::Unreachable`].
    pub fn connect(path: &Path, timeout: Duration) -> Result<ControlClient, ClientError> {
        match connect(path, timeout) {
            Ok(stream) => Ok(ControlClient {
                stream,
                path: path.to_owned(),
                timeout,
            }),
            Err(source) => Err(ClientError::Unreachable {
                path: path.to_owned(),
                source,
            }),
        }
    }

    /// Which daemon is this?
    ///
    /// # Errors
    /// [`ClientError`]
    pub fn version(&mut self) -> Result<VersionInfo, ClientError> {
        self.call("Version", Empty {})
    }

    /// Changes what the daemon logs.
    ///
    /// # Errors
    /// [`ClientError`]
    pub fn log_level(&mut self, level: LogLevel) -> Result<(), ClientError> {
        self.call("LogLevel", Level { level }).map(|Empty {}| ())
    }

    listing!(
        /// Interfaces: all, or the one named.
        show(interface: Option<&str>) -> interfaces: InterfaceInfo, "Show", selection(interface)
    );
    listing!(
        /// Counters of all interfaces, or of the one named.
        stats(interface: Option<&str>) -> stats: InterfaceStats, "Stats", selection(interface)
    );
    listing!(
        /// The neighbour table of an interface.
        neighbours(name: &str) -> neighbours: NeighbourInfo, "Neighbours", interface(name)
    );
    listing!(
        /// The guests behind an interface.
        guests(name: &str) -> guests: GuestInfo, "Guests", interface(name)
    );
    listing!(
        /// The multicast groups of an interface.
        groups(name: &str) -> groups: GroupInfo, "Groups", interface(name)
    );
    listing!(
        /// The paths of an interface.
        paths(name: &str) -> paths: PathInfo, "Paths", interface(name)
    );
    listing!(
        /// Reliable connections of all interfaces, or of the one named.
        connections(interface: Option<&str>) -> connections: ConnectionInfo, "Connections",
        selection(interface)
    );
    listing!(
        /// What the ports have in use.
        resources() -> resources: ResourcesInfo, "Resources", Empty {}
    );

    listing!(
        /// VNICs: all, or the one named.
        vnics(interface: Option<&str>) -> vnics: VnicInfo, "Vnics", selection(interface)
    );
    listing!(
        /// Counters of all VNICs, or of the one named.
        vnic_stats(interface: Option<&str>) -> stats: VnicStats, "VnicStats", selection(interface)
    );
    listing!(
        /// The Ethernet addresses that a VNIC knows.
        vnic_macs(name: &str) -> macs: VnicMac, "VnicMacs", interface(name)
    );
    listing!(
        /// The members of a VNIC's switch.
        vnic_members(name: &str) -> members: VnicMember, "VnicMembers", interface(name)
    );

    /// Tells an interface's mode, after changing it where one is given.
    ///
    /// # Errors
    /// [`ClientError`]; [`ClientError::Refused`] where it cannot change.
    pub fn mode(&mut self, interface: &str, mode: Option<Mode>) -> Result<Mode, ClientError> {
        #[derive(Deserialize)]
        struct Reply {
            mode: Mode,
        }
        let request = ModeRequest {
            interface: interface.to_owned(),
            mode,
        };
        let reply: Reply = self.call("Mode", request)?;
        Ok(reply.mode)
    }

    /// Has the configuration file read again. That may take as long as it takes an underlay that is
    /// new in it to have an address.
    ///
    /// # Errors
    /// [`ClientError`]; [`ClientError::Refused`] where nothing was changed.
    pub fn reload(&mut self) -> Result<Reloaded, ClientError> {
        self.call("Reload", Empty {})
    }

    /// Has events told, of all interfaces or of the one named.
    ///
    /// # Errors
    /// [`ClientError`]
    pub fn monitor(self, interface: Option<&str>) -> Result<Replies<Monitored>, ClientError> {
        self.stream("Monitor", selection(interface))
    }

    /// Has a peer asked for echoes.
    ///
    /// # Errors
    /// [`ClientError`]
    pub fn ping(self, request: &PingRequest) -> Result<Replies<PingReply>, ClientError> {
        self.stream("Ping", request)
    }

    /// Has the VNIC management of a port told: what comes there and is no request to its own agent.
    ///
    /// # Errors
    /// [`ClientError`]
    pub fn manage(self, request: &ManageRequest) -> Result<Replies<ManageReply>, ClientError> {
        self.stream("Manage", request)
    }

    /// Has VNIC management sent.
    ///
    /// # Errors
    /// [`ClientError`]
    pub fn send_management(&mut self, request: &SendManagementRequest) -> Result<(), ClientError> {
        self.call("SendManagement", request).map(|Empty {}| ())
    }

    fn stream<P: Serialize, R: DeserializeOwned>(
        mut self,
        method: &str,
        parameters: P,
    ) -> Result<Replies<R>, ClientError> {
        let method = qualified(method);
        let call = encode(&Call {
            more: true,
            ..Call::once(&method, parameters)
        })?;
        self.send(&call).map_err(|source| self.silent(source))?;
        Ok(Replies::new(self))
    }

    /// From now on only calls that are not answered.
    pub fn posts(self) -> Posts {
        Posts::new(self)
    }

    fn call<P: Serialize, R: DeserializeOwned>(
        &mut self,
        method: &str,
        parameters: P,
    ) -> Result<R, ClientError> {
        self.ask(&qualified(method), parameters)
    }

    /// Calls a method of any interface: `method` has the interface's name. Programs of ours other than
    /// `ibtapd` have interfaces of their own.
    ///
    /// # Errors
    /// [`ClientError`]
    pub fn ask<P: Serialize, R: DeserializeOwned>(
        &mut self,
        method: &str,
        parameters: P,
    ) -> Result<R, ClientError> {
        let call = encode(&Call::once(method, parameters))?;
        let reply = self.exchange(&call).map_err(|source| self.silent(source))?;
        decode(&reply).map(|(reply, _)| reply)
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

/// A socket that timed out says "would block", which tells a user nothing.
fn plainly(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    }
}

/// The standard library cannot limit the time that connecting takes, which is not nothing where a
/// listener's queue is full.
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

fn selection(interface: Option<&str>) -> Selection {
    Selection {
        interface: interface.map(str::to_owned),
    }
}

fn interface(name: &str) -> Interface {
    Interface {
        interface: name.to_owned(),
    }
}

/// The method of ibtapd's interface with its full name.
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

/// A reply, and whether others follow it.
fn decode<R: DeserializeOwned>(reply: &[u8]) -> Result<(R, bool), ClientError> {
    let bad = |error: serde_json::Error| ClientError::Protocol(error.to_string());
    let verdict: Verdict = serde_json::from_slice(reply).map_err(bad)?;
    match verdict.error {
        None => {
            let reply: Parameters<R> = serde_json::from_slice(reply).map_err(bad)?;
            Ok((reply.parameters, verdict.continues))
        }
        Some(error) => Err(refusal(&error, reply)),
    }
}

fn refusal(error: &str, reply: &[u8]) -> ClientError {
    let details = serde_json::from_slice(reply)
        .map(|reply: Parameters<ErrorDetails>| reply.parameters)
        .unwrap_or_default();
    // Interfaces of ours share the names of their errors.
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

/// What every varlink service may say.
fn refusal_of_service(error: &str, details: ErrorDetails) -> ClientError {
    ClientError::Protocol(match error.strip_prefix("org.varlink.service") {
        Some(".MethodNotFound") => format!("it has no method {}", details.method),
        Some(".InvalidParameter") => format!("it refuses the parameter {}", details.parameter),
        _ => error.to_owned(),
    })
}
