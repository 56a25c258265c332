//! Parsing of frames for forwarding decisions.

use proto::Mac;

/// Bytes of an untagged Ethernet header.
const ETHERNET_LEN: usize = 14;
/// Bytes of a VLAN tag.
const TAG_LEN: usize = 4;
/// Maximum number of tags that are parsed: service and customer tag (IEEE 802.1Q, 9.6).
const TAGS_MAX: usize = 2;

const TYPE_IPV4: u16 = 0x0800;
const TYPE_IPV6: u16 = 0x86dd;
const TYPE_CUSTOMER_TAG: u16 = 0x8100;
const TYPE_SERVICE_TAG: u16 = 0x88a8;

const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;

/// Classes of traffic with a routing control each. The value is the lowest bit of the class in the word
/// (kernel opa_vnic_encap.h, `OPA_VNIC_ENCAP_RC_*`); the order of TCP and UDP differs between IPv4 and
/// IPv6.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Traffic {
    Other = 0,
    Ipv4 = 4,
    Ipv4Udp = 8,
    Ipv4Tcp = 12,
    Ipv6 = 16,
    Ipv6Tcp = 20,
    Ipv6Udp = 24,
}

/// Identity of a flow: the addresses of the outermost header with routable addresses, and the ports if
/// every packet of the flow has them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow {
    bytes: [u8; Flow::MAX],
    len: usize,
}

impl Flow {
    /// Two IPv6 addresses, two ports, a protocol, an EtherType, a VLAN.
    const MAX: usize = 2 * 16 + 4 + 1 + 2 + 2;

    fn new(vlan: u16, ethertype: u16) -> Flow {
        let mut flow = Flow {
            bytes: [0; Flow::MAX],
            len: 0,
        };
        flow.add(&vlan.to_be_bytes());
        flow.add(&ethertype.to_be_bytes());
        flow
    }

    fn add(&mut self, bytes: &[u8]) {
        let end = self.len + bytes.len();
        if let Some(place) = self.bytes.get_mut(self.len..end) {
            place.copy_from_slice(bytes);
            self.len = end;
        }
    }

    /// Bytes that are equal in all packets of the flow.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Fields of a frame for forwarding decisions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame {
    pub destination: Mac,
    pub source: Mac,
    /// Priority code point of the outermost tag.
    pub priority: Option<u8>,
    pub traffic: Traffic,
    pub flow: Flow,
}

impl Frame {
    /// Parses a frame; `None` if it is shorter than an Ethernet header.
    #[inline]
    pub fn parse(frame: &[u8]) -> Option<Frame> {
        let (header, mut rest) = frame.split_first_chunk::<ETHERNET_LEN>()?;
        let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, t0, t1] = *header;
        let mut ethertype = u16::from_be_bytes([t0, t1]);
        let mut tag = None;
        for _ in 0..TAGS_MAX {
            if !is_tag(ethertype) {
                break;
            }
            let Some((bytes, behind)) = rest.split_first_chunk::<TAG_LEN>() else {
                break;
            };
            let [c0, c1, t0, t1] = *bytes;
            tag = tag.or(Some(u16::from_be_bytes([c0, c1])));
            ethertype = u16::from_be_bytes([t0, t1]);
            rest = behind;
        }
        let mut flow = Flow::new(tag.unwrap_or(0) & 0xfff, ethertype);
        let traffic = match ethertype {
            TYPE_IPV4 => ipv4(rest, &mut flow),
            TYPE_IPV6 => ipv6(rest, &mut flow),
            _ => None,
        };
        if traffic.is_none() {
            flow.add(&header[..12]);
        }
        Some(Frame {
            destination: [d0, d1, d2, d3, d4, d5],
            source: [s0, s1, s2, s3, s4, s5],
            priority: tag.map(|tci| (tci >> 13) as u8),
            traffic: traffic.unwrap_or(Traffic::Other),
            flow,
        })
    }

    /// Whether the destination is a group address.
    #[inline]
    pub fn is_group(&self) -> bool {
        is_group(self.destination)
    }
}

/// Whether a frame is tagged, by its outer EtherType.
#[inline]
pub fn is_tagged(frame: &[u8]) -> bool {
    matches!(frame.get(12..14), Some([0x81, 0x00] | [0x88, 0xa8]))
}

/// Whether an address is a group address, including broadcast.
#[inline]
pub const fn is_group(mac: Mac) -> bool {
    mac[0] & 1 != 0
}

/// Whether an address is locally administered.
#[inline]
pub const fn is_local(mac: Mac) -> bool {
    mac[0] & 2 != 0
}

const fn is_tag(ethertype: u16) -> bool {
    matches!(ethertype, TYPE_CUSTOMER_TAG | TYPE_SERVICE_TAG)
}

#[inline]
fn ipv4(packet: &[u8], flow: &mut Flow) -> Option<Traffic> {
    let header = packet.first_chunk::<20>()?;
    let protocol = header[9];
    flow.add(&[protocol]);
    flow.add(&header[12..20]);
    // Not a fragment: neither More Fragments nor an offset.
    if u16::from_be_bytes([header[6], header[7]]) & 0x3fff == 0 {
        let behind = usize::from(header[0] & 0xf) * 4;
        flow.add(ports(protocol, packet.get(behind..)));
    }
    Some(match protocol {
        UDP => Traffic::Ipv4Udp,
        TCP => Traffic::Ipv4Tcp,
        _ => Traffic::Ipv4,
    })
}

