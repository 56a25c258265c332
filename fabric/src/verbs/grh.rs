//! The 40 bytes before every received datagram: the global route header, or on RoCE v2 the IP header in
//! its place (IBA vol. 1, 8.3 and 11.4.3.1; annex A17.4.5.2).

use std::net::Ipv4Addr;

use proto::Gid;

/// Bytes before a datagram's payload, with or without a header in them.
pub const GRH_LEN: usize = 40;

/// Offset of an IPv4 header.
const IPV4_AT: usize = 20;

/// Version 4, header length of five words: no options.
const IPV4_WITHOUT_OPTIONS: u8 = 0x45;

/// Source and destination of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    /// The sender.
    pub src: Gid,
    /// The receiver: a unicast GID, or the group.
    pub dst: Gid,
}

/// Reads the header; `None` if it is neither kind.
///
/// An IPv4 header is in the last 20 bytes. The first 20 are undefined then and may look like an IPv6
/// header, so the checksum decides (kernel drivers/infiniband/core/verbs.c,
/// `ib_get_rdma_header_version`).
pub fn parse(header: &[u8; GRH_LEN]) -> Option<Route> {
    let (_, v4) = header.split_last_chunk::<{ GRH_LEN - IPV4_AT }>()?;
    let is_v6 = header[0] >> 4 == 6;
    let is_v4 = match is_v6 {
        true => v4[0] == IPV4_WITHOUT_OPTIONS && checksum_verifies(v4),
        false => v4[0] >> 4 == 4,
    };
    if is_v4 {
        let address = |at: usize| Ipv4Addr::new(v4[at], v4[at + 1], v4[at + 2], v4[at + 3]);
        return Some(Route {
            src: address(12).into(),
            dst: address(16).into(),
        });
    }
    let (mut src, mut dst) = ([0; 16], [0; 16]);
    src.copy_from_slice(&header[8..24]);
    dst.copy_from_slice(&header[24..40]);
    is_v6.then_some(Route {
        src: Gid(src),
        dst: Gid(dst),
    })
}

/// The Internet checksum over a valid header, checksum included, is all ones (RFC 1071).
fn checksum_verifies(header: &[u8; GRH_LEN - IPV4_AT]) -> bool {
    let (words, _) = header.as_chunks::<2>();
    let sum: u32 = words
        .iter()
        .map(|w| u32::from(u16::from_be_bytes(*w)))
        .sum();
    (sum & 0xffff) + (sum >> 16) == 0xffff
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The bytes that `rdma_rxe` and NICs write for an IPv4 packet, with `before` in the undefined
    /// ones.
    fn ipv4(before: [u8; 20], src: Ipv4Addr, dst: Ipv4Addr) -> [u8; GRH_LEN] {
        let mut h = [0; GRH_LEN];
        h[..20].copy_from_slice(&before);
        h[20] = 0x45;
        h[22..24].copy_from_slice(&332u16.to_be_bytes());
        h[24..26].copy_from_slice(&0x3c4d_u16.to_be_bytes());
        h[26] = 0x40;
        (h[28], h[29]) = (64, 17);
        h[32..36].copy_from_slice(&src.octets());
        h[36..40].copy_from_slice(&dst.octets());
        let mut sum: u32 = h[20..]
            .chunks(2)
            .map(|w| u32::from(w[0]) << 8 | u32::from(w[1]))
            .sum();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        h[30..32].copy_from_slice(&(!sum as u16).to_be_bytes());
        h
    }

    fn ipv6(src: Gid, dst: Gid) -> [u8; GRH_LEN] {
        let mut h = [0; GRH_LEN];
        (h[0], h[6], h[7]) = (0x60, 17, 64);
        h[8..24].copy_from_slice(&src.0);
        h[24..40].copy_from_slice(&dst.0);
        h
    }

    #[test]
    fn bytes_that_are_no_header_are_none() {
        assert_eq!(parse(&[0; GRH_LEN]), None);
        assert_eq!(parse(&[0xff; GRH_LEN]), None);
    }

    proptest! {
        #[test]
        fn an_ipv6_header_is_read(src: [u8; 16], dst: [u8; 16]) {
            let (src, dst) = (Gid(src), Gid(dst));
            let header = ipv6(src, dst);
            // One in 2^24 addresses looks like an IPv4 header with a valid checksum.
            prop_assume!(header[20] != 0x45);
            prop_assert_eq!(parse(&header), Some(Route { src, dst }));
        }

        #[test]
        fn an_ipv4_header_is_read_whatever_is_before_it(before: [u8; 20], src: u32, dst: u32) {
            let (src, dst) = (Ipv4Addr::from(src), Ipv4Addr::from(dst));
            let route = Route { src: src.into(), dst: dst.into() };
            prop_assert_eq!(parse(&ipv4(before, src, dst)), Some(route));
            let mut ipv6_like = before;
            ipv6_like[0] = 0x6f;
            prop_assert_eq!(parse(&ipv4(ipv6_like, src, dst)), Some(route));
        }

        #[test]
        fn nothing_panics(header: [u8; GRH_LEN]) {
            parse(&header);
        }
    }
}
