//! Commands that send requests to the daemon.

mod children;
mod vnics;

use std::time::Duration;

use control::ControlClient;
use control::api::{
    Interface, Level, LogLevel, Mode, ModeRequest, Nothing, Selection, VersionInfo, methods,
};
use control::exit::{EXIT_OK, EXIT_REFUSED};
use serde::Serialize;

use crate::cli::{Cli, Command};
use crate::follow;
use crate::output::{Failure, Format, after, print, print_for_programs};
use crate::resources::{self, Query};
use crate::text;
pub use vnics::both;

/// The daemon answers within milliseconds; on a loaded machine it may take longer.
pub const TIMEOUT: Duration = Duration::from_secs(5);

/// Changes of interfaces wait for the kernel, where other programs may hold the lock of all interfaces; a reload may
/// also wait for a new underlay to come up.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(60);

/// Sends the request, prints the answer, and returns the exit status.
pub fn run(cli: &Cli, command: &Command) -> Result<u8, Failure> {
    let format = Format::of(cli);
    let connect = || ControlClient::connect(&cli.socket, TIMEOUT);
    let patient = || ControlClient::connect(&cli.socket, CHANGE_TIMEOUT);
    let printed = match command {
        Command::Monitor { interface } => {
            return follow::monitor(connect()?, interface.as_deref(), format);
        }
        Command::Ping(args) => return follow::ping(connect()?, args, format),
        Command::Reload => return reload(format, patient()?),
        Command::Show { interface } => vnics::show(format, connect()?, interface.as_deref()),
        Command::Stats { interface, zeros } => {
            vnics::stats(format, connect()?, interface.as_deref(), *zeros)
        }
        Command::Neigh { interface } => print(
            format,
            &connect()?.call(methods::NEIGHBOURS, &Interface::of(interface))?,
            text::neighbours,
        ),
        Command::Guests { interface } => print(
            format,
            &connect()?.call(methods::GUESTS, &Interface::of(interface))?,
            text::guests,
        ),
        Command::Mcg { interface } => print(
            format,
            &connect()?.call(methods::GROUPS, &Interface::of(interface))?,
            text::groups,
        ),
        Command::Path { interface } => print(
            format,
            &connect()?.call(methods::PATHS, &Interface::of(interface))?,
            text::paths,
        ),
        Command::Conn { interface } => {
            let found =
                connect()?.call(methods::CONNECTIONS, &Selection::of(interface.as_deref()))?;
            print(format, &found, text::connections)
        }
        Command::Mode { interface, mode } => self::mode(format, patient()?, interface, *mode),
        Command::Child(args) => children::child(format, patient()?, args),
        Command::Pkey(args) => children::pkey(format, connect()?, args),
        Command::Coalesce(args) => children::coalesce(format, connect()?, args),
        Command::Vnic(args) => vnics::vnic(format, connect()?, args),
        Command::Res(args) => {
            let query = Query::parse(&args.words).map_err(Failure::Usage)?;
            let mut found = connect()?.call(methods::RESOURCES, &Nothing {})?;
            query.select(&mut found);
            print(format, &found, resources::text)
        }
        Command::Metrics => {
            let text = connect()?.call(methods::METRICS, &Nothing {})?;
            let text = control::metrics::classic(&text);
            print_for_programs(format, &[Metrics { text }], |all| {
                all.iter().map(|one| one.text.as_str()).collect()
            })
        }
        Command::Log { level } => {
            connect()?.call(methods::LOG_LEVEL, &Level { level: *level })?;
            print(format, &[LogLevelSet { log_level: *level }], |_| {
                String::new()
            })
        }
        Command::Version => version(format, connect),
        Command::Doctor(_)
        | Command::Bugreport(_)
        | Command::Decode(_)
        | Command::Sa(_)
        | Command::Top(_)
        | Command::Generate { .. } => {
            unreachable!("main runs the commands that need more than a request")
        }
    };
    printed.map(|()| EXIT_OK)
}

/// Refused changes are no failure of the command, but scripts see them in the exit status.
fn reload(format: Format, mut client: ControlClient) -> Result<u8, Failure> {
    let outcome = client.call(methods::RELOAD, &Nothing {})?;
    let status = match outcome.refused.is_empty() {
        true => EXIT_OK,
        false => EXIT_REFUSED,
    };
    after(print(format, &[outcome], text::reloaded), status)
}

/// Prints the mode as the kernel's sysfs file does. A change prints only a JSON object.
fn mode(
    format: Format,
    mut client: ControlClient,
    interface: &str,
    wanted: Option<Mode>,
) -> Result<(), Failure> {
    let mode = client.call(
        methods::MODE,
        &ModeRequest {
            interface: interface.to_owned(),
            mode: wanted,
        },
    )?;
    let object = ModeOf { interface, mode };
    print(format, &[object], |_| match wanted {
        None => format!("{mode}\n"),
        Some(_) => String::new(),
    })
}

/// The object of `ibtap mode`.
#[derive(Serialize)]
struct ModeOf<'a> {
    interface: &'a str,
    mode: Mode,
}

/// The object of `ibtap log`.
#[derive(Serialize)]
struct LogLevelSet {
    log_level: LogLevel,
}

/// The object of `ibtap metrics`.
#[derive(Serialize)]
struct Metrics {
    text: String,
}

/// One line or object of `ibtap version`.
#[derive(Serialize)]
#[serde(untagged)]
enum Program {
    Tool {
        product: &'static str,
        version: &'static str,
    },
    Daemon(VersionInfo),
}

/// Prints the program's version even if no daemon answers.
fn version(
    format: Format,
    connect: impl Fn() -> Result<ControlClient, control::ClientError>,
) -> Result<(), Failure> {
    let mut programs = vec![Program::Tool {
        product: "ibtap",
        version: env!("CARGO_PKG_VERSION"),
    }];
    let daemon = connect().and_then(|mut client| client.call(methods::VERSION, &Nothing {}));
    let failure = match daemon {
        Ok(info) => {
            programs.push(Program::Daemon(info));
            None
        }
        Err(error) => Some(error),
    };
    let printed = print(format, &programs, |programs| {
        programs.iter().map(Program::line).collect()
    });
    match failure {
        Some(error) => after(printed, EXIT_OK).and(Err(error.into())),
        None => printed,
    }
}

impl Program {
    fn line(&self) -> String {
        match self {
            Program::Tool { product, version } => format!("{product} {version}\n"),
            Program::Daemon(info) => format!(
                "{} {} (process {}, log level {})\n",
                info.product, info.version, info.pid, info.log_level
            ),
        }
    }
}
