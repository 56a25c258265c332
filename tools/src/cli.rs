//! The command line.

mod children;
mod sa;
mod vnic;

use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use control::DEFAULT_SOCKET;
use control::api::{LogLevel, Mode, PING_INTERVAL_MIN_MS, PING_SIZE, PING_TIMEOUT_MAX_MS};
use decode::DecodeArgs;

pub use self::sa::{End, PathArgs, SaArgs, SaVerb};
pub use self::vnic::{VnicArgs, VnicVerb};
use crate::bugreport::BugreportArgs;
use crate::doctor::DoctorArgs;
use crate::top::TopArgs;
pub use children::{ChildAddArgs, ChildArgs, ChildVerb, CoalesceArgs, PkeyArgs, PkeyVerb};

pub const EXIT_STATUS: &str = "\
Exit status: 0 success, 1 wrong usage or no such interface, 2 error of the
daemon or the system, 3 no answer from a daemon. decode: 1 also for a bad ICRC
or a malformed packet, 2 for an unreadable file. ping: 1 also without answers.
reload: 2 also for changes that need a restart. doctor: 2 for a fault that
keeps ibtap from working. sa: 1 also without such a record, 3 without an
answer of the subnet.";

/// Shows and controls the IPoIB interfaces and VNICs of a running ibtapd.
///
/// Commands may be abbreviated while they stay unambiguous; the default command is `show`. If several
/// network namespaces have an interface of the same name, write NETNS/NAME.
#[derive(Clone, Debug, Parser)]
#[command(name = "ibtap", version = control::version::version(), max_term_width = 80, after_help = EXIT_STATUS)]
#[command(infer_subcommands = true, disable_help_subcommand = true)]
pub struct Cli {
    /// Control socket of the daemon
    #[arg(long, short = 'S', value_name = "PATH", global = true, default_value = DEFAULT_SOCKET)]
    pub socket: PathBuf,

    /// Print JSON: an array of objects [default: print text]
    #[arg(long, short, global = true)]
    pub json: bool,

    /// With --json: print indented JSON [default: one line]
    #[arg(long, short, global = true)]
    pub pretty: bool,

    /// Command
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// The commands.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Show interfaces with their state, addresses and keys
    Show {
        /// Only this interface [default: all]
        #[arg(value_name = "IF")]
        interface: Option<String>,
    },
    /// Show counters, with the names of `ethtool -S`, and the reasons of dropped packets
    Stats {
        /// Only this interface [default: all]
        #[arg(value_name = "IF")]
        interface: Option<String>,
        /// Also print counters that are zero [default: leave most of them out]
        #[arg(long, short)]
        zeros: bool,
    },
    /// Show the neighbours of an interface
    Neigh {
        /// The interface
        #[arg(value_name = "IF")]
        interface: String,
    },
    /// Show the guests behind an interface: hosts on a bridge above it, macvlans
    Guests {
        /// The interface
        #[arg(value_name = "IF")]
        interface: String,
    },
    /// Show the multicast groups of an interface, in the format of debugfs' ipoib/ib0_mcg
    Mcg {
        /// The interface
        #[arg(value_name = "IF")]
        interface: String,
    },
    /// Show the paths of an interface, in the format of debugfs' ipoib/ib0_path
    Path {
        /// The interface
        #[arg(value_name = "IF")]
        interface: String,
    },
    /// Show reliable connections, which connected mode creates to peers that accept them
    ///
    /// Prints a line for each: requesting side, state, both queue pairs and GIDs, age and idle time,
    /// messages and bytes in each direction, retransmitted packets, round trip, process.
    Conn {
        /// Only this interface [default: all]
        #[arg(value_name = "IF")]
        interface: Option<String>,
    },
    /// Show or change the transport mode of an interface
    ///
    /// The MTU follows the mode: 65520 or the configured MTU in connected mode, at most the link's MTU in
    /// datagram mode. A change lasts until the daemon starts again; a child that is not in the
    /// configuration file keeps its mode.
    Mode {
        /// The interface
        #[arg(value_name = "IF")]
        interface: String,
        /// New mode [default: print the mode]
        #[arg(value_enum)]
        mode: Option<Mode>,
    },
    Child(ChildArgs),
    Pkey(PkeyArgs),
    Coalesce(CoalesceArgs),
    Vnic(VnicArgs),
    Res(ResArgs),
    /// Print counters and states in the text format of Prometheus
    Metrics,
    /// Set the log level of the daemon
    Log {
        /// Least urgent level to log
        #[arg(value_enum)]
        level: LogLevel,
    },
    /// Print events as they occur: ports, interfaces, neighbours, guests, groups
    ///
    /// Prints a line for each event, with --json an object, until Ctrl-C. Times are UTC.
    Monitor {
        /// Only this interface and its port [default: all]
        #[arg(value_name = "IF")]
        interface: Option<String>,
    },
    Ping(PingArgs),
    Top(TopArgs),
    /// Read the configuration file again and apply the changes
    ///
    /// Prints the applied changes, and the changes that need a restart of the daemon.
    Reload,
    /// Show the versions of this program and of the daemon
    Version,
    Sa(SaArgs),
    Doctor(DoctorArgs),
    Bugreport(BugreportArgs),
    Decode(DecodeArgs),
    /// Write man pages and shell completions of ibtap and ibtapd below a directory
    #[command(hide = true)]
    Generate {
        /// Directory with the layout of /usr/share
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
}

/// Send echo requests to the ibtapd of a peer, over the fabric and without its IP stack
///
/// Prints a line for each answer, with --json an object, and a summary at the end or at Ctrl-C.
#[derive(Clone, Debug, Args, serde::Serialize)]
pub struct PingArgs {
    /// The interface that sends the requests
    #[arg(value_name = "IF")]
    pub interface: String,
    /// An IP address of a neighbour, a GID, or "all"
    #[arg(value_name = "GID|ADDRESS|all")]
    pub target: String,
    /// Stop after this many requests [default: at Ctrl-C]
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub count: Option<u32>,
    /// IB payload in bytes, up to the link MTU
    #[arg(long, short, value_name = "BYTES", default_value_t = PING_SIZE)]
    pub size: u32,
    /// Seconds between requests, 0.01 to 86400
    #[arg(long, short, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    pub interval: Milliseconds,
    /// Seconds to wait for an answer, 0.001 to 60
    #[arg(long, short = 'W', value_name = "SECONDS", default_value = "1", value_parser = timeout)]
    pub timeout: Milliseconds,
}

/// A day, in milliseconds.
const DAY_MS: u32 = 86_400_000;

/// A time in milliseconds; its text is in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Milliseconds(pub u32);

impl std::str::FromStr for Milliseconds {
    type Err = String;

