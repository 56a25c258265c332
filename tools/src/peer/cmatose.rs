//! `ucmatose`: a reliable connection by rdma_cm. The server sends all its messages, then the client
//! sends as many times the last of them back, then the server ends the connection.

use std::time::Instant;

use anyhow::{Result, ensure};
use fabric::{
    CloseReason, ConnectRequest, ConnectionEvent, ConnectionId, Connections, EndpointId, Gid, QKey,
    Qpn, RejectReason, ServiceId,
};

use super::cli::Cmatose;
use super::end::{Arrival, End, unexpected};
use super::exchange::RETRY;
use super::payload::{Expected, ours, same};

/// A connection needs an endpoint to be of; this one's datagrams are for nobody.
const QKEY: QKey = QKey::new(0x0b1b);

/// Nobody listens there.
const NOBODY: CloseReason = CloseReason::Rejected(RejectReason::INVALID_SERVICE_ID);

/// Runs either side.
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
    println!(
        "waiting for a connection to port {} of {}",
        args.port,
        end.gid()
    );
    let (connection, peer) = match end.first()? {
        Arrival::Event(ConnectionEvent::Requested {
            connection, peer, ..
        }) => (connection, peer),
        other => return Err(unexpected(&other, &"a request for a connection")),
    };
    end.worker().accept(connection, &[]);
    println!("connected to {peer}");
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
    println!("{count} messages of {size} bytes to {peer} and back, all of them right");
    Ok(())
}

fn client(end: &mut End, peer: Gid, args: &Cmatose) -> Result<()> {
    let (size, count) = (args.common.size as usize, args.common.count);
    let endpoint = end.create_ud(QKEY, 0)?;
    let connection = connect(end, endpoint.id, peer, args)?;
    println!("connected to {peer}");
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
    println!("{count} messages of {size} bytes from {peer} and back, all of them right");
    Ok(())
}

/// Makes a connection. The server may take its time to be there: until then it is rejected.
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
                if reason == NOBODY && Instant::now() < until =>
            {
                std::thread::sleep(RETRY);
            }
            other => return Err(unexpected(&other, &"the reply")),
        }
    }
}
