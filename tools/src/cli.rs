//! The command line.

mod children;
mod vnic;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use control::DEFAULT_SOCKET;
use control::api::{LogLevel, Mode, PING_SIZE};
use tools::decode::DecodeArgs;

pub use self::vnic::{VnicArgs, VnicVerb};
use crate::doctor::DoctorArgs;
pub use children::{ChildAddArgs, ChildArgs, ChildVerb, CoalesceArgs, PkeyArgs, PkeyVerb};

pub const EXIT_STATUS: &str = "\
Exit status: 0 success, 1 wrong usage or no such interface, 2 the daemon or the
system refused, 3 no daemon answers. decode: 1 also where an ICRC is bad or a
packet malformed, 2 where the file cannot be read. ping: 1 also where nobody
answers. reload: 2 also where something cannot change without a restart.
doctor: 2 where something keeps ibtap from working, with a daemon or without.";

/// Shows and controls the IPoIB interfaces and VNICs of a running ibtapd.
///
/// Commands may be abbreviated as far as they stay unambiguous; without one, `show` is meant. An
/// interface in another network namespace than the daemon's is named NETNS/NAME where NAME alone is not
/// unique.
#[derive(Clone, Debug, Parser)]
#[command(name = "ibtap", version, max_term_width = 80, after_help = EXIT_STATUS)]
#[command(infer_subcommands = true, disable_help_subcommand = true)]
pub struct Cli {
    /// Control socket of the daemon
    #[arg(long, short = 'S', value_name = "PATH", global = true, default_value = DEFAULT_SOCKET)]
    pub socket: PathBuf,

    /// Print JSON: an array of objects [default: text]
    #[arg(long, short, global = true)]
    pub json: bool,

    /// With --json: indent it [default: one line]
    #[arg(long, short, global = true)]
    pub pretty: bool,

    /// What to do
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// The commands.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Interfaces with their state, addresses and keys
    Show {
        /// Only this interface [default: all]
        #[arg(value_name = "IF")]
        interface: Option<String>,
    },
    /// Counters, as `ethtool -S` names them, and why packets were dropped
    Stats {
        /// Only this interface [default: all]
        #[arg(value_name = "IF")]
        interface: Option<String>,
        /// Print counters that are zero, too [default: leave most out]
        #[arg(long, short)]
        zeros: bool,
    },
    /// The neighbours of an interface
    Neigh {
        /// The interface
        #[arg(value_name = "IF")]
        interface: String,
    },
    /// The guests behind an interface: hosts on a bridge above it, macvlans
    Guests {
        /// The interface
        #[arg(value_name = "IF")]
        interface: String,
    },
    /// The multicast groups of an interface, in the format of debugfs' ipoib/ib0_mcg
    Mcg {
        /// The interface
        #[arg(value_name = "IF")]
        interface: String,
    },
    /// The paths of an interface, in the format of debugfs' ipoib/ib0_path
    Path {
        /// The interface
        #[arg(value_name = "IF")]
        interface: String,
    },
    /// Reliable connections, which connected mode makes to peers that accept them
    ///
    /// A line for each: who asked for it, its state, both queue pairs and GIDs, since when it is there
    /// and unused, messages and bytes each way, packets sent again, round trip, process.
    Conn {
        /// Only this interface [default: all]
        #[arg(value_name = "IF")]
        interface: Option<String>,
    },
    /// Show or change how packets of an interface travel
    ///
    /// The MTU follows: 65520 or the configured one in connected mode, at most the link's in datagram
    /// mode. A change holds until the daemon starts again.
    Mode {
        /// The interface
        #[arg(value_name = "IF")]
        interface: String,
        /// Change it to this [default: print it]
        #[arg(value_enum)]
        mode: Option<Mode>,
    },
    Child(ChildArgs),
    Pkey(PkeyArgs),
    Coalesce(CoalesceArgs),
    Vnic(VnicArgs),
    /// Queue pairs, completion queues and multicast attachments of the fabric ports
    Res,
    /// Set what the daemon logs
    Log {
        /// This level and all that is more urgent
        #[arg(value_enum)]
        level: LogLevel,
    },
    /// What happens, as it happens: ports, interfaces, neighbours, guests, groups
    ///
    /// A line for each event, with --json an object, until Ctrl-C. Times are UTC.
    Monitor {
        /// Only this interface and its port [default: all]
        #[arg(value_name = "IF")]
        interface: Option<String>,
    },
    Ping(PingArgs),
    /// Read the configuration file again and do what has changed
    ///
    /// Says what was done, and what cannot change while the daemon runs.
    Reload,
    /// The versions of this program and of the daemon
    Version,
    Doctor(DoctorArgs),
    Decode(DecodeArgs),
    /// Write man pages and shell completions of ibtap and ibtapd below a directory
    #[command(hide = true)]
    Generate {
        /// The directory, laid out like /usr/share
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
}

/// Ask a peer's ibtapd for an echo, over the fabric and without its IP stack
///
/// A line for each answer, with --json an object, and what they add up to at the end or at Ctrl-C.
#[derive(Clone, Debug, Args, serde::Serialize)]
pub struct PingArgs {
    /// The interface to ask through
    #[arg(value_name = "IF")]
    pub interface: String,
    /// An IP address of a neighbour, a GID, or "all"
    #[arg(value_name = "GID|ADDRESS|all")]
    pub target: String,
    /// Stop after this many requests [default: at Ctrl-C]
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub count: Option<u32>,
    /// Bytes of IB payload, up to the link MTU
    #[arg(long, short, value_name = "BYTES", default_value_t = PING_SIZE)]
    pub size: u32,
    /// Seconds between requests
    #[arg(long, short, value_name = "SECONDS", default_value = "1")]
    pub interval: Milliseconds,
    /// Seconds to wait for an answer
    #[arg(long, short = 'W', value_name = "SECONDS", default_value = "1")]
    pub timeout: Milliseconds,
}

/// A time in milliseconds, written in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Milliseconds(pub u32);

impl std::str::FromStr for Milliseconds {
    type Err = String;

