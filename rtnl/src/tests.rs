//! Messages that no kernel sends.

use std::net::IpAddr;

use proptest::prelude::*;

use crate::transport::messages;
use crate::{address, link};

/// One attribute, padded.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(value.len() + 4).unwrap();
    let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend_from_slice(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// `struct ifinfomsg` of interface 7, up, with attributes.
fn link_message(family: u8, attributes: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = vec![family, 0, 1, 0];
    for field in [7u32, 1, 0] {
        bytes.extend_from_slice(&field.to_ne_bytes());
    }
    bytes.extend(attributes.concat());
    bytes
}

#[test]
fn an_attribute_of_a_surprising_shape_costs_itself_alone() {
    let bytes = link_message(
        0,
        &[
            attribute(4, &[1, 2]),             // an MTU of two bytes
            attribute(18, &[0xff; 3]),         // link info that is none
            attribute(1, &[0; 20]),            // an InfiniBand hardware address
            attribute(3, b"ib0\xff\0ignored"), // a name that is no UTF-8
        ],
    );
    let link = link::decode(&bytes).unwrap().link;
    assert_eq!((link.index, link.up, link.mtu), (7, true, 0));
    assert_eq!((link.address, link.kind), (None, None));
    assert_eq!(link.name, "ib0\u{fffd}");
}

#[test]
fn reports_of_bridges_are_not_about_the_link() {
    assert!(link::decode(&link_message(libc::AF_BRIDGE as u8, &[])).is_none());
    assert!(link::decode(&link_message(0, &[])).is_some());
}

#[test]
fn the_far_end_of_a_point_to_point_link_is_not_our_address() {
    let mut bytes = vec![2, 32, 0, 0, 7, 0, 0, 0];
    bytes.extend(attribute(1, &[192, 0, 2, 2]));
    bytes.extend(attribute(2, &[192, 0, 2, 1]));
    let address = address::decode(&bytes).unwrap();
    assert_eq!(address.ip, IpAddr::from([192, 0, 2, 1]));
}

#[test]
fn the_secondary_bit_means_temporary_with_ipv6_alone() {
    let mut v4 = vec![2, 24, 1, 0, 7, 0, 0, 0];
    v4.extend(attribute(2, &[192, 0, 2, 1]));
    assert!(!address::decode(&v4).unwrap().temporary);
    let mut v6 = vec![10, 64, 1, 0, 7, 0, 0, 0];
    v6.extend(attribute(1, &[0x20; 16]));
    assert!(address::decode(&v6).unwrap().temporary);
}

proptest! {
    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let taken: usize = messages(&bytes).map(|m| m.payload.len() + 16).sum();
        prop_assert!(taken <= bytes.len());
        let _ = link::decode(&bytes);
        let _ = address::decode(&bytes);
        let _ = address::decode_multicast(&bytes);
    }

    #[test]
    fn any_attributes_are_survived(
        kinds in proptest::collection::vec((0u16..70, proptest::collection::vec(any::<u8>(), 0..24)), 0..8),
    ) {
        let attributes: Vec<_> = kinds.iter().map(|(kind, value)| attribute(*kind, value)).collect();
        prop_assert_eq!(link::decode(&link_message(0, &attributes)).unwrap().link.index, 7);
    }
}
