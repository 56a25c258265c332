//! Decoding of messages that no kernel sends.

use std::net::IpAddr;

use proptest::prelude::*;

use crate::stacking::Stacking;
use crate::transport::messages;
use crate::{EthtoolEvent, Link, Vlan, address, ethtool, link, nsid, saved};

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

/// As `ip link add link ib0 name ib0.5 type vlan id 5` makes it (kernel net/8021q/vlan_netlink.c,
/// vlan_fill_info).
#[test]
fn a_vlan_has_an_id_and_a_protocol() {
    let of = |kind: &[u8], id: &[u8]| {
        let protocol = attribute(5, &0x8100u16.to_be_bytes());
        let data = [
            attribute(1, id),
            attribute(2, &[1, 0, 0, 0, 0xff, 0, 0, 0]),
            protocol,
        ]
        .concat();
        let info = [attribute(1, kind), attribute(2, &data)].concat();
        let attributes = [attribute(5, &4u32.to_ne_bytes()), attribute(18, &info)];
        link::decode(&link_message(0, &attributes)).unwrap().link
    };
    let vlan = of(b"vlan\0", &5u16.to_ne_bytes());
    assert_eq!((vlan.link, vlan.vlan.map(|v| v.id)), (Some(4), Some(5)));
    assert_eq!(of(b"vlan\0", &[5]).vlan, None);
    assert_eq!(of(b"macvlan\0", &5u16.to_ne_bytes()).vlan, None);
}

#[test]
fn alternative_names_and_tags_are_read() {
    let names = [&b"storage\0"[..], b"a-name-of-more-than-fifteen-bytes\0"];
    let list = names.map(|name| attribute(53, name)).concat();
    // 0x88a8 in network order.
    let tag = [
        attribute(1, &5u16.to_ne_bytes()),
        attribute(5, &[0x88, 0xa8]),
    ]
    .concat();
    let info = [attribute(1, b"vlan\0"), attribute(2, &tag)].concat();
    // The top bit marks a nested attribute.
    let bytes = link_message(0, &[attribute(52 | 0x8000, &list), attribute(18, &info)]);
    let link = link::decode(&bytes).unwrap().link;
    assert_eq!(
        link.altnames,
        ["storage", "a-name-of-more-than-fifteen-bytes"]
    );
    let tag = Vlan {
        id: 5,
        protocol: 0x88a8,
    };
    assert_eq!(link.vlan, Some(tag));
}

#[test]
fn reports_of_bridges_are_not_about_the_link() {
    assert!(link::decode(&link_message(libc::AF_BRIDGE as u8, &[])).is_none());
    assert!(link::decode(&link_message(0, &[])).is_some());
}

/// An interface with the attributes for stacking.
fn stacked(index: u32, name: &str, kind: &str, master: u32, lower: u32) -> Link {
    let mut bytes = link_message(
        0,
        &[
            attribute(3, name.as_bytes()),
            attribute(5, &lower.to_ne_bytes()),
            attribute(10, &master.to_ne_bytes()),
            attribute(18, &attribute(1, kind.as_bytes())),
        ],
    );
    bytes[4..8].copy_from_slice(&index.to_ne_bytes());
    link::decode(&bytes).unwrap().link
}

#[test]
fn upper_interfaces_of_all_kinds_are_found() {
    let on_ib0 = |master, others: &[Link]| {
        let mut links = vec![stacked(7, "ib0", "tun", master, 0)];
        links.extend_from_slice(others);
        Stacking::on(&links, &links[0])
    };
    let ovs = stacked(8, "ovs-system", "openvswitch", 0, 0);
    assert_eq!(on_ib0(8, &[ovs]), Stacking::Other("ovs-system".into()));
    let team = stacked(8, "team0", "team", 0, 0);
    assert_eq!(
        on_ib0(8, std::slice::from_ref(&team)),
        Stacking::Bond("team0".into())
    );
    let vlan = stacked(9, "ib0.5", "vlan", 0, 7);
    assert_eq!(on_ib0(0, &[vlan]), Stacking::Other("ib0.5".into()));
    let mut tap = stacked(9, "mt0", "macvtap", 0, 8);
    assert_eq!(
        on_ib0(8, &[team, tap.clone()]),
        Stacking::Other("mt0".into())
    );
    tap.macvlan = Some(crate::MacvlanMode::Bridge);
    let bond = stacked(8, "bond0", "bond", 0, 0);
    assert_eq!(on_ib0(8, &[bond, tap]), Stacking::Macvlan("mt0".into()));
    assert_eq!(on_ib0(0, &[]), Stacking::None);
}

