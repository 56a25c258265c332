//! Whole IP packets, for decoders and captures.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{IPV4_HEADER_LEN, PROTOCOL_UDP, Prefix, UDP_HEADER_LEN};
use crate::soft::wire::{Bth, ICRC_LEN, ROCE_V2_PORT};

/// Why an IP packet carries no RoCEv2 packet with an ICRC.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotRoce {
    /// Neither IPv4 without options nor IPv6.
    #[error("neither an IPv4 header without options nor an IPv6 header")]
    Ip,
    /// Another protocol, or an IPv6 extension header.
    #[error("no UDP header after the IP header")]
    NotUdp,
    /// A fragment: the ICRC covers the whole packet.
    #[error("IP fragment")]
    Fragment,
    /// Another destination port.
    #[error("UDP destination port {0} is not the RoCEv2 port")]
    Port(u16),
    /// A length field exceeds the packet, or is too small for a BTH and an ICRC.
    #[error("truncated packet or wrong length field")]
    Length,
}

/// An IP packet that carries RoCEv2.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct L3<'a> {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// IPv4 identification, and flags with fragment offset.
    pub ipv4: Option<(u16, u16)>,
    /// UDP source port.
    pub source_port: u16,
    /// UDP length, header included.
    pub udp_len: u16,
    /// From the BTH to and including the ICRC.
    pub transport: &'a [u8],
}

impl<'a> L3<'a> {
    /// Parses `packet` from its IP header on. Ignores bytes after the IP length: Ethernet pads short
    /// frames.
    ///
    /// # Errors
    /// [`NotRoce`].
    pub fn parse(packet: &'a [u8]) -> Result<L3<'a>, NotRoce> {
        match packet.first().map(|b| b >> 4) {
            Some(4) => L3::parse_ipv4(packet),
            Some(6) => L3::parse_ipv6(packet),
            _ => Err(NotRoce::Ip),
        }
    }

    fn parse_ipv4(packet: &'a [u8]) -> Result<L3<'a>, NotRoce> {
        let (ip, udp) = packet
            .split_first_chunk::<{ IPV4_HEADER_LEN as usize }>()
            .ok_or(NotRoce::Length)?;
        let total_len = u16::from_be_bytes([ip[2], ip[3]]);
        let fragment = u16::from_be_bytes([ip[6], ip[7]]);
        if ip[0] != 0x45 {
            return Err(NotRoce::Ip);
        }
        if ip[9] != PROTOCOL_UDP {
            return Err(NotRoce::NotUdp);
        }
        // More fragments, or an offset.
        if fragment & 0x3fff != 0 {
            return Err(NotRoce::Fragment);
        }
        let ip_payload = total_len
            .checked_sub(IPV4_HEADER_LEN)
            .ok_or(NotRoce::Length)?;
        let (source_port, transport) = parse_udp(udp, ip_payload)?;
        Ok(L3 {
            source: Ipv4Addr::new(ip[12], ip[13], ip[14], ip[15]).into(),
            destination: Ipv4Addr::new(ip[16], ip[17], ip[18], ip[19]).into(),
            ipv4: Some((u16::from_be_bytes([ip[4], ip[5]]), fragment)),
            source_port,
            udp_len: ip_payload,
            transport,
        })
    }

    fn parse_ipv6(packet: &'a [u8]) -> Result<L3<'a>, NotRoce> {
        let (ip, udp) = packet.split_first_chunk::<40>().ok_or(NotRoce::Length)?;
        if ip[6] != PROTOCOL_UDP {
            return Err(NotRoce::NotUdp);
        }
        let ip_payload = u16::from_be_bytes([ip[4], ip[5]]);
        let (source_port, transport) = parse_udp(udp, ip_payload)?;
        Ok(L3 {
            source: address(&ip[8..24]),
            destination: address(&ip[24..40]),
            ipv4: None,
            source_port,
            udp_len: ip_payload,
            transport,
        })
    }

    /// The CRC over the IP and UDP headers.
    pub fn prefix(&self) -> Prefix {
        match (self.source, self.destination, self.ipv4) {
            (IpAddr::V4(s), IpAddr::V4(d), Some((id, fragment))) => {
                Prefix::ipv4_with_fragment_field(
                    s.octets(),
                    d.octets(),
                    self.source_port,
                    ROCE_V2_PORT,
                    self.udp_len,
                    id,
                    fragment,
                )
            }
            (s, d, _) => Prefix::ipv6(
                &to_ipv6(s),
                &to_ipv6(d),
                self.source_port,
                ROCE_V2_PORT,
                self.udp_len,
            ),
        }
    }

    /// Verifies the ICRC.
    pub fn verify(&self) -> Verdict {
        let Some((covered, found)) = self.transport.split_last_chunk() else {
            return Verdict::NotRoce(NotRoce::Length);
        };
        let computed = self.prefix().finish_received(covered);
        if computed == *found {
            Verdict::Good
        } else {
            Verdict::Bad { computed }
        }
    }
}

/// The result of an ICRC check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The ICRC is right.
    Good,
    /// The ICRC is wrong.
    Bad {
        /// The right ICRC, in wire order.
        computed: [u8; ICRC_LEN],
    },
    /// The packet has no ICRC.
    NotRoce(NotRoce),
}

/// Verifies the ICRC of an IP packet, from its IP header to the ICRC. Ethernet padding may follow.
pub fn verify_l3(packet: &[u8]) -> Verdict {
    match L3::parse(packet) {
        Ok(l3) => l3.verify(),
        Err(why) => Verdict::NotRoce(why),
    }
}

/// The UDP source port and the UDP payload; both length fields must agree.
fn parse_udp(bytes: &[u8], ip_payload: u16) -> Result<(u16, &[u8]), NotRoce> {
    let (udp, _) = bytes.split_first_chunk::<8>().ok_or(NotRoce::Length)?;
    let port = u16::from_be_bytes([udp[2], udp[3]]);
    if port != ROCE_V2_PORT {
        return Err(NotRoce::Port(port));
    }
    let udp_len = u16::from_be_bytes([udp[4], udp[5]]);
    let least = usize::from(UDP_HEADER_LEN) + size_of::<Bth>() + ICRC_LEN;
    if udp_len != ip_payload || usize::from(udp_len) < least {
        return Err(NotRoce::Length);
    }
    let transport = bytes
        .get(usize::from(UDP_HEADER_LEN)..usize::from(udp_len))
        .ok_or(NotRoce::Length)?;
    Ok((u16::from_be_bytes([udp[0], udp[1]]), transport))
}

/// An IPv6 address from 16 bytes of a header.
fn address(bytes: &[u8]) -> IpAddr {
    let mut octets = [0; 16];
    octets.copy_from_slice(bytes);
    Ipv6Addr::from(octets).into()
}

fn to_ipv6(a: IpAddr) -> [u8; 16] {
    match a {
        IpAddr::V4(a) => a.to_ipv6_mapped().octets(),
        IpAddr::V6(a) => a.octets(),
    }
}
