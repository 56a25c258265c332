//! Multicast groups: receivers and senders.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::time::Duration;

use rustix::net::sockopt;

use super::{Host, SOON, Station, eventually};

const PORT: u16 = 7000;

/// Maximum number of groups of a port.
pub const GROUPS_MAX: usize = 8192;

/// A group, and its MGID for P_Key 0xffff and link-local scope (RFC 4391, section 4; `ip_ib_mc_map` and
/// `ipv6_ib_mc_map` of Linux).
pub struct Group {
    /// The IP group.
    pub address: IpAddr,
    /// The MGID as in `ibtap mcg`.
    pub mgid: &'static str,
}

/// An IPv4 group.
pub const V4: Group = Group {
    address: IpAddr::V4(Ipv4Addr::new(239, 1, 2, 3)),
    mgid: "ff12:401b:ffff::f01:203",
};
/// An IPv6 group.
pub const V6: Group = Group {
    address: IpAddr::V6(Ipv6Addr::new(0xff05, 0, 0, 0, 0, 0, 0, 0x1234)),
    mgid: "ff12:601b:ffff::1234",
};

/// The interface's index, and its IPv4 address or 0.0.0.0.
fn interface_of(station: &Station, interface: &str) -> (u32, Ipv4Addr) {
    let shown = station.json(&format!("ip -j addr show dev {interface}"));
    let index = shown[0]["ifindex"].as_u64().expect("an index");
    let addresses = shown[0]["addr_info"].as_array().expect("addresses");
    let v4 = addresses
        .iter()
        .find(|address| address["family"] == "inet")
        .and_then(|address| address["local"].as_str()?.parse().ok());
    (
        u32::try_from(index).expect("an index"),
        v4.unwrap_or(Ipv4Addr::UNSPECIFIED),
    )
}

/// A socket on `interface` that has joined the group.
pub fn receiver(station: &Station, interface: &str, group: &Group) -> UdpSocket {
    let socket = join(station, interface, group.address);
    socket
        .set_read_timeout(Some(Duration::from_millis(300)))
        .expect("a timeout");
    socket
}

/// A socket that has joined one group.
pub fn join(station: &Station, interface: &str, group: IpAddr) -> UdpSocket {
    let (index, local) = interface_of(station, interface);
    station.namespace().within(|| {
        let socket = UdpSocket::bind((group, PORT)).expect("a socket");
        match group {
            IpAddr::V4(group) => socket.join_multicast_v4(&group, &local).expect("joined"),
            IpAddr::V6(group) => socket.join_multicast_v6(&group, index).expect("joined"),
        }
        socket
    })
}

/// Sockets that have joined all these groups, as many on each socket as its option memory allows.
pub fn join_all_v6(station: &Station, interface: &str, groups: &[Ipv6Addr]) -> Vec<UdpSocket> {
    let (index, _) = interface_of(station, interface);
    station.namespace().within(|| {
        let joined = |groups: &[Ipv6Addr]| {
            let socket = UdpSocket::bind("[::]:0").expect("a socket");
            for group in groups {
                socket.join_multicast_v6(group, index).expect("joined");
            }
            socket
        };
        groups.chunks(500).map(joined).collect()
    })
}

/// Sockets that have joined more groups on `interface` than its port accepts. The port is full, too.
pub fn fill_port(host: &Host, interface: &str) -> Vec<UdpSocket> {
    let groups = (0..8400).map(|n| Ipv6Addr::new(0xff05, 0, 0, 0, 0, 0, 7, n));
    let sockets = join_all_v6(host, interface, &groups.collect::<Vec<_>>());
    eventually(Duration::from_secs(60), "the port to be full", || {
        (host.groups(interface, |g| g["complete"] == true).len() >= GROUPS_MAX).then_some(())
    });
    sockets
}

/// Hop limit of the socket's multicast.
pub fn set_hops(socket: &UdpSocket, hops: u8) {
    match socket.local_addr().expect("an address") {
        SocketAddr::V4(_) => socket.set_multicast_ttl_v4(hops.into()).expect("hops"),
        SocketAddr::V6(_) => {
            sockopt::set_ipv6_multicast_hops(socket, hops.into()).expect("hops");
        }
    }
}

/// A socket that sends to the group on `interface`, and the destination.
pub fn sender(station: &Station, interface: &str, group: &Group) -> (UdpSocket, SocketAddr) {
    let (index, local) = interface_of(station, interface);
    station.namespace().within(|| match group.address {
        IpAddr::V4(address) => {
            let socket = UdpSocket::bind((local, 0)).expect("a socket");
            sockopt::set_ip_multicast_if(&socket, &local).expect("an interface");
            (socket, (address, PORT).into())
        }
        IpAddr::V6(address) => {
            let socket = UdpSocket::bind("[::]:0").expect("a socket");
            // A scope id counts only for link-local groups (net/ipv6, __ipv6_addr_needs_scope_id).
            sockopt::set_ipv6_multicast_if(&socket, index).expect("an interface");
            (socket, SocketAddrV6::new(address, PORT, 0, 0).into())
        }
    })
}

/// The next packet within the receiver's timeout of 0.3 s.
pub fn receive(socket: &UdpSocket) -> Option<Vec<u8>> {
    let mut bytes = [0; 2048];
    loop {
        match socket.recv(&mut bytes) {
            Ok(n) => return Some(bytes[..n].to_vec()),
            Err(e) if e.kind() == ErrorKind::WouldBlock => return None,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => panic!("cannot receive: {e}"),
        }
    }
}

/// Sends fifty packets; all must arrive, in one of three series ([`super::one_of_three`] gives the reason). No packet may
/// arrive twice or out of order.
pub fn each_once(sender: &(UdpSocket, SocketAddr), receiver: &UdpSocket, what: &str) {
    let mut got: Vec<Vec<u8>> = Vec::new();
    for series in 0..3u8 {
        let sent: Vec<_> = (0..50u8).map(|n| vec![50 * series + n; 100]).collect();
        for packet in &sent {
            sender.0.send_to(packet, sender.1).expect("sent");
        }
        while !got.ends_with(&sent) {
            // A packet may be late by three seconds.
            let Some(packet) = (0..10).find_map(|_| receive(receiver)) else {
                break;
            };
            got.push(packet);
        }
        let is_whole = got.ends_with(&sent);
        got.extend(receive(receiver));
        assert!(got.is_sorted_by(|a, b| a < b), "{what}: {got:?}");
        if is_whole {
            return;
        }
    }
    panic!("{what}: no series is whole: {got:?}");
}

/// Whether the host's `ib0` listens to the group.
pub fn is_full_member(host: &Host, group: &Group) -> bool {
    host.groups("ib0", |g| g["send_only"] == false)
        .iter()
        .any(|mgid| mgid == group.mgid)
}

/// Sends a packet without a receiver, so that the sender's daemon resolves the group.
pub fn heard(sender: &(UdpSocket, SocketAddr), receiver: &UdpSocket, what: &str) {
    eventually(SOON, what, || {
        // While thousands of groups change, the kernel has no route to one of them for a moment.
        sender.0.send_to(b"hello", sender.1).ok()?;
        receive(receiver)
    });
    while receive(receiver).is_some() {}
}
