//! `ucmatose`: a reliable connection by rdma_cm. The server sends all its messages. Then the client returns
//! the last message the same number of times, and the server ends the connection.

use std::time::Instant;

use anyhow::{Result, ensure};
use control::output::print_line;
use fabric::{
    CloseReason, ConnectRequest, ConnectionEvent, ConnectionId, Connections, EndpointId, Gid, QKey,
    Qpn, RejectReason, ServiceId,
};

use super::cli::Cmatose;
use super::end::{Arrival, End, unexpected};
use super::exchange::RETRY;
use super::payload::{Expected, ours, same};

/// Q_Key of the endpoint that the connection needs; no datagrams use it.
const QKEY: QKey = QKey::new(0x0b1b);

/// The server does not listen yet.
const NO_SERVER: CloseReason = CloseReason::Rejected(RejectReason::INVALID_SERVICE_ID);

/// Runs the client or the server.
///
/// # Errors
/// See [`super::run`].
pub fn run(args: &Cmatose) -> Result<()> {
    let mut end = End::open(&args.common)?;
    match args.connect {
        Some(address) => client(&mut end, address.to_canonical().into(), args),
        None => server(&mut end, args),
    }
}

fn server(end: &mut End, args: &Cmatose) -> Result<()> {
    let (size, count) = (args.common.size as usize, args.common.count);
    let endpoint = end.create_ud(QKEY, 0)?;
    end.worker()
        .listen(endpoint.id, ServiceId::rdma_cm(args.port));
    print_line(format_args!(
        "waiting for a connection to port {} of {}",
        args.port,
        end.gid()
    ))?;
    let (connection, peer) = match end.first()? {
        Arrival::Event(ConnectionEvent::Requested {
            connection, peer, ..
        }) => (connection, peer),
        other => return Err(unexpected(&other, &"a connection request")),
    };
    end.worker().accept(connection, &[]);
    print_line(format_args!("connected to {peer}"))?;
    for number in 0..count {
        end.post(connection, &ours(number, size))?;
    }
    let last = ours(count - 1, size);
    for number in 0..count {
        let got = end.message(connection, &format_args!("message {number} of {count}"))?;
        same(number, &got, &last)?;
    }
    ensure!(
        end.acknowledged(connection)?,
        "the connection ended before the last message was acknowledged"
    );
    end.close(connection)?;
    print_line(format_args!(
        "{count} messages of {size} bytes to {peer} and back, all correct"
    ))?;
    Ok(())
}

fn client(end: &mut End, peer: Gid, args: &Cmatose) -> Result<()> {
    let (size, count) = (args.common.size as usize, args.common.count);
    let endpoint = end.create_ud(QKEY, 0)?;
    let connection = connect(end, endpoint.id, peer, args)?;
    print_line(format_args!("connected to {peer}"))?;
    let mut expected = Expected::repeated(size);
    let mut last = Vec::new();
    for number in 0..count {
        last = end.message(connection, &format_args!("message {number} of {count}"))?;
        expected.check(&last)?;
    }
    for _ in 0..count {
        end.post(connection, &last)?;
    }
    match end.next(&"the end of the connection")? {
        Arrival::Event(ConnectionEvent::Closed {
            reason: CloseReason::Disconnected,
            ..
        }) => {}
        other => return Err(unexpected(&other, &"the end of the connection")),
    }
    print_line(format_args!(
        "{count} messages of {size} bytes from {peer} and back, all correct"
    ))?;
    Ok(())
}

/// Connects. A server that does not listen yet rejects the request; the client then tries again.
fn connect(end: &mut End, endpoint: EndpointId, peer: Gid, args: &Cmatose) -> Result<ConnectionId> {
    let request = ConnectRequest {
        service: ServiceId::rdma_cm(args.port),
        peer,
        to: Qpn::new(0),
        private_data: &[],
    };
    let until = Instant::now() + args.common.timeout;
    loop {
        let connection = Connections::connect(end.worker(), endpoint, &request)?;
        match end.next(&format_args!("the reply of {peer}"))? {
            Arrival::Event(ConnectionEvent::Replied { .. }) => {
                end.worker().establish(connection);
                return Ok(connection);
            }
            Arrival::Event(ConnectionEvent::Closed { reason, .. })
                if reason == NO_SERVER && Instant::now() < until =>
            {
                std::thread::sleep(RETRY);
            }
            other => return Err(unexpected(&other, &"the reply")),
        }
    }
}
