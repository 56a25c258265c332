//! The TAP-to-UDP copier: the cost of a super-frame over a UDP underlay without framing.
//!
//! One `send` sends a frame of the TAP with its virtio-net header; the kernel splits it into datagrams
//! (UDP_SEGMENT). The peer receives the whole train with one `recv` (UDP_GRO) and writes it to its TAP. Each
//! side has two blocking threads, no headers and no state. The underlay must carry a GSO train intact, such as
//! a veth with default offloads; a frame that is split on the way is lost. This is acceptable only for a
//! reference.

use std::fs::File;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;

use anyhow::{Context, Result};
use clap::Args;

use crate::{carrier, socket, tap};

/// Join TAPs of two hosts by UDP, without framing
#[derive(Args)]
pub struct TapUdpArgs {
    /// Name of the TAP
    #[arg(long, default_value = "tap0")]
    name: String,
    /// Local address and port on the underlay
    #[arg(long, value_name = "ADDR:PORT")]
    local: SocketAddr,
    /// Address and port of the other side
    #[arg(long, value_name = "ADDR:PORT")]
    peer: SocketAddr,
    /// Payload of each datagram; with IP and UDP headers it must fit the underlay's MTU
    #[arg(long, default_value_t = 8952, value_name = "BYTES")]
    segment: u16,
}

/// Runs until the process ends.
///
/// # Errors
///
/// The TAP or the socket cannot be created, or the TAP is deleted.
pub fn run(args: &TapUdpArgs) -> Result<()> {
    let tap = tap::open(&args.name)?;
    let udp = connect(args).with_context(|| format!("cannot use {} for UDP", args.local))?;
    carrier::copy_both_ways(tap, File::from(OwnedFd::from(udp)))
}

fn connect(args: &TapUdpArgs) -> std::io::Result<UdpSocket> {
    let udp = UdpSocket::bind(args.local)?;
    socket::set_segment(&udp, args.segment)?;
    socket::set_gro(&udp)?;
    socket::set_buffers(&udp, 4 << 20)?;
    udp.connect(args.peer)?;
    Ok(udp)
}
