//! `ibtap`: controls and inspects a running `ibtapd`, and decodes captures.
//!
//! Exit status: 0 success, 1 wrong usage or no such interface, 2 error of the daemon or the system, 3 no
//! answer from a daemon. [`decode`] describes the exit statuses of `ibtap decode`. `ibtap doctor`
//! exits with 2 for a fault that keeps ibtap from working. `ibtap sa` exits with 1 also without such a
//! record, and with 3 without an answer of the subnet.

#![forbid(unsafe_code)]

mod ask;
mod bugreport;
mod cli;
mod doctor;
mod follow;
mod generate;
mod output;
mod resources;
mod sa;
mod text;
mod top;

use std::process::ExitCode;

use cli::{Cli, Command};
use control::exit::EXIT_OK;
use output::{Failure, Format};

fn main() -> ExitCode {
    let status = match control::exit::parse_from(std::env::args_os()) {
        Ok(cli) => match run(cli) {
            Ok(status) => status,
            Err(failure) => failure.report(),
        },
        Err(status) => status,
    };
    ExitCode::from(status)
}

fn run(cli: Cli) -> Result<u8, Failure> {
    let command = cli.command.clone().unwrap_or_default();
    match command {
        Command::Generate { directory } => {
            generate::write(&directory)?;
            Ok(EXIT_OK)
        }
        Command::Doctor(args) => doctor::run(&args, &cli.socket, Format::of(&cli)),
        Command::Bugreport(args) => bugreport::run(&args, &cli.socket, Format::of(&cli)),
        Command::Sa(args) => sa::run(&args, Format::of(&cli)),
        Command::Top(args) => {
            top::run(&args, &cli.socket, Format::of(&cli))?;
            Ok(EXIT_OK)
        }
        Command::Decode(args) => Ok(decode::run(&args, Format::of(&cli).into())),
        command => ask::run(&cli, &command),
    }
}
