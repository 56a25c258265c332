//! Frames that come back through a loop, and frames between guests.

use super::*;

#[test]
fn flooded_frames_for_guests_do_not_reach_the_fabric() {
    let mut c = a();
    teach(&mut c, b(), IP_B);
    guest_asks(&mut c, 0, G1, IP1, IP_B);
    guest_asks(&mut c, 0, G2, IP2, IP_B);
    let data = ipv4(IP1, IP2, b"");
    for destination in [G2, [2, 9, 9, 9, 9, 9]] {
        let f = frame(destination, G1, 0x0800, &data);
        assert_eq!(send(&mut c, T0, &f), Sent::Dropped(DropReason::ToGuest));
        let f = frame(destination, G1, 0x0806, &arp(1, &G1, IP1, &[0; 6], IP2));
        assert_eq!(send(&mut c, T0, &f), Sent::Dropped(DropReason::ToGuest));
    }
    let unknown = frame(G2, G1, 0x0800, &ipv4(IP1, [10, 0, 0, 77], b""));
    assert_eq!(
        send(&mut c, T0, &unknown),
        Sent::Dropped(DropReason::ToGuest)
    );
    assert_eq!(c.counters().tx_dropped(DropReason::ToGuest), 5);
    assert_eq!(c.counters().frames_held, 0);
    assert!(c.is_reflected(&frame(G2, G1, 0x0800, &data)));
    assert!(c.is_reflected(&frame(MAC_BROADCAST, G1, 0x0800, &data)));
    assert!(!c.is_reflected(&frame([2, 9, 9, 9, 9, 9], G1, 0x0800, &data)));
    assert!(!c.is_reflected(&[0x52]));
}

#[test]
fn a_peers_own_frame_that_comes_back_is_dropped() {
    let mut c = a();
    let peer = teach(&mut c, b(), IP_B);
    let request = arp(1, &peer, IP_B, &[0; 6], IP1);
    let f = frame(MAC_BROADCAST, peer, 0x0806, &request);
    assert_eq!(send(&mut c, T0, &f), Sent::Dropped(DropReason::Looped));
    let f = frame(MAC_BROADCAST, peer, 0x0800, &ipv4(IP_B, [255; 4], b""));
    assert_eq!(send(&mut c, T0, &f), Sent::Dropped(DropReason::Looped));
    assert_eq!(c.counters().tx_dropped(DropReason::Looped), 2);
    assert_eq!((c.guests().count(), c.counters().mac_clashes), (0, 0));
    assert_eq!(teach(&mut c, b(), IP_B), peer);
    // A host that answers for a peer, such as a bridge with ARP suppression, does not make the peer a
    // guest.
    let f = frame(MAC_BROADCAST, G1, 0x0806, &request);
    send(&mut c, T0, &f);
    assert_eq!(c.guests().count(), 0);
}

#[test]
fn a_hint_does_not_keep_frames_from_a_peer() {
    let mut c = a();
    c.set_stacked(true);
    // The peer is known from data only, as after a restart; the host still knows its MAC.
    let f = arrive(&mut c, 0, 0x0800, &ipv4(IP_B, [224, 0, 0, 5], b"data"));
    let peer: Mac = f.unwrap()[6..12].try_into().unwrap();
    let to_peer = frame(peer, MAC_A, 0x0800, &ipv4([10, 0, 0, 1], IP_B, b"data"));
    assert!(matches!(send(&mut c, T0, &to_peer), Sent::Forward(..)));
    // A packet with a forged or routed source.
    let forged = ipv4(IP_B, [10, 0, 0, 3], b"data");
    send(&mut c, T0, &frame([2, 9, 9, 9, 9, 9], G1, 0x0800, &forged));
    assert!(matches!(send(&mut c, T0, &to_peer), Sent::Forward(..)));
}

#[test]
fn what_comes_back_is_not_reflected_again() {
    let mut c = a();
    let peer = teach(&mut c, b(), IP_B);
    let f = frame(MAC_BROADCAST, peer, 0x0806, &[]);
    assert!(!c.is_reflected(&f));
}
