//! Receive path of a port.

use std::sync::Arc;

use proptest::prelude::*;
use proto::{PKey, Time};

use crate::Lid;
use crate::counters::Counters;
use crate::directory::Directory;
use crate::packet::{Header16B, Refusal};
use crate::port::testing::*;
use crate::port::{Event, Meta, Sizes, VeswPort};

/// Port 5 of the switch receives a packet from port 7.
fn take(port: &mut VeswPort, multicast: bool, packet: &[u8]) -> Result<Vec<u8>, Refusal> {
    let meta = from(7, multicast);
    let taken = port.from_fabric(Time(0), &meta, packet);
    taken.map(<[u8]>::to_vec)
}

fn unicast() -> Header16B {
    header(7, Lid::new(5))
}

/// Asserts that only this counter increased.
fn assert_counted(port: &VeswPort, name: &str) {
    let counted: Vec<(&str, u64)> = port
        .counters()
        .named()
        .into_iter()
        .filter(|(n, count)| *count > 0 && !["rx_errors", "rx_dropped"].contains(n))
        .collect();
    assert_eq!(counted, [(name, 1)]);
}

fn refused(port: &mut VeswPort, multicast: bool, packet: &[u8]) -> Refusal {
    let got = take(port, multicast, packet);
    got.expect_err("the packet must be refused")
}

#[test]
fn a_frame_comes_as_it_was_sent() {
    let mut port = port(5);
    let sent = frame_of(1000, mac(5), mac(7));
    let got = take(&mut port, false, &packet(&unicast(), &sent));
    assert_eq!(got, Ok(sent));
    let expected = Counters {
        rx_packets: 1,
        rx_bytes: 1004,
        rx_unicast: 1,
        rx_untagged: 1,
        rx_512_1023: 1,
        mac_learned: 1,
        ..Counters::default()
    };
    assert_eq!(*port.counters(), expected);
}

#[test]
fn r01_r02_r03_r14_packets_that_are_not_for_the_port_are_dropped_each_by_its_counter() {
    let good = packet(&unicast(), &frame(mac(5), mac(7)));
    let with = |at: usize, xor: u8| {
        let mut packet = good.clone();
        packet[at] ^= xor;
        packet
    };
    let headers = |header: Header16B| packet(&header, &frame(mac(5), mac(7)));
    let cases = [
        (with(8, 0x01), "rx_bad_l4"),
        (with(7, 0x20), "rx_bad_l2"),
        (with(2, 0x10), "rx_length_mismatch"),
        (good[..87].to_vec(), "rx_truncated"),
        (with(87, 0x08), "rx_bad_tail"),
        (headers(header(0, Lid::new(5))), "rx_bad_lid"),
        (headers(header(7, Lid::new(6))), "rx_bad_lid"),
        (headers(header(7, Lid::new(0xf0_0003))), "rx_bad_lid"),
        (
            headers(Header16B {
                pkey: PKey::new(0x8002),
                ..unicast()
            }),
            "rx_bad_pkey",
        ),
        // All 12 bits are compared.
        (
            headers(Header16B {
                vesw_id: 258,
                ..unicast()
            }),
            "rx_bad_veswid",
        ),
        (
            headers(Header16B {
                vesw_id: 3,
                ..unicast()
            }),
            "rx_bad_veswid",
        ),
    ];
    for (packet, name) in cases {
        let mut port = port(5);
        assert_eq!(refused(&mut port, false, &packet).counter(), name);
        assert_counted(&port, name);
        assert_eq!(
            port.learned(Time(0)).count() + port.nodes().count(),
            0,
            "{name}"
        );
    }
}

#[test]
fn r04_no_packet_is_accepted_while_the_port_does_not_forward() {
    let mut port = port(5);
    port.set_up(false);
    let packet = packet_to(Lid::new(5), 7);
    assert_eq!(refused(&mut port, false, &packet), Refusal::DropState);
    assert_counted(&port, "rx_drop_state");
    assert_eq!(
        (port.counters().rx_errors, port.counters().rx_dropped),
        (1, 1)
    );
}

#[test]
fn r05_frames_up_to_the_mtu_plus_18_bytes_are_accepted() {
    for mtu in [1500, 1000] {
        let mut port = port(5);
        port.set_mtu(mtu);
        let longest = usize::from(mtu) + 18;
        let of = |len: usize| packet(&unicast(), &frame_of(len, mac(5), mac(7)));
        assert!(take(&mut port, false, &of(longest)).is_ok());
        assert_eq!(
            refused(&mut port, false, &of(longest + 1)),
            Refusal::Oversize
        );
        let c = port.counters();
        assert_eq!((c.rx_packets, c.rx_bytes), (2, 2 * longest as u64 + 9));
        assert_eq!((c.rx_oversize, c.rx_unicast, c.rx_untagged), (1, 1, 1));
        assert_eq!(port.frame_max(), longest);
    }
    // The switch's MTU applies if the interface's is larger.
    let mut port = port(5);
    port.set_mtu(9000);
    assert_eq!(port.mtu(), 1500);
}

