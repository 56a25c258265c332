//! The daemon `ibtapd`: see [`control::config::args`] for its command line.

use std::env;
use std::process::ExitCode;

use control::config::args::{Action, Args};
use control::exit::{EXIT_OK, EXIT_REFUSED, EXIT_USAGE, parse_from};
use control::output::print_line;

fn main() -> ExitCode {
    let args: Args = match parse_from(env::args_os()) {
        Ok(args) => args,
        Err(status) => return status.into(),
    };
    match args.action() {
        Ok(Action::Checked(file, config)) => {
            let (file, served) = (file.display(), config.what_is_served());
            match print_line(format_args!("{file}: {served}, valid")) {
                Ok(()) => EXIT_OK.into(),
                Err(error) => {
                    control::logging::report_end("ibtapd", &error);
                    EXIT_REFUSED.into()
                }
            }
        }
        Ok(Action::Run(config, source)) => ibtapd::run::run(config, source).into(),
        Err(error) => {
            control::logging::report_end("ibtapd", &error);
            EXIT_USAGE.into()
        }
    }
}
