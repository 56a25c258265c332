//! Numbers that firewalls print by name.

/// The number of an IP protocol (IANA, "Protocol Numbers").
pub fn protocol(name: &str) -> Option<u32> {
    Some(match name {
        "icmp" => 1,
        "igmp" => 2,
        "tcp" => 6,
        "udp" => 17,
        "dccp" => 33,
        "gre" => 47,
        "esp" => 50,
        "ah" => 51,
        "icmpv6" | "ipv6-icmp" => 58,
        "sctp" => 132,
        "udplite" => 136,
        number => return number.parse().ok(),
    })
}

/// An ICMPv6 type (IANA, "ICMPv6 Parameters") by the name of nft or iptables, or by its number. In iptables a
/// code may follow the number.
pub fn icmpv6_type(name: &str) -> Option<u32> {
    Some(match name {
        "destination-unreachable" => 1,
        "packet-too-big" => 2,
        "time-exceeded" => 3,
        "parameter-problem" => 4,
        "echo-request" => 128,
        "echo-reply" => 129,
        "mld-listener-query" => 130,
        "mld-listener-report" => 131,
        "mld-listener-done" | "mld-listener-reduction" => 132,
        "nd-router-solicit" | "router-solicitation" => 133,
        "nd-router-advert" | "router-advertisement" => 134,
        "nd-neighbor-solicit" | "neighbour-solicitation" | "neighbor-solicitation" => 135,
        "nd-neighbor-advert" | "neighbour-advertisement" | "neighbor-advertisement" => 136,
        "nd-redirect" | "redirect" => 137,
        "mld2-listener-report" => 143,
        number => return number.split('/').next()?.parse().ok(),
    })
}