    fn from_str(text: &str) -> Result<Milliseconds, String> {
        match text.parse::<f64>() {
            // Up to a day; NaN is in no range.
            Ok(seconds) if (0.0..=86_400.0).contains(&seconds) => {
                Ok(Milliseconds((seconds * 1000.0).round() as u32))
            }
            _ => Err(format!("{text:?} is not a number of seconds")),
        }
    }
}

impl Default for Command {
    fn default() -> Command {
        Command::Show { interface: None }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(std::iter::once("ibtap").chain(line.split_whitespace()))
    }

    #[test]
    fn the_command_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn show_is_the_default() {
        let cli = parse("--json").unwrap();
        assert!(cli.json && cli.command.is_none());
        assert!(matches!(
            Command::default(),
            Command::Show { interface: None }
        ));
    }

    #[test]
    fn abbreviations_that_are_unambiguous() {
        let command = |line| parse(line).unwrap().command.unwrap();
        assert!(matches!(command("sh ib0"), Command::Show { .. }));
        assert!(matches!(command("st"), Command::Stats { .. }));
        assert!(matches!(command("n ib0"), Command::Neigh { .. }));
        assert!(matches!(command("res"), Command::Res));
        assert!(matches!(command("rel"), Command::Reload));
        assert!(matches!(command("mon"), Command::Monitor { .. }));
        assert!(matches!(command("mod ib0"), Command::Mode { .. }));
        assert!(matches!(command("con"), Command::Conn { .. }));
        assert!(matches!(command("coa ib0"), Command::Coalesce(_)));
        assert!(matches!(command("ch"), Command::Child(_)));
        assert!(matches!(command("pk"), Command::Pkey(_)));
        assert!(matches!(command("vn"), Command::Vnic(_)));
        assert!(matches!(command("ve"), Command::Version));
        assert!(matches!(command("pi ib0 all"), Command::Ping(_)));
        assert!(matches!(command("l debug"), Command::Log { .. }));
        assert!(parse("s").is_err(), "s is show or stats");
    }

    #[test]
    fn c112_modes_are_called_as_the_kernel_calls_them() {
        let mode = |line| match parse(line).unwrap().command.unwrap() {
            Command::Mode { mode, .. } => mode,
            other => panic!("{other:?}"),
        };
        assert_eq!(mode("mode ib0"), None);
        assert_eq!(mode("mode ib0 datagram"), Some(Mode::Datagram));
        assert_eq!(mode("mode ib0 connected"), Some(Mode::Connected));
        for wrong in ["Connected", "0", "connect", ""] {
            assert!(Cli::try_parse_from(["ibtap", "mode", "ib0", wrong]).is_err());
        }
    }

