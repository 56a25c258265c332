//! The varlink interface of a program. `ibtapd` implements [`Handler`], other programs of ibtap implement
//! [`Program`].

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::requests::request;
use super::{DESCRIPTION, Handler, SERVICE, StreamId, Streamed};
use crate::api::{ApiError, Effect, INTERFACE, Reply, Request};

/// The identity of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The program's name.
    pub product: &'static str,
    /// The qualified name of its interface.
    pub interface: &'static str,
    /// The interface's description in varlink's interface definition language.
    pub description: &'static str,
}

/// A call of one of the interface's methods.
#[derive(Debug)]
pub struct MethodCall {
    /// The method, without the interface's name.
    pub method: String,
    /// The unchecked parameters.
    pub parameters: Map<String, Value>,
    /// Whether the client accepts more than one reply.
    pub more: bool,
    /// The client, for later replies.
    pub stream: StreamId,
    /// The client's process and rights.
    pub caller: Caller,
}

/// The process of a client when it connected, and its rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The user.
    pub uid: u32,
    /// The process; 0 if it is in another process namespace.
    pub pid: i32,
    /// Whether the client may do more than read.
    pub may_change: bool,
}

/// The result of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answered {
    /// The reply's parameters.
    Reply(Body),
    /// [`Program::next`] returns one or more replies.
    Later,
}

/// The parameters of a reply: a JSON object that keeps the order of its keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body(Vec<u8>);

impl Body {
    /// Serialises parameters, which must become an object.
    pub fn of(parameters: &impl Serialize) -> Body {
        Body(super::json_of(parameters))
    }

    /// The object as JSON.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("JSON is written as UTF-8")
    }

    /// The reply with its NUL.
    pub(super) fn message(mut self, continues: bool) -> Vec<u8> {
        let mut message = br#"{"parameters":"#.to_vec();
        message.append(&mut self.0);
        message.extend_from_slice(if continues {
            br#","continues":true}"#
        } else {
            b"}"
        });
        message.push(0);
        message
    }
}

/// A program with a varlink interface.
pub trait Program {
    /// The program's identity.
    fn identity(&self) -> Identity;

    /// Answers a call. It runs on the control thread and must be fast.
    ///
    /// # Errors
    /// The error for the client.
    fn call(&mut self, call: MethodCall) -> Result<Answered, Failure>;

    /// The next reply after [`Answered::Later`], if available: its parameters, and whether it is the last reply.
    ///
    /// # Errors
    /// The error for the client, which ends the replies.
    fn next(&mut self, stream: StreamId) -> Result<Option<(Body, bool)>, Failure>;

    /// Ends the replies to a client that has disconnected.
    fn close(&mut self, stream: StreamId);
}

/// A varlink error: its qualified name and its parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    pub(super) error: String,
    pub(super) parameters: Value,
}

impl Failure {
    /// An error of every varlink service.
    pub(super) fn service(error: &str, parameters: Value) -> Failure {
        Failure::new(SERVICE, error, parameters)
    }

    /// An error of an interface.
    pub fn new(interface: &str, error: &str, parameters: Value) -> Failure {
        Failure {
            error: format!("{interface}.{error}"),
            parameters,
        }
    }

    /// A parameter is missing, unknown or wrong.
    pub fn invalid(parameter: &str) -> Failure {
        Failure::service("InvalidParameter", json!({ "parameter": parameter }))
    }

    /// The method does not exist; `method` includes the interface's name.
    pub fn unknown_method(method: &str) -> Failure {
        Failure::service("MethodNotFound", json!({ "method": method }))
    }
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Failure {
        let (name, parameters) = match error {
            ApiError::NoSuchInterface { interface } => {
                ("NoSuchInterface", json!({ "interface": interface }))
            }
            ApiError::BadArgument { message } => ("BadArgument", json!({ "message": message })),
            ApiError::Refused { message } => ("Refused", json!({ "message": message })),
            ApiError::Errno { errno, message } => {
                ("Errno", json!({ "errno": errno, "message": message }))
            }
            ApiError::Busy => ("Busy", json!({})),
        };
        Failure::new(INTERFACE, name, parameters)
    }
}

/// `ibtapd`.
impl<H: Handler> Program for H {
    fn identity(&self) -> Identity {
        Identity {
            product: "ibtapd",
            interface: INTERFACE,
            description: DESCRIPTION,
        }
    }

    fn call(&mut self, call: MethodCall) -> Result<Answered, Failure> {
        let unknown = || Failure::unknown_method(&format!("{INTERFACE}.{}", call.method));
        let request: Option<Result<Request, Failure>> = request(&call.method, call.parameters);
        let request = request.unwrap_or_else(|| Err(unknown()))?;
        let Caller { uid, pid, .. } = call.caller;
        match request.effect() {
            Effect::Reads => {}
            _ if !call.caller.may_change => {
                return Err(Failure::from(ApiError::Errno {
                    errno: libc::EACCES,
                    message: format!(
                        "user {uid} may only read (group_access = \"read\"); use root or the user of ibtapd"
                    ),
                }));
            }
            Effect::Sends => {}
            Effect::Changes => log::info!("{} by user {uid}, process {pid}", call.method),
        }
        if !request.is_stream() {
            return Ok(Answered::Reply(Body::of(&self.handle(request)?)));
        }
        if !call.more {
            return Err(Failure::service("ExpectedMore", json!({})));
        }
        self.open(call.stream, request)?;
        Ok(Answered::Later)
    }

    fn next(&mut self, stream: StreamId) -> Result<Option<(Body, bool)>, Failure> {
        let (reply, last): (Reply, bool) = match Handler::next(self, stream) {
            Streamed::Nothing => return Ok(None),
            Streamed::Reply(reply) => (reply, false),
            Streamed::Last(reply) => (reply?, true),
        };
        Ok(Some((Body::of(&reply), last)))
    }

    fn close(&mut self, stream: StreamId) {
        Handler::close(self, stream);
    }
}
