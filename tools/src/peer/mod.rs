//! `ibtap-peer`: the other side of rdma-core's example programs, over the software fabric.
//!
//! Those programs run on the kernel's `rdma_rxe` and on RDMA hardware; with this one at the other end
//! they show that the software fabric speaks the same on the wire. It checks what they do not: every
//! payload. What it knows of them is what their man pages say and what they were seen to do.

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

/// Does what the command line says, and prints what it did.
///
/// # Errors
/// What went wrong, in a sentence: an unusable underlay, a peer that says or sends something else
/// than is expected, or nothing.
pub fn run(cli: &Cli) -> Result<()> {
    match &cli.command {
        Command::RcPingpong(args) => rc_pingpong::run(args),
        Command::UdPingpong(args) => ud_pingpong::run(args),
        Command::Cmatose(args) => cmatose::run(args),
        Command::Udaddy(args) => udaddy::run(args),
        Command::Mckey(args) => mckey::run(args),
    }
}
