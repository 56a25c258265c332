//! A UDP sender with a given rate: one flow, in batches (`sendmmsg`).

use std::io::IoSlice;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, sendmmsg};
use serde::Serialize;
use tools::parse_seconds;

use crate::socket;

/// The first eight bytes of the end datagrams. The number of sent datagrams follows, 8 bytes, big-endian.
pub const END_MARK: [u8; 8] = *b"ibtapEND";
/// The smallest payload: end mark and number.
pub const MIN_SIZE: usize = 16;

const BATCH: usize = 64;

/// Send small UDP datagrams at a given rate
#[derive(Args)]
pub struct UdpSendArgs {
    /// Destination
    #[arg(long, value_name = "ADDR:PORT")]
    to: SocketAddr,
    /// Datagrams per second; 0 is as fast as possible
    #[arg(long, default_value_t = 0, value_name = "PPS")]
    rate: u64,
    /// Duration in seconds
    #[arg(long, default_value = "3", value_name = "N", value_parser = parse_seconds)]
    seconds: Duration,
    /// UDP payload in bytes, 16 to 65507
    #[arg(long, default_value_t = 64, value_name = "BYTES")]
    size: usize,
}

#[derive(Serialize)]
struct Sent {
    sent: u64,
    seconds: f64,
    pps: f64,
}

/// Sends, reports the number of datagrams to the receiver, and prints it as JSON.
///
/// # Errors
///
/// The socket cannot be created, or the kernel refuses a send permanently.
pub fn run(args: &UdpSendArgs) -> Result<()> {
    ensure!(
        (MIN_SIZE..=65_507).contains(&args.size),
        "--size must be {} to 65507 bytes",
        MIN_SIZE
    );
    let unspecified: SocketAddr = if args.to.is_ipv4() {
        ([0, 0, 0, 0], 0).into()
    } else {
        ([0u16; 8], 0).into()
    };
    let udp = UdpSocket::bind(unspecified).context("cannot create a UDP socket")?;
    socket::set_buffers(&udp, 1 << 20)?;
    udp.connect(args.to)
        .with_context(|| format!("no route to {}", args.to))?;

    let started = Instant::now();
    let sent = send_paced(&udp, args, started)?;
    let seconds = started.elapsed().as_secs_f64();
    send_end(&udp, args.size, sent);
    crate::print_json(&Sent {
        sent,
        seconds,
        pps: sent as f64 / seconds,
    })
}

fn send_paced(udp: &UdpSocket, args: &UdpSendArgs, started: Instant) -> Result<u64> {
    let payload = vec![0x5a; args.size];
    let mut sent = 0u64;
    loop {
        let elapsed = started.elapsed();
        if elapsed >= args.seconds {
            return Ok(sent);
        }
        let due = match args.rate {
            0 => BATCH as u64,
            rate => ((elapsed.as_secs_f64() * rate as f64) as u64).saturating_sub(sent),
        };
        if due == 0 {
            std::thread::sleep(pause(args.rate));
            continue;
        }
        sent += send_batch(udp, &payload, due.min(BATCH as u64) as usize)?;
    }
}

/// Half the time of a batch, so that batches stay short, within the resolution of timers.
fn pause(rate: u64) -> Duration {
    Duration::from_secs_f64(BATCH as f64 / 2.0 / rate as f64)
        .clamp(Duration::from_micros(50), Duration::from_millis(1))
}

fn send_batch(udp: &UdpSocket, payload: &[u8], count: usize) -> Result<u64> {
    let slices = [IoSlice::new(payload)];
    let mut controls: [SendAncillaryBuffer<'_, '_, '_>; BATCH] =
        std::array::from_fn(|_| SendAncillaryBuffer::default());
    let mut messages: Vec<MMsgHdr<'_>> = controls[..count]
        .iter_mut()
        .map(|control| MMsgHdr::new(&slices, control))
        .collect();
    match sendmmsg(udp, &mut messages, SendFlags::empty()) {
        Ok(n) => Ok(n as u64),
        // The receiver has not bound its port yet, or a queue on the way is full.
        Err(rustix::io::Errno::CONNREFUSED | rustix::io::Errno::NOBUFS) => Ok(0),
        Err(e) => Err(e).context("cannot send"),
    }
}

/// Sends the end mark several times, because a full queue may drop it.
fn send_end(udp: &UdpSocket, size: usize, sent: u64) {
    let mut last = vec![0; size];
    last[..8].copy_from_slice(&END_MARK);
    last[8..16].copy_from_slice(&sent.to_be_bytes());
    for _ in 0..5 {
        std::thread::sleep(Duration::from_millis(20));
        // The receiver ends after the first end mark, so later ones may be refused.
        let _ = udp.send(&last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_keeps_batches_short_and_timers_sane() {
        assert_eq!(pause(1), Duration::from_millis(1));
        assert_eq!(pause(10_000_000), Duration::from_micros(50));
        let p = pause(200_000);
        assert!(p.as_secs_f64() * 200_000.0 <= BATCH as f64);
    }
}
