//! Neighbour discovery (RFC 4861): parsing, and replacing link-layer address options of 8 bytes (RFC 2464,
//! section 6) by those of 24 (RFC 4391, section 9.3) and vice versa.

#![cfg_attr(
    not(test),
    deny(clippy::cast_possible_truncation, clippy::cast_sign_loss)
)]

use std::net::{IpAddr, Ipv6Addr};

use proto::Mac;

use crate::address::HardwareAddress;
use crate::counters::DropReason;
use crate::wire::{
    NEXT_HEADER_FRAGMENT, NEXT_HEADER_ICMPV6, array, be16, fill_icmpv6_checksum, icmpv6_checksum,
    ipv6_at,
};

pub const OPTION_SOURCE: u8 = 1;
pub const OPTION_TARGET: u8 = 2;
const OPTION_REDIRECTED: u8 = 4;
const OPTION_MTU: u8 = 5;
const OPTION_CGA: u8 = 11;
const OPTION_RSA: u8 = 12;

/// Bytes of an InfiniBand link-layer address option: type, length 3, two zero bytes, the address.
pub const INFINIBAND_OPTION_LEN: usize = 24;

const IPV6_LEN: usize = 40;
/// The minimum IPv6 MTU; also the limit for redirects (RFC 4861, section 4.5).
const IPV6_MTU_MIN: u16 = 1280;

/// The message types.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    RouterSolicitation,
    RouterAdvertisement,
    NeighbourSolicitation,
    NeighbourAdvertisement,
    Redirect,
}

impl Kind {
    fn from_type(icmp_type: u8) -> Option<Kind> {
        Some(match icmp_type {
            133 => Kind::RouterSolicitation,
            134 => Kind::RouterAdvertisement,
            135 => Kind::NeighbourSolicitation,
            136 => Kind::NeighbourAdvertisement,
            137 => Kind::Redirect,
            _ => return None,
        })
    }

    /// Bytes of the ICMPv6 message before its options.
    const fn fixed_len(self) -> usize {
        match self {
            Kind::RouterSolicitation => 8,
            Kind::RouterAdvertisement => 16,
            Kind::NeighbourSolicitation | Kind::NeighbourAdvertisement => 24,
            Kind::Redirect => 40,
        }
    }
}

/// An option, its two-byte header included.
#[derive(Clone, Copy, Debug)]
pub struct NdOption<'p> {
    pub kind: u8,
    pub bytes: &'p [u8],
}

impl NdOption<'_> {
    fn is_link_address(&self) -> bool {
        matches!(self.kind, OPTION_SOURCE | OPTION_TARGET)
    }

    /// The address, if the option has exactly 24 bytes.
    pub fn hardware_address(&self) -> Option<HardwareAddress> {
        (self.is_link_address() && self.bytes.len() == INFINIBAND_OPTION_LEN)
            .then(|| HardwareAddress(array(self.bytes, 4)))
    }

    /// The MAC, if the option has exactly 8 bytes.
    pub fn mac(&self) -> Option<Mac> {
        (self.is_link_address() && self.bytes.len() == 8).then(|| array(self.bytes, 2))
    }
}

/// The result of rewriting a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rewritten {
    /// Bytes of the packet.
    pub len: usize,
    /// Link-layer address options removed.
    pub stripped: u64,
    /// MTU options lowered.
    pub clamped: u64,
}

/// A neighbour discovery message with valid lengths.
#[derive(Clone, Copy, Debug)]
pub struct Message<'p> {
    pub kind: Kind,
    packet: &'p [u8],
}

/// Parses `packet`, an IPv6 packet without trailing bytes. `None` if it is not neighbour discovery, or has
/// extension headers before ICMPv6: it then contains no link-layer addresses.
pub fn parse(packet: &[u8]) -> Result<Option<Message<'_>>, DropReason> {
    let icmp = &packet[IPV6_LEN..];
    match packet[6] {
        NEXT_HEADER_ICMPV6 => {}
        NEXT_HEADER_FRAGMENT if is_first_fragment_of_nd(icmp) => {
            return Err(DropReason::FragmentedNd);
        }
        _ => return Ok(None),
    }
    let Some(kind) = icmp.first().and_then(|t| Kind::from_type(*t)) else {
        return Ok(None);
    };
    if icmp.len() < kind.fixed_len() {
        return Err(DropReason::Malformed);
    }
    let message = Message { kind, packet };
    let mut rest = message.option_bytes();
    while !rest.is_empty() {
        let (_, after) = split_option(rest).ok_or(DropReason::BadNdOption)?;
        rest = after;
    }
    Ok(Some(message))
}

