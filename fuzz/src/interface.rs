//! An IPoIB interface with small tables.

use fabric::{Gid, PKey, Qpn};
use ipoib::{Config, HardwareAddress, Ipoib, Limits, Time};

/// Small, so that short inputs fill them.
pub const LIMITS: Limits = Limits {
    neighbours: 8,
    groups: 8,
    guests: 8,
    connections: 4,
    unresolved: 4,
    held_per_neighbour: 2,
};

/// The interface's GID: fe80::1.
pub const LOCAL_GID: [u8; 16] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

/// The GID of peer `n`.
#[allow(dead_code, reason = "one of the targets has no peers")]
pub fn peer_gid(n: u8) -> Gid {
    let mut gid = LOCAL_GID;
    gid[15] = 0x10 + n;
    Gid(gid)
}

/// A new interface.
pub fn new() -> Ipoib {
    Ipoib::new(Config {
        local: HardwareAddress::new(0, Qpn::new(0x42), Gid(LOCAL_GID)),
        mac: [6, 0, 0, 0, 0, 1],
        pkey: PKey::DEFAULT,
        scope: 2,
        link_mtu: 2044,
        mode: ipoib::Mode::Datagram,
        services: fabric::Services::Any,
        dhcp: ipoib::DhcpMode::default(),
        claims: ipoib::ClaimCheck::default(),
        refuse_requests: false,
        limits: LIMITS,
    })
}

/// Invariants.
#[allow(dead_code, reason = "one of the targets looks at other things")]
pub fn check(ipoib: &Ipoib) {
    assert!(ipoib.neighbours().count() <= LIMITS.neighbours);
    assert!(ipoib.groups().count() <= LIMITS.groups);
    assert!(ipoib.guests().count() <= LIMITS.guests);
    for peer in ipoib.neighbours() {
        assert!(ipoib.guests().all(|guest| guest.mac != peer.mac));
    }
}

/// Does the work of a data thread after each packet.
pub fn drain(ipoib: &mut Ipoib, now: Time) {
    if ipoib.next_deadline().is_some_and(|at| at <= now) {
        ipoib.handle_timeout(now);
    }
    while ipoib.poll_transmit(now).is_some() {}
    while let Some(frame) = ipoib.poll_tap(now) {
        assert!(frame.len() >= 34, "an Ethernet header and one of IP or ARP");
    }
    while let Some(held) = ipoib.pop_released() {
        let _ = ipoib.from_released(now, &held.prefix, &held.frame);
    }
    let _ = ipoib.drain_updates().count();
    while ipoib.pop_event().is_some() {}
    while ipoib.pop_released_ah().is_some() {}
}