    fn from_str(text: &str) -> Result<Milliseconds, String> {
        Milliseconds::within(text, 0..=DAY_MS)
    }
}

impl Milliseconds {
    fn within(text: &str, range: RangeInclusive<u32>) -> Result<Milliseconds, String> {
        let [least, most] = [range.start(), range.end()].map(|ms| f64::from(*ms) / 1000.0);
        match text.parse::<f64>() {
            // NaN is in no range.
            Ok(seconds) if (least..=most).contains(&seconds) => {
                Ok(Milliseconds((seconds * 1000.0).round() as u32))
            }
            Ok(seconds) if seconds.is_finite() => Err(format!(
                "{text} seconds are out of range; use {least} to {most}"
            )),
            _ => Err(format!(
                "{text:?} is not a number of seconds; use {least} to {most}"
            )),
        }
    }
}

/// The interval of a ping.
fn interval(text: &str) -> Result<Milliseconds, String> {
    Milliseconds::within(text, PING_INTERVAL_MIN_MS..=DAY_MS)
}

/// The timeout of a ping.
fn timeout(text: &str) -> Result<Milliseconds, String> {
    Milliseconds::within(text, 1..=PING_TIMEOUT_MAX_MS)
}

impl Default for Command {
    fn default() -> Command {
        Command::Show { interface: None }
    }
}

/// Show the resources of the fabric ports: queue pairs, completion queues and others
///
/// Prints a line for each resource, as `rdma resource show` does for RDMA devices of the kernel. A kind and
/// filters select resources. The kinds are qp, cq, srq (shared receive queues), cm_id (connections), mr
/// (memory regions), pd (protection domains) and group (members of multicast groups). A filter is a key of
/// the lines with a value, or with numbers such as 0-6,9: `ibtap res qp link soft/eth0 type UD`.
#[derive(Clone, Debug, Args)]
pub struct ResArgs {
    #[arg(help = "[show] [KIND] [KEY VALUE]... [default: all resources]")]
    #[arg(value_name = "WORD")]
    pub words: Vec<String>,
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
        assert!(matches!(command("res"), Command::Res(_)));
        assert!(
            matches!(command("res show qp lqpn 0-6"), Command::Res(args) if args.words.len() == 4)
        );
        assert!(matches!(command("rel"), Command::Reload));
        assert!(matches!(command("mon"), Command::Monitor { .. }));
        assert!(matches!(command("mod ib0"), Command::Mode { .. }));
        assert!(matches!(command("con"), Command::Conn { .. }));
        assert!(matches!(command("coa ib0"), Command::Coalesce(_)));
        assert!(matches!(command("ch"), Command::Child(_)));
        assert!(matches!(command("pk"), Command::Pkey(_)));
        assert!(matches!(command("vn"), Command::Vnic(_)));
        assert!(matches!(command("ve"), Command::Version));
        assert!(matches!(command("sa sm"), Command::Sa(_)));
        assert!(matches!(command("pi ib0 all"), Command::Ping(_)));
        assert!(matches!(command("t -b -n 3 ib0"), Command::Top(_)));
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
        for right in ["-i 0.01", "-i 86400", "-W 0.001", "-W 60"] {
            assert!(parse(&format!("ping ib0 all {right}")).is_ok(), "{right}");
        }
        for (wrong, expected) in [
            (
                "-i 0.009",
                "0.009 seconds are out of range; use 0.01 to 86400",
            ),
            ("-i 86401", "use 0.01 to 86400"),
            ("-W 0", "0 seconds are out of range; use 0.001 to 60"),
            ("-W 60.001", "use 0.001 to 60"),
            (
                "-W soon",
                "\"soon\" is not a number of seconds; use 0.001 to 60",
            ),
        ] {
            let error = parse(&format!("ping ib0 all {wrong}")).unwrap_err();
            assert!(error.to_string().contains(expected), "{wrong}: {error}");
        }
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
        // Building passes the width of the program to its commands.
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
