use std::fs::File;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

use pcap_file::pcap::PcapReader;
use proptest::prelude::*;

use super::*;
use crate::mad::Mad;
use crate::mad::cm::Message;
use crate::soft::icrc::L3;
use crate::soft::wire::Packet;

/// The private data of a capture's first datagram, which must be of communication management.
fn private_data(file: &str) -> Vec<u8> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/captures");
    let mut reader = PcapReader::new(File::open(root.join(file)).unwrap()).unwrap();
    let frame = reader.next_raw_packet().unwrap().unwrap();
    let l3 = L3::parse(&frame.data[14..]).unwrap();
    let packet = Packet::parse(l3.transport).unwrap();
    let mad = Mad::parse(packet.payload).unwrap();
    match mad.communication_management() {
        Some(Message::Req(m)) => m.private_data.to_vec(),
        Some(Message::SidrReq(m)) => m.private_data.to_vec(),
        _ => panic!("{file}: {}", mad.header),
    }
}

fn v4(last: u8) -> Gid {
    Ipv4Addr::new(192, 168, 77, last).into()
}

/// The exact bytes of the kernel's rdma_cm, in requests for connections and for datagram services.
#[test]
fn the_kernels_header_is_read_and_written() {
    for (file, port) in [
        ("cm_rping_v4.pcap", 0xdde1),
        ("cm_ucmatose_v4.pcap", 0xe277),
        ("cm_reject_v4.pcap", 0xd06e),
        ("cm_udaddy_v4.pcap", 0x900f),
    ] {
        let data = private_data(file);
        let (header, rest) = RdmaCmHeader::ref_from_prefix(&data).unwrap();
        let expected = RdmaCmAddresses {
            source: v4(11),
            port,
            destination: v4(10),
        };
        assert_eq!(header.addresses(), Some(expected), "{file}");
        assert_eq!(RdmaCmHeader::new(&expected).as_ref(), Some(header));
        // These programs send 0, which selects the only listener.
        let (data, _) = RdmaCmData::ref_from_prefix(rest).unwrap();
        assert_eq!(data.to(), Qpn::new(0), "{file}");
        assert_eq!(data, &RdmaCmData::new(Qpn::new(0), &[]));
    }
}

#[test]
fn an_ipv6_header_has_whole_addresses() {
    let (source, destination) = (Ipv6Addr::LOCALHOST.into(), Gid([7; 16]));
    let addresses = RdmaCmAddresses {
        source,
        port: 0x1234,
        destination,
    };
    let header = RdmaCmHeader::new(&addresses).unwrap();
    assert_eq!(header.as_bytes()[..4], [0, 0x60, 0x12, 0x34]);
    assert_eq!(header.as_bytes()[4..20], source.0);
    assert_eq!(header.as_bytes()[20..], destination.0);
    assert_eq!(header.addresses(), Some(addresses));
}

#[test]
fn addresses_of_two_families_are_no_header() {
    let mixed = RdmaCmAddresses {
        source: v4(1),
        port: 1,
        destination: Gid([7; 16]),
    };
    assert_eq!(RdmaCmHeader::new(&mixed), None);
    let mut header = RdmaCmHeader::new_zeroed();
    header.set_ip_version(6);
    assert!(header.addresses().is_some());
    header.source = v4(1).0;
    assert_eq!(header.addresses(), None);
}

#[test]
fn the_listener_is_in_the_last_four_bytes() {
    let data = RdmaCmData::new(Qpn::new(0x12_3456), &[9; 8]);
    let mut expected = [0; RDMA_CM_DATA_LEN];
    expected[..8].fill(9);
    expected[53..].copy_from_slice(&[0x12, 0x34, 0x56]);
    assert_eq!(data.as_bytes(), expected);
    // More private data never reaches these bytes.
    let long = RdmaCmData::new(Qpn::new(1), &[0xff; 92]);
    assert_eq!(long.as_bytes()[52..], [0, 0, 0, 1]);
}

proptest! {
    /// Any bytes are read without a panic, and valid headers are written unchanged.
    #[test]
    fn what_is_understood_is_written_again(bytes in any::<[u8; RDMA_CM_HEADER_LEN]>()) {
        let header = RdmaCmHeader::ref_from_bytes(&bytes).unwrap();
        if let Some(addresses) = header.addresses() {
            let again = RdmaCmHeader::new(&addresses).unwrap();
            prop_assert_eq!(again.addresses(), Some(addresses));
        }
    }

    /// Headers with a valid version, so that most are accepted.
    #[test]
    fn headers_round_trip(
        mut bytes in any::<[u8; RDMA_CM_HEADER_LEN]>(), version in prop::sample::select(vec![4u8, 6])
    ) {
        (bytes[0], bytes[1]) = (0, version << 4);
        let header = RdmaCmHeader::ref_from_bytes(&bytes).unwrap();
        let addresses = header.addresses().unwrap();
        let again = RdmaCmHeader::new(&addresses).unwrap();
        prop_assert_eq!(again.addresses(), Some(addresses));
        if version == 6 {
            prop_assert_eq!(&again, header);
        }
    }

    #[test]
    fn listeners_and_data_round_trip(
        to in any::<u32>(), data in prop::collection::vec(any::<u8>(), 0..=52)
    ) {
        let part = RdmaCmData::new(Qpn::new(to), &data);
        let again = RdmaCmData::read_from_bytes(part.as_bytes()).unwrap();
        prop_assert_eq!(again.to(), Qpn::new(to));
        prop_assert_eq!(&again.private_data[..data.len()], &data[..]);
    }

    #[test]
    fn a_request_selects_one_of_several_listeners(
        to in any::<u32>(), data in prop::collection::vec(any::<u8>(), 0..=92)
    ) {
        let to = Qpn::new(to);
        let services = [
            (ServiceId::rdma_cm(4755), 56, 52, Some(to)),
            (ServiceId::rdma_ib(4755), 92, 88, Some(to)),
            (ServiceId(0x1000_0000_0000_0012), 92, 92, None),
        ];
        for (service, len, room, selects) in services {
            let all = request_data(service, to, &data);
            prop_assert_eq!((all.len(), selected(service, &all)), (len, selects));
            let sent = data.len().min(room);
            prop_assert_eq!(&all[..sent], &data[..sent]);
        }
    }
}
