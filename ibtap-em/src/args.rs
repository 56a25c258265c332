//! The command line of `ibtap-em`.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use control::api::{LogLevel, MacAddress};

/// Default path of the manager's control socket.
pub const DEFAULT_EM_SOCKET: &str = "/run/ibtap/ibtap-em.sock";

/// Default path of the configuration.
pub const DEFAULT_CONFIG: &str = "/etc/ibtap/ibtap-em.toml";

const EXIT_STATUS: &str = "\
Exit status: 0 success, 1 wrong usage or configuration, or no such switch or
port, 2 the manager or the system refused, 3 no manager answers.";

/// Run the Ethernet Manager of VNICs, or query a running manager
///
/// The manager finds the nodes whose ibtapd has managed VNICs, makes these VNICs members of the virtual
/// Ethernet switches of its configuration, and keeps them configured. It reaches the fabric through the
/// ibtapd of its own node. While no manager runs, traffic continues.
#[derive(Clone, Debug, Parser)]
#[command(name = "ibtap-em", version = control::version::version(), max_term_width = 80, after_help = EXIT_STATUS)]
#[command(infer_subcommands = true, disable_help_subcommand = true)]
pub struct Cli {
    /// Control socket of the manager [default: /run/ibtap/ibtap-em.sock; run: as configured]
    #[arg(long, short = 'S', value_name = "PATH", global = true)]
    pub em_socket: Option<PathBuf>,

    /// Print JSON: an array of objects [default: text]
    #[arg(long, short, global = true)]
    pub json: bool,

    /// With --json: indent the output [default: one line]
    #[arg(long, short, global = true)]
    pub pretty: bool,

    /// Command
    #[command(subcommand)]
    pub command: Command,
}

/// Commands.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Run the manager in the foreground, until SIGTERM or SIGINT
    Run(RunArgs),
    /// Role, fabric port, other managers, and problems
    Status,
    /// Switches
    Vesw {
        /// Only this switch, by name or number [default: all]
        #[arg(value_name = "SWITCH")]
        vesw: Option<String>,
    },
    /// Virtual ports: node, interface, switch, LID, address, and condition
    Port {
        /// Only ports of this switch, by name or number [default: all]
        #[arg(value_name = "SWITCH")]
        vesw: Option<String>,
    },
    /// Ethernet addresses and their ports
    Mac {
        /// Only addresses of this switch, by name or number [default: all]
        #[arg(value_name = "SWITCH")]
        vesw: Option<String>,
    },
    /// Counters of virtual ports, read from their agents
    Counters {
        /// Only these ports: GUID:PORT:INDEX or DESCRIPTION:PORT:INDEX, with * and ? [default: all members of
        /// switches]
        #[arg(value_name = "PORT")]
        port: Option<String>,
        /// Print zero counters as well [default: omit them]
        #[arg(long, short)]
        zeros: bool,
    },
    /// Explain where a frame goes: destination LID, service class, and the reason
    Explain(ExplainArgs),
    /// Make a switch or ports drop all frames, or forward again
    ///
    /// The manager keeps this state over restarts.
    Drain {
        /// Switch by name or number, or ports as GUID:PORT:INDEX or DESCRIPTION:PORT:INDEX, with * and ?
        #[arg(value_name = "SWITCH|PORT")]
        target: String,
        /// Forward again
        #[arg(long, short)]
        undo: bool,
    },
}

/// Run the manager in the foreground, until SIGTERM or SIGINT
///
/// SIGHUP reads the configuration again. If it has an error, the manager logs the error and keeps the running
/// configuration.
#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    /// TOML file with switches and their members
    #[arg(long, short, value_name = "FILE", default_value = DEFAULT_CONFIG)]
    pub config: PathBuf,

    /// Check the configuration and exit
    #[arg(long)]
    pub check_config: bool,

    /// Control socket of this node's ibtapd [default: as configured, else /run/ibtap/ibtapd.sock]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,

    /// Fabric port: its name in `ibtap res`, or its underlay [default: as configured, else the only port of
    /// ibtapd]
    #[arg(long, value_name = "PORT")]
    pub port: Option<String>,

    /// Log level, on stderr [default: as configured, else info]
    #[arg(long, value_name = "LEVEL", value_enum)]
    pub log_level: Option<LogLevel>,
}

/// Explain where a frame goes: destination LID, service class, and the reason
#[derive(Clone, Debug, Args)]
pub struct ExplainArgs {
    /// Switch, by name or number
    #[arg(value_name = "SWITCH")]
    pub vesw: String,
    /// Destination address of the frame
    #[arg(value_name = "MAC")]
    pub dst: MacAddress,
    /// VLAN of the frame's tag, 0 to 4095 [default: untagged]
    #[arg(long, value_name = "VLAN", value_parser = clap::value_parser!(u16).range(0..=4095))]
    pub vid: Option<u16>,
    /// Priority of the tag, 0 to 7
    #[arg(long, value_name = "PRIORITY", default_value_t, requires = "vid")]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=7))]
    pub pcp: u8,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(["ibtap-em"].into_iter().chain(line.split_whitespace()))
    }

    #[test]
    fn the_command_line_is_sound_and_its_help_fits_80_columns() {
        let mut program = Cli::command();
        program.clone().debug_assert();
        program.build();
        fn help(command: &mut clap::Command) -> String {
            let own = command.render_long_help().to_string();
            let subs = command.get_subcommands_mut().map(help);
            subs.fold(own, |all, of| all + &of)
        }
        for line in help(&mut program).lines() {
            assert!(line.chars().count() <= 80, "{line:?}");
        }
    }

    #[test]
    fn commands_as_they_are_typed() {
        for line in [
            "run",
            "run --config f --check-config",
            "run --socket /s --em-socket /e --port eth0 --log-level debug",
            "status -j",
            "ves",
            "port storage",
            "mac 2 --json --pretty",
            "counters --zeros node*:1:0",
            "explain storage 06:2c:00:05:00:00",
            "explain 2 06:2c:00:05:00:00 --vid 5 --pcp 7",
            "drain storage",
            "drain node1:1:0 --undo",
        ] {
            assert!(parse(line).is_ok(), "{line}: {:?}", parse(line));
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for line in [
            "",
            "frob",
            "explain storage",
            "explain storage 06:2c",
            "explain storage 06:2c:00:05:00:00 --vid 4096",
            "explain storage 06:2c:00:05:00:00 --vid 1 --pcp 8",
            "explain storage 06:2c:00:05:00:00 --pcp 3",
            "drain",
            "run --log-level loud",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