/// Does not parse extension headers, as the kernel's driver.
#[inline]
fn ipv6(packet: &[u8], flow: &mut Flow) -> Option<Traffic> {
    let (header, rest) = packet.split_first_chunk::<40>()?;
    let protocol = header[6];
    flow.add(&[protocol]);
    flow.add(&header[8..]);
    flow.add(ports(protocol, Some(rest)));
    Some(match protocol {
        UDP => Traffic::Ipv6Udp,
        TCP => Traffic::Ipv6Tcp,
        _ => Traffic::Ipv6,
    })
}

fn ports(protocol: u8, segment: Option<&[u8]>) -> &[u8] {
    match protocol {
        TCP | UDP | SCTP => segment.and_then(|s| s.get(..4)).unwrap_or(&[]),
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HEAD: [u8; 12] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];

    fn ipv4_packet(protocol: u8, fragment: u16, ports: [u8; 4]) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 40, 0, 0, 0, 0, 64, protocol, 0, 0];
        packet[6..8].copy_from_slice(&fragment.to_be_bytes());
        packet.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        packet.extend(ports);
        packet.resize(40, 0);
        packet
    }

    fn ipv6_packet(protocol: u8, ports: [u8; 4]) -> Vec<u8> {
        let mut packet = vec![0x60, 0, 0, 0, 0, 20, protocol, 64];
        packet.extend([0xfe; 16]);
        packet.extend([0xfd; 16]);
        packet.extend(ports);
        packet.resize(60, 0);
        packet
    }

    fn frame(types: &[u8], packet: &[u8]) -> Frame {
        Frame::parse(&[&HEAD[..], types, packet].concat()).unwrap()
    }

    #[test]
    fn t17_t18_classes_of_traffic_are_found_after_tags_too() {
        let classes = [
            (ipv4_packet(6, 0, [0; 4]), [8, 0], Traffic::Ipv4Tcp),
            (ipv4_packet(17, 0, [0; 4]), [8, 0], Traffic::Ipv4Udp),
            (ipv4_packet(1, 0, [0; 4]), [8, 0], Traffic::Ipv4),
            (ipv6_packet(6, [0; 4]), [0x86, 0xdd], Traffic::Ipv6Tcp),
            (ipv6_packet(17, [0; 4]), [0x86, 0xdd], Traffic::Ipv6Udp),
            // A hop-by-hop header is not parsed.
            (ipv6_packet(0, [0; 4]), [0x86, 0xdd], Traffic::Ipv6),
            (vec![0; 28], [8, 6], Traffic::Other),
            (vec![0x45; 19], [8, 0], Traffic::Other),
        ];
        for (packet, ethertype, expected) in classes {
            let plain = frame(&ethertype, &packet);
            assert_eq!((plain.traffic, plain.priority), (expected, None));
            for tag in [[0x81, 0x00], [0x88, 0xa8]] {
                let types = [&tag[..], &[0xa0, 7], &ethertype].concat();
                let tagged = frame(&types, &packet);
                assert_eq!((tagged.traffic, tagged.priority), (expected, Some(5)));
            }
            // The priority is that of the outer tag.
            let types = [&[0x88, 0xa8, 0xe0, 7, 0x81, 0, 0x20, 8][..], &ethertype].concat();
            let twice = frame(&types, &packet);
            assert_eq!((twice.traffic, twice.priority), (expected, Some(7)));
        }
    }

    #[test]
    fn flows_differ_by_addresses_ports_and_vlan_and_fragments_by_addresses_alone() {
        let of = |types: &[u8], packet: &[u8]| frame(types, packet).flow;
        let a = of(&[8, 0], &ipv4_packet(6, 0, [1, 2, 3, 4]));
        assert_eq!(a, of(&[8, 0], &ipv4_packet(6, 0x4000, [1, 2, 3, 4])));
        assert_ne!(a, of(&[8, 0], &ipv4_packet(6, 0, [1, 2, 3, 5])));
        assert_ne!(a, of(&[8, 0], &ipv4_packet(17, 0, [1, 2, 3, 4])));
        let tagged = |tci: u8, vlan: u8| {
            of(
                &[0x81, 0, tci, vlan, 8, 0],
                &ipv4_packet(6, 0, [1, 2, 3, 4]),
            )
        };
        assert_ne!(a, tagged(0, 7));
        assert_ne!(tagged(0, 7), tagged(0, 8));
        // The priority may change within a flow.
        assert_eq!(tagged(0, 7), tagged(0xe0, 7));
        let first = of(&[8, 0], &ipv4_packet(17, 0x2000, [1, 2, 3, 4]));
        let second = of(&[8, 0], &ipv4_packet(17, 0x00b9, [9, 9, 9, 9]));
        assert_eq!(first, second);
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_without_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..100),
            types in prop::sample::select(vec![0x0800_u16, 0x86dd, 0x8100, 0x88a8, 0x0806]),
        ) {
            let mut bytes = bytes;
            if let Some(place) = bytes.get_mut(12..14) {
                place.copy_from_slice(&types.to_be_bytes());
            }
            let parsed = Frame::parse(&bytes);
            prop_assert_eq!(parsed.is_some(), bytes.len() >= 14);
            if let Some(frame) = parsed {
                prop_assert!(!frame.flow.bytes().is_empty());
                let whole_tag = bytes.len() >= 18;
                prop_assert_eq!(frame.priority.is_some(), is_tagged(&bytes) && whole_tag);
            }
        }
    }
}
