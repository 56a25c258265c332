//! State that an interface removes when it goes down.

use proto::{ConnectionEvent, ConnectionId, EndpointId, Mode};

use super::*;
use crate::{Event, PrivateData};

const GUEST: Mac = [6, 0, 0, 0, 0, 0x99];

fn data(to: Mac, from: Mac, source: [u8; 4], destination: [u8; 4]) -> Vec<u8> {
    frame(to, from, 0x0800, &ipv4(source, destination, b"data"))
}

fn released(c: &mut Ipoib) -> Vec<u32> {
    let mut all: Vec<u32> = std::iter::from_fn(|| c.pop_released_ah())
        .map(|ah| ah.0)
        .collect();
    all.sort_unstable();
    all
}

#[test]
fn neighbours_go_with_their_handles_and_guests_stay() {
    let mut c = a();
    let mac = teach(&mut c, address(0xb, 0x4b), [10, 0, 0, 2]);
    let guest = data(mac, GUEST, [10, 0, 0, 9], [10, 0, 0, 2]);
    let Outgoing::Forward { to, .. } = c.from_tap(T0, &NO_OFFLOAD, &guest) else {
        panic!("the peer is known")
    };
    c.set_ah(to, AddressHandle(7));
    c.set_joined(T0, &[group(&c, "239.1.2.3")]);
    for (ip, ah) in [("239.1.2.3", 8), ("239.9.9.9", 9)] {
        let mgid = group(&c, ip);
        let to = c.group(T0, mgid);
        c.set_ah(to, AddressHandle(ah));
    }
    c.set_ah(Target::Group(BROADCAST), AddressHandle(10));
    c.watch(true);
    while c.pop_event().is_some() {}

    c.flush();
    assert_eq!(c.neighbours().count(), 0);
    assert_eq!(released(&mut c), [7, 8, 9, 10]);
    let left: Vec<_> = c.groups().map(|g| (g.send_only, g.ah)).collect();
    assert_eq!(left, [(false, None), (false, None)]);
    assert_eq!(c.guests().map(|g| g.mac).collect::<Vec<_>>(), [GUEST]);
    let peer = address(0xb, 0x4b);
    let removed = Event::NeighbourForgotten { address: peer };
    assert_eq!(c.pop_event(), Some(removed));
    assert!(c.next_deadline().is_none_or(|t| t > Time(1000)));

    // The peer is found again.
    let host = data(mac, MAC_A, [10, 0, 0, 1], [10, 0, 0, 2]);
    assert_eq!(send(&mut c, T0, &host), Sent::Held);
    assert_eq!(teach(&mut c, peer, [10, 0, 0, 2]), mac);
    assert!(c.pop_released().is_some());
}

/// The replica that learned them publishes them again after 20 s at the earliest.
#[test]
fn updates_about_the_host_side_outlive_a_flush() {
    let (mut c, mut sibling) = (a(), a());
    let peer = teach(&mut c, address(0xb, 0x4b), [10, 0, 0, 2]);
    let unknown = data([2, 9, 9, 9, 9, 9], MAC_A, [10, 0, 0, 1], [10, 0, 0, 3]);
    assert_eq!(send(&mut c, T0, &unknown), Sent::Held);
    let claim = arp(1, &GUEST, [10, 0, 0, 9], &[0; 6], [10, 0, 0, 9]);
    send(&mut c, T0, &frame(MAC_BROADCAST, GUEST, 0x0806, &claim));
    let probe = arp(1, &GUEST, [0; 4], &[0; 6], [10, 0, 0, 10]);
    send(&mut c, T0, &frame(MAC_BROADCAST, GUEST, 0x0806, &probe));
    c.announce([10, 0, 0, 1].into(), false);
    c.set_mac(peer);
    c.flush();
    let updates: Vec<Update> = c.drain_updates().collect();
    let kinds = updates.iter().map(|u| match u {
        Update::Guest { .. } => "guest",
        Update::Probing { .. } => "probing",
        Update::HostAddress { .. } => "host",
        other => panic!("{other:?}"),
    });
    assert_eq!(kinds.collect::<Vec<_>>(), ["guest", "probing", "host"]);
    updates.iter().for_each(|u| sibling.apply(T0, u));
    let found: Vec<_> = sibling.guests().map(|g| (g.ip, g.mac)).collect();
    assert_eq!(found, [([10, 0, 0, 9].into(), GUEST)]);
}

#[test]
fn frames_that_wait_are_dropped_and_counted_and_nothing_is_asked_or_announced() {
    let mut c = a();
    c.set_stacked(true);
    let unknown = [2, 9, 9, 9, 9, 9];
    for _ in 0..2 {
        let host = data(unknown, MAC_A, [10, 0, 0, 1], [10, 0, 0, 2]);
        assert_eq!(send(&mut c, T0, &host), Sent::Held);
    }
    let m = meta(address(0xb, 0x4b), c.local().gid());
    let packet = payload(0x0800, &ipv4([10, 0, 0, 2], [10, 0, 0, 9], b"data"));
    assert_eq!(c.from_fabric(T0, &m, &packet), Incoming::Held);
    c.announce([10, 0, 0, 1].into(), false);
    c.flush();
    assert_eq!(c.counters().held_dropped, 3);
    assert_eq!(c.poll_transmit(T0), None);
    assert_eq!(c.poll_tap(T0), None);
    assert_eq!(c.pop_released(), None);
    // The next deadline is the expiry of the guests.
    assert!(c.next_deadline().is_none_or(|t| t > Time(1000)));
}

#[test]
fn connections_of_both_sides_end_with_what_waits_for_them() {
    let mut c = Ipoib::new(Config {
        mode: Mode::Connected,
        ..a().config
    });
    let peer = HardwareAddress::new(crate::FLAG_RC, Qpn::new(0x4b), address(0xb, 0).gid());
    let mac = teach(&mut c, peer, [10, 0, 0, 2]);
    let host = data(mac, MAC_A, [10, 0, 0, 1], [10, 0, 0, 2]);
    let Outgoing::Forward { to, .. } = c.from_tap(T0, &NO_OFFLOAD, &host) else {
        panic!("there is no connection yet")
    };
    let Some(ConnectionAction::Connect { request, .. }) = c.poll_connection() else {
        panic!("a connection is requested")
    };
    c.connecting(T0, request, Ok(ConnectionId(1)));
    assert_eq!(
        c.too_big(T0, to, &NO_OFFLOAD, &host, 5000),
        crate::TooBig::Held
    );
    c.connection_event(
        T0,
        &ConnectionEvent::Requested {
            connection: ConnectionId(2),
            endpoint: EndpointId(0),
            service: c.service_ids()[0],
            peer: peer.gid(),
            private_data: PrivateData::new(peer.qpn()).to_bytes().into(),
        },
    );
    while c.poll_connection().is_some() {}

    c.flush();
    let closed: Vec<_> = std::iter::from_fn(|| c.poll_connection()).collect();
    let close = |n| ConnectionAction::Close {
        connection: ConnectionId(n),
    };
    assert_eq!(closed, [close(1), close(2)]);
    assert_eq!((c.connections().count(), c.counters().held_dropped), (0, 1));
    assert_eq!(c.pop_released(), None);
}
