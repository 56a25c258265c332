//! `ibtap-peer`: a peer of rdma-core's example programs, over the software fabric.
//!
//! These programs run on the kernel's `rdma_rxe` and on RDMA hardware. With `ibtap-peer` as their peer, they
//! test the wire format of the software fabric. Unlike them, `ibtap-peer` checks every payload. Sources: their
//! man pages, and captures of their packets.

pub mod cli;

mod cmatose;
mod end;
mod exchange;
mod mckey;
mod payload;
mod rc_pingpong;
mod ud_pingpong;
mod udaddy;

use anyhow::Result;

use cli::{Cli, Command};

/// Runs the command, and prints the result.
///
/// # Errors
/// A sentence about an unusable underlay, an unexpected or missing message, or a peer that ended.
pub fn run(cli: &Cli) -> Result<()> {
    match &cli.command {
        Command::RcPingpong(args) => rc_pingpong::run(args),
        Command::UdPingpong(args) => ud_pingpong::run(args),
        Command::Cmatose(args) => cmatose::run(args),
        Command::Udaddy(args) => udaddy::run(args),
        Command::Mckey(args) => mckey::run(args),
    }
}
