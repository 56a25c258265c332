//! Errors for packets larger than their path allows, as from a router: ICMP "fragmentation needed" (RFC
//! 792, RFC 1191) and ICMPv6 "packet too big" (RFC 4443, section 3.2).
//!
//! Ethernet has no MTU for single neighbours, so the error must come from a router. Its source is the
//! destination of the packet: the host would drop its own address as a martian, and any other address would
//! be invented.

#![cfg_attr(
    not(test),
    deny(clippy::cast_possible_truncation, clippy::cast_sign_loss)
)]

use std::net::IpAddr;

use proto::Time;

use crate::checksum;
use crate::core::is_claimable;
use crate::wire::{
    ETHERNET_LEN, NEXT_HEADER_FRAGMENT, NEXT_HEADER_ICMPV6, TYPE_IPV4, TYPE_IPV6, be16,
    fill_icmpv6_checksum, ipv4_at, ipv6_at,
};

const IPV4_LEN: usize = 20;
const IPV6_LEN: usize = 40;
const ICMP_LEN: usize = 8;
const PROTOCOL_ICMP: u8 = 1;
/// RFC 1812, section 4.3.2.3.
const ANSWER_V4_MAX: usize = 576;
/// RFC 4443, section 3.2: the minimum IPv6 MTU.
const ANSWER_V6_MAX: usize = 1280;
/// The longest frame of [`Offender::write_answer`].
pub const FRAME_MAX: usize = ETHERNET_LEN + ANSWER_V6_MAX;
/// The TTL of the kernel's own errors.
const TTL: u8 = 64;
const TOS_INTERNETWORK_CONTROL: u8 = 0xc0;
/// ICMP errors: unreachable, source quench, redirect, time exceeded, parameter problem.
const ERRORS_V4: [u8; 5] = [3, 4, 5, 11, 12];
const ICMPV6_REDIRECT: u8 = 137;
/// Maximum number of extension headers before the upper protocol; hosts do not send more.
const EXTENSIONS_MAX: usize = 8;

/// A too large packet that may be answered.
#[derive(Clone, Copy)]
pub struct Offender<'f> {
    frame: &'f [u8],
    pub destination: IpAddr,
    source: IpAddr,
}

impl<'f> Offender<'f> {
    /// Parses a frame and checks whether its packet may be answered (RFC 1122, section 3.2.2; RFC 4443,
    /// section 2.4). `None` if it is no IP packet, a later fragment or an ICMP error, or if source or
    /// destination is not a single host.
    pub fn parse(frame: &'f [u8]) -> Option<Offender<'f>> {
        let l3 = frame.get(ETHERNET_LEN..)?;
        let (source, destination): (IpAddr, IpAddr) = match be16(frame, 12) {
            TYPE_IPV4 if may_answer_v4(l3) => (ipv4_at(l3, 12).into(), ipv4_at(l3, 16).into()),
            TYPE_IPV6 if may_answer_v6(l3) => (ipv6_at(l3, 8).into(), ipv6_at(l3, 24).into()),
            _ => return None,
        };
        let host = is_claimable(source) && is_claimable(destination);
        host.then_some(Offender {
            frame,
            destination,
            source,
        })
    }

    /// Writes the Ethernet frame with the error to `out`, which has at least [`FRAME_MAX`] bytes; returns
    /// its length.
    ///
    /// `mtu` is the path's limit in bytes of IP. `len` is the length of the packet: of a large send that
    /// the sender leaves to be cut, the quote shows a part. A partial checksum in the quote stays partial:
    /// the quote is too short to verify it.
    pub fn write_answer(&self, mtu: usize, len: usize, out: &mut [u8]) -> usize {
        out[..6].copy_from_slice(&self.frame[6..12]);
        out[6..12].copy_from_slice(&self.frame[..6]);
        out[12..14].copy_from_slice(&self.frame[12..14]);
        let l3 = &self.frame[ETHERNET_LEN..];
        let out = &mut out[ETHERNET_LEN..];
        let written = match (self.destination, self.source) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let ends = [from.octets(), to.octets()].concat();
                write_v4(l3, &ends, mtu, len, out)
            }
            (from, to) => {
                let octets = |ip| match ip {
                    IpAddr::V6(ip) => ip.octets(),
                    IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
                };
                write_v6(l3, &[octets(from), octets(to)].concat(), mtu, len, out)
            }
        };
        ETHERNET_LEN + written
    }
}

fn may_answer_v4(l3: &[u8]) -> bool {
    if l3.len() < IPV4_LEN || l3[0] >> 4 != 4 {
        return false;
    }
    let header = usize::from(l3[0] & 0x0f) * 4;
    let later_fragment = be16(l3, 6) & 0x1fff != 0;
    // RFC 792: the quote has the header and 8 bytes of data, which identify the sender's connection.
    if header < IPV4_LEN || l3.len() < header + ICMP_LEN || later_fragment {
        return false;
    }
    l3[9] != PROTOCOL_ICMP || !ERRORS_V4.contains(&l3[header])
}

fn may_answer_v6(l3: &[u8]) -> bool {
    if l3.len() < IPV6_LEN || l3[0] >> 4 != 6 {
        return false;
    }
    let (mut next, mut at) = (l3[6], IPV6_LEN);
    for _ in 0..EXTENSIONS_MAX {
        let Some(rest) = l3.get(at..).filter(|rest| rest.len() >= 8) else {
            return false;
        };
        match next {
            NEXT_HEADER_ICMPV6 => return rest[0] >= 128 && rest[0] != ICMPV6_REDIRECT,
            NEXT_HEADER_FRAGMENT if be16(rest, 2) >> 3 != 0 => return false,
            NEXT_HEADER_FRAGMENT => at += 8,
            // Hop-by-hop options, routing, destination options.
            0 | 43 | 60 => at += (usize::from(rest[1]) + 1) * 8,
            _ => return true,
        }
        next = rest[0];
    }
    false
}