/// Whether an IPv6 packet, perhaps with only its beginning in `packet`, is unfragmented neighbour
/// discovery.
pub fn begins(packet: &[u8]) -> bool {
    let kind = packet.get(IPV6_LEN).and_then(|t| Kind::from_type(*t));
    packet[6] == NEXT_HEADER_ICMPV6 && kind.is_some()
}

fn is_first_fragment_of_nd(fragment: &[u8]) -> bool {
    fragment.len() > 8
        && fragment[0] == NEXT_HEADER_ICMPV6
        && be16(fragment, 2) >> 3 == 0
        && Kind::from_type(fragment[8]).is_some()
}

fn split_option(bytes: &[u8]) -> Option<(NdOption<'_>, &[u8])> {
    let [kind, units, ..] = *bytes else {
        return None;
    };
    let len = usize::from(units) * 8;
    if len == 0 {
        return None;
    }
    let (bytes, rest) = bytes.split_at_checked(len)?;
    Some((NdOption { kind, bytes }, rest))
}

impl<'p> Message<'p> {
    fn option_bytes(&self) -> &'p [u8] {
        &self.packet[IPV6_LEN + self.kind.fixed_len()..]
    }

    pub fn options(&self) -> impl Iterator<Item = NdOption<'p>> + use<'p> {
        let mut rest = self.option_bytes();
        std::iter::from_fn(move || {
            let (option, after) = split_option(rest)?;
            rest = after;
            Some(option)
        })
    }

    /// Whether the message needs changes on a link with the MTU `link_mtu`.
    pub fn needs_rewriting(&self, link_mtu: usize) -> bool {
        self.options()
            .any(|o| o.is_link_address() || self.lowered_mtu(&o, link_mtu).is_some())
    }

    /// The replacement of an MTU option above the link's MTU: a host that used it would send packets that
    /// are dropped (RFC 4861, section 4.6.4). With a link MTU below IPv6's minimum the option stays: no
    /// value makes IPv6 work there.
    fn lowered_mtu(&self, option: &NdOption<'_>, link_mtu: usize) -> Option<[u8; 8]> {
        let bytes: &[u8; 8] = option.bytes.try_into().ok()?;
        let link_mtu = u32::try_from(link_mtu).ok()?;
        let announced = u32::from_be_bytes(array(bytes, 4));
        let high = option.kind == OPTION_MTU && announced > link_mtu;
        let ours = self.kind == Kind::RouterAdvertisement && link_mtu >= u32::from(IPV6_MTU_MIN);
        (high && ours).then(|| {
            let mut lowered = *bytes;
            lowered[4..].copy_from_slice(&link_mtu.to_be_bytes());
            lowered
        })
    }

    /// Whether the message is signed with SEND (RFC 3971): a change would break the signature.
    pub fn is_signed(&self) -> bool {
        self.options()
            .any(|o| matches!(o.kind, OPTION_CGA | OPTION_RSA))
    }

    pub fn checksum_is_right(&self) -> bool {
        icmpv6_checksum(self.packet) == 0
    }

    pub fn hop_limit(&self) -> u8 {
        self.packet[7]
    }

    pub fn source(&self) -> Ipv6Addr {
        ipv6_at(self.packet, 8)
    }

    fn target(&self) -> Option<Ipv6Addr> {
        match self.kind {
            Kind::RouterSolicitation | Kind::RouterAdvertisement => None,
            _ => Some(ipv6_at(self.packet, IPV6_LEN + 8)),
        }
    }

    /// Whether an advertisement is that of a router (RFC 4861, 4.2 and 4.4). Other messages do not show it.
    pub fn router(&self) -> Option<bool> {
        match self.kind {
            Kind::RouterAdvertisement => Some(true),
            Kind::NeighbourAdvertisement => Some(self.packet[IPV6_LEN + 4] & 0x80 != 0),
            _ => None,
        }
    }

    /// Whether the message may take its IP address from another owner. An advertisement without the Override flag may
    /// not: it is that of one of several owners (anycast) or of a proxy (RFC 4861, 7.2.4 and 7.2.5). One without an
    /// address option may: it answers a unicast solicitation, so its sender was asked itself, and Linux never sets the
    /// flag in it (net/ipv6/ndisc.c, `ndisc_recv_ns`).
    pub fn overrides(&self) -> bool {
        self.kind != Kind::NeighbourAdvertisement
            || self.packet[IPV6_LEN + 4] & 0x20 != 0
            || self.options().all(|option| option.kind != OPTION_TARGET)
    }

    /// The type of the option with the address, and the IP address (RFC 4861, 4.1-4.5).
    pub fn claim(&self) -> (u8, IpAddr) {
        match (self.kind, self.target()) {
            (Kind::NeighbourAdvertisement | Kind::Redirect, Some(target)) => {
                (OPTION_TARGET, target.into())
            }
            _ => (OPTION_SOURCE, self.source().into()),
        }
    }

    /// Writes the message with replaced link-layer address options: `map` writes a new option and returns
    /// its length, or `None` to remove the option. A redirect above 1280 bytes loses the end of the quoted
    /// packet. A router's MTU option is at most `link_mtu` afterwards.
    pub fn rewrite(
        &self,
        link_mtu: usize,
        out: &mut [u8],
        mut map: impl FnMut(&NdOption<'_>, &mut [u8; INFINIBAND_OPTION_LEN]) -> Option<usize>,
    ) -> Result<Rewritten, DropReason> {
        let head = IPV6_LEN + self.kind.fixed_len();
        let mut writer = Writer { out, len: 0 };
        writer.put(&self.packet[..head])?;
        let (mut stripped, mut clamped) = (0, 0);
        let mut quoted = None;
        for option in self.options() {
            let mut new = [0; INFINIBAND_OPTION_LEN];
            if !option.is_link_address() {
                if option.kind == OPTION_REDIRECTED && self.kind == Kind::Redirect {
                    quoted = Some((writer.len, option.bytes.len()));
                }
                match self.lowered_mtu(&option, link_mtu) {
                    Some(lowered) => {
                        writer.put(&lowered)?;
                        clamped += 1;
                    }
                    None => writer.put(option.bytes)?,
                }
            } else if let Some(len) = map(&option, &mut new) {
                writer.put(&new[..len])?;
            } else {
                stripped += 1;
            }
        }
        let mut len = writer.len;
        if let Some((at, option_len)) = quoted {
            len -= trim_quote(&mut out[..len], at, option_len);
        }
        let payload = u16::try_from(len - IPV6_LEN).map_err(|_| DropReason::TooLong)?;
        out[4..6].copy_from_slice(&payload.to_be_bytes());
        fill_icmpv6_checksum(&mut out[..len]);
        Ok(Rewritten {
            len,
            stripped,
            clamped,
        })
    }
}

