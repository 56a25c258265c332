//! Events that end a connection, and events that do not.

use super::*;

#[test]
fn c101_idle_connections_are_ended_and_those_in_use_are_not() {
    let mut c = connected();
    let mac = up(&mut c, 0, C1);
    requested(&mut c, 0, C2, b().gid(), &THEIRS);
    actions(&mut c);
    let message = payload(0x0800, &ipv4(IP_B, [10, 0, 0, 1], b"data"));
    let mut now = 0;
    while now < 600_000 {
        now += 1000;
        wait_until(&mut c, now - 1000, now);
        assert_eq!(way(&mut c, now, mac), Some((C1, 65520)), "at {now}");
        c.from_connection(Time(now), C2, &message, message.len());
        assert_eq!(actions(&mut c), []);
    }
    wait_until(&mut c, now, now + 59_000);
    assert_eq!(actions(&mut c), []);
    wait_until(&mut c, now, now + 61_000);
    let close = |connection| ConnectionAction::Close { connection };
    assert_eq!(actions(&mut c), [close(C1)]);
    wait_until(&mut c, now, now + 511_000);
    assert_eq!(actions(&mut c), []);
    wait_until(&mut c, now, now + 513_000);
    assert_eq!(actions(&mut c), [close(C2)]);
    assert_eq!(c.counters().connections_reaped, 2);
    assert_eq!((c.connections().count(), c.next_deadline()), (0, None));
}

#[test]
fn c114_a_change_of_mode_keeps_neighbours_groups_and_what_peers_send_on() {
    let mut c = connected();
    let mac = up(&mut c, 0, C1);
    requested(&mut c, 0, C2, b().gid(), &THEIRS);
    actions(&mut c);
    let before = (c.neighbours().count(), c.groups().count());
    c.set_mode(Mode::Datagram);
    let connection = C1;
    assert_eq!(actions(&mut c), [ConnectionAction::Close { connection }]);
    assert_eq!(way(&mut c, 0, mac), None);
    assert_eq!(actions(&mut c), []);
    let message = payload(0x0800, &ipv4(IP_B, [10, 0, 0, 1], b"data"));
    let got = c.from_connection(T0, C2, &message, message.len());
    assert!(matches!(got, Incoming::Packet { .. }));
    c.set_mode(Mode::Connected);
    assert_eq!((c.neighbours().count(), c.groups().count()), before);
    way(&mut c, 0, mac);
    asked(&mut c);
}

#[test]
fn another_address_of_ours_ends_connections_and_other_flags_do_not() {
    let mut c = connected();
    up(&mut c, 0, C1);
    requested(&mut c, 0, C2, b().gid(), &THEIRS);
    actions(&mut c);
    c.set_local(T0, reliable(0xa, 0x4a));
    assert_eq!(actions(&mut c), []);
    c.set_local(T0, reliable(0xa, 0x55));
    assert_eq!(actions(&mut c).len(), 2);
    assert_eq!(c.service_ids()[0], ServiceId(0x1000_0000_0000_0055));
    assert_eq!(c.connections().count(), 0);
}

#[test]
fn connections_end_with_their_neighbours() {
    let mut c = connected_with(128);
    up(&mut c, 0, C1);
    // The neighbour table is full: the oldest neighbour is evicted, with its connection.
    for n in 0..64 {
        teach(&mut c, address(0xc, 100 + n), [10, 1, 0, n as u8]);
    }
    let connection = C1;
    assert_eq!(actions(&mut c), [ConnectionAction::Close { connection }]);
    // Its slot has another neighbour, without a connection.
    assert_eq!(c.connections().count(), 0);
}

#[test]
fn a_peer_that_restarts_with_another_queue_pair_gets_another_connection() {
    let mut c = connected();
    let mac = up(&mut c, 0, C1);
    teach(&mut c, reliable(0xb, 0x99), IP_B);
    let connection = C1;
    assert_eq!(actions(&mut c), [ConnectionAction::Close { connection }]);
    way(&mut c, 0, mac);
    let (_, service) = asked(&mut c);
    assert_eq!(service, ServiceId(0x1000_0000_0000_0099));
}

/// The peer's engine has ended the connection without a message that this host accepts.
#[test]
fn a_peer_that_was_at_another_port_for_a_while_gets_another_connection() {
    let elsewhere = reliable(0xc, 0x4b);
    let (mut c, mut sibling) = (connected(), connected());
    let mac = up(&mut c, 0, C1);
    up(&mut sibling, 0, C1);
    for peer in [elsewhere, b()] {
        c.drain_updates().for_each(drop);
        teach(&mut c, peer, IP_B);
        c.drain_updates().for_each(|u| sibling.apply(T0, &u));
    }
    let connection = C1;
    for core in [&mut c, &mut sibling] {
        assert_eq!(actions(core), [ConnectionAction::Close { connection }]);
        assert_eq!(way(core, 0, mac), None);
        begun(core, 0, C2);
        replied(core, 0, C2, &THEIRS);
        // An announcement without a change leaves it alone.
        teach(core, b(), IP_B);
        assert_eq!(way(core, 0, mac), Some((C2, 65_520)));
    }
}

/// A peer whose other addresses belong to the queue pair of before its restart.
#[test]
fn the_connection_to_the_successor_of_the_former_owner_ends() {
    let second = [10, 0, 0, 3];
    let mut c = connected();
    teach(&mut c, b(), second);
    let mac = up(&mut c, 0, C1);
    teach(&mut c, reliable(0xb, 0x99), IP_B);
    actions(&mut c);
    assert_eq!(way(&mut c, 0, mac), None);
    begun(&mut c, 0, C2);
    replied(&mut c, 0, C2, &THEIRS);
    actions(&mut c);
    assert_eq!(way(&mut c, 0, mac), Some((C2, 65_520)));
    teach(&mut c, reliable(0xc, 0x4b), second);
    let connection = C2;
    assert_eq!(actions(&mut c), [ConnectionAction::Close { connection }]);
}