#[test]
fn a_loop_of_masters_ends() {
    let links = [
        stacked(7, "bond0", "bond", 8, 0),
        stacked(8, "bond1", "bond", 7, 0),
    ];
    assert!(Stacking::on(&links, &links[0]).has_guests());
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

/// The payload of a moderation notification of ethtool's family.
fn coalesce_message(command: u8, ifindex: u32, values: &[(u16, u32)]) -> Vec<u8> {
    let device = [attribute(1, &ifindex.to_ne_bytes()), attribute(2, b"ib0\0")].concat();
    let mut bytes = vec![command, 1, 0, 0];
    bytes.extend(attribute(1 | 0x8000, &device));
    for (kind, value) in values {
        bytes.extend(attribute(*kind, &value.to_ne_bytes()));
    }
    bytes
}

#[test]
fn moderation_is_read_and_other_notifications_are_not() {
    let event = ethtool::decode_event(&coalesce_message(21, 7, &[(3, 16)]));
    let wanted = EthtoolEvent::Coalesce {
        nsid: None,
        ifindex: 7,
        name: "ib0".to_owned(),
        rx_frames: Some(16),
        rx_usecs: None,
    };
    assert_eq!(event, Some(wanted));
    assert_eq!(
        ethtool::decode_event(&coalesce_message(19, 7, &[(3, 16)])),
        None
    );
    assert_eq!(ethtool::decode_event(&[21, 1, 0, 0]), None);
}

#[test]
fn a_family_without_the_group_is_none() {
    let family = |group: &[u8]| {
        let one = [attribute(1, group), attribute(2, &9u32.to_ne_bytes())].concat();
        let mut bytes = vec![1, 2, 0, 0];
        bytes.extend(attribute(1, &21u16.to_ne_bytes()));
        bytes.extend(attribute(7, &attribute(1, &one)));
        ethtool::decode_family(&bytes)
    };
    assert!(family(b"monitor\0").is_some());
    assert!(family(b"another\0").is_none());
}

#[test]
fn a_namespace_without_a_number_has_none() {
    let answer = |number: i32| [vec![0; 4], attribute(1, &number.to_ne_bytes())].concat();
    assert_eq!(nsid::decode(&answer(0)), Some(0));
    assert_eq!(nsid::decode(&answer(-1)), None);
    assert_eq!(nsid::decode(&[0; 4]), None);
}

proptest! {
    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let taken: usize = messages(&bytes).map(|m| m.payload.len() + 16).sum();
        prop_assert!(taken <= bytes.len());
        let _ = link::decode(&bytes);
        let _ = address::decode(&bytes);
        let _ = address::decode_multicast(&bytes);
        let _ = nsid::decode(&bytes);
        let _ = ethtool::decode_family(&bytes);
        let _ = ethtool::decode_event(&bytes);
        for kind in [20, 24, 28] {
            let _ = saved::restorable(kind, &bytes, 7);
        }
    }

    #[test]
    fn any_attributes_are_survived(
        kinds in proptest::collection::vec((0u16..70, proptest::collection::vec(any::<u8>(), 0..24)), 0..8),
    ) {
        let attributes: Vec<_> = kinds.iter().map(|(kind, value)| attribute(*kind, value)).collect();
        prop_assert_eq!(link::decode(&link_message(0, &attributes)).unwrap().link.index, 7);
        let attributes = attributes.concat();
        let _ = nsid::decode(&[&[0; 4], &attributes[..]].concat());
        let _ = ethtool::decode_family(&[&[1, 2, 0, 0], &attributes[..]].concat());
        let _ = ethtool::decode_event(&[&[21, 1, 0, 0], &attributes[..]].concat());
    }

    #[test]
    fn moderation_of_any_interface_and_value(ifindex: u32, usecs: u32, frames: u32) {
        let bytes = coalesce_message(21, ifindex, &[(2, usecs), (3, frames)]);
        prop_assert_eq!(ethtool::decode_event(&bytes), Some(EthtoolEvent::Coalesce {
            nsid: None,
            ifindex,
            name: "ib0".to_owned(),
            rx_frames: Some(frames),
            rx_usecs: Some(usecs),
        }));
    }

    #[test]
    fn a_route_that_is_kept_goes_out_of_the_interface_of_any_index(
        before: u32,
        after: u32,
        flags: u32,
        others in proptest::collection::vec(
            (5u16..40, proptest::collection::vec(any::<u8>(), 0..24)), 0..6),
    ) {
        let mut bytes = vec![2, 24, 0, 0, 254, 3, 0, 1];
        bytes.extend_from_slice(&(flags & !0x200).to_ne_bytes());
        let others = others.iter().map(|(kind, value)| attribute(*kind, value)).collect::<Vec<_>>();
        let with = |index: u32| [others.concat(), attribute(4, &index.to_ne_bytes())].concat();
        let route = saved::restorable(24, &[&bytes[..], &with(before)].concat(), before).unwrap();
        let again = saved::with_index(route, after).payload;
        prop_assert_eq!(&again[..8], &bytes[..8]);
        prop_assert_eq!(&again[8..12], &(flags & 4).to_ne_bytes());
        prop_assert_eq!(&again[12..], &with(after));
    }
}
