//! Methods of the manager's control socket.

use std::collections::BTreeMap;

use control::{Answered, Body, Caller, Failure, Identity, MethodCall, Program, StreamId};
use proto::Time;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::api::{
    CountersInfo, DrainRequest, Drained, Explanation, INTERFACE, MacInfo, PortInfo, StatusInfo,
    VeswInfo,
};
use crate::outbox::{self, Disk};
use crate::runtime::Runtime;
use crate::seam::{Inquiry, Manager};

const DESCRIPTION: &str = include_str!("org.ibtap.EthernetManager.varlink");

/// Maximum number of requests for counters that wait for agents, of all clients.
pub const INQUIRIES_MAX: usize = 16;

/// Replies. Each has one member.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// To `Status`.
    Status(StatusInfo),
    /// To `Vesws`.
    Vesws(Vec<VeswInfo>),
    /// To `Ports`.
    Ports(Vec<PortInfo>),
    /// To `Macs`.
    Macs(Vec<MacInfo>),
    /// To `Counters`.
    Counters(Vec<CountersInfo>),
    /// To `Explain`.
    Explanation(Explanation),
    /// To `Drain`.
    Drain(Drained),
}

/// Clients that wait for counters.
#[derive(Debug, Default)]
pub struct Waiting(BTreeMap<StreamId, Inquiry>);

impl Waiting {
    /// Whether no client waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The manager during one turn of the control socket.
#[derive(Debug)]
pub struct Served<'a, M> {
    /// The manager.
    pub runtime: &'a mut Runtime<M>,
    /// Clients that wait for counters.
    pub waiting: &'a mut Waiting,
    /// Storage of the state.
    pub disk: &'a dyn Disk,
    /// The time.
    pub now: Time,
    /// Control socket of `ibtapd`, for `status`.
    pub ibtapd: String,
}

impl<M: Manager> Served<'_, M> {
    /// The state is saved before the reply: a drain that a client has seen survives a crash.
    fn drain(&mut self, request: &DrainRequest, caller: Caller) -> Result<Drained, Failure> {
        let Caller { uid, pid, .. } = caller;
        if !caller.may_change {
            let message = format!("user {uid} may only read; use root or the user of ibtap-em");
            return Err(refused(&message));
        }
        let undo = if request.undo { " --undo" } else { "" };
        log::info!(
            "drain {:?}{undo} by user {uid}, process {pid}",
            request.target
        );
        let drained = self.runtime.engine.drain(self.now, request);
        let drained = drained.map_err(unknown)?;
        outbox::save(self.runtime, self.now, self.disk);
        match self.runtime.engine.save_problem() {
            None => Ok(drained),
            Some(why) => Err(refused(&format!(
                "done, but a restart of the manager undoes it: {why}"
            ))),
        }
    }
}

impl<M: Manager> Program for Served<'_, M> {
    fn identity(&self) -> Identity {
        Identity {
            product: "ibtap-em",
            interface: INTERFACE,
            description: DESCRIPTION,
        }
    }

    fn call(&mut self, call: MethodCall) -> Result<Answered, Failure> {
        let engine = &mut self.runtime.engine;
        let reply = match call.method.as_str() {
            "Status" => {
                let Nothing {} = parameters(call.parameters)?;
                Reply::Status(self.runtime.status(self.now, self.ibtapd.clone()))
            }
            "Vesws" => Reply::Vesws(
                engine
                    .vesws(&parameters(call.parameters)?)
                    .map_err(unknown)?,
            ),
            "Ports" => {
                let which = parameters(call.parameters)?;
                Reply::Ports(engine.ports(self.now, &which).map_err(unknown)?)
            }
            "Macs" => Reply::Macs(
                engine
                    .macs(&parameters(call.parameters)?)
                    .map_err(unknown)?,
            ),
            "Counters" => {
                if self.waiting.0.len() >= INQUIRIES_MAX {
                    return Err(Failure::new(INTERFACE, "Busy", json!({})));
                }
                let which = parameters(call.parameters)?;
                let inquiry = engine.ask_counters(self.now, &which).map_err(unknown)?;
                if let Some(former) = self.waiting.0.insert(call.stream, inquiry) {
                    engine.forget_counters(former);
                }
                return Ok(Answered::Later);
            }
            "Explain" => {
                let request = parameters(call.parameters)?;
                Reply::Explanation(engine.explain(&request).map_err(unknown)?)
            }
            "Drain" => {
                let request = parameters(call.parameters)?;
                Reply::Drain(self.drain(&request, call.caller)?)
            }
            other => return Err(Failure::unknown_method(&format!("{INTERFACE}.{other}"))),
        };
        Ok(Answered::Reply(Body::of(&reply)))
    }

    fn next(&mut self, stream: StreamId) -> Result<Option<(Body, bool)>, Failure> {
        let Some(&inquiry) = self.waiting.0.get(&stream) else {
            return Ok(None);
        };
        let Some(counters) = self.runtime.engine.take_counters(inquiry) else {
            return Ok(None);
        };
        self.waiting.0.remove(&stream);
        Ok(Some((Body::of(&Reply::Counters(counters)), true)))
    }

    fn close(&mut self, stream: StreamId) {
        if let Some(inquiry) = self.waiting.0.remove(&stream) {
            self.runtime.engine.forget_counters(inquiry);
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// A refusal, with its reason.
fn refused(message: &str) -> Failure {
    Failure::new(INTERFACE, "Refused", json!({ "message": message }))
}

/// A refusal by the engine: an error of a value from the client.
fn unknown(message: String) -> Failure {
    Failure::new(INTERFACE, "BadArgument", json!({ "message": message }))
}

/// Reads the parameters. Null is a missing one.
fn parameters<P: DeserializeOwned>(parameters: Map<String, Value>) -> Result<P, Failure> {
    let given = parameters.into_iter().filter(|(_, value)| !value.is_null());
    control::parameters(given.collect())
}

#[cfg(test)]
mod tests;
