//! `ibtap`: asks a running `ibtapd`, and reads captures.
//!
//! Exit status: 0 success, 1 wrong usage or no such interface, 2 refused, 3 no daemon answers.
//! `ibtap decode` has its own: see [`tools::decode`]. `ibtap doctor` exits with 2 if it finds what
//! keeps ibtap from working.

#![forbid(unsafe_code)]

mod ask;
mod cli;
mod doctor;
mod follow;
mod generate;
mod output;
mod text;

use std::process::ExitCode;

use cli::{Cli, Command};
use control::exit::EXIT_OK;
use output::{Failure, Format};
use tools::decode;

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
        Command::Decode(args) => Ok(decode::run(&args, cli.json)),
        command => ask::run(&cli, &command),
    }
}
