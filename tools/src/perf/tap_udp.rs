//! The bare TAP-to-UDP copier: what a super-frame costs over a UDP underlay without any framing.
//!
//! A frame as the TAP hands it out, virtio-net header and all, leaves in one `send` that the kernel
//! cuts into datagrams (UDP_SEGMENT); the peer receives the whole train in one `recv` (UDP_GRO) and
//! writes it to its TAP. Two blocking threads a side, no headers of its own, no state. The underlay
//! must carry a GSO train intact, as a veth with its default offloads does; a frame that is cut up on
//! the way is lost, which is right for a reference and for nothing else.

use std::fs::File;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;

use anyhow::{Context, Result};
use clap::Args;

use crate::{carrier, socket, tap};

/// Join a TAP to another host's by UDP, without framing
#[derive(Args)]
pub struct TapUdpArgs {
    /// Name of the TAP
    #[arg(long, default_value = "tap0")]
    name: String,
    /// Own address and port on the underlay
    #[arg(long, value_name = "ADDR:PORT")]
    local: SocketAddr,
    /// The other side's address and port
    #[arg(long, value_name = "ADDR:PORT")]
    peer: SocketAddr,
    /// Bytes of each datagram; with the IP and UDP headers it must fit the underlay's MTU
    #[arg(long, default_value_t = 8952, value_name = "BYTES")]
    segment: u16,
}

/// Runs until it is killed.
///
/// # Errors
///
/// When the TAP or the socket cannot be made, or the TAP is deleted while copying.
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
