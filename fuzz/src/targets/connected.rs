//! An interface in connected mode: frames from the TAP, messages, requests and replies of peers.
//!
//! Input: records of a flag byte, a length of two bytes, and a frame, a message, or private data. The low
//! three bits of the flags select the kind, the others the peer.

use fabric::{CloseReason, ConnectionEvent, ConnectionId, EndpointId, WcStatus};
use ipoib::{ConnectionAction, Incoming, Ipoib, Mode, Outgoing, Time, TooBig};

use crate::{interface, records};

/// Longer frames are passed to the core as too large, though they are short.
const LARGE: usize = 60;

pub fn run(data: &[u8]) {
    let mut ipoib = interface::new();
    ipoib.set_mode(Mode::Connected);
    let (mut now, mut last) = (0, 0);
    for (flags, bytes) in records(data) {
        let at = Time(now);
        let peer = flags >> 3;
        let connection = ConnectionId(u32::from(peer));
        match flags & 7 {
            0 | 1 => send(&mut ipoib, at, bytes),
            2 => receive(&mut ipoib, at, connection, bytes),
            3 => {
                last += 1;
                let event = ConnectionEvent::Requested {
                    connection: ConnectionId(last),
                    endpoint: EndpointId(0),
                    service: ipoib.service_ids()[usize::from(peer) % 3],
                    peer: interface::peer_gid(peer),
                    private_data: bytes.into(),
                };
                ipoib.connection_event(at, &event);
            }
            4 => {
                let private_data = bytes.into();
                let event = ConnectionEvent::Replied {
                    connection,
                    private_data,
                };
                ipoib.connection_event(at, &event);
            }
            5 => {
                let reason = match peer & 3 {
                    0 => CloseReason::Disconnected,
                    1 => CloseReason::TimedOut,
                    2 => CloseReason::Failed(WcStatus::RetryExcErr),
                    _ => CloseReason::Rejected(fabric::RejectReason(u16::from(peer))),
                };
                let event = ConnectionEvent::Closed { connection, reason };
                ipoib.connection_event(at, &event);
            }
            6 => {
                let from = interface::peer_gid(peer);
                let meta = ipoib::Meta {
                    src_qpn: fabric::Qpn::new(0x100 + u32::from(peer)),
                    src_gid: from,
                    has_src_gid: true,
                    dst_gid: ipoib.local().gid(),
                    multicast: false,
                };
                let _ = ipoib.from_fabric(at, &meta, bytes);
            }
            _ => now += u64::from(peer) * 1000,
        }
        last = serve(&mut ipoib, at, last);
        interface::drain(&mut ipoib, Time(now));
        last = serve(&mut ipoib, Time(now), last);
        assert!(ipoib.connections().count() <= interface::LIMITS.connections);
    }
    interface::check(&ipoib);
}

fn send(ipoib: &mut Ipoib, now: Time, frame: &[u8]) {
    let to = match ipoib.from_tap(now, &[0; 12], frame) {
        Outgoing::Forward { to, .. } | Outgoing::Message { to, .. } => to,
        _ => return,
    };
    if frame.len() <= LARGE {
        return;
    }
    let len = usize::from(u16::from_be_bytes([frame[LARGE - 2], frame[LARGE - 1]]));
    if let TooBig::Answer(answer) = ipoib.too_big(now, to, &[0; 12], frame, len) {
        assert!(answer.len() >= 14 + 20 + 8 + 8 && answer.len() <= 14 + 1280);
    }
}

fn receive(ipoib: &mut Ipoib, now: Time, connection: ConnectionId, message: &[u8]) {
    let len = message.len() * (1 + usize::from(message.first().copied().unwrap_or(0) & 1));
    if let Incoming::Packet { l3, .. } = ipoib.from_connection(now, connection, message, len) {
        assert!(l3.len() + 4 <= message.len());
    }
}

/// Executes the core's actions; connections have the numbers from 1.
fn serve(ipoib: &mut Ipoib, now: Time, mut last: u32) -> u32 {
    while let Some(action) = ipoib.poll_connection() {
        if let ConnectionAction::Connect { request, .. } = action {
            last += 1;
            ipoib.connecting(now, request, Ok(ConnectionId(last)));
        }
    }
    last
}
