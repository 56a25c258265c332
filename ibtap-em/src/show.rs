//! Commands that query a running manager, and their output.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use control::exit::{EXIT_OK, EXIT_REFUSED};
use serde::Serialize;

use crate::api::{DrainRequest, ExplainRequest, PortSelection, Role, VeswSelection};
use crate::args::{Cli, Command, DEFAULT_EM_SOCKET};
use crate::client::{Failure, ask};
use crate::server::Reply;

mod text;

/// Runs a command and returns the exit status. Errors are one sentence on stderr.
pub fn run(cli: &Cli) -> u8 {
    let socket = cli
        .em_socket
        .clone()
        .unwrap_or_else(|| PathBuf::from(DEFAULT_EM_SOCKET));
    match request(&socket, &cli.command) {
        Ok(reply) => match render(cli, reply) {
            Ok(output) => print(&output),
            Err(error) => complain(&format!("cannot write JSON: {error}"), EXIT_REFUSED),
        },
        Err(failure) => complain(&failure.to_string(), failure.status),
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

fn render(cli: &Cli, reply: Reply) -> serde_json::Result<String> {
    if !cli.json {
        let zeros = matches!(cli.command, Command::Counters { zeros: true, .. });
        return Ok(text::of(&reply, zeros));
    }
    match &reply {
        Reply::Status(one) => json(cli, &[one]),
        Reply::Explanation(one) => json(cli, &[one]),
        Reply::Drain(one) => json(cli, &[one]),
        Reply::Vesws(all) => json(cli, all),
        Reply::Ports(all) => json(cli, all),
        Reply::Macs(all) => json(cli, all),
        Reply::Counters(all) => json(cli, all),
    }
}

fn json<T: Serialize>(cli: &Cli, items: &[T]) -> serde_json::Result<String> {
    let text = match cli.pretty {
        true => serde_json::to_string_pretty(items),
        false => serde_json::to_string(items),
    };
    Ok(text? + "\n")
}

fn print(output: &str) -> u8 {
    let mut stdout = io::stdout().lock();
    let written = stdout
        .write_all(output.as_bytes())
        .and_then(|()| stdout.flush());
    match written {
        // The reader of stdout has closed it: not an error.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            complain(&format!("cannot write to stdout: {error}"), EXIT_REFUSED)
        }
        _ => EXIT_OK,
    }
}

/// Without stderr, the exit status is the only report.
fn complain(message: &str, status: u8) -> u8 {
    let _ = writeln!(io::stderr(), "ibtap-em: {message}");
    status
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
