//! Memory of a neighbour and of a connection, maps and spare capacity included, counted by the allocator.

use std::net::Ipv6Addr;

use ipoib::{
    Config, ConnectionAction, FLAG_RC, HardwareAddress, Ipoib, Limits, Meta, Mode, Outgoing,
    PrivateData, peer_mac,
};
use kit::allocator::Growth;
use proto::{AddressHandle, ConnectionEvent, ConnectionId, EndpointId, Gid, PKey, Qpn, Time};

const MAC: [u8; 6] = [6, 0, 0, 0, 0, 1];
const NEIGHBOURS: u32 = 10_000;

const CONNECTIONS: u32 = 1000;

fn peer(n: u32) -> HardwareAddress {
    let gid = Gid::from(Ipv6Addr::from((0xfe80_u128 << 112) | u128::from(n + 100)));
    HardwareAddress::new(FLAG_RC, Qpn::new(n + 2), gid)
}

fn core(mode: Mode) -> Ipoib {
    Ipoib::new(Config {
        local: HardwareAddress::new(0, Qpn::new(0x4a), "fe80::1".parse().unwrap()),
        mac: MAC,
        pkey: PKey::DEFAULT,
        scope: 2,
        link_mtu: 2044,
        mode,
        services: proto::Services::Any,
        dhcp: ipoib::DhcpMode::default(),
        claims: ipoib::ClaimCheck::default(),
        refuse_requests: false,
        limits: Limits {
            neighbours: NEIGHBOURS as usize,
            groups: 64,
            ..Limits::default()
        },
    })
}

fn hear(core: &mut Ipoib, a: &HardwareAddress, n: u32) {
    let ip = (0x0a00_0000 + n).to_be_bytes();
    let head = [8, 6, 0, 0, 0, 32, 8, 0, 20, 4, 0, 1];
    let arp = [&head[..], &a.0, &ip, &[0; 20], &[10, 0, 0, 1]].concat();
    let meta = Meta {
        src_qpn: a.qpn(),
        src_gid: a.gid(),
        has_src_gid: true,
        dst_gid: core.local().gid(),
        multicast: false,
    };
    core.from_fabric(Time(0), &meta, &arp);
    core.drain_updates().for_each(drop);
}

fn frame_to(a: &HardwareAddress) -> Vec<u8> {
    [&peer_mac(a)[..], &MAC, &[8, 0, 0x45, 0, 0, 20], &[0; 16]].concat()
}

/// The memory of an idle child in each data thread.
#[test]
fn an_idle_replica_costs_under_eight_kibibytes() {
    let growth = Growth::start();
    let idle = Ipoib::new(Config {
        local: HardwareAddress::new(0, Qpn::new(0x4a), "fe80::1".parse().unwrap()),
        mac: MAC,
        pkey: PKey::DEFAULT,
        scope: 2,
        link_mtu: 2044,
        mode: Mode::Connected,
        services: proto::Services::Any,
        dhcp: ipoib::DhcpMode::default(),
        claims: ipoib::ClaimCheck::default(),
        refuse_requests: false,
        limits: Limits::default(),
    });
    assert_eq!(idle.next_deadline(), None, "and no time");
    let bytes = growth.bytes() + size_of::<Ipoib>();
    println!("{bytes} bytes for an idle replica");
    assert!(bytes < 8192, "{bytes} bytes");
}

#[test]
fn a_neighbour_costs_under_a_quarter_of_a_kibibyte_in_each_replica() {
    let growth = Growth::start();
    let mut core = core(Mode::Datagram);
    for n in 0..NEIGHBOURS {
        let a = peer(n);
        hear(&mut core, &a, n);
        let Outgoing::Forward { to, .. } = core.from_tap(Time(0), &[0; 12], &frame_to(&a)) else {
            panic!("{a} is known");
        };
        core.set_ah(to, AddressHandle(n));
    }
    assert_eq!(core.neighbours().count(), NEIGHBOURS as usize);
    let bytes = growth.bytes();
    let each = bytes / NEIGHBOURS as usize;
    println!("{each} bytes for each of {NEIGHBOURS} neighbours");
    assert!(each < 256, "{each} bytes");
}

/// A connection in each direction with a known neighbour.
#[test]
fn a_connection_costs_under_a_quarter_of_a_kibibyte() {
    let mut core = core(Mode::Connected);
    let peers: Vec<_> = (0..CONNECTIONS).map(peer).collect();
    for (a, n) in peers.iter().zip(0..) {
        hear(&mut core, a, n);
    }
    let service = core.service_ids()[0];
    let growth = Growth::start();
    for (a, n) in peers.iter().zip(0..) {
        let (ours, theirs) = (ConnectionId(2 * n), ConnectionId(2 * n + 1));
        let private_data = || PrivateData::new(a.qpn()).to_bytes().into();
        core.from_tap(Time(0), &[0; 12], &frame_to(a));
        let Some(ConnectionAction::Connect { request, .. }) = core.poll_connection() else {
            panic!("{a} takes connections");
        };
        core.connecting(Time(0), request, Ok(ours));
        for event in [
            ConnectionEvent::Replied {
                connection: ours,
                private_data: private_data(),
            },
            ConnectionEvent::Requested {
                connection: theirs,
                endpoint: EndpointId(0),
                service,
                peer: a.gid(),
                private_data: private_data(),
            },
        ] {
            core.connection_event(Time(0), &event);
        }
        while core.poll_connection().is_some() {}
    }
    let bytes = growth.bytes();
    let count = core.connections().count();
    assert_eq!(count, 2 * CONNECTIONS as usize);
    let each = bytes / count;
    println!("{each} bytes for each of {count} connections");
    assert!(each < 256, "{each} bytes");
}
