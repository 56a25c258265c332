//! The packets that a fabric port lives on, as a firewall sees them.

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

/// What is lost if a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Nothing works without it.
    Traffic,
    /// Switches that snoop forget the groups.
    Snooping,
}

/// A port as far as a firewall sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The underlay.
    pub interface: String,
    /// The GID.
    pub address: IpAddr,
    /// Bits of its prefix, in which its peers are.
    pub prefix_len: u8,
    /// The broadcast group's address; none where multicast goes as unicast copies.
    pub broadcast: Option<IpAddr>,
}

/// One kind of packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Its name in sentences.
    pub what: &'static str,
    /// What its loss means.
    pub loss: Loss,
    /// The hosts' own way: in, or out.
    pub inbound: bool,
    /// What matches it, in nft's words.
    pub nft: &'static str,
    /// The same for iptables.
    pub iptables: &'static str,
    interface: String,
    source: (IpAddr, u8),
    destination: (IpAddr, u8),
    icmpv6: Option<u32>,
    hop_limit: u32,
}

/// The packets that must get through.
pub fn samples(site: &Site) -> Vec<Sample> {
    let mut all = roce(site);
    if site.address.is_ipv6() {
        all.extend(discovery(site));
    }
    if site.broadcast.is_some() {
        all.extend(listeners(site));
    }
    all
}

fn whole(address: IpAddr) -> (IpAddr, u8) {
    (address, if address.is_ipv4() { 32 } else { 128 })
}

fn peers(site: &Site) -> (IpAddr, u8) {
    match site.address {
        // A prefix of a link-local address is /64 on the wire but says nothing more.
        IpAddr::V6(a) if a.is_unicast_link_local() => (a.into(), 64),
        address => (address, site.prefix_len),
    }
}

fn roce(site: &Site) -> Vec<Sample> {
    let sample = |what, inbound, destination| Sample {
        what,
        loss: Loss::Traffic,
        inbound,
        nft: "udp dport 4791",
        iptables: "-p udp --dport 4791",
        interface: site.interface.clone(),
        source: if inbound {
            peers(site)
        } else {
            whole(site.address)
        },
        destination,
        icmpv6: None,
        hop_limit: 64,
    };
    let mut all = vec![
        sample("RoCEv2 packets (UDP port 4791)", true, whole(site.address)),
        sample("RoCEv2 packets (UDP port 4791)", false, peers(site)),
    ];
    if let Some(group) = site.broadcast.map(whole) {
        let what = "multicast RoCEv2 packets (UDP port 4791)";
        all.extend([sample(what, true, group), sample(what, false, group)]);
    }
    all
}

/// Neighbour discovery on the underlay (RFC 4861), without which no peer finds the other's MAC.
fn discovery(site: &Site) -> Vec<Sample> {
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
        interface: site.interface.clone(),
        source: if inbound {
            peers(site)
        } else {
            whole(site.address)
        },
        // To the address itself, which is where a check of an old neighbour goes.
        destination: if inbound {
            whole(site.address)
        } else {
            peers(site)
        },
        icmpv6: Some(number),
        hop_limit: 255,
    };
    kinds
        .into_iter()
        .flat_map(|kind| [sample(kind, true), sample(kind, false)])
        .collect()
}

/// Multicast listener discovery (RFC 3810).
fn listeners(site: &Site) -> Vec<Sample> {
    let link_local = (IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0)), 64);
    let query = Sample {
        what: "MLD queries (ICMPv6 type 130)",
        loss: Loss::Snooping,
        inbound: true,
        nft: "icmpv6 type mld-listener-query",
        iptables: "-p ipv6-icmp --icmpv6-type 130",
        interface: site.interface.clone(),
        source: link_local,
        destination: whole(ALL_NODES.into()),
        icmpv6: Some(130),
        hop_limit: 1,
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
            // On its way out it has none: the empty name of the kernel.
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
            Field::PacketType if !self.inbound => Some(Value::Unknown),
            Field::PacketType if self.destination.0.is_multicast() => name("multicast"),
            Field::PacketType => name("host"),
            // Replies go to port 4791 too, so that nothing is ever established. Discovery is not
            // tracked (kernel net/netfilter/nf_conntrack_proto_icmpv6.c).
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
