//! `ibv_ud_pingpong`: the client sends datagrams, the server returns each of them.

use anyhow::Result;
use control::output::print_line;
use fabric::port::UdEndpoint;
use fabric::{Psn, QKey};

use super::cli::UdPingpong;
use super::end::End;
use super::exchange::{Exchange, Parameters};
use super::payload::{Expected, ours, same};

/// The Q_Key of `ibv_ud_pingpong`.
const QKEY: QKey = QKey::new(0x1111_1111);

/// Runs the client or the server.
///
/// # Errors
/// See [`super::run`].
pub fn run(args: &UdPingpong) -> Result<()> {
    let mut end = End::open(&args.common)?;
    let size = args.common.size as usize;
    let endpoint = end.create_ud(QKEY, size)?;
    let own = Parameters {
        lid: 0,
        qpn: endpoint.qpn,
        // Datagrams do not need it.
        psn: Psn::new(0),
        gid: end.gid(),
    };
    print_line(format_args!("local address: {own}"))?;
    match &args.exchange.connect {
        Some(host) => {
            let mut tcp = Exchange::connect(host, args.exchange.port, args.common.timeout)?;
            let peer = tcp.ask(own)?;
            print_line(format_args!("remote address: {peer}"))?;
            tcp.ready()?;
            ping(&mut end, &endpoint, &peer, args)?;
        }
        None => {
            let mut tcp = Exchange::accept(args.exchange.port, args.common.timeout)?;
            let peer = tcp.parameters()?;
            print_line(format_args!("remote address: {peer}"))?;
            tcp.answer(own)?;
            pong(&mut end, &endpoint, &peer, args)?;
        }
    }
    print_line(format_args!(
        "{} datagrams of {size} bytes in each direction, all correct",
        args.common.count
    ))?;
    Ok(())
}

fn ping(end: &mut End, from: &UdEndpoint, peer: &Parameters, args: &UdPingpong) -> Result<()> {
    let to = end.destination(peer.gid, peer.qpn, QKEY)?;
    for number in 0..args.common.count {
        let sent = ours(number, args.common.size as usize);
        end.send(from.id, &to, &sent)?;
        let got = end.datagram(&format_args!("the answer to datagram {number}"))?;
        got.is_from(peer.qpn, peer.gid)?;
        same(number, &got.payload, &sent)?;
    }
    Ok(())
}

fn pong(end: &mut End, from: &UdEndpoint, peer: &Parameters, args: &UdPingpong) -> Result<()> {
    let to = end.destination(peer.gid, peer.qpn, QKEY)?;
    let mut expected = Expected::pingpong(args.common.size as usize);
    for number in 0..args.common.count {
        let got = end.datagram(&format_args!("datagram {number}"))?;
        got.is_from(peer.qpn, peer.gid)?;
        expected.check(&got.payload)?;
        end.send(from.id, &to, &got.payload)?;
    }
    Ok(())
}