    #[test]
    fn children() {
        let verb = |line: &str| match parse(line).unwrap().command.unwrap() {
            Command::Child(args) => args.verb,
            other => panic!("{other:?}"),
        };
        assert!(verb("child").is_none(), "list is the default");
        for line in [
            "child a ib0 0x8001 --mode connected --name st0 --mtu 9000 --queues 2 --netns blue",
            "child add --netns=blue -n st0 --queues 2 --mtu 9000 --mode connected ib0 32769",
        ] {
            let Some(ChildVerb::Add(add)) = verb(line) else {
                panic!("{line}");
            };
            assert_eq!((&*add.parent, add.pkey.get()), ("ib0", 0x8001));
            assert_eq!(add.name.as_deref(), Some("st0"));
            assert_eq!((add.mode, add.mtu), (Some(Mode::Connected), Some(9000)));
            assert_eq!(add.queues, Some(2));
            assert_eq!(add.netns.as_deref(), Some("blue"));
        }
        for line in [
            "child del ib0 0x8001",
            "child delete ib0 32769",
            "child d ib0 0x8001",
        ] {
            let deleted = verb(line);
            assert!(
                matches!(&deleted, Some(ChildVerb::Del { interface, pkey: Some(key) })
                    if interface == "ib0" && key.get() == 0x8001),
                "{deleted:?}"
            );
        }
        assert!(matches!(
            verb("child del blue/ib0.8001"),
            Some(ChildVerb::Del { pkey: None, .. })
        ));
        assert!(matches!(
            verb("child list ib0"),
            Some(ChildVerb::List { parent: Some(_) })
        ));
        for wrong in [
            "child add ib0",
            "child add ib0 0x8000",
            "child add ib0 0x18001",
            "child add ib0 0x8001 --mode rc",
            "child add ib0 0x8001 --queues 0",
            "child add ib0 0x8001 --name infiniband-number-0",
            "child add ib0 0x8001 --netns a/b",
            "child del",
            "child frob ib0",
            "pkey set eth0",
            "pkey set eth0 0x8000",
            "coalesce",
            "coalesce ib0 --rx-usecs 65536",
            "coalesce ib0 --rx-frames -1",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn vnics() {
        let verb = |line: &str| match parse(line).unwrap().command.unwrap() {
            Command::Vnic(args) => args.verb,
            other => panic!("{other:?}"),
        };
        assert!(verb("vnic").is_none(), "list is the default");
        let mac = verb("vnic mac vnic0");
        assert!(matches!(mac, Some(VnicVerb::Mac { interface }) if interface == "vnic0"));
        let list = verb("vnic list vnic0");
        assert!(matches!(list, Some(VnicVerb::List { interface: Some(_) })));
        let members = verb("vnic members vnic0");
        assert!(matches!(members, Some(VnicVerb::Members { .. })));
        assert!(parse("vnic mac").is_err() && parse("vnic members").is_err());
    }

    #[test]
    fn times_are_in_seconds() {
        for (text, ms) in [("1", 1000), ("0.2", 200), (".05", 50), ("0", 0)] {
            assert_eq!(text.parse(), Ok(Milliseconds(ms)), "{text}");
        }
        for text in ["", "-1", "NaN", "1e9", "soon", "inf"] {
            assert!(text.parse::<Milliseconds>().is_err(), "{text}");
        }
        let Some(Command::Ping(args)) = parse("ping ib0 all -c 3 -s 100 -i 0.2 -W 2")
            .unwrap()
            .command
        else {
            panic!("not a ping");
        };
        assert_eq!((args.count, args.size), (Some(3), 100));
        let times = (args.interval, args.timeout);
        assert_eq!(times, (Milliseconds(200), Milliseconds(2000)));
        assert!(parse("ping ib0 all -c 0").is_err());
    }

    #[test]
    fn options_go_before_and_behind_the_command() {
        for line in ["--socket /tmp/s -j show", "show --socket /tmp/s --json"] {
            let cli = parse(line).unwrap();
            assert!(cli.json && cli.socket.as_os_str() == "/tmp/s");
        }
    }

    #[test]
    fn an_interface_is_required_where_there_is_no_table_of_all() {
        for line in [
            "neigh",
            "mcg",
            "path",
            "log",
            "log loud",
            "ping",
            "ping ib0",
            "mode",
            "mode ib0 rc",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn help_fits_80_columns() {
        let mut program = Cli::command();
        // Commands get the program's width when it is built.
        program.build();
        fn help(command: &mut clap::Command) -> String {
            let own = command.render_long_help().to_string();
            command
                .get_subcommands_mut()
                .map(help)
                .fold(own, |all, of| all + &of)
        }
        let help = help(&mut program);
        for line in help.lines() {
            assert!(line.chars().count() <= 80, "{line:?}");
        }
    }
}
