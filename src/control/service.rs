//! The protocol without sockets: a call's bytes in, a reply's bytes out. Never panics, whatever
//! the bytes are.

mod requests;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::api::{ApiError, INTERFACE, Reply, Request};
use requests::{Parameters, request};

/// Bytes of a call, its NUL not counted. No call of ours needs more than a few hundred.
pub const REQUEST_MAX: usize = 64 * 1024;

/// Bytes of a reply. The largest is a full table of connections: 16384 entries of some 700 bytes.
pub const REPLY_MAX: usize = 16 * 1024 * 1024;

const SERVICE: &str = "org.varlink.service";
const SERVICE_DESCRIPTION: &str = include_str!("org.varlink.service.varlink");
const DESCRIPTION: &str = include_str!("org.ibtap.Daemon.varlink");

/// What the daemon does for the server.
pub trait Handler {
    /// Answers one request. It is called on the control thread and should not take long.
    ///
    /// # Errors
    /// What the client is told instead.
    fn handle(&mut self, request: Request) -> Result<Reply, ApiError>;

    /// Begins the stream of replies to a request for which [`Request::is_stream`] holds.
    ///
    /// # Errors
    /// What the client is told instead.
    fn open(&mut self, stream: StreamId, request: Request) -> Result<(), ApiError>;

    /// The next reply of a stream. It is asked for only when the client has taken the one before,
    /// so whatever waits for a slow client waits in the handler, which has to bound it.
    fn next(&mut self, stream: StreamId) -> Streamed;

    /// The client of a stream is gone.
    fn close(&mut self, stream: StreamId);
}

/// Names a client that is answered by a stream; it has one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u64);

/// What a stream has for its client.
#[derive(Clone, Debug, PartialEq)]
pub enum Streamed {
    /// Nothing now.
    Nothing,
    /// A reply that others follow.
    Reply(Reply),
    /// The last reply; the stream is over.
    Last(Result<Reply, ApiError>),
}

/// What follows from a call.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Send this: a reply with its NUL.
    Reply(Vec<u8>),
    /// The call was one-way.
    Nothing,
    /// A stream began: [`next`] has the replies.
    Stream,
    /// Send this and close: the bytes were no call, and what follows cannot be trusted either.
    Last(Vec<u8>),
}

#[derive(Deserialize)]
struct Call {
    method: String,
    #[serde(default)]
    parameters: Option<Map<String, Value>>,
    #[serde(default)]
    oneway: bool,
    #[serde(default)]
    more: bool,
    #[serde(default)]
    upgrade: bool,
}

#[derive(Serialize)]
struct ReplyMessage<'a> {
    parameters: &'a Reply,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    continues: bool,
}

#[derive(Serialize)]
struct ErrorMessage<'a> {
    error: &'a str,
    parameters: &'a Value,
}

/// A varlink error: its qualified name and its parameters.
#[derive(Debug)]
struct Failure {
    error: String,
    parameters: Value,
}

impl Failure {
    fn service(error: &str, parameters: Value) -> Failure {
        Failure {
            error: format!("{SERVICE}.{error}"),
            parameters,
        }
    }

    fn invalid(parameter: &str) -> Failure {
        Failure::service("InvalidParameter", json!({ "parameter": parameter }))
    }

    fn unknown_method(method: &str) -> Failure {
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
        Failure {
            error: format!("{INTERFACE}.{name}"),
            parameters,
        }
    }
}

/// Answers the call in `frame` (without its NUL); a stream that it begins is called `stream`.
pub(super) fn answer(frame: &[u8], stream: StreamId, handler: &mut dyn Handler) -> Answer {
    let call: Call = match serde_json::from_slice(frame) {
        Ok(call) => call,
        Err(error) => return bad_request(&format!("this is no varlink call: {error}")),
    };
    let oneway = call.oneway;
    let answer = dispatch(call, stream, handler).unwrap_or_else(|f| Answer::Reply(refusal(&f)));
    if oneway { Answer::Nothing } else { answer }
}

