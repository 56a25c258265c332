//! `ibv_rc_pingpong`: messages over a reliable connection, whose parameters both sides exchange over TCP. The
//! server returns each message of the client.

use std::time::Duration;

use anyhow::{Context, Result};
use control::output::{complain, print_line};
use fabric::soft::{LocalQp, RemoteQp};
use fabric::{IbMtu, QKey};

use super::cli::RcPingpong;
use super::end::End;
use super::exchange::{Exchange, Parameters};
use super::payload::{Expected, ours, same};

/// Q_Key of the endpoint that the connection needs; no datagrams use it.
const QKEY: QKey = QKey::new(0x1111_1111);

// The settings of `ibv_rc_pingpong`: 67 ms until an acknowledgement, seven retries, unlimited retries while the
// peer is not ready to receive.
const ACK_TIMEOUT: u8 = 14;
const RETRY_COUNT: u8 = 7;
const RNR_RETRY: u8 = 7;

/// Time to stay after the last message, several times 67 ms. If its acknowledgement is lost, the peer sends the
/// last message again.
const QUIET: Duration = Duration::from_millis(500);

/// Runs the client or the server.
///
/// # Errors
/// See [`super::run`].
pub fn run(args: &RcPingpong) -> Result<()> {
    let mut end = End::open(&args.common)?;
    let (count, size) = (args.common.count, args.common.size as usize);
    let endpoint = end.create_ud(QKEY, 0)?;
    let local = end.worker().begin_unmanaged(endpoint.id)?;
    let own = Parameters {
        lid: 0,
        qpn: local.qpn,
        psn: local.psn,
        gid: local.gid,
    };
    print_line(format_args!("local address: {own}"))?;
    match &args.exchange.connect {
        Some(host) => {
            let mut tcp = Exchange::connect(host, args.exchange.port, args.common.timeout)?;
            let peer = tcp.ask(own)?;
            connect(&mut end, &local, &peer, args.mtu)?;
            tcp.ready()?;
            ping(&mut end, &local, args)?;
        }
        None => {
            let mut tcp = Exchange::accept(args.exchange.port, args.common.timeout)?;
            let peer = tcp.parameters()?;
            connect(&mut end, &local, &peer, args.mtu)?;
            tcp.answer(own)?;
            pong(&mut end, &local, args)?;
        }
    }
    end.linger(QUIET)?;
    let again = end.info(local.connection).map_or(0, |c| c.retransmits);
    print_line(format_args!(
        "{count} messages of {size} bytes in each direction, all correct; retransmitted packets: {again}"
    ))?;
    Ok(())
}

fn connect(end: &mut End, local: &LocalQp, peer: &Parameters, path_mtu: IbMtu) -> Result<()> {
    print_line(format_args!("remote address: {peer}"))?;
    let remote = RemoteQp {
        qpn: peer.qpn,
        psn: peer.psn,
        gid: peer.gid,
        path_mtu,
        ack_timeout: ACK_TIMEOUT,
        retry_count: RETRY_COUNT,
        rnr_retry: RNR_RETRY,
    };
    let connected = end.worker().connect_unmanaged(local.connection, &remote);
    connected.with_context(|| {
        let mtu = path_mtu.bytes();
        format!("cannot reach the peer with packets of {mtu} bytes; try another --gid or --mtu")
    })
}

fn ping(end: &mut End, local: &LocalQp, args: &RcPingpong) -> Result<()> {
    for number in 0..args.common.count {
        let sent = ours(number, args.common.size as usize);
        end.post(local.connection, &sent)?;
        let what = format_args!("the answer to message {number}");
        let got = end.message(local.connection, &what)?;
        same(number, &got, &sent)?;
    }
    Ok(())
}

fn pong(end: &mut End, local: &LocalQp, args: &RcPingpong) -> Result<()> {
    let mut expected = Expected::pingpong(args.common.size as usize);
    for number in 0..args.common.count {
        let got = end.message(local.connection, &format_args!("message {number}"))?;
        expected.check(&got)?;
        end.post(local.connection, &got)?;
    }
    if !end.acknowledged(local.connection)? {
        // The peer may end when it has the last message and cannot repeat a lost acknowledgement. The peer
        // answered all earlier messages.
        complain(
            "ibtap-peer",
            "the last message was not acknowledged: the acknowledgement was lost, or the \
             peer ended before the message arrived; see the output of the peer",
        );
    }
    Ok(())
}
