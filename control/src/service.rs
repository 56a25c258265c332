//! The protocol without sockets: a call's bytes in, a reply's bytes out. Never panics, whatever
//! the bytes are.

mod program;
mod requests;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::api::{ApiError, Interface, Nothing, Reply, Request};
pub use program::{Answered, Body, Failure, Identity, MethodCall, Program};

/// Bytes of a call, its NUL not counted. No call of ours needs more than a few hundred.
pub const REQUEST_MAX: usize = 64 * 1024;

/// Bytes of a reply. The largest is a full table of connections: 16384 entries of some 700 bytes.
pub const REPLY_MAX: usize = 16 * 1024 * 1024;

const SERVICE: &str = "org.varlink.service";
const SERVICE_DESCRIPTION: &str = include_str!("../org.varlink.service.varlink");
const DESCRIPTION: &str = include_str!("../org.ibtap.Daemon.varlink");

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
struct ErrorMessage<'a> {
    error: &'a str,
    parameters: &'a Value,
}

/// Answers the call in `frame` (without its NUL); a stream that it begins is called `stream`.
pub(super) fn answer(frame: &[u8], stream: StreamId, program: &mut dyn Program) -> Answer {
    let call: Call = match serde_json::from_slice(frame) {
        Ok(call) => call,
        Err(error) => {
            return bad_request(program, &format!("this is no varlink call: {error}"));
        }
    };
    let oneway = call.oneway;
    let answer = dispatch(call, stream, program).unwrap_or_else(|f| Answer::Reply(refusal(&f)));
    match (oneway, answer) {
        (false, answer) => answer,
        // Nobody would take what comes later.
        (true, Answer::Stream) => {
            program.close(stream);
            Answer::Nothing
        }
        (true, _) => Answer::Nothing,
    }
}

/// The next reply of a stream with its NUL, if it has one now, and whether that is the last one.
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

/// Refuses what is not a call at all.
pub(super) fn bad_request(program: &dyn Program, message: &str) -> Answer {
    let interface = program.identity().interface;
    let failure = Failure::new(interface, "BadRequest", json!({ "message": message }));
    Answer::Last(refusal(&failure))
}

/// Refuses a call that would need memory which others hold.
pub(super) fn busy(program: &dyn Program) -> Answer {
    let interface = program.identity().interface;
    Answer::Reply(refusal(&Failure::new(interface, "Busy", json!({}))))
}

fn dispatch(call: Call, stream: StreamId, program: &mut dyn Program) -> Result<Answer, Failure> {
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
        // Without an answer nobody would read the replies, nor could end them.
        more: call.more && !call.oneway,
        stream,
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
