//! Lowers the maximum segment size (MSS) that TCP announces in a SYN (RFC 9293, 3.7.1).

use crate::checksum::Sum;
use crate::ip::{
    self, IPV4_HEADER_LEN, IPV6_HEADER_LEN, TCP_HEADER_LEN, be16, ipv6_upper, put16, tcp, v4,
};

/// Kinds of TCP options (RFC 9293, 3.2).
const END: u8 = 0;
const NO_OPERATION: u8 = 1;
const MSS: u8 = 2;

/// The largest MSS by IP version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MssLimit {
    /// Over IPv4, in bytes.
    pub v4: u16,
    /// Over IPv6, in bytes.
    pub v6: u16,
}

impl MssLimit {
    /// The MSS with which IP packets without options have at most `packet` bytes.
    pub fn of_packet(packet: usize) -> MssLimit {
        let less = |headers| u16::try_from(packet.saturating_sub(headers)).unwrap_or(u16::MAX);
        MssLimit {
            v4: less(IPV4_HEADER_LEN + TCP_HEADER_LEN),
            v6: less(IPV6_HEADER_LEN + TCP_HEADER_LEN),
        }
    }

    /// Finds the MSS in an IP packet. `None` if the packet is no SYN, has no MSS (then the MSS is 536 or
    /// 1220), or has one within the limit.
    #[inline]
    pub fn excess(self, packet: &[u8]) -> Option<Excess> {
        let (segment, limit) = match packet.first()? >> 4 {
            4 => (segment_v4(packet)?, self.v4),
            6 => (segment_v6(packet)?, self.v6),
            _ => return None,
        };
        let flags = packet.get(segment + tcp::FLAGS)?;
        if flags & tcp::SYN == 0 {
            return None;
        }
        let at = option(packet, segment)?;
        (be16(packet, at) > limit).then_some(Excess { segment, at, limit })
    }
}

/// An MSS above the limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Excess {
    /// Offset of the TCP header.
    segment: usize,
    /// Offset of the MSS.
    at: usize,
    limit: u16,
}

impl Excess {
    /// Writes the limit into the packet in which the MSS was found. The checksum changes with the MSS
    /// (RFC 1624, equation 3), except a `partial` one, which covers the pseudo header only.
    ///
    /// # Panics
    /// If `packet` is shorter than the packet in which the MSS was found.
    pub fn lower(self, packet: &mut [u8], partial: bool) {
        let before = be16(packet, self.at);
        put16(packet, self.at, self.limit);
        if partial {
            return;
        }
        let field = self.segment + tcp::CHECKSUM;
        let offset = self.at - self.segment;
        let sum = Sum::ZERO
            .word(!be16(packet, field))
            .plus_at(offset, Sum::ZERO.word(!before))
            .plus_at(offset, Sum::ZERO.word(self.limit));
        put16(packet, field, sum.finish());
    }
}

#[inline]
fn segment_v4(packet: &[u8]) -> Option<usize> {
    let header = packet.first_chunk::<IPV4_HEADER_LEN>()?;
    let is_tcp = header[v4::PROTOCOL] == ip::PROTOCOL_TCP;
    let len = usize::from(header[0] & 0xf) * 4;
    let is_first = be16(header, v4::FRAGMENT) & v4::OFFSET == 0;
    (is_tcp && is_first && len >= IPV4_HEADER_LEN).then_some(len)
}

#[inline]
fn segment_v6(packet: &[u8]) -> Option<usize> {
    if packet.len() < IPV6_HEADER_LEN {
        return None;
    }
    let upper = ipv6_upper(packet).ok()?;
    (upper.protocol == ip::PROTOCOL_TCP).then_some(upper.offset)
}

