//! The program `ibtap-em`: see [`ibtap_em::args`] for its command line.
//!
//! Exit status: 0 success, 1 wrong usage or configuration, 2 refused, 3 no manager answers.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use ibtap_em::args::{Cli, Command};
use ibtap_em::{run, show};

fn main() -> ExitCode {
    let status = match control::exit::parse_from::<Cli>(std::env::args_os()) {
        Ok(cli) => match &cli.command {
            Command::Run(args) => run::run(&cli, args),
            _ => show::run(&cli),
        },
        Err(status) => status,
    };
    ExitCode::from(status)
}