/// Shortens the Redirected Header option at `at` to limit the packet to 1280 bytes. Returns the number of
/// removed bytes.
fn trim_quote(packet: &mut [u8], at: usize, option_len: usize) -> usize {
    let excess = packet
        .len()
        .saturating_sub(IPV6_MTU_MIN.into())
        .next_multiple_of(8);
    // The option has a header of eight bytes.
    let cut = excess.min(option_len - 8);
    packet.copy_within(at + option_len.., at + option_len - cut);
    let removed = u8::try_from(cut / 8).unwrap_or(u8::MAX);
    packet[at + 1] = packet[at + 1].saturating_sub(removed);
    cut
}

struct Writer<'o> {
    out: &'o mut [u8],
    len: usize,
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<(), DropReason> {
        let end = self.len + bytes.len();
        let place = self.out.get_mut(self.len..end).ok_or(DropReason::TooLong)?;
        place.copy_from_slice(bytes);
        self.len = end;
        Ok(())
    }
}

/// Writes a 24-byte option.
pub fn put_hardware_address(
    kind: u8,
    address: &HardwareAddress,
    out: &mut [u8; INFINIBAND_OPTION_LEN],
) -> usize {
    out[..4].copy_from_slice(&[kind, 3, 0, 0]);
    out[4..].copy_from_slice(&address.0);
    INFINIBAND_OPTION_LEN
}

/// Writes an 8-byte option.
pub fn put_mac(kind: u8, mac: Mac, out: &mut [u8; INFINIBAND_OPTION_LEN]) -> usize {
    out[..2].copy_from_slice(&[kind, 1]);
    out[2..8].copy_from_slice(&mac);
    8
}
