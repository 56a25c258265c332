//! Commands that query a running manager, and their output.

use std::path::{Path, PathBuf};

use control::exit::{EXIT_OK, EXIT_REFUSED};
use control::output::{self, OutputError, json};
use serde::Serialize;

use crate::api::{DrainRequest, ExplainRequest, PortSelection, Role, VeswSelection};
use crate::args::{Cli, Command, DEFAULT_EM_SOCKET};
use crate::client::{Failure, ask};
use crate::server::Reply;

mod text;

/// The name before errors.
const PROGRAM: &str = "ibtap-em";

/// Runs a command and returns the exit status. Errors are one sentence on stderr.
pub fn run(cli: &Cli) -> u8 {
    let socket = cli
        .em_socket
        .clone()
        .unwrap_or_else(|| PathBuf::from(DEFAULT_EM_SOCKET));
    match request(&socket, &cli.command) {
        Ok(reply) => match render(cli, &reply).and_then(output::print) {
            // The reader may have closed stdout.
            Ok(_) => EXIT_OK,
            Err(error) => {
                output::complain(PROGRAM, error);
                EXIT_REFUSED
            }
        },
        Err(failure) => {
            output::complain(PROGRAM, &failure);
            failure.status
        }
    }
}

fn request(socket: &Path, command: &Command) -> Result<Reply, Failure> {
    #[derive(Serialize)]
    struct Nothing {}
    let of = |vesw: &Option<String>| VeswSelection { vesw: vesw.clone() };
    match command {
        Command::Status => ask(socket, "Status", Nothing {}),
        Command::Vesw { vesw } => ask(socket, "Vesws", of(vesw)),
        Command::Port { vesw } => ask(socket, "Ports", of(vesw)),
        Command::Mac { vesw } => ask(socket, "Macs", of(vesw)),
        Command::Counters { port, .. } => {
            ask(socket, "Counters", PortSelection { port: port.clone() })
        }
        Command::Explain(args) => ask(
            socket,
            "Explain",
            ExplainRequest {
                vesw: args.vesw.clone(),
                dst: args.dst,
                vid: args.vid,
                pcp: args.pcp,
            },
        ),
        Command::Drain { target, undo } => ask(
            socket,
            "Drain",
            DrainRequest {
                target: target.clone(),
                undo: *undo,
            },
        ),
        Command::Run(_) => unreachable!("main runs this command"),
    }
}

fn render(cli: &Cli, reply: &Reply) -> Result<String, OutputError> {
    if !cli.json {
        let zeros = matches!(cli.command, Command::Counters { zeros: true, .. });
        return Ok(text::of(reply, zeros));
    }
    match reply {
        Reply::Status(one) => json(&[one], cli.pretty),
        Reply::Explanation(one) => json(&[one], cli.pretty),
        Reply::Drain(one) => json(&[one], cli.pretty),
        Reply::Vesws(all) => json(all, cli.pretty),
        Reply::Ports(all) => json(all, cli.pretty),
        Reply::Macs(all) => json(all, cli.pretty),
        Reply::Counters(all) => json(all, cli.pretty),
    }
}

impl Role {
    /// Text of a role in `status`.
    fn meaning(self) -> &'static str {
        match self {
            Role::Detached => "detached: no fabric port",
            Role::Listening => "listening for other managers",
            Role::Standby => "standby: another manager is active",
            Role::Claiming => "claiming: about to become active",
            Role::Active => "active",
        }
    }
}