#[test]
fn r06_frames_of_less_than_60_bytes_are_dropped() {
    let mut port = port(5);
    let mut packet = packet(&unicast(), &frame(mac(5), mac(7)));
    // One more byte of padding.
    packet[87] += 1;
    assert_eq!(refused(&mut port, false, &packet), Refusal::Runt);
    let expected = Counters {
        rx_packets: 1,
        rx_bytes: 63,
        rx_64_size: 1,
        rx_runt: 1,
        rx_errors: 1,
        rx_dropped: 1,
        ..Counters::default()
    };
    assert_eq!(*port.counters(), expected);
}

#[test]
fn r12_own_multicast_that_returns_is_dropped() {
    let mut port = port(5);
    let Sent::Packet(_, _, packet) = send(&mut port, &frame(BROADCAST, mac(5))) else {
        panic!("broadcast is not sent")
    };
    let meta = from(5, true);
    let got = port.from_fabric(Time(0), &meta, &packet);
    assert_eq!(got, Err(Refusal::SelfMulticast));
    assert_eq!(
        (port.counters().rx_self_mcast, port.counters().rx_errors),
        (1, 0)
    );
    assert_eq!(port.poll_event(), None);
}

#[test]
fn r13_frames_for_hosts_behind_the_interface_are_accepted() {
    let mut port = port(5);
    let guest = [0x52, 0x54, 0, 1, 2, 3];
    let got = take(&mut port, false, &packet(&unicast(), &frame(guest, mac(7))));
    assert!(got.is_ok());
}

#[test]
fn flooded_unicast_for_others_is_no_error() {
    let mut port = port(5);
    let packet = packet_to(Lid::new(6), 7);
    assert_eq!(refused(&mut port, true, &packet), Refusal::OtherLid);
    assert_counted(&port, "rx_other_lid");
    // Flooded packets for this port are accepted.
    assert!(take(&mut port, true, &packet_to(Lid::new(5), 7)).is_ok());
}

#[test]
fn the_tables_groups_are_joined_and_no_others() {
    let mut port = port(5);
    let group = Lid::new(0xf0_0009);
    assert!(take(&mut port, true, &packet_to(group, 7)).is_err());
    let mac = [1, 0, 0x5e, 0, 0, 9];
    port.set_table(Arc::new(table(&[(mac, group.get() << 8)])));
    assert!(take(&mut port, true, &packet_to(group, 7)).is_ok());
    port.set_table(Arc::default());
    assert!(take(&mut port, true, &packet_to(group, 7)).is_err());
}

#[test]
fn with_a_member_list_a_forged_source_is_dropped_and_reported_once() {
    let mut port = port(5);
    let nodes = [7, 8].map(|lid| (Lid::new(lid), address(lid)));
    port.set_directory(&Directory {
        nodes: nodes.into(),
        closed: true,
    });
    let packet = packet_to(ALL, 8);
    for _ in 0..3 {
        assert_eq!(refused(&mut port, true, &packet), Refusal::ForgedLid);
    }
    let (lid, from_) = (Lid::new(8), address(7));
    assert_eq!(
        port.poll_event(),
        Some(Event::ForgedLid { lid, from: from_ })
    );
    assert_eq!(port.poll_event(), None);
    let c = port.counters();
    assert_eq!((c.rx_forged_lid, c.rx_packets, c.mac_learned), (3, 0, 0));
    assert!(port.from_fabric(Time(0), &from(8, true), &packet).is_ok());
    // Unlisted members are refused.
    assert_eq!(
        port.from_fabric(Time(0), &from(9, true), &packet_to(ALL, 9)),
        Err(Refusal::ForgedLid)
    );
}

#[test]
fn siblings_need_no_entry_in_the_list() {
    let mut port = port(5);
    port.set_directory(&Directory {
        nodes: [(Lid::new(7), address(7))].into(),
        closed: true,
    });
    port.set_siblings([Lid::new(6)]);
    let packet = packet_to(ALL, 6);
    let sibling = Meta {
        src_gid: address(5).gid,
        ..from(6, true)
    };
    assert!(port.from_fabric(Time(0), &sibling, &packet).is_ok());
    let got = port.from_fabric(Time(0), &from(6, true), &packet);
    assert_eq!(got, Err(Refusal::ForgedLid));
}

