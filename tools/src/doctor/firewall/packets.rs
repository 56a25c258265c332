//! The packets that a fabric port needs, from the firewall's view.

use std::net::{IpAddr, Ipv6Addr};

use super::rules::{Family, Field, Hook, Packet, Value};

const UDP: u32 = 17;
const ICMPV6: u32 = 58;

/// The UDP port of RoCEv2.
const ROCE_V2_PORT: u32 = 4791;

/// Source ports of RoCEv2 senders (kernel include/rdma/ib_verbs.h,
/// IB_ROCE_UDP_ENCAP_VALID_PORT_MIN).
const SOURCE_PORTS: std::ops::RangeInclusive<u32> = 0xc000..=0xffff;

/// All MLDv2-capable routers (RFC 3810, 5.2.14).
const MLD_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);

/// All nodes (RFC 4291, 2.7.1).
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// The user "nobody", who is not the daemon.
pub const NOBODY: u32 = 65534;

/// Effect of a lost packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// No traffic.
    Traffic,
    /// Snooping switches forget the groups.
    Snooping,
}

/// A port from the firewall's view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortAddress {
    /// The underlay.
    pub interface: String,
    /// The GID.
    pub address: IpAddr,
    /// Prefix length; peers are in this prefix.
    pub prefix_len: u8,
    /// The user of the daemon.
    pub user: u32,
    /// The address of the broadcast group; `None` if multicast is sent as unicast copies.
    pub broadcast: Option<IpAddr>,
}

/// One kind of packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Its name in sentences.
    pub what: &'static str,
    /// Effect of a loss.
    pub loss: Loss,
    /// Direction: into the host, or out of it.
    pub inbound: bool,
    /// The match of nft.
    pub nft: &'static str,
    /// The match of iptables.
    pub iptables: &'static str,
    interface: String,
    source: (IpAddr, u8),
    destination: (IpAddr, u8),
    icmpv6: Option<u32>,
    hop_limit: u32,
    /// The user of the socket that sends the packet.
    user: Option<u32>,
}

/// The packets that must pass.
pub fn samples(port: &PortAddress) -> Vec<Sample> {
    let mut all = incoming(port);
    all.extend(out(port, port.user));
    if port.address.is_ipv6() {
        all.extend(discovery(port));
    }
    if port.broadcast.is_some() {
        all.extend(listeners(port));
    }
    all
}

fn whole(address: IpAddr) -> (IpAddr, u8) {
    (address, if address.is_ipv4() { 32 } else { 128 })
}

fn peers(port: &PortAddress) -> (IpAddr, u8) {
    match port.address {
        // Link-local peers are in a /64, whatever the configured prefix length is.
        IpAddr::V6(a) if a.is_unicast_link_local() => (a.into(), 64),
        address => (address, port.prefix_len),
    }
}

/// RoCEv2 packets that other hosts send.
fn incoming(port: &PortAddress) -> Vec<Sample> {
    roce(port, true, peers(port), whole(port.address), None)
}

/// RoCEv2 packets that a user of this host sends.
pub fn out(port: &PortAddress, user: u32) -> Vec<Sample> {
    roce(port, false, whole(port.address), peers(port), Some(user))
}

fn roce(
    port: &PortAddress,
    inbound: bool,
    source: (IpAddr, u8),
    destination: (IpAddr, u8),
    user: Option<u32>,
) -> Vec<Sample> {
    let unicast = Sample {
        what: "RoCEv2 packets (UDP port 4791)",
        loss: Loss::Traffic,
        inbound,
        nft: "udp dport 4791",
        iptables: "-p udp --dport 4791",
        interface: port.interface.clone(),
        source,
        destination,
        icmpv6: None,
        hop_limit: 64,
        user,
    };
    let multicast = port.broadcast.map(|group| Sample {
        what: "multicast RoCEv2 packets (UDP port 4791)",
        destination: whole(group),
        ..unicast.clone()
    });
    std::iter::once(unicast).chain(multicast).collect()
}

