//! Requests and responses of a few bytes over TCP or UDP: the latency of an application.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::Serialize;
use tools::parse_seconds;

/// Time after which an answer counts as lost.
const PATIENCE: Duration = Duration::from_secs(1);
/// The same over TCP, which sends lost packets again.
const TCP_PATIENCE: Duration = Duration::from_secs(10);
/// Transactions before the measurement, to resolve neighbours and fill caches.
const WARM_UP: usize = 100;
/// As many lost answers, from the first one on, mean that nobody answers.
const TRIES: usize = 4;

/// Answer requests over TCP and UDP by returning their bytes
#[derive(Args)]
pub struct ServerArgs {
    /// Address and port for both protocols
    #[arg(long, value_name = "ADDR:PORT")]
    bind: SocketAddr,
}

/// Measure the latency of requests and responses
#[derive(Args)]
pub struct ClientArgs {
    /// Address and port of the server
    #[arg(long, value_name = "ADDR:PORT")]
    to: SocketAddr,
    /// Use UDP instead of TCP
    #[arg(long)]
    udp: bool,
    /// Size of a request and of a response
    #[arg(long, default_value_t = 1, value_name = "BYTES")]
    size: usize,
    /// Duration in seconds
    #[arg(long, default_value = "3", value_name = "N", value_parser = parse_seconds)]
    seconds: Duration,
}

#[derive(Serialize, Debug)]
struct Latencies {
    transactions: usize,
    lost: usize,
    rate: f64,
    min_us: f64,
    p50_us: f64,
    p99_us: f64,
    max_us: f64,
}

/// Serves until the process ends.
///
/// # Errors
///
/// Errors of binding the address.
pub fn serve(args: &ServerArgs) -> Result<()> {
    let udp = UdpSocket::bind(args.bind).with_context(|| format!("UDP {}", args.bind))?;
    let tcp = TcpListener::bind(args.bind).with_context(|| format!("TCP {}", args.bind))?;
    std::thread::spawn(move || echo_datagrams(&udp));
    for stream in tcp.incoming() {
        let stream = stream.context("cannot accept")?;
        std::thread::spawn(move || echo_stream(stream));
    }
    Ok(())
}

fn echo_datagrams(udp: &UdpSocket) {
    let mut bytes = vec![0; 1 << 16];
    loop {
        if let Ok((n, from)) = udp.recv_from(&mut bytes) {
            // The client may have ended.
            let _ = udp.send_to(&bytes[..n], from);
        }
    }
}

fn echo_stream(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut bytes = vec![0; 1 << 16];
    loop {
        match stream.read(&mut bytes)? {
            0 => return Ok(()),
            n => stream.write_all(&bytes[..n])?,
        }
    }
}

/// Measures and prints JSON.
///
/// # Errors
///
/// The server does not answer, or a TCP connection breaks.
pub fn measure(args: &ClientArgs) -> Result<()> {
    ensure!(
        (1..=1400).contains(&args.size),
        "--size must be 1 to 1400 bytes, so that a request is one packet"
    );
    let latencies = if args.udp {
        let mut exchange = udp_exchange(args.to, args.size)?;
        run_for(args.seconds, &mut exchange)?
    } else {
        let mut exchange = tcp_exchange(args.to, args.size)?;
        run_for(args.seconds, &mut exchange)?
    };
    crate::print_json(&latencies)
}

/// One transaction; returns `false` if its answer was lost.
type Exchange = Box<dyn FnMut() -> std::io::Result<bool>>;

fn tcp_exchange(to: SocketAddr, size: usize) -> Result<Exchange> {
    let mut stream = TcpStream::connect(to).with_context(|| format!("no answer from {to}"))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(TCP_PATIENCE))?;
    stream.set_write_timeout(Some(TCP_PATIENCE))?;
    let request = vec![0x5a; size];
    let mut response = vec![0; size];
    Ok(Box::new(move || {
        stream.write_all(&request)?;
        stream.read_exact(&mut response)?;
        Ok(true)
    }))
}

