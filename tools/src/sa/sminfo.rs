//! `ibtap sa sminfo`: asks the subnet manager itself, else subnet administration.

use std::time::{Duration, Instant};

use control::exit::EXIT_OK;
use fabric::mad::class::SUBN_LID_ROUTED;
use fabric::mad::sa::NodeRecord;
use fabric::mad::smp::{self, SmInfo};
use fabric::sa::Request;
use fabric::umad::{Agent, PortAttributes, To, Umad};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::Serialize;

use super::session::Session;
use crate::cli::SaArgs;
use crate::output::{Failure, Format, print};

/// Transmissions of the question.
const TRIES: u32 = 3;

/// What is printed.
#[derive(Debug, Serialize)]
struct Shown {
    sm_lid: u16,
    sm_sl: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    sm_guid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    activity_count: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
    node: Option<String>,
}

/// Prints the subnet manager of the port.
pub fn run(args: &SaArgs, format: Format) -> Result<u8, Failure> {
    let mut session = Session::open(args)?;
    let port = session.attributes().clone();
    let wait = Duration::from_millis(args.timeout.0.into());
    let info = ask_manager(session.umad(), &port, wait)?;
    // The administrator of the same port knows the node's name.
    let node = session.ask(Request::node(port.sm_lid));
    let node = match (node, info) {
        (Ok(response), _) => response.first::<NodeRecord>(),
        (Err(_), Some(_)) => None,
        (Err(failure), None) => return Err(failure),
    };
    let guid = info.map(|info| info.guid);
    let guid = guid.or_else(|| node.map(|node| node.port_guid));
    let shown = Shown {
        sm_lid: port.sm_lid.0,
        sm_sl: port.sm_sl,
        sm_guid: guid.map(|guid| format!("{:#x}", u64::from_be_bytes(guid.0))),
        activity_count: info.map(|info| info.activity_count),
        priority: info.map(|info| info.priority),
        state: info.map(SmInfo::state_name),
        node: node.map(|node| node.description()),
    };
    print(format, &[shown], |shown| {
        shown.iter().map(|shown| text(shown, info)).collect()
    })?;
    Ok(EXIT_OK)
}

/// The line of sminfo(8), and what it leaves out.
fn text(shown: &Shown, info: Option<SmInfo>) -> String {
    let mut line = format!("sminfo: sm lid {}", shown.sm_lid);
    if let Some(guid) = &shown.sm_guid {
        line += &format!(" sm guid {guid}");
    }
    line += &match info {
        Some(info) => format!(
            ", activity count {} priority {} state {} {}",
            info.activity_count,
            info.priority,
            info.state,
            info.state_name()
        ),
        None => ", the manager does not answer here".to_owned(),
    };
    line += &format!(", sl {}", shown.sm_sl);
    if let Some(node) = &shown.node {
        line += &format!(", node {node}");
    }
    line + "\n"
}

/// SMInfo of the manager; `None` if the kernel refuses questions to QP0, or nothing answers.
fn ask_manager(
    umad: &Umad,
    port: &PortAttributes,
    wait: Duration,
) -> Result<Option<SmInfo>, Failure> {
    let Ok(agent) = umad.register(Agent::SM) else {
        return Ok(None);
    };
    let to = To::smi(port.sm_lid);
    for id in 1..=TRIES {
        let question = smp::get(SUBN_LID_ROUTED, id, smp::SM_INFO, 0);
        if umad.send(agent, &to, &question, wait).is_err() {
            return Ok(None);
        }
        let end = Instant::now() + wait;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).unwrap_or_default();
            let mut fd = [PollFd::from_borrowed_fd(umad.event_fd(), PollFlags::IN)];
            match poll(&mut fd, Some(&timeout)) {
                Ok(0) => break,
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(Failure::System(format!("cannot wait for an answer: {e}"))),
            }
            let received = umad.receive()?;
            let answer = received.filter(|r| r.agent == agent && r.status == 0);
            if let Some(info) = answer.and_then(|r| SmInfo::parse(&r.mad)) {
                return Ok(Some(info));
            }
        }
    }
    Ok(None)
}