/// Neighbour discovery on the underlay (RFC 4861): peers need it to find MACs.
fn discovery(port: &PortAddress) -> Vec<Sample> {
    let kinds = [
        (135, "neighbour solicitations (ICMPv6 type 135)", "135"),
        (136, "neighbour advertisements (ICMPv6 type 136)", "136"),
    ];
    let sample = |(number, what, _), inbound| Sample {
        what,
        loss: Loss::Traffic,
        inbound,
        nft: "icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert }",
        iptables: if number == 135 {
            "-p ipv6-icmp --icmpv6-type 135"
        } else {
            "-p ipv6-icmp --icmpv6-type 136"
        },
        interface: port.interface.clone(),
        source: if inbound {
            peers(port)
        } else {
            whole(port.address)
        },
        // Unicast, as for the check of an old neighbour.
        destination: if inbound {
            whole(port.address)
        } else {
            peers(port)
        },
        icmpv6: Some(number),
        hop_limit: 255,
        user: None,
    };
    kinds
        .into_iter()
        .flat_map(|kind| [sample(kind, true), sample(kind, false)])
        .collect()
}

/// Multicast listener discovery (RFC 3810).
fn listeners(port: &PortAddress) -> Vec<Sample> {
    let link_local = (IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0)), 64);
    let query = Sample {
        what: "MLD queries (ICMPv6 type 130)",
        loss: Loss::Snooping,
        inbound: true,
        nft: "icmpv6 type mld-listener-query",
        iptables: "-p ipv6-icmp --icmpv6-type 130",
        interface: port.interface.clone(),
        source: link_local,
        destination: whole(ALL_NODES.into()),
        icmpv6: Some(130),
        hop_limit: 1,
        user: None,
    };
    let report = Sample {
        what: "MLD reports (ICMPv6 type 143)",
        inbound: false,
        nft: "icmpv6 type mld2-listener-report",
        iptables: "-p ipv6-icmp --icmpv6-type 143",
        destination: whole(MLD_ROUTERS.into()),
        icmpv6: Some(143),
        ..query.clone()
    };
    vec![query, report]
}

impl Packet for Sample {
    fn field(&self, field: Field) -> Option<Value> {
        let number = |n| Some(Value::Numbers(n..=n));
        let name = |text: &str| Some(Value::Name(text.to_owned()));
        let udp = self.icmpv6.is_none();
        match field {
            // Without an interface, the kernel's name is empty.
            Field::InInterface if !self.inbound => name(""),
            Field::OutInterface if self.inbound => name(""),
            Field::InInterface | Field::OutInterface => name(&self.interface),
            Field::Network if self.source.0.is_ipv4() => name("ipv4"),
            Field::Network => name("ipv6"),
            Field::Protocol => number(if udp { UDP } else { ICMPV6 }),
            Field::SourcePort if udp => Some(Value::Numbers(SOURCE_PORTS)),
            Field::DestinationPort if udp => number(ROCE_V2_PORT),
            Field::SourcePort | Field::DestinationPort => None,
            Field::Icmpv6Type => self.icmpv6.and_then(number),
            Field::Source => Some(Value::Prefix(self.source.0, self.source.1)),
            Field::Destination => Some(Value::Prefix(self.destination.0, self.destination.1)),
            Field::HopLimit => number(self.hop_limit),
            Field::User => self.user.and_then(number),
            Field::PacketType if !self.inbound => Some(Value::Unknown),
            Field::PacketType if self.destination.0.is_multicast() => name("multicast"),
            Field::PacketType => name("host"),
            // Replies also go to port 4791, so no connection is ever established. Discovery is not tracked
            // (kernel net/netfilter/nf_conntrack_proto_icmpv6.c).
            Field::State if udp => name("new"),
            Field::State => name("untracked"),
        }
    }

    fn is_of(&self, family: Family) -> bool {
        match family {
            Family::Inet | Family::Netdev => true,
            Family::Ipv4 => self.source.0.is_ipv4(),
            Family::Ipv6 => self.source.0.is_ipv6(),
        }
    }

    fn is_on(&self, device: &str) -> bool {
        self.interface == device
    }

    fn hooks(&self) -> &'static [Hook] {
        if self.inbound {
            &[Hook::Ingress, Hook::Prerouting, Hook::Input]
        } else {
            &[Hook::Output, Hook::Postrouting, Hook::Egress]
        }
    }
}