fn udp_exchange(to: SocketAddr, size: usize) -> Result<Exchange> {
    let local: SocketAddr = if to.is_ipv4() {
        ([0, 0, 0, 0], 0).into()
    } else {
        ([0u16; 8], 0).into()
    };
    let udp = UdpSocket::bind(local)?;
    udp.connect(to)
        .with_context(|| format!("no route to {to}"))?;
    udp.set_read_timeout(Some(PATIENCE))?;
    let mut request = vec![0x5a_u8; size];
    let mut response = vec![0; size + 1];
    Ok(Box::new(move || {
        // The first byte changes, so a late answer does not match the next request.
        request[0] = request[0].wrapping_add(1);
        udp.send(&request)?;
        loop {
            match udp.recv(&mut response) {
                Ok(n) if response[..n] == request => return Ok(true),
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(e) => return Err(e),
            }
        }
    }))
}

fn run_for(duration: Duration, exchange: &mut Exchange) -> Result<Latencies> {
    let mut answered = false;
    for tries in 1..=WARM_UP {
        answered |= exchange().context("the server does not answer")?;
        ensure!(answered || tries < TRIES, "the server does not answer");
    }
    let mut samples = Vec::with_capacity(1 << 20);
    let mut lost = 0;
    let started = Instant::now();
    let mut before = started;
    while before - started < duration {
        let answered = exchange().context("the connection broke")?;
        let after = Instant::now();
        if answered {
            samples.push(after - before);
        } else {
            lost += 1;
        }
        before = after;
    }
    ensure!(!samples.is_empty(), "the server answered no request");
    Ok(summarise(samples, lost, before - started))
}

fn summarise(mut samples: Vec<Duration>, lost: usize, elapsed: Duration) -> Latencies {
    samples.sort_unstable();
    let at = |quantile: f64| {
        let index = ((samples.len() - 1) as f64 * quantile).round() as usize;
        samples[index].as_secs_f64() * 1e6
    };
    Latencies {
        transactions: samples.len(),
        lost,
        rate: samples.len() as f64 / elapsed.as_secs_f64(),
        min_us: at(0.0),
        p50_us: at(0.5),
        p99_us: at(0.99),
        max_us: at(1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_order_statistics() {
        let samples = (1..=101).rev().map(Duration::from_micros).collect();
        let got = summarise(samples, 2, Duration::from_secs(1));
        assert_eq!((got.transactions, got.lost), (101, 2));
        for (value, expected) in [
            (got.min_us, 1.0),
            (got.p50_us, 51.0),
            (got.p99_us, 100.0),
            (got.max_us, 101.0),
        ] {
            assert!((value - expected).abs() < 1e-6, "{value} is not {expected}");
        }
    }

    #[test]
    fn a_server_that_answers_nothing_ends_the_measurement() {
        let mut tries = 0;
        let mut exchange: Exchange = Box::new(move || {
            tries += 1;
            assert!(tries <= TRIES, "it goes on");
            Ok(false)
        });
        let error = run_for(Duration::ZERO, &mut exchange).expect_err("no answer");
        assert_eq!(error.to_string(), "the server does not answer");
    }

    #[test]
    fn both_protocols_are_answered() {
        let udp = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let tcp = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let (udp_at, tcp_at) = (udp.local_addr(), tcp.local_addr());
        std::thread::spawn(move || echo_datagrams(&udp));
        std::thread::spawn(move || echo_stream(tcp.accept().expect("a client").0));
        for mut exchange in [
            udp_exchange(udp_at.expect("an address"), 64).expect("a socket"),
            tcp_exchange(tcp_at.expect("an address"), 64).expect("a connection"),
        ] {
            let got = run_for(Duration::from_millis(50), &mut exchange).expect("measured");
            assert!(got.transactions > 0 && got.lost == 0, "{got:?}");
            assert!(got.min_us <= got.p50_us && got.p50_us <= got.p99_us);
        }
    }
}
