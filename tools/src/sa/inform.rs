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
    subscribed(
        &mut session,
        |session, trap| session.ask(Request::subscribe(trap)).map(drop),
        |session| follow(session, format, interrupt.as_fd()),
        Session::unsubscribe,
    )?;
    Ok(EXIT_OK)
}

/// Subscribes, runs `during` if all subscriptions were accepted, and ends the accepted subscriptions.
fn subscribed<S>(
    session: &mut S,
    mut subscribe: impl FnMut(&mut S, u16) -> Result<(), Failure>,
    during: impl FnOnce(&mut S) -> Result<(), Failure>,
    mut unsubscribe: impl FnMut(&mut S, u16) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut accepted = Vec::new();
    let mut end = Ok(());
    for trap in TRAPS {
        end = subscribe(session, trap);
        if end.is_err() {
            break;
        }
        accepted.push(trap);
    }
    let end = end.and_then(|()| during(session));
    let mut accepted = accepted.into_iter();
    let unsubscribed = accepted.try_for_each(|trap| unsubscribe(session, trap));
    end.and(unsubscribed)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_subscription_ends_the_accepted_ones() {
        let mut in_force = Vec::new();
        let end = subscribed(
            &mut in_force,
            |in_force, trap| match in_force.len() {
                2 => Err(Failure::System("refused".into())),
                _ => {
                    in_force.push(trap);
                    Ok(())
                }
            },
            |_| panic!("not all subscriptions are in force"),
            |in_force, trap| {
                in_force.retain(|t| *t != trap);
                Ok(())
            },
        );
        assert!(matches!(end, Err(Failure::System(what)) if what == "refused"));
        assert!(in_force.is_empty(), "{in_force:?}");
    }
}
