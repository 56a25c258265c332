//! Exit codes, and parsing of command lines.

use std::ffi::OsString;

use clap::Parser;

/// Success.
pub const EXIT_OK: u8 = 0;
/// The command line or the configuration is wrong, or names something that does not exist.
pub const EXIT_USAGE: u8 = 1;
/// The kernel, the fabric or the daemon refused.
pub const EXIT_REFUSED: u8 = 2;
/// The daemon does not answer. Only clients exit with this code.
pub const EXIT_UNREACHABLE: u8 = 3;

/// Parses a command line. `Err` is an exit status; usage errors, `--help` and `--version` have been printed.
/// (clap exits with 2 after a usage error.)
///
/// # Errors
/// [`EXIT_OK`] after `--help` and `--version`, [`EXIT_USAGE`] after a usage error.
pub fn parse_from<P: Parser>(argv: impl IntoIterator<Item = OsString>) -> Result<P, u8> {
    P::try_parse_from(argv).map_err(|error| {
        // Without stdout or stderr, the exit status remains.
        let _ = error.print();
        exit_status(&error)
    })
}

fn exit_status(error: &clap::Error) -> u8 {
    if error.use_stderr() {
        EXIT_USAGE
    } else {
        EXIT_OK
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::args::Args;

    #[test]
    fn exit_statuses() {
        let status = |line: &str| {
            let words = std::iter::once("ibtapd").chain(line.split_whitespace());
            let parsed = Args::try_parse_from(words);
            parsed.err().map(|error| exit_status(&error))
        };
        assert_eq!(status("--help"), Some(EXIT_OK));
        assert_eq!(status("--version"), Some(EXIT_OK));
        assert_eq!(status("--frobnicate"), Some(EXIT_USAGE));
        assert_eq!(status("--underlay eth0"), None);
    }
}
