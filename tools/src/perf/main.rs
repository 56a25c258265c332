//! `ibtap-perf`: reference carriers to compare ibtap with, and load generators.
//!
//! The carriers are minimal programs that move super-frames from end to end; they show the limits of the
//! machine. Each load generator prints one line of JSON.

#![deny(unsafe_code)]

mod carrier;
mod rr;
mod socket;
mod tap;
mod tap_tap;
mod tap_udp;
mod udp_recv;
mod udp_send;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use control::output::{complain, json, print};

/// Reference carriers and load generators of ibtap.
#[derive(Parser)]
#[command(name = "ibtap-perf", version = control::version::version(), max_term_width = 80)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    TapTap(tap_tap::TapTapArgs),
    TapUdp(tap_udp::TapUdpArgs),
    UdpSend(udp_send::UdpSendArgs),
    UdpRecv(udp_recv::UdpRecvArgs),
    RrServer(rr::ServerArgs),
    RrClient(rr::ClientArgs),
}

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(e) => {
            // Help and version are no errors. A failed print cannot be reported.
            let _ = e.print();
            return ExitCode::from(u8::from(e.use_stderr()));
        }
    };
    let outcome = match args.command {
        Command::TapTap(a) => tap_tap::run(&a),
        Command::TapUdp(a) => tap_udp::run(&a),
        Command::UdpSend(a) => udp_send::run(&a),
        Command::UdpRecv(a) => udp_recv::run(&a),
        Command::RrServer(a) => rr::serve(&a),
        Command::RrClient(a) => rr::measure(&a),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            complain("ibtap-perf", format_args!("{e:#}"));
            ExitCode::from(2)
        }
    }
}

/// Prints a result as one line of JSON.
fn print_json(result: &impl serde::Serialize) -> anyhow::Result<()> {
    print(json(result, false)?)?;
    Ok(())
}
