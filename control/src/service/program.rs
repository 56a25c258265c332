//! What a server serves: the varlink interface of a program. `ibtapd`'s is made of a [`Handler`]; other
//! programs of ours implement [`Program`] themselves.

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::requests::request;
use super::{DESCRIPTION, Handler, SERVICE, StreamId, Streamed};
use crate::api::{ApiError, INTERFACE, Reply, Request};

/// Which program it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its name.
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
    /// Its parameters, not looked at yet.
    pub parameters: Map<String, Value>,
    /// The client takes more than one reply.
    pub more: bool,
    /// The client, should the replies come later.
    pub stream: StreamId,
}

/// What came of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answered {
    /// The reply's parameters.
    Reply(Body),
    /// [`Program::next`] has the reply, or the replies.
    Later,
}

/// The parameters of a reply, a JSON object whose keys are in the order in which they were written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body(Vec<u8>);

impl Body {
    /// Parameters that serialise to an object.
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

/// A program with an interface of its own.
pub trait Program {
    /// Which one it is.
    fn identity(&self) -> Identity;

    /// Answers a call. It is called on the control thread and should not take long.
    ///
    /// # Errors
    /// What the client is told instead.
    fn call(&mut self, call: MethodCall) -> Result<Answered, Failure>;

    /// The next reply that was to come later, if there is one now: its parameters, and whether it is the
    /// last.
    ///
    /// # Errors
    /// What the client is told instead; it is the last reply.
    fn next(&mut self, stream: StreamId) -> Result<Option<(Body, bool)>, Failure>;

    /// The client whose reply was to come later is gone.
    fn close(&mut self, stream: StreamId);
}

/// A varlink error: its qualified name and its parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    pub(super) error: String,
    pub(super) parameters: Value,
}

impl Failure {
    /// One that every varlink service has.
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

    /// A parameter is missing, unknown, or not what it should be.
    pub fn invalid(parameter: &str) -> Failure {
        Failure::service("InvalidParameter", json!({ "parameter": parameter }))
    }

    /// There is no such method; `method` has the interface's name.
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
