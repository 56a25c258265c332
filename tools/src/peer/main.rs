//! `ibtap-peer`: see [`tools::peer`].
//!
//! Exit status: 0 all messages arrived unchanged, 1 wrong usage, 2 other errors.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use control::exit::EXIT_REFUSED;
use control::output::complain;
use tools::peer;

fn main() -> ExitCode {
    let cli = match control::exit::parse_from(std::env::args_os()) {
        Ok(cli) => cli,
        Err(status) => return ExitCode::from(status),
    };
    match peer::run(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain("ibtap-peer", format_args!("{error:#}"));
            ExitCode::from(EXIT_REFUSED)
        }
    }
}
