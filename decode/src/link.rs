//! Link headers, by the capture's link type (the registry of tcpdump.org).

use pcap_file::DataLink;
use serde::{Serialize, Serializer};

/// EtherType of IPv4.
pub const IPV4: u16 = 0x0800;
/// EtherType of ARP.
pub const ARP: u16 = 0x0806;
/// EtherType of RARP.
pub const RARP: u16 = 0x8035;
/// EtherType of IPv6.
pub const IPV6: u16 = 0x86dd;

const VLAN_TAGS: [u16; 2] = [0x8100, 0x88a8];

/// A MAC, shown as `02:00:00:00:00:01`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mac(pub [u8; 6]);

impl std::fmt::Display for Mac {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl Serialize for Mac {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

/// The Ethernet header.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ethernet {
    /// Source address.
    pub source: Mac,
    /// Destination address.
    pub destination: Mac,
    /// VLAN identifiers, outermost first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub vlans: Vec<u16>,
}

/// A frame without its link header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stripped<'a> {
    /// The Ethernet header, if any.
    pub ethernet: Option<Ethernet>,
    /// The type of the payload.
    pub ethertype: u16,
    /// The bytes after the link header.
    pub payload: &'a [u8],
}

/// Removes the link header.
///
/// # Errors
/// A sentence about an unknown link type, or a frame shorter than its header.
pub fn strip(link: DataLink, frame: &[u8]) -> Result<Stripped<'_>, String> {
    let stripped = match link {
        DataLink::ETHERNET => ethernet(frame),
        DataLink::RAW | DataLink::IPV4 | DataLink::IPV6 => ip(frame),
        // The address family is in the capturing machine's byte order; the IP header has the version, too.
        DataLink::NULL | DataLink::LOOP => frame.get(4..).and_then(ip),
        DataLink::LINUX_SLL => cooked(frame, 14, 16),
        other => match u32::from(other) {
            LINUX_SLL2 => cooked(frame, 0, 20),
            number => return Err(format!("unknown link type {number}")),
        },
    };
    stripped.ok_or_else(|| "a frame shorter than its link header".to_owned())
}

/// Link type LINKTYPE_LINUX_SLL2.
const LINUX_SLL2: u32 = 276;

fn ethernet(frame: &[u8]) -> Option<Stripped<'_>> {
    let (addresses, mut rest) = frame.split_first_chunk::<12>()?;
    let mut vlans = Vec::new();
    let ethertype = loop {
        let (ethertype, after) = take_u16(rest)?;
        if !VLAN_TAGS.contains(&ethertype) {
            rest = after;
            break ethertype;
        }
        let (tag, after) = take_u16(after)?;
        vlans.push(tag & 0xfff);
        rest = after;
    };
    let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5] = *addresses;
    Some(Stripped {
        ethernet: Some(Ethernet {
            source: Mac([s0, s1, s2, s3, s4, s5]),
            destination: Mac([d0, d1, d2, d3, d4, d5]),
            vlans,
        }),
        ethertype,
        payload: rest,
    })
}

fn ip(frame: &[u8]) -> Option<Stripped<'_>> {
    let ethertype = match frame.first()? >> 4 {
        4 => IPV4,
        6 => IPV6,
        _ => 0,
    };
    Some(Stripped {
        ethernet: None,
        ethertype,
        payload: frame,
    })
}

/// Linux cooked capture: the EtherType is at `protocol`, the header has `header_len` bytes.
fn cooked(frame: &[u8], protocol: usize, header_len: usize) -> Option<Stripped<'_>> {
    Some(Stripped {
        ethernet: None,
        ethertype: take_u16(frame.get(protocol..)?)?.0,
        payload: frame.get(header_len..)?,
    })
}

fn take_u16(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let (value, rest) = bytes.split_first_chunk()?;
    Some((u16::from_be_bytes(*value), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vlan_tags_are_peeled_off() {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        frame.extend([0x88, 0xa8, 0x20, 7, 0x81, 0, 0, 9, 0x86, 0xdd, 0x60]);
        let s = strip(DataLink::ETHERNET, &frame).unwrap();
        let e = s.ethernet.unwrap();
        assert_eq!(
            (e.vlans, s.ethertype, s.payload),
            (vec![7, 9], IPV6, &[0x60][..])
        );
        assert_eq!(e.source.to_string(), "02:00:00:00:00:02");
        for len in 0..frame.len() - 1 {
            assert!(strip(DataLink::ETHERNET, &frame[..len]).is_err(), "{len}");
        }
    }

    #[test]
    fn link_types_without_addresses() {
        let ip = [0x45, 1, 2, 3];
        let s = strip(DataLink::RAW, &ip).unwrap();
        assert_eq!((s.ethertype, s.payload), (IPV4, &ip[..]));
        let sll: Vec<u8> = [&[0; 14][..], &[8, 0], &ip].concat();
        let s = strip(DataLink::LINUX_SLL, &sll).unwrap();
        assert_eq!((s.ethertype, s.payload), (IPV4, &ip[..]));
        let sll2: Vec<u8> = [&[8, 0][..], &[0; 18], &ip].concat();
        let s = strip(DataLink::from(LINUX_SLL2), &sll2).unwrap();
        assert_eq!((s.ethertype, s.payload), (IPV4, &ip[..]));
        let null = [&[2, 0, 0, 0][..], &ip].concat();
        assert_eq!(strip(DataLink::NULL, &null).unwrap().payload, ip);
        assert!(strip(DataLink::IEEE802_11, &ip).is_err());
    }
}