/// Offset of the MSS in the options of the TCP header at `segment`.
fn option(packet: &[u8], segment: usize) -> Option<usize> {
    let end = segment + usize::from(packet.get(segment + tcp::DATA_OFFSET)? >> 4) * 4;
    let mut at = segment + TCP_HEADER_LEN;
    while at < end {
        match *packet.get(at)? {
            END => return None,
            NO_OPERATION => at += 1,
            kind => {
                let len = usize::from(*packet.get(at + 1)?);
                if len < 2 || at + len > end || at + len > packet.len() {
                    return None;
                }
                if kind == MSS && len == 4 {
                    return Some(at + 2);
                }
                at += len;
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::checksum::pseudo_header;
    use crate::ip::v6;
    use crate::testing::{Extensions, Model};

    /// A SYN with these options; the checksum is right.
    fn syn(is_v4: bool, options: &[u8]) -> Model {
        let mut padded = options.to_vec();
        padded.resize(options.len().next_multiple_of(4), END);
        Model {
            v6: !is_v4,
            flags: tcp::SYN,
            tcp_options: padded,
            ..Model::tcp_v4(0)
        }
    }

    fn sum(packet: &[u8], at: usize) -> Sum {
        let (source, len) = if at == 20 { (12, 4) } else { (8, 16) };
        let rest = &packet[at..];
        pseudo_header(
            &packet[source..][..len],
            &packet[source + len..][..len],
            ip::PROTOCOL_TCP,
            rest.len() as u32,
        )
        .plus(Sum::of(rest))
    }

    fn lowered(packet: &[u8], limit: MssLimit) -> Option<Vec<u8>> {
        let mut copy = packet.to_vec();
        limit.excess(packet)?.lower(&mut copy, false);
        Some(copy)
    }

    const LIMIT: MssLimit = MssLimit {
        v4: 61_396,
        v6: 61_376,
    };

    #[test]
    fn the_limit_of_fifteen_packets_of_4096_bytes() {
        assert_eq!(MssLimit::of_packet(15 * 4096 - 4), LIMIT);
        assert_eq!(MssLimit::of_packet(30), MssLimit { v4: 0, v6: 0 });
    }

    #[test]
    fn a_syn_gets_the_limit_of_its_ip_version() {
        for (is_v4, at, mss) in [(true, 20, 61_396), (false, 40, 61_376)] {
            let packet = syn(is_v4, &[2, 4, 0xff, 0xbc, 1, 3, 3, 7]).packet();
            let copy = lowered(&packet, LIMIT).unwrap();
            assert_eq!(be16(&copy, at + 22), mss);
            assert!(sum(&copy, at).is_valid());
            assert_eq!(LIMIT.excess(&copy), None, "lowered once");
        }
    }

    #[test]
    fn a_partial_checksum_stays() {
        let packet = syn(true, &[2, 4, 0xff, 0xbc]).packet();
        let mut copy = packet.clone();
        LIMIT.excess(&packet).unwrap().lower(&mut copy, true);
        let field = 20 + tcp::CHECKSUM;
        assert_eq!(be16(&copy, field), be16(&packet, field));
        assert_eq!(be16(&copy, 42), 61_396);
    }

    #[test]
    fn other_packets_stay() {
        let large = syn(true, &[2, 4, 0xff, 0xbc]);
        let data = Model {
            flags: tcp::ACK_FLAG,
            ..large.clone()
        };
        let mut udp = large.packet();
        udp[v4::PROTOCOL] = ip::PROTOCOL_UDP;
        let mut second_fragment = large.packet();
        put16(&mut second_fragment, v4::FRAGMENT, 1);
        for packet in [
            data.packet(),
            udp,
            second_fragment,
            syn(true, &[]).packet(),
            syn(true, &[0, 0, 2, 4, 0xff, 0xbc]).packet(),
            syn(true, &[2, 4, 0x05, 0xb4]).packet(),
            syn(true, &[3, 0, 2, 4, 0xff, 0xbc]).packet(),
            syn(true, &[3, 1, 2, 4, 0xff, 0xbc]).packet(),
            syn(true, &[2, 3, 0xff, 1]).packet(),
        ] {
            assert_eq!(LIMIT.excess(&packet), None, "{packet:02x?}");
        }
    }

    #[test]
    fn the_mss_behind_extension_headers_is_found() {
        let mut syn = syn(false, &[2, 4, 0xff, 0xbc]);
        syn.extensions = Extensions {
            hop_by_hop: true,
            ..Extensions::default()
        };
        let copy = lowered(&syn.packet(), LIMIT).unwrap();
        assert_eq!(be16(&copy, 70), 61_376);
    }

    proptest! {
        #[test]
        fn the_checksum_stays_right_at_every_offset(
            is_v4: bool, before in 0usize..6, mss in 61_397u16.., limit in 0u16..61_396,
        ) {
            let [high, low] = mss.to_be_bytes();
            let options = [&vec![NO_OPERATION; before][..], &[2, 4, high, low]].concat();
            let copy = lowered(&syn(is_v4, &options).packet(), MssLimit { v4: limit, v6: limit }).unwrap();
            let at = if is_v4 { 20 } else { 40 };
            prop_assert_eq!(be16(&copy, at + 22 + before), limit);
            prop_assert!(sum(&copy, at).is_valid());
        }

        #[test]
        fn any_bytes_are_survived(mut bytes in prop::collection::vec(any::<u8>(), 0..120), first: u8) {
            for version in [0x40, 0x60] {
                if let Some(byte) = bytes.first_mut() {
                    *byte = version | first & 0xf;
                }
                let limit = MssLimit { v4: 0, v6: 0 };
                let _ = limit.excess(&bytes);
                // Each byte sequence as a TCP header.
                if bytes.len() > 40 {
                    bytes[v4::PROTOCOL] = ip::PROTOCOL_TCP;
                    bytes[v6::NEXT_HEADER] = ip::PROTOCOL_TCP;
                }
                if let Some(excess) = limit.excess(&bytes) {
                    excess.lower(&mut bytes, false);
                }
            }
        }
    }
}
