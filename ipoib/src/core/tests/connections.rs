//! Connected mode: setup, use and end of connections.

mod asking;
mod ends;
mod infiniband;
mod packets;
mod refusals;
mod requests;

use proto::{
    CloseReason, ConnectError, ConnectionEvent, ConnectionId, EndpointId, Mode, RejectReason,
    ServiceId, WcStatus,
};

use super::*;
use crate::{Ended, Event, FLAG_RC, PrivateData, Role};

const C1: ConnectionId = ConnectionId(1);
const C2: ConnectionId = ConnectionId(2);
const OURS: [u8; 8] = [0, 0, 0, 0x4a, 0, 0, 0xff, 0xf4];
const THEIRS: [u8; 8] = [0, 0, 0, 0x4b, 0, 0, 0xff, 0xf4];
const IP_B: [u8; 4] = [10, 0, 0, 2];
const MINUTE: u64 = 60_000;

fn reliable(host: u16, qpn: u32) -> HardwareAddress {
    let plain = address(host, qpn);
    HardwareAddress::new(FLAG_RC, plain.qpn(), plain.gid())
}

fn b() -> HardwareAddress {
    reliable(0xb, 0x4b)
}

fn connected_with(connections: usize) -> Ipoib {
    let mut c = Ipoib::new(Config {
        mode: Mode::Connected,
        limits: Limits {
            connections,
            ..a().config.limits
        },
        ..a().config
    });
    c.watch(true);
    c
}

fn connected() -> Ipoib {
    connected_with(8)
}

fn data(to: Mac, ip: [u8; 4], len: usize) -> Vec<u8> {
    let packet = ipv4([10, 0, 0, 1], ip, &vec![7; len - 20]);
    frame(to, MAC_A, 0x0800, &packet)
}

/// The connection of a small packet, or `None` for a datagram.
fn way(c: &mut Ipoib, now: u64, mac: Mac) -> Option<(ConnectionId, usize)> {
    match c.from_tap(Time(now), &NO_OFFLOAD, &data(mac, IP_B, 60)) {
        Outgoing::Message {
            connection, mtu, ..
        } => Some((connection, mtu)),
        Outgoing::Forward { .. } => None,
        other => panic!("{other:?}"),
    }
}

fn actions(c: &mut Ipoib) -> Vec<ConnectionAction> {
    std::iter::from_fn(|| c.poll_connection()).collect()
}

/// The only pending request: its number and the service.
fn asked(c: &mut Ipoib) -> (u32, ServiceId) {
    let all = actions(c);
    let [
        ConnectionAction::Connect {
            request, service, ..
        },
    ] = all[..]
    else {
        panic!("{all:?}")
    };
    (request, service)
}

fn begun(c: &mut Ipoib, now: u64, connection: ConnectionId) {
    let (request, _) = asked(c);
    c.connecting(Time(now), request, Ok(connection));
}

fn replied(c: &mut Ipoib, now: u64, connection: ConnectionId, data: &[u8]) {
    let mut private_data = vec![0; 196].into_boxed_slice();
    private_data[..data.len()].copy_from_slice(data);
    c.connection_event(
        Time(now),
        &ConnectionEvent::Replied {
            connection,
            private_data,
        },
    );
}

fn closed(c: &mut Ipoib, now: u64, connection: ConnectionId, reason: CloseReason) {
    c.connection_event(Time(now), &ConnectionEvent::Closed { connection, reason });
}

fn requested(c: &mut Ipoib, now: u64, connection: ConnectionId, peer: Gid, data: &[u8]) {
    let service = c.service_ids()[0];
    request_for(c, now, connection, peer, data, service);
}

fn request_for(
    c: &mut Ipoib,
    now: u64,
    connection: ConnectionId,
    peer: Gid,
    data: &[u8],
    service: ServiceId,
) {
    c.connection_event(
        Time(now),
        &ConnectionEvent::Requested {
            connection,
            endpoint: EndpointId(0),
            service,
            peer,
            private_data: data.into(),
        },
    );
}

/// Makes a connection to `b`; returns its MAC.
fn up(c: &mut Ipoib, now: u64, connection: ConnectionId) -> Mac {
    let mac = teach(c, b(), IP_B);
    assert_eq!(way(c, now, mac), None);
    begun(c, now, connection);
    replied(c, now, connection, &THEIRS);
    assert_eq!(actions(c), [ConnectionAction::Establish { connection }]);
    mac
}

fn reject(connection: ConnectionId, reason: RejectReason) -> ConnectionAction {
    ConnectionAction::Reject {
        connection,
        reason,
        private_data: OURS,
    }
}

fn accept(connection: ConnectionId) -> ConnectionAction {
    ConnectionAction::Accept {
        connection,
        private_data: OURS,
    }
}

/// Passes time as a data thread does.
fn wait_until(c: &mut Ipoib, from: u64, to: u64) {
    let mut now = from;
    while let Some(due) = c.next_deadline().filter(|due| due.0 <= to) {
        now = now.max(due.0);
        c.handle_timeout(Time(now));
        assert!(
            c.next_deadline().is_none_or(|next| next.0 > now),
            "at {now}"
        );
    }
    c.handle_timeout(Time(to));
}

/// Sends a frame that is too large for a datagram, as a data thread does.
fn offer<'c>(c: &'c mut Ipoib, now: u64, large: &[u8]) -> TooBig<'c> {
    let to = match c.from_tap(Time(now), &NO_OFFLOAD, large) {
        Outgoing::Forward { to, .. } | Outgoing::Message { to, .. } => to,
        other => panic!("{other:?}"),
    };
    c.too_big(Time(now), to, &NO_OFFLOAD, large, large.len() - 14)
}