/// `ends`: source and destination of the error.
fn write_v4(l3: &[u8], ends: &[u8], mtu: usize, len: usize, out: &mut [u8]) -> usize {
    let quoted = l3.len().min(len).min(ANSWER_V4_MAX - IPV4_LEN - ICMP_LEN);
    let total = IPV4_LEN + ICMP_LEN + quoted;
    let (header, icmp) = out[..total].split_at_mut(IPV4_LEN);
    header.fill(0);
    header[..2].copy_from_slice(&[0x45, TOS_INTERNETWORK_CONTROL]);
    header[2..4].copy_from_slice(&saturated(total).to_be_bytes());
    header[8..10].copy_from_slice(&[TTL, PROTOCOL_ICMP]);
    header[12..].copy_from_slice(ends);
    fill(header, 10);
    icmp[..6].copy_from_slice(&[3, 4, 0, 0, 0, 0]);
    icmp[6..8].copy_from_slice(&saturated(mtu).to_be_bytes());
    let quote = &mut icmp[ICMP_LEN..];
    quote.copy_from_slice(&l3[..quoted]);
    if usize::from(be16(quote, 2)) != len {
        quote[2..4].copy_from_slice(&saturated(len).to_be_bytes());
        let header = (usize::from(quote[0] & 0x0f) * 4).min(quoted);
        fill(&mut quote[..header], 10);
    }
    fill(icmp, 2);
    total
}

fn write_v6(l3: &[u8], ends: &[u8], mtu: usize, len: usize, out: &mut [u8]) -> usize {
    let quoted = l3.len().min(len).min(ANSWER_V6_MAX - IPV6_LEN - ICMP_LEN);
    let total = IPV6_LEN + ICMP_LEN + quoted;
    let packet = &mut out[..total];
    packet[..IPV6_LEN].fill(0);
    packet[0] = 0x60;
    packet[4..6].copy_from_slice(&saturated(ICMP_LEN + quoted).to_be_bytes());
    packet[6..8].copy_from_slice(&[NEXT_HEADER_ICMPV6, TTL]);
    packet[8..IPV6_LEN].copy_from_slice(ends);
    packet[IPV6_LEN..IPV6_LEN + 4].copy_from_slice(&[2, 0, 0, 0]);
    let mtu = u32::try_from(mtu).unwrap_or(u32::MAX);
    packet[IPV6_LEN + 4..IPV6_LEN + ICMP_LEN].copy_from_slice(&mtu.to_be_bytes());
    let quote = &mut packet[IPV6_LEN + ICMP_LEN..];
    quote.copy_from_slice(&l3[..quoted]);
    if quoted >= IPV6_LEN {
        let payload = len.saturating_sub(IPV6_LEN);
        quote[4..6].copy_from_slice(&saturated(payload).to_be_bytes());
    }
    fill_icmpv6_checksum(packet);
    total
}

fn saturated(n: usize) -> u16 {
    u16::try_from(n).unwrap_or(u16::MAX)
}

/// Computes the checksum of `bytes` and writes it to the even offset `at`.
fn fill(bytes: &mut [u8], at: usize) {
    bytes[at..at + 2].fill(0);
    let sum = checksum::checksum(&[bytes]);
    bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}

/// Maximum number of answers for a destination in a second. Each answer makes a route on the host that
/// lasts for ten minutes; one is enough.
const PER_SECOND: u8 = 10;
const SECOND_MS: u64 = 1000;
/// Maximum number of destinations counted separately.
const DESTINATIONS_MAX: usize = 256;

/// Limits the rate of answers.
#[derive(Default)]
pub struct Limiter {
    /// Destination, start of its second, answers since then.
    lately: Vec<(IpAddr, Time, u8)>,
}

impl Limiter {
    /// Whether another answer may be sent for a destination. Above [`DESTINATIONS_MAX`] destinations in a
    /// second, further ones get none.
    pub fn may_answer(&mut self, now: Time, destination: IpAddr) -> bool {
        if let Some((_, since, used)) = self.lately.iter_mut().find(|e| e.0 == destination) {
            if since.after(SECOND_MS) <= now {
                (*since, *used) = (now, 0);
            }
            *used += 1;
            let may = *used <= PER_SECOND;
            *used = (*used).min(PER_SECOND);
            return may;
        }
        if self.lately.len() >= DESTINATIONS_MAX {
            self.lately.retain(|e| e.1.after(SECOND_MS) > now);
        }
        let room = self.lately.len() < DESTINATIONS_MAX;
        if room {
            self.lately.push((destination, now, 1));
        }
        room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(n: u16) -> IpAddr {
        let [a, b] = n.to_be_bytes();
        IpAddr::from([10, 0, a, b])
    }

    #[test]
    fn ten_answers_a_second_for_each_destination() {
        let mut l = Limiter::default();
        let mut count = |now, n| (0..50).filter(|_| l.may_answer(Time(now), ip(n))).count();
        assert_eq!((count(0, 1), count(0, 2)), (10, 10));
        assert_eq!((count(999, 1), count(1000, 1)), (0, 10));
    }

    #[test]
    fn the_limiter_is_bounded_and_strangers_wait() {
        let mut l = Limiter::default();
        let allowed = (0..1000).filter(|n| l.may_answer(Time(0), ip(*n))).count();
        assert_eq!(
            (allowed, l.lately.len()),
            (DESTINATIONS_MAX, DESTINATIONS_MAX)
        );
        assert!(l.may_answer(Time(0), ip(0)));
        assert!(l.may_answer(Time(1000), ip(999)));
        assert_eq!(l.lately.len(), 1);
    }
}
