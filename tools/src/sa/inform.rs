//! `ibtap sa inform`: prints Reports until Ctrl-C.

use std::os::fd::AsFd;

use control::exit::EXIT_OK;
use fabric::mad::sa::{Notice, trap};
use fabric::sa::{Event, Request};
use fabric::umad::Agent;
use serde::Serialize;

use super::session::{Session, Woken};
use crate::cli::SaArgs;
use crate::follow::interrupt;
use crate::output::{Failure, Format, print_line};

const TRAPS: [u16; 4] = [
    trap::GID_IN_SERVICE,
    trap::GID_OUT_OF_SERVICE,
    trap::GROUP_CREATED,
    trap::GROUP_DELETED,
];

/// A line of output.
#[derive(Debug, Serialize)]
struct Reported {
    trap: u16,
    what: String,
    gid: Option<String>,
    issuer_lid: u16,
}

/// Subscribes, prints Reports, and ends the subscriptions.
pub fn run(args: &SaArgs, format: Format) -> Result<u8, Failure> {
    let interrupt = interrupt()?;
    let mut session = Session::with(args, Agent::REPORTS)?;
    for trap in TRAPS {
        session.ask(Request::subscribe(trap))?;
    }
    let end = follow(&mut session, format, interrupt.as_fd());
    let unsubscribed = TRAPS
        .into_iter()
        .try_for_each(|trap| session.unsubscribe(trap));
    end.and(unsubscribed).map(|()| EXIT_OK)
}

fn follow(
    session: &mut Session,
    format: Format,
    interrupt: rustix::fd::BorrowedFd<'_>,
) -> Result<(), Failure> {
    loop {
        match session.next(interrupt)? {
            Woken::Interrupted => return Ok(()),
            Woken::Event(Event::Reported(notice)) => show(&notice, format)?,
            Woken::Event(Event::Answered { .. }) => {}
        }
    }
}

fn show(notice: &Notice, format: Format) -> Result<(), Failure> {
    let reported = Reported {
        trap: notice.trap,
        what: notice.to_string(),
        gid: notice.gid().map(|gid| gid.to_string()),
        issuer_lid: notice.issuer_lid.0,
    };
    print_line(format, &reported, |r| {
        format!("trap {} from LID {}: {}\n", r.trap, r.issuer_lid, r.what)
    })
}
