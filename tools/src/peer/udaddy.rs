//! `udaddy`: datagrams to a queue pair that the client finds by SIDR. The client sends all its datagrams, then
//! the server sends the same number.

use std::time::Instant;

use anyhow::{Result, ensure};
use control::output::print_line;
use fabric::cm::{DatagramService, NoService};
use fabric::port::UdEndpoint;
use fabric::{Gid, ServiceId};

use super::cli::Udaddy;
use super::end::{Arrival, End, unexpected};
use super::exchange::RETRY;
use super::mckey::QKEY;
use super::payload::{Expected, ours, same};

/// Bytes of the global routing header that verbs put in front of a received datagram.
const GRH: usize = 40;

/// Runs the client or the server.
///
/// # Errors
/// See [`super::run`].
pub fn run(args: &Udaddy) -> Result<()> {
    let mut end = End::open(&args.common)?;
    let own = end.create_ud(QKEY, args.common.size as usize)?;
    match args.connect {
        Some(address) => client(&mut end, &own, address.to_canonical().into(), args),
        None => server(&mut end, &own, args),
    }
}

fn server(end: &mut End, own: &UdEndpoint, args: &Udaddy) -> Result<()> {
    let (size, count) = (args.common.size as usize, args.common.count);
    let service = ServiceId::rdma_cm_datagrams(args.port);
    end.worker().listen_for_datagrams(own.id, service);
    print_line(format_args!(
        "waiting for requests to port {} of {}",
        args.port,
        end.gid()
    ))?;
    let mut expected = Expected::repeated(size);
    let mut got = end.first_datagram()?;
    expected.check(&got.payload)?;
    let (qpn, gid) = (got.qpn, got.gid);
    print_line(format_args!("datagrams come from QPN {qpn} of {gid}"))?;
    for number in 1..count {
        got = end.datagram(&format_args!("datagram {number} of {count}"))?;
        got.is_from(qpn, gid)?;
        expected.check(&got.payload)?;
    }
    let to = end.destination(gid, qpn, QKEY)?;
    for _ in 0..count {
        end.send_from(own, &to, &got.payload)?;
    }
    print_line(format_args!(
        "{count} datagrams of {size} bytes from QPN {qpn} of {gid} and back, all correct"
    ))?;
    Ok(())
}

fn client(end: &mut End, own: &UdEndpoint, peer: Gid, args: &Udaddy) -> Result<()> {
    let (size, count) = (args.common.size as usize, args.common.count);
    let service = ask(end, own, peer, args)?;
    print_line(format_args!(
        "the service has QPN {} and Q_Key {}",
        service.qpn, service.qkey
    ))?;
    let to = end.destination(peer, service.qpn, service.qkey)?;
    for number in 0..count {
        end.send_from(own, &to, &ours(number, size))?;
    }
    let last = ours(count - 1, size);
    for number in 0..count {
        let got = end.datagram(&format_args!("datagram {number} of {count}"))?;
        got.is_from(service.qpn, peer)?;
        check_reply(number, &got.payload, &last, end.gid(), peer)?;
    }
    print_line(format_args!(
        "{count} datagrams of {size} bytes to {peer} and back, all correct"
    ))?;
    Ok(())
}

/// Finds the queue pair; tries again while the server does not listen yet.
fn ask(end: &mut End, own: &UdEndpoint, peer: Gid, args: &Udaddy) -> Result<DatagramService> {
    let service = ServiceId::rdma_cm_datagrams(args.port);
    let until = Instant::now() + args.common.timeout;
    loop {
        end.worker().ask_for_datagrams(own.id, peer, service, &[])?;
        match end.next(&format_args!("the answer of {peer}"))? {
            Arrival::Service(Ok(found)) => return Ok(found),
            Arrival::Service(Err(NoService::Unsupported)) if Instant::now() < until => {
                std::thread::sleep(RETRY);
            }
            other => return Err(unexpected(&other, &"the service's queue pair")),
        }
    }
}

/// Checks a reply: the last datagram. rdma-core's program sends the start of its receive memory: the global
/// routing header of the received datagram, then the datagram.
fn check_reply(number: u32, reply: &[u8], sent: &[u8], own: Gid, peer: Gid) -> Result<()> {
    let (grh, rest) = reply.split_at(reply.len().min(GRH));
    if reply == sent || reply.len() != sent.len() || !is_grh(grh, own, peer) {
        return same(number, reply, sent);
    }
    let behind = &sent[..sent.len().saturating_sub(GRH)];
    ensure!(
        rest == behind,
        "datagram {number} has changed after its routing header"
    );
    Ok(())
}

/// Whether this is the start of a routing header of a datagram from `own` to `peer`: an IPv6 header, or 20
/// unknown bytes and an IPv4 header (IBA vol. 1, annex A17.4.5.1).
fn is_grh(bytes: &[u8], own: Gid, peer: Gid) -> bool {
    let (version, from, to): (_, &[u8], &[u8]) = match (own.ipv4(), peer.ipv4()) {
        (Some(own), Some(peer)) => ((20, 0x45), &own.octets(), &peer.octets()),
        _ => ((0, 0x60), &own.0, &peer.0),
    };
    let addresses: Vec<u8> = [from, to].concat();
    let (at, value) = version;
    // `bytes` may be shorter than the header.
    let has_version = bytes.get(at).is_none_or(|&b| b & 0xf0 == value & 0xf0);
    let begin = GRH - addresses.len();
    let there = bytes.get(begin..).unwrap_or_default();
    has_version && addresses.starts_with(there)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From frame 5 of the capture cm_udaddy_v4: the routing header at the start of a reply of `udaddy`.
    const SEEN: [u8; GRH] = [
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x45, 0, 0, 0x9c, 0x14, 0xac,
        0x40, 0, 0x40, 0x11, 0x0a, 0x3f, 0xc0, 0xa8, 0x4d, 0x0b, 0xc0, 0xa8, 0x4d, 0x0a,
    ];

    fn gid(text: &str) -> Gid {
        text.parse().unwrap()
    }

    #[test]
    fn a_reply_is_the_datagram_or_what_verbs_received_of_it() {
        let (own, peer) = (gid("192.168.77.11"), gid("192.168.77.10"));
        for size in [1, 30, 40, 41, 100] {
            let sent = ours(3, size);
            let mut reply = [&SEEN[..], &sent].concat();
            reply.truncate(size);
            check_reply(0, &sent, &sent, own, peer).unwrap();
            check_reply(0, &reply, &sent, own, peer).unwrap();
            if size > 33 {
                assert!(check_reply(0, &reply, &sent, peer, own).is_err());
            }
            let last = reply.len() - 1;
            reply[last] ^= 0x40;
            if size > 33 {
                assert!(check_reply(0, &reply, &sent, own, peer).is_err(), "{size}");
            }
            assert!(check_reply(0, &sent[1..], &sent, own, peer).is_err());
        }
    }

    #[test]
    fn the_header_of_ipv6_has_both_addresses() {
        let (own, peer) = (gid("fd77::11"), gid("fd77::10"));
        let mut header = [
            [0x60, 0, 0, 0, 0, 100, 17, 64].to_vec(),
            own.0.into(),
            peer.0.into(),
        ]
        .concat();
        assert!(is_grh(&header, own, peer));
        assert!(!is_grh(&header, peer, own));
        header[0] = 0x45;
        assert!(!is_grh(&header, own, peer));
    }
}
