//! The protocol without sockets: bytes of a call in, bytes of a reply out. No input causes a panic.

mod program;
mod requests;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::api::{ApiError, Interface, Nothing, Reply, Request};
pub use program::{Answered, Body, Caller, Failure, Identity, MethodCall, Program};
pub use requests::parameters;

/// Maximum number of bytes of a call, without its NUL. Usual calls have a few hundred bytes.
pub const REQUEST_MAX: usize = 64 * 1024;

/// Maximum number of bytes of a reply. The largest is a full table of connections: 16384 entries of about 700
/// bytes.
pub const REPLY_MAX: usize = 16 * 1024 * 1024;

const SERVICE: &str = "org.varlink.service";
const SERVICE_DESCRIPTION: &str = include_str!("../org.varlink.service.varlink");
const DESCRIPTION: &str = include_str!("../org.ibtap.Daemon.varlink");

/// The daemon's part of the server.
pub trait Handler {
    /// Answers a request. It runs on the control thread and must be fast.
    ///
    /// # Errors
    /// The error for the client.
    fn handle(&mut self, request: Request) -> Result<Reply, ApiError>;

    /// Begins the stream of replies to a request for which [`Request::is_stream`] is true.
    ///
    /// # Errors
    /// The error for the client.
    fn open(&mut self, stream: StreamId, request: Request) -> Result<(), ApiError>;

    /// The next reply of a stream. The server calls it when the previous reply is written. So replies for a slow
    /// client wait in the handler, which must bound their number.
    fn next(&mut self, stream: StreamId) -> Streamed;

    /// Ends a stream whose client has disconnected.
    fn close(&mut self, stream: StreamId);
}

/// The client of a stream. A client has one stream at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u64);

/// The next item of a stream.
#[derive(Clone, Debug, PartialEq)]
pub enum Streamed {
    /// No reply is available.
    Nothing,
    /// A reply; further replies follow.
    Reply(Reply),
    /// The last reply.
    Last(Result<Reply, ApiError>),
}

/// The result of a call.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Send this reply, which includes its NUL.
    Reply(Vec<u8>),
    /// Send no reply: the call was one-way.
    Nothing,
    /// Send a stream: [`next`] returns the replies.
    Stream,
    /// Send this reply and close: the bytes were not a call.
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
struct ErrorMessage<'a> {
    error: &'a str,
    parameters: &'a Value,
}

/// Answers the call in `frame` (without its NUL). `stream` identifies a stream that begins.
pub(super) fn answer(
    frame: &[u8],
    (stream, caller): (StreamId, Caller),
    program: &mut dyn Program,
) -> Answer {
    let call: Call = match serde_json::from_slice(frame) {
        Ok(call) => call,
        Err(error) => {
            return bad_request(
                program,
                &format!("the message is not a varlink call: {error}"),
            );
        }
    };
    let oneway = call.oneway;
    let answer =
        dispatch(call, (stream, caller), program).unwrap_or_else(|f| Answer::Reply(refusal(&f)));
    match (oneway, answer) {
        (false, answer) => answer,
        // The client does not read replies.
        (true, Answer::Stream) => {
            program.close(stream);
            Answer::Nothing
        }
        (true, _) => Answer::Nothing,
    }
}

/// The next reply of a stream with its NUL, if available, and whether it is the last reply.
pub(super) fn next(stream: StreamId, program: &mut dyn Program) -> Option<(Vec<u8>, bool)> {
    match program.next(stream) {
        Ok(None) => None,
        Ok(Some((body, last))) => Some((body.message(!last), last)),
        Err(failure) => Some((refusal(&failure), true)),
    }
}

fn refusal(failure: &Failure) -> Vec<u8> {
    encode(&ErrorMessage {
        error: &failure.error,
        parameters: &failure.parameters,
    })
}

/// Refuses a message that is not a call.
pub(super) fn bad_request(program: &dyn Program, message: &str) -> Answer {
    let interface = program.identity().interface;
    let failure = Failure::new(interface, "BadRequest", json!({ "message": message }));
    Answer::Last(refusal(&failure))
}

/// Refuses a call because the replies of other clients use the memory.
pub(super) fn busy(program: &dyn Program) -> Answer {
    let interface = program.identity().interface;
    Answer::Reply(refusal(&Failure::new(interface, "Busy", json!({}))))
}

fn dispatch(
    call: Call,
    (stream, caller): (StreamId, Caller),
    program: &mut dyn Program,
) -> Result<Answer, Failure> {
    if call.upgrade {
        return Err(Failure::invalid("upgrade"));
    }
    let own = program.identity();
    let parameters = call.parameters.unwrap_or_default();
    let Some((interface, method)) = call.method.rsplit_once('.') else {
        return Err(Failure::unknown_method(&call.method));
    };
    if interface == SERVICE {
        return introspect(own, &call.method, method, parameters).map(Answer::Reply);
    }
    if interface != own.interface {
        return Err(Failure::service(
            "InterfaceNotFound",
            json!({ "interface": interface }),
        ));
    }
    let answered = program.call(MethodCall {
        method: method.to_owned(),
        parameters,
        // The client of a one-way call does not read replies and cannot end a stream.
        more: call.more && !call.oneway,
        stream,
        caller,
    })?;
    let Answered::Reply(body) = answered else {
        return Ok(Answer::Stream);
    };
    let bytes = body.message(false);
    if bytes.len() > REPLY_MAX {
        let message = format!("the reply is longer than {REPLY_MAX} bytes");
        return Err(Failure::new(
            own.interface,
            "Refused",
            json!({ "message": message }),
        ));
    }
    Ok(Answer::Reply(bytes))
}

/// The interface that every varlink service has.
fn introspect(
    own: Identity,
    full: &str,
    method: &str,
    parameters: Map<String, Value>,
) -> Result<Vec<u8>, Failure> {
    let reply = match method {
        "GetInfo" => {
            let Nothing {} = requests::parameters(parameters)?;
            json!({
            "vendor": env!("CARGO_PKG_AUTHORS"),
            "product": own.product,
            "version": env!("CARGO_PKG_VERSION"),
            "url": env!("CARGO_PKG_REPOSITORY"),
            "interfaces": [SERVICE, own.interface],
            })
        }
        "GetInterfaceDescription" => {
            let Interface { interface } = requests::parameters(parameters)?;
            let description = if interface == SERVICE {
                SERVICE_DESCRIPTION
            } else if interface == own.interface {
                own.description
            } else {
                return Err(Failure::service(
                    "InterfaceNotFound",
                    json!({ "interface": interface }),
                ));
            };
            json!({ "description": description })
        }
        _ => return Err(Failure::unknown_method(full)),
    };
    Ok(encode(&json!({ "parameters": reply })))
}

fn encode(message: &impl Serialize) -> Vec<u8> {
    let mut bytes = json_of(message);
    bytes.push(0);
    bytes
}

fn json_of(message: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(message)
        .expect("messages hold only strings, numbers, lists, and maps with string keys")
}

#[cfg(test)]
pub(super) mod tests;
