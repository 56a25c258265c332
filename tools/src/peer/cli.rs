//! The command line of `ibtap-peer`.

use std::net::IpAddr;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use control::config::GidChoice;
use fabric::IbMtu;

/// What `--help` ends with.
pub const EXIT_STATUS: &str = "\
Exit status: 0 every message came as it was sent, 1 wrong usage, 2 anything else.";

/// The TCP port over which rdma-core's ping-pongs exchange their parameters.
const EXCHANGE_PORT: u16 = 18515;
/// The port of rdma_cm that rdma-core's ucmatose and udaddy use.
const CMATOSE_PORT: u16 = 7471;
const UDADDY_PORT: u16 = 7174;

/// The other side of rdma-core's example programs, over the software fabric.
///
/// Each command is one of those programs, as the server or, with --connect, as the client. Of what
/// arrives everything is checked.
#[derive(Clone, Debug, Parser)]
#[command(name = "ibtap-peer", version, max_term_width = 80, after_help = EXIT_STATUS)]
#[command(disable_help_subcommand = true)]
pub struct Cli {
    /// Which program to be
    #[command(subcommand)]
    pub command: Command,
}

/// The programs.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Messages of a reliable connection to and fro, as ibv_rc_pingpong: parameters over TCP
    RcPingpong(RcPingpong),
    /// Datagrams to and fro, as ibv_ud_pingpong: parameters over TCP, Q_Key 0x11111111
    UdPingpong(UdPingpong),
    /// A reliable connection by rdma_cm, as ucmatose: the server sends, the client sends it back
    Cmatose(Cmatose),
    /// Datagrams to a queue pair found by SIDR, as udaddy: the client sends, the server sends back
    Udaddy(Udaddy),
    /// Datagrams to a multicast group, as mckey: Q_Key 0x01234567, default partition
    Mckey(Mckey),
}

/// What all of them take.
#[derive(Clone, Debug, Args)]
pub struct Common {
    /// Interface that carries the fabric
    #[arg(long, value_name = "IF")]
    pub underlay: String,

    /// The GID: "auto" is the underlay's IPv6 link-local address, "ipv4" its first IPv4 address; or
    /// an address of the underlay
    #[arg(long, value_name = "auto|ipv4|ADDRESS", default_value = "auto")]
    #[arg(value_parser = control::config::values::parse_gid)]
    pub gid: GidChoice,

    /// Bytes of a message
    #[arg(long, value_name = "BYTES", default_value_t = 100)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    pub size: u32,

    /// How many messages each side sends
    #[arg(long, value_name = "N", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub count: u32,

    /// How long the other side may be silent once it was heard; a server waits for its client for ever
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub timeout: Duration,
}

/// See [`Command::RcPingpong`].
#[derive(Clone, Debug, Args)]
pub struct RcPingpong {
    /// What all of them take.
    #[command(flatten)]
    pub common: Common,

    /// Where parameters are exchanged.
    #[command(flatten)]
    pub exchange: Exchange,

    /// Payload bytes of one packet, the same on both sides
    #[arg(long, value_name = "256|512|1024|2048|4096", default_value = "1024", value_parser = ib_mtu)]
    pub mtu: IbMtu,
}

/// See [`Command::UdPingpong`].
#[derive(Clone, Debug, Args)]
pub struct UdPingpong {
    /// What all of them take.
    #[command(flatten)]
    pub common: Common,

    /// Where parameters are exchanged.
    #[command(flatten)]
    pub exchange: Exchange,
}

/// See [`Command::Cmatose`].
#[derive(Clone, Debug, Args)]
pub struct Cmatose {
    /// What all of them take.
    #[command(flatten)]
    pub common: Common,

    /// Be the client: the server's address, which is its GID [default: be the server]
    #[arg(long, value_name = "ADDRESS")]
    pub connect: Option<IpAddr>,

    /// Port number of rdma_cm, in RDMA_PS_TCP
    #[arg(long, value_name = "PORT", default_value_t = CMATOSE_PORT)]
    pub port: u16,
}

/// See [`Command::Udaddy`].
#[derive(Clone, Debug, Args)]
pub struct Udaddy {
    /// What all of them take.
    #[command(flatten)]
    pub common: Common,

    /// Be the client: the server's address, which is its GID [default: be the server]
    #[arg(long, value_name = "ADDRESS")]
    pub connect: Option<IpAddr>,

    /// Port number of rdma_cm, in RDMA_PS_UDP
    #[arg(long, value_name = "PORT", default_value_t = UDADDY_PORT)]
    pub port: u16,
}

/// See [`Command::Mckey`].
#[derive(Clone, Debug, Args)]
pub struct Mckey {
    /// What all of them take.
    #[command(flatten)]
    pub common: Common,

    /// The group: an IPv4 address over an IPv4 GID, else an IPv6 one
    #[arg(long, value_name = "ADDRESS")]
    pub group: IpAddr,

    /// Send [default: receive]
    #[arg(long)]
    pub send: bool,
}

/// Where the ping-pongs exchange their parameters.
#[derive(Clone, Debug, Args)]
pub struct Exchange {
    /// Be the client: the server's name or address for TCP [default: be the server]
    #[arg(long, value_name = "HOST")]
    pub connect: Option<String>,

    /// TCP port on which the two sides exchange their parameters
    #[arg(long, value_name = "PORT", default_value_t = EXCHANGE_PORT)]
    pub port: u16,
}

fn ib_mtu(text: &str) -> Result<IbMtu, String> {
    let bytes = text.parse().ok();
    let fitting = bytes.and_then(IbMtu::fitting);
    fitting
        .filter(|mtu| Some(mtu.bytes()) == bytes)
        .ok_or_else(|| format!("{text:?} is no path MTU: 256, 512, 1024, 2048 or 4096"))
}

fn seconds(text: &str) -> Result<Duration, String> {
    text.parse()
        .ok()
        .filter(|seconds| (0.001..=86_400.0).contains(seconds))
        .map(Duration::from_secs_f64)
        .ok_or_else(|| format!("{text:?} is not a number of seconds from 0.001 to 86400"))
}