/// The GID of a daemon changes. Multicast of the port and of its sibling, sent shortly before, loops back with the
/// former GID.
#[test]
fn after_a_change_of_the_gid_late_packets_are_not_forged() {
    let mut port = port(5);
    port.set_siblings([Lid::new(6)]);
    let now = 1000;
    // The same address again is no change.
    for _ in 0..2 {
        port.set_local(Time(now), address(0x55));
    }
    let sibling = Meta {
        src_gid: address(5).gid,
        ..from(6, true)
    };
    let mut got = |after, meta: &Meta, lid| {
        let packet = packet_to(ALL, lid);
        let got = port.from_fabric(Time(now + after), meta, &packet);
        (got.err(), port.poll_event())
    };
    let own = from(5, true);
    for after in [0, 5, 49] {
        assert_eq!(got(after, &sibling, 6), (None, None));
        assert_eq!(got(after, &own, 5), (Some(Refusal::SelfMulticast), None));
    }
    // Somebody else has the address.
    assert_eq!(got(50, &sibling, 6).0, Some(Refusal::ForgedLid));
    let (lid, other) = (Lid::new(5), own.source());
    let duplicate = Some(Event::DuplicateLid { lid, other });
    assert_eq!(got(50, &own, 5), (Some(Refusal::ForgedLid), duplicate));
}

/// Multicast of a sibling can arrive with the new GID before the port gets the new GID. Multicast with the sibling's
/// LID reaches the sibling, too: the sibling reports other hosts with its LID.
#[test]
fn multicast_with_a_siblings_lid_is_not_reported_as_forged() {
    let mut port = port(5);
    port.set_siblings([Lid::new(6)]);
    let forged = |multicast| from_address(address(0x66), multicast);
    let packet = packet_to(ALL, 6);
    let got = port.from_fabric(Time(0), &forged(true), &packet);
    assert_eq!((got, port.poll_event()), (Err(Refusal::ForgedLid), None));
    // The real forger is still reported.
    let packet = packet_to(Lid::new(5), 6);
    let got = port.from_fabric(Time(0), &forged(false), &packet);
    assert_eq!(got, Err(Refusal::ForgedLid));
    let (lid, from) = (Lid::new(6), address(0x66));
    assert_eq!(port.poll_event(), Some(Event::ForgedLid { lid, from }));
    assert_eq!(port.counters().rx_forged_lid, 2);
}

#[test]
fn a_duplicate_of_the_ports_lid_is_reported_once() {
    let mut port = port(5);
    let packet = packet_to(ALL, 5);
    for _ in 0..3 {
        let got = port.from_fabric(Time(0), &from(99, true), &packet);
        assert_eq!(got, Err(Refusal::ForgedLid));
    }
    let (lid, other) = (Lid::new(5), address(99));
    assert_eq!(port.poll_event(), Some(Event::DuplicateLid { lid, other }));
    assert_eq!(port.poll_event(), None);
    assert_eq!(port.counters().rx_forged_lid, 3);
    port.configure(&info(6));
    assert!(port.from_fabric(Time(0), &from(99, true), &packet).is_ok());
}

#[test]
fn a_large_send_of_a_sibling_counts_as_its_segments() {
    let mut port = port(5);
    let sizes = Sizes {
        full: 1514,
        count: 10,
        last: 100,
    };
    let large = frame_of(14_000, mac(5), mac(6));
    assert!(port.from_sibling(Time(0), Lid::new(6), &large, sizes));
    let c = port.counters();
    assert_eq!(
        (c.rx_packets, c.rx_unicast, c.rx_bytes),
        (10, 10, 9 * 1518 + 104)
    );
    assert_eq!(
        send(&mut port, &frame(mac(6), mac(5))).dlid(),
        Some(Lid::new(6))
    );
    port.set_mtu(1000);
    assert!(!port.from_sibling(Time(0), Lid::new(6), &large, sizes));
    port.set_up(false);
    assert!(!port.from_sibling(Time(0), Lid::new(6), &large, sizes));
    let c = port.counters();
    assert_eq!((c.rx_oversize, c.rx_drop_state, c.rx_errors), (10, 10, 20));
}

proptest! {
    /// Every packet is accepted or refused, and counted once.
    #[test]
    fn any_packet_is_counted_once(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        damage in prop::collection::vec((0..88_usize, any::<u8>()), 0..3),
        garbage in any::<bool>(),
        node in 4..9_u32,
        multicast in any::<bool>(),
    ) {
        let mut packet = packet(&unicast(), &frame(mac(5), mac(7)));
        for (at, byte) in damage {
            packet[at] = byte;
        }
        let bytes = if garbage { bytes } else { packet };
        let mut port = port(5);
        let meta: Meta = from(node, multicast);
        let taken = port.from_fabric(Time(0), &meta, &bytes).is_ok();
        let c = *port.counters();
        let delivered = c.rx_unicast + c.rx_mcastbcast;
        prop_assert_eq!(delivered, u64::from(taken));
        let refusals: u64 = Refusal::ALL
            .iter()
            .map(|r| c.named().iter().find(|(n, _)| *n == r.counter()).map_or(0, |(_, c)| *c))
            .sum();
        prop_assert_eq!(refusals, u64::from(!taken));
    }
}
