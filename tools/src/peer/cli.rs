//! The command line of `ibtap-peer`.

use std::net::IpAddr;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use control::config::GidChoice;
use fabric::IbMtu;

use crate::parse_seconds;

/// The end of `--help`.
pub const EXIT_STATUS: &str = "\
Exit status: 0 all messages arrived unchanged, 1 wrong usage, 2 other errors.";

/// The TCP port over which rdma-core's ping-pongs exchange their parameters.
const EXCHANGE_PORT: u16 = 18515;
/// The rdma_cm ports of rdma-core's ucmatose and udaddy.
const CMATOSE_PORT: u16 = 7471;
const UDADDY_PORT: u16 = 7174;

/// Peer of rdma-core's example programs, over the software fabric.
///
/// Each command implements one of these programs, as the server or, with --connect, as the client. All
/// received data is checked.
#[derive(Clone, Debug, Parser)]
#[command(name = "ibtap-peer", version = control::version::version(), max_term_width = 80, after_help = EXIT_STATUS)]
#[command(disable_help_subcommand = true)]
pub struct Cli {
    /// Program
    #[command(subcommand)]
    pub command: Command,
}

/// The programs.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Exchange messages over a reliable connection, as ibv_rc_pingpong: parameters over TCP
    RcPingpong(RcPingpong),
    /// Exchange datagrams, as ibv_ud_pingpong: parameters over TCP, Q_Key 0x11111111
    UdPingpong(UdPingpong),
    /// Exchange messages over a connection of rdma_cm, as ucmatose: the server sends, the client returns
    Cmatose(Cmatose),
    /// Exchange datagrams with a queue pair found by SIDR, as udaddy: the client sends, the server returns
    Udaddy(Udaddy),
    /// Send or receive datagrams of a multicast group, as mckey: Q_Key 0x01234567, default partition
    Mckey(Mckey),
}

/// Options of all commands.
#[derive(Clone, Debug, Args)]
pub struct Common {
    /// Interface that carries the fabric
    #[arg(long, value_name = "IF")]
    pub underlay: String,

    /// GID: "auto" is the underlay's IPv6 link-local address, "ipv4" its first IPv4 address; or an
    /// address of the underlay
    #[arg(long, value_name = "auto|ipv4|ADDRESS", default_value = "auto")]
    #[arg(value_parser = control::config::values::parse_gid)]
    pub gid: GidChoice,

    /// Message size in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 100)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    pub size: u32,

    /// Number of messages that each side sends
    #[arg(long, value_name = "N", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub count: u32,

    /// Maximum silence of the other side after its first message; a server waits for its client without
    /// limit
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = parse_seconds)]
    pub timeout: Duration,
}

/// See [`Command::RcPingpong`].
#[derive(Clone, Debug, Args)]
pub struct RcPingpong {
    /// Options of all commands.
    #[command(flatten)]
    pub common: Common,

    /// Exchange of parameters.
    #[command(flatten)]
    pub exchange: Exchange,

    /// Payload of a packet in bytes, the same on both sides
    #[arg(long, value_name = "256|512|1024|2048|4096", default_value = "1024", value_parser = ib_mtu)]
    pub mtu: IbMtu,
}

/// See [`Command::UdPingpong`].
#[derive(Clone, Debug, Args)]
pub struct UdPingpong {
    /// Options of all commands.
    #[command(flatten)]
    pub common: Common,

    /// Exchange of parameters.
    #[command(flatten)]
    pub exchange: Exchange,
}

/// See [`Command::Cmatose`].
#[derive(Clone, Debug, Args)]
pub struct Cmatose {
    /// Options of all commands.
    #[command(flatten)]
    pub common: Common,

    /// Run as the client of the server with this address, its GID [default: run as the server]
    #[arg(long, value_name = "ADDRESS")]
    pub connect: Option<IpAddr>,

    /// Port number of rdma_cm, in RDMA_PS_TCP
    #[arg(long, value_name = "PORT", default_value_t = CMATOSE_PORT)]
    pub port: u16,
}

/// See [`Command::Udaddy`].
#[derive(Clone, Debug, Args)]
pub struct Udaddy {
    /// Options of all commands.
    #[command(flatten)]
    pub common: Common,

    /// Run as the client of the server with this address, its GID [default: run as the server]
    #[arg(long, value_name = "ADDRESS")]
    pub connect: Option<IpAddr>,

    /// Port number of rdma_cm, in RDMA_PS_UDP
    #[arg(long, value_name = "PORT", default_value_t = UDADDY_PORT)]
    pub port: u16,
}

/// See [`Command::Mckey`].
#[derive(Clone, Debug, Args)]
pub struct Mckey {
    /// Options of all commands.
    #[command(flatten)]
    pub common: Common,

    /// Group: an IPv4 address with an IPv4 GID, otherwise an IPv6 address
    #[arg(long, value_name = "ADDRESS")]
    pub group: IpAddr,

    /// Send [default: receive]
    #[arg(long)]
    pub send: bool,
}

/// Exchange of parameters by the ping-pongs.
#[derive(Clone, Debug, Args)]
pub struct Exchange {
    /// Run as the client of the server with this name or TCP address [default: run as the server]
    #[arg(long, value_name = "HOST")]
    pub connect: Option<String>,

    /// TCP port for the exchange of parameters
    #[arg(long, value_name = "PORT", default_value_t = EXCHANGE_PORT)]
    pub port: u16,
}

fn ib_mtu(text: &str) -> Result<IbMtu, String> {
    let bytes = text.parse().ok();
    let fitting = bytes.and_then(IbMtu::fitting);
    fitting
        .filter(|mtu| Some(mtu.bytes()) == bytes)
        .ok_or_else(|| format!("{text:?} is not a path MTU; use 256, 512, 1024, 2048 or 4096"))
}
