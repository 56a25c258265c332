//! A UDP receiver that counts the datagrams of [`crate::udp_send`].

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use serde::Serialize;
use tools::parse_seconds;

use crate::socket;
use crate::udp_send::END_MARK;

const BATCH: usize = 64;
/// Received bytes of a datagram, enough for an end mark; the kernel drops the rest.
const HEAD: usize = 64;

/// Count UDP datagrams until the sender reports the number of sent datagrams
#[derive(Args)]
pub struct UdpRecvArgs {
    /// Address and port to listen on
    #[arg(long, value_name = "ADDR:PORT")]
    bind: SocketAddr,
    /// Give up after this time without datagrams
    #[arg(long, default_value = "5", value_name = "SECONDS", value_parser = parse_seconds)]
    idle: Duration,
}

#[derive(Serialize, Debug, PartialEq)]
struct Received {
    received: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    sent: Option<u64>,
    /// From 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    loss: Option<f64>,
    seconds: f64,
    pps: f64,
}

/// Counts from the first datagram to the sender's end mark and prints JSON.
///
/// # Errors
///
/// The address cannot be bound, or no datagram was received.
pub fn run(args: &UdpRecvArgs) -> Result<()> {
    let udp =
        UdpSocket::bind(args.bind).with_context(|| format!("cannot listen on {}", args.bind))?;
    socket::set_buffers(&udp, 4 << 20)?;
    udp.set_read_timeout(Some(args.idle))?;
    crate::print_json(&count(&udp, args.idle)?)
}

fn count(udp: &UdpSocket, idle: Duration) -> Result<Received> {
    let mut buffers = [[0u8; HEAD]; BATCH];
    let mut lengths = [0; BATCH];
    let mut received = 0u64;
    let mut sent = None;
    let mut first = None;
    let mut last = Instant::now();
    while sent.is_none() {
        let n = match socket::receive_many(udp, &mut buffers, &mut lengths) {
            Ok(n) => n,
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            Err(e) if e.kind() == ErrorKind::WouldBlock && received > 0 => break,
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                anyhow::bail!("received no datagram for {} s", idle.as_secs_f64())
            }
            Err(e) => return Err(e).context("cannot receive"),
        };
        for (head, &length) in buffers[..n].iter().zip(&lengths) {
            match end_mark(&head[..length.min(HEAD)]) {
                Some(count) => sent = Some(count),
                None => {
                    received += 1;
                    last = Instant::now();
                }
            }
        }
        first.get_or_insert(last);
    }
    let seconds = first.map_or(0.0, |first| (last - first).as_secs_f64());
    Ok(Received {
        received,
        sent,
        loss: sent
            .filter(|&sent| sent > 0)
            .map(|sent| 1.0 - received as f64 / sent as f64),
        seconds,
        pps: if seconds > 0.0 {
            received as f64 / seconds
        } else {
            0.0
        },
    })
}

fn end_mark(head: &[u8]) -> Option<u64> {
    let count = head.strip_prefix(&END_MARK)?.first_chunk()?;
    Some(u64::from_be_bytes(*count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_is_what_the_sender_sent_and_did_not_arrive() {
        let receiver = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let sender = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        sender
            .connect(receiver.local_addr().expect("an address"))
            .expect("connected");
        for _ in 0..9 {
            sender.send(&[1; 20]).expect("sent");
        }
        let mut end = END_MARK.to_vec();
        end.extend(12u64.to_be_bytes());
        sender.send(&end).expect("sent");
        let got = count(&receiver, Duration::from_secs(5)).expect("counted");
        assert_eq!(
            (got.received, got.sent, got.loss),
            (9, Some(12), Some(0.25))
        );
    }

    #[test]
    fn silence_is_an_error() {
        let udp = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        udp.set_read_timeout(Some(Duration::from_millis(20)))
            .expect("a timeout");
        assert!(count(&udp, Duration::from_millis(20)).is_err());
    }

    #[test]
    fn a_short_datagram_is_no_end_mark() {
        assert_eq!(end_mark(b"ibtapEND\0\0\0"), None);
        assert_eq!(end_mark(b""), None);
    }
}