/// The next reply of a stream with its NUL, if it has one now, and whether that is the last one.
pub(super) fn next(stream: StreamId, handler: &mut dyn Handler) -> Option<(Vec<u8>, bool)> {
    match handler.next(stream) {
        Streamed::Nothing => None,
        Streamed::Reply(reply) => Some((message(&reply, true), false)),
        Streamed::Last(Ok(reply)) => Some((message(&reply, false), true)),
        Streamed::Last(Err(error)) => Some((refusal(&error.into()), true)),
    }
}

fn message(reply: &Reply, continues: bool) -> Vec<u8> {
    encode(&ReplyMessage {
        parameters: reply,
        continues,
    })
}

fn refusal(failure: &Failure) -> Vec<u8> {
    encode(&ErrorMessage {
        error: &failure.error,
        parameters: &failure.parameters,
    })
}

/// Refuses what is not a call at all.
pub(super) fn bad_request(message: &str) -> Answer {
    Answer::Last(encode(&ErrorMessage {
        error: &format!("{INTERFACE}.BadRequest"),
        parameters: &json!({ "message": message }),
    }))
}

/// Refuses a call that would need memory which others hold.
pub(super) fn busy() -> Answer {
    Answer::Reply(refusal(&ApiError::Busy.into()))
}

fn dispatch(call: Call, stream: StreamId, handler: &mut dyn Handler) -> Result<Answer, Failure> {
    if call.upgrade {
        return Err(Failure::invalid("upgrade"));
    }
    let mut parameters = Parameters::new(call.parameters.unwrap_or_default());
    let Some((interface, method)) = call.method.rsplit_once('.') else {
        return Err(Failure::unknown_method(&call.method));
    };
    match interface {
        SERVICE => introspect(&call.method, method, parameters).map(Answer::Reply),
        INTERFACE => {
            let request = request(method, &mut parameters)
                .unwrap_or_else(|| Err(Failure::unknown_method(&call.method)))?;
            parameters.finish()?;
            if request.is_stream() {
                // Without an answer nobody would read the replies, nor could end them.
                if !call.more || call.oneway {
                    return Err(Failure::service("ExpectedMore", json!({})));
                }
                handler.open(stream, request)?;
                return Ok(Answer::Stream);
            }
            let bytes = message(&handler.handle(request)?, false);
            if bytes.len() > REPLY_MAX {
                return Err(ApiError::Refused {
                    message: format!("the reply is longer than {REPLY_MAX} bytes"),
                }
                .into());
            }
            Ok(Answer::Reply(bytes))
        }
        _ => Err(Failure::service(
            "InterfaceNotFound",
            json!({ "interface": interface }),
        )),
    }
}

/// The interface that every varlink service has.
fn introspect(full: &str, method: &str, mut parameters: Parameters) -> Result<Vec<u8>, Failure> {
    let reply = match method {
        "GetInfo" => json!({
            "vendor": env!("CARGO_PKG_AUTHORS"),
            "product": "ibtapd",
            "version": env!("CARGO_PKG_VERSION"),
            "url": env!("CARGO_PKG_REPOSITORY"),
            "interfaces": [SERVICE, INTERFACE],
        }),
        "GetInterfaceDescription" => {
            let interface = parameters.string("interface")?;
            let description = match interface.as_str() {
                SERVICE => SERVICE_DESCRIPTION,
                INTERFACE => DESCRIPTION,
                _ => {
                    return Err(Failure::service(
                        "InterfaceNotFound",
                        json!({ "interface": interface }),
                    ));
                }
            };
            json!({ "description": description })
        }
        _ => return Err(Failure::unknown_method(full)),
    };
    parameters.finish()?;
    Ok(encode(&json!({ "parameters": reply })))
}

fn encode(message: &impl Serialize) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(message)
        .expect("messages hold only strings, numbers, lists, and maps with string keys");
    bytes.push(0);
    bytes
}

#[cfg(test)]
pub(super) mod tests;
