use proptest::prelude::*;
use zerocopy::FromBytes;
use zerocopy::little_endian::U16;

use super::*;
use crate::ip::tcp;
use crate::testing::{Extensions, MACS, Model, assert_well_formed, model};
use crate::vnet::{FLAG_NEEDS_CSUM, GSO_NONE, GSO_TCPV4, GSO_TCPV6, GSO_UDP_L4};

const LINK: LinkHeader = LinkHeader::new(&[8, 0, 0, 0]);
const NO_LIMIT: usize = 65535;

/// All packets without link header; checks the promises of the segmenter.
fn cut(vnet: &VnetHeader, frame: &[u8], mtu: usize) -> Result<Vec<Vec<u8>>, SegmentError> {
    let mut segmenter = Segmenter::new(vnet, frame, LINK, mtu)?;
    let full = segmenter.full_len();
    let last = segmenter.last_len();
    let mut packets = vec![];
    while let Some(len) = segmenter.next_len() {
        let promised = segmenter.remaining();
        assert_eq!(segmenter.last_len(), last);
        assert!(promised > 0 && len <= full && (promised == 1 || len == full));
        assert!(len <= mtu + 4);
        let left = segmenter.remaining_len();
        let mut out = vec![0xee; len];
        segmenter.write_next(&mut out);
        assert_eq!(segmenter.remaining(), promised - 1);
        assert_eq!(segmenter.remaining_len(), left - len);
        assert_eq!(out[..4], *LINK.as_bytes());
        packets.push(out.split_off(4));
    }
    assert_eq!((segmenter.full_len(), segmenter.last_len()), (0, 0));
    assert_eq!(segmenter.remaining_len(), 0);
    assert_eq!(packets.last().map(|packet| packet.len() + 4), Some(last));
    Ok(packets)
}

/// Pieces of `size` bytes for `len` bytes, the last one shorter.
struct Cells(Vec<Vec<u8>>);

impl Cells {
    fn new(len: usize, size: usize) -> Cells {
        let starts = (0..len).step_by(size);
        Cells(starts.map(|at| vec![0xee; size.min(len - at)]).collect())
    }
}

impl Pieces for Cells {
    fn piece(&mut self, index: usize) -> &mut [u8] {
        self.0.get_mut(index).map_or(&mut [], Vec::as_mut_slice)
    }
}

/// All packets as in [`cut`], each written to pieces of `size` bytes.
fn cut_scattered(
    vnet: &VnetHeader,
    frame: &[u8],
    mtu: usize,
    size: usize,
) -> Result<Vec<Vec<u8>>, SegmentError> {
    let mut segmenter = Segmenter::new(vnet, frame, LINK, mtu)?;
    let mut packets = vec![];
    while let Some(len) = segmenter.next_len() {
        let promised = segmenter.remaining();
        let mut cells = Cells::new(len, size);
        assert!(segmenter.write_next_scattered(&mut cells));
        assert_eq!(segmenter.remaining(), promised - 1);
        let mut out = cells.0.concat();
        assert_eq!(out[..4], *LINK.as_bytes());
        packets.push(out.split_off(4));
    }
    Ok(packets)
}

#[test]
fn pieces_of_another_length_than_the_packet_are_not_taken() {
    for model in [Model::tcp_v4(300), Model::tcp_v6(300)] {
        let frame = model.frame();
        for vnet in [model.vnet_whole(), model.vnet(1000), VnetHeader::default()] {
            let whole = model.packet().len() + 4;
            for len in [0, 3, 4, 30, whole - 1, whole + 1, whole + 64] {
                let mut segmenter = Segmenter::new(&vnet, &frame, LINK, NO_LIMIT).unwrap();
                let mut cells = Cells::new(len, 64);
                assert!(!segmenter.write_next_scattered(&mut cells), "{len} bytes");
                assert_eq!(segmenter.next_len(), None);
            }
        }
    }
}

fn flags(packets: &[Vec<u8>]) -> Vec<u8> {
    packets.iter().map(|p| p[20 + tcp::FLAGS]).collect()
}

#[test]
fn identification_and_sequence_go_on_and_wrap() {
    let model = Model::tcp_v4(10_000);
    let packets = cut(&model.vnet(4000), &model.frame(), NO_LIMIT).unwrap();
    let ids: Vec<u16> = packets.iter().map(|p| ip::be16(p, 4)).collect();
    let sequences: Vec<u32> = packets.iter().map(|p| ip::be32(p, 24)).collect();
    assert_eq!(ids, [0xfffe, 0xffff, 0]);
    assert_eq!(sequences, [0xffff_f000, 0xffff_ffa0, 0xf40]);
}

#[test]
fn fin_and_psh_on_the_last_cwr_on_the_first() {
    let all = tcp::FIN | tcp::PSH | tcp::CWR | tcp::ACK_FLAG | 0x40;
    let model = Model {
        flags: all,
        ..Model::tcp_v4(2500)
    };
    let expected = [0xd0, 0x50, 0x59];
    let packets = cut(&model.vnet(1000), &model.frame(), NO_LIMIT).unwrap();
    assert_eq!(flags(&packets), expected);
    let without_ecn = VnetHeader {
        gso_type: GSO_TCPV4,
        ..model.vnet(1000)
    };
    let packets = cut(&without_ecn, &model.frame(), NO_LIMIT).unwrap();
    assert_eq!(flags(&packets), expected);
}

#[test]
fn a_stream_is_cut_smaller_where_the_link_wants_it() {
    for model in [Model::tcp_v4(9000), Model::tcp_v6(9000)] {
        let mtu = 1000 + model.headers_len();
        let packets = cut(&model.vnet(4000), &model.frame(), mtu).unwrap();
        assert_eq!(packets, model.cut(1000));
    }
}

#[test]
fn a_datagram_is_not_cut_smaller() {
    for model in [Model::udp_v4(3000), Model::udp_v6(3000)] {
        let len = 1000 + model.headers_len();
        let result = cut(&model.vnet(1000), &model.frame(), len - 1);
        assert_eq!(result, Err(SegmentError::TooBig { len }));
        assert_eq!(
            cut(&model.vnet(1000), &model.frame(), len),
            Ok(model.cut(1000))
        );
    }
}

/// A virtual machine behind a bridge writes any segment size: 1 made 65,000 packets of one frame.
#[test]
fn more_packets_than_a_host_requests_are_refused() {
    let asked = |model: Model, size| cut(&model.vnet(size), &model.frame(), 1500).map(|p| p.len());
    let too_many = |packets| Err(SegmentError::TooMany { packets });
    for udp in [Model::udp_v4, Model::udp_v6] {
        assert_eq!(asked(udp(60_000), 1), too_many(60_000));
        assert_eq!(asked(udp(128), 1), Ok(128));
        assert_eq!(asked(udp(129), 1), too_many(129));
    }
    for tcp in [Model::tcp_v4, Model::tcp_v6] {
        assert_eq!(asked(tcp(65_000), 1), too_many(65_000));
        assert_eq!(asked(tcp(65_000), 47), too_many(1383));
        assert_eq!(asked(tcp(65_000), 48), Ok(1355));
    }
}

#[test]
fn a_link_without_room_for_payload_is_too_small() {
    let model = Model::tcp_v4(9000);
    let headers = model.headers_len();
    let result = cut(&model.vnet(1000), &model.frame(), headers);
    assert_eq!(
        result,
        Err(SegmentError::TooBig {
            len: headers + 1000
        })
    );
    let packets = cut(&model.vnet(1000), &model.frame(), headers + 1).unwrap();
    assert_eq!(packets.len(), 9000);
}

#[test]
fn a_whole_packet_over_the_mtu_is_too_big() {
    let model = Model::udp_v4(1473);
    let result = cut(&model.vnet_whole(), &model.frame(), 1500);
    assert_eq!(result, Err(SegmentError::TooBig { len: 1501 }));
}

#[test]
fn a_super_packet_of_one_segment_is_one_packet() {
    for payload in [0, 1, 999, 1000] {
        let model = Model::tcp_v4(payload);
        // An uncut frame needs no room for its segment size.
        let mtu = model.headers_len() + payload;
        let vnet = model.vnet(1000);
        assert_eq!(cut(&vnet, &model.frame(), mtu), Ok(vec![model.packet()]));
    }
}

#[test]
fn trailers_are_left_out() {
    for model in [Model::udp_v4(1), Model::udp_v6(1), Model::tcp_v4(0)] {
        let frame = [model.frame(), vec![0xaa; 40]].concat();
        assert_eq!(
            cut(&model.vnet_whole(), &frame, 1500),
            Ok(vec![model.packet()])
        );
    }
    let arp = [&[0, 1, 8, 0, 6, 4, 0, 1][..], &[7; 20]].concat();
    let frame = [&MACS[..], &[8, 6], &arp, &[0; 18]].concat();
    assert_eq!(cut(&VnetHeader::default(), &frame, 1500), Ok(vec![arp]));
}

#[test]
fn other_protocols_are_carried_as_they_are() {
    let frame = [&MACS[..], &[0x88, 0xca], &[1, 2, 3]].concat();
    assert_eq!(
        cut(&VnetHeader::default(), &frame, 1500),
        Ok(vec![vec![1, 2, 3]])
    );
}

#[test]
fn a_checksum_without_the_flag_is_left_alone() {
    let model = Model::tcp_v4(100);
    let packets = cut(&VnetHeader::default(), &model.frame(), 1500).unwrap();
    assert_eq!(packets[0], model.frame()[14..]);
}

#[test]
fn a_udp_checksum_of_zero_is_written_as_ones() {
    // The last payload word is chosen so that the sum is 0xffff.
    for v6 in [false, true] {
        let base = if v6 {
            Model::udp_v6(64)
        } else {
            Model::udp_v4(64)
        };
        let mut zero = base.clone();
        zero.payload[62..].fill(0);
        let at = zero.headers_len() - 2;
        let rest = ip::be16(&zero.packet(), at);
        zero.payload[62..].copy_from_slice(&rest.to_be_bytes());
        let whole = cut(&zero.vnet_whole(), &zero.frame(), 1500).unwrap();
        assert_eq!(ip::be16(&whole[0], at), 0xffff);
        let cut_up = cut(&zero.vnet(64), &zero.frame(), 1500).unwrap();
        assert_eq!(ip::be16(&cut_up[0], at), 0xffff);
        assert_well_formed(&whole[0]);
    }
}

#[test]
fn icmpv6_is_completed_by_offset() {
    // An echo request from fe80::1 to fe80::2; the field holds the pseudo header's sum.
    let mut packet = vec![0x60, 0, 0, 0, 0, 12, 58, 64];
    let address = |last| [&[0xfe, 0x80][..], &[0; 13], &[last]].concat();
    packet.extend([address(1), address(2)].concat());
    let pseudo = 0xfe80u32 + 1 + 0xfe80 + 2 + 58 + 12;
    let pseudo = ((pseudo & 0xffff) + (pseudo >> 16)) as u16;
    packet.extend([128, 0]);
    packet.extend(pseudo.to_be_bytes());
    packet.extend([0, 1, 0, 2, 0xab, 0xcd, 0xef, 0x01]);
    let frame = [&MACS[..], &[0x86, 0xdd], &packet].concat();
    let vnet = VnetHeader {
        flags: FLAG_NEEDS_CSUM,
        csum_start: U16::new(54),
        csum_offset: U16::new(2),
        ..VnetHeader::default()
    };
    let packets = cut(&vnet, &frame, 1500).unwrap();
    let icmp = smoltcp::wire::Icmpv6Packet::new_checked(&packets[0][40..]).unwrap();
    let ip = |last| smoltcp::wire::Ipv6Address::new(0xfe80, 0, 0, 0, 0, 0, 0, last);
    assert!(icmp.verify_checksum(&ip(1), &ip(2)));
}

#[test]
fn checksum_places_are_held_against_the_packet() {
    let model = Model::tcp_v4(10);
    let len = model.packet().len();
    let place = |start: usize, offset: usize| VnetHeader {
        flags: FLAG_NEEDS_CSUM,
        csum_start: U16::new(start as u16),
        csum_offset: U16::new(offset as u16),
        ..VnetHeader::default()
    };
    // A checksum in the trailer is an error.
    let frame = [model.frame(), vec![0; 20]].concat();
    let result = |v| cut(&v, &frame, 1500).err();
    assert_eq!(result(place(14 + len - 2, 0)), None);
    for (start, offset) in [
        (13, 20),
        (0, 50),
        (14 + len - 1, 0),
        (34, len - 21),
        (65535, 65535),
    ] {
        assert_eq!(
            result(place(start, offset)),
            Some(SegmentError::ChecksumPlace),
            "{start}+{offset}"
        );
    }
}

#[test]
fn an_inner_checksum_is_a_tunnel() {
    let model = Model::udp_v4(3000);
    let vnet = VnetHeader {
        csum_start: U16::new(14 + 28 + 8 + 14 + 20),
        ..model.vnet(1000)
    };
    assert_eq!(
        cut(&vnet, &model.frame(), NO_LIMIT),
        Err(SegmentError::ChecksumPlace)
    );
}

#[test]
fn lying_lengths_are_malformed() {
    let check = |name: &str, change: &dyn Fn(&mut Vec<u8>), model: &Model| {
        let mut frame = model.frame();
        change(&mut frame);
        for vnet in [model.vnet(1000), VnetHeader::default()] {
            let result = cut(&vnet, &frame, NO_LIMIT);
            assert_eq!(result, Err(SegmentError::Malformed), "{name}");
        }
    };
    let v4 = Model::tcp_v4(2000);
    check(
        "total length over the frame",
        &|f| ip::put16(f, 16, 2053),
        &v4,
    );
    check(
        "total length under the header",
        &|f| ip::put16(f, 16, 19),
        &v4,
    );
    check("header of 16 bytes", &|f| f[14] = 0x44, &v4);
    check("version 6 in IPv4", &|f| f[14] = 0x65, &v4);
    check("cut off", &|f| f.truncate(14 + 19), &v4);
    check("no Ethernet header", &|f| f.truncate(13), &v4);
    let v6 = Model::tcp_v6(2000);
    check(
        "payload length over the frame",
        &|f| ip::put16(f, 18, 2033),
        &v6,
    );
    check("version 4 in IPv6", &|f| f[14] = 0x40, &v6);
    check("jumbogram", &|f| (ip::put16(f, 18, 0), f[20] = 0).0, &v6);
    check("cut off", &|f| f.truncate(14 + 39), &v6);
}

#[test]
fn lying_transport_headers_are_malformed() {
    let check = |name: &str, change: &dyn Fn(&mut Vec<u8>), model: &Model| {
        let mut frame = model.frame();
        change(&mut frame);
        let result = cut(&model.vnet(1000), &frame, NO_LIMIT);
        assert_eq!(result, Err(SegmentError::Malformed), "{name}");
    };
    let small = Model {
        tcp_options: vec![],
        ..Model::tcp_v4(4)
    };
    check("data offset of 16 bytes", &|f| f[46] = 0x40, &small);
    check("data offset over the packet", &|f| f[46] = 0x70, &small);
    check("no room for TCP", &|f| ip::put16(f, 16, 39), &small);
    check(
        "no room for UDP",
        &|f| ip::put16(f, 16, 27),
        &Model::udp_v4(4),
    );
    let extended = Model {
        extensions: Extensions {
            destination_options: true,
            ..Extensions::default()
        },
        ..Model::tcp_v6(100)
    };
    check(
        "extension header over the packet",
        &|f| f[14 + 41] = 200,
        &extended,
    );
}

#[test]
fn what_cannot_be_segmented_is_refused() {
    let refused = Err(SegmentError::NotSegmentable);
    let v4 = Model::tcp_v4(3000);
    let typed = |gso_type| VnetHeader {
        gso_type,
        ..v4.vnet(1000)
    };
    assert_eq!(cut(&typed(GSO_TCPV6), &v4.frame(), NO_LIMIT), refused);
    assert_eq!(cut(&typed(GSO_UDP_L4), &v4.frame(), NO_LIMIT), refused);
    let mut fragment = v4.frame();
    fragment[20] |= 0x20;
    assert_eq!(cut(&v4.vnet(1000), &fragment, NO_LIMIT), refused);
    let tagged = [&MACS[..], &[0x81, 0, 0, 1], &v4.frame()[12..]].concat();
    assert_eq!(cut(&v4.vnet(1000), &tagged, NO_LIMIT), refused);
    let unknown = VnetHeader {
        gso_type: 3,
        ..v4.vnet(1000)
    };
    let error = SegmentError::Vnet(VnetError::UnknownGsoType(3));
    assert_eq!(cut(&unknown, &v4.frame(), NO_LIMIT), Err(error));
    let zero = v4.vnet(0);
    assert_eq!(
        cut(&zero, &v4.frame(), NO_LIMIT),
        Err(SegmentError::Vnet(VnetError::ZeroGsoSize))
    );
}

#[test]
#[should_panic(expected = "memory with the length of the packet")]
fn a_place_of_the_wrong_size_is_a_mistake_of_the_caller() {
    let model = Model::tcp_v4(10);
    let frame = model.frame();
    let mut segmenter = Segmenter::new(&model.vnet_whole(), &frame, LINK, 1500).unwrap();
    segmenter.write_next(&mut [0; 10]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn cut_as_the_reference_does(model in model(6000), size in 1usize..3000, mtu in 200usize..4000) {
        let size = size.max(model.payload.len() / 40).max(1);
        let headers = model.headers_len();
        let largest = headers + size.min(model.payload.len());
        let result = cut(&model.vnet(size), &model.frame(), mtu);
        if !model.tcp && largest > mtu {
            prop_assert_eq!(result, Err(SegmentError::TooBig { len: largest }));
        } else if model.tcp && largest > mtu && headers >= mtu {
            prop_assert_eq!(result, Err(SegmentError::TooBig { len: largest }));
        } else {
            let size = if largest > mtu { mtu - headers } else { size };
            let packets = result.unwrap();
            for packet in &packets {
                assert_well_formed(packet);
            }
            prop_assert_eq!(packets, model.cut(size));
        }
    }

    #[test]
    fn whole_packets_are_completed(model in model(2000)) {
        let packets = cut(&model.vnet_whole(), &model.frame(), NO_LIMIT).unwrap();
        assert_well_formed(&packets[0]);
        let mut expected = model.packet();
        // A TCP checksum of 0 is written as 0xffff, which is equivalent.
        let at = model.headers_len() - if model.tcp { 4 + model.tcp_options.len() } else { 2 };
        if ip::be16(&expected, at) == 0 {
            ip::put16(&mut expected, at, 0xffff);
        }
        prop_assert_eq!(&packets[0], &expected);
    }

    /// Memory in pieces gets the same bytes as contiguous memory, wherever the pieces end: in the link
    /// header, in the checksum field, at odd offsets.
    #[test]
    fn pieces_make_no_difference(
        model in model(3000), size in 1usize..3000, piece in 1usize..700, whole in any::<bool>(),
    ) {
        let size = size.max(model.payload.len() / 40).max(1);
        let vnet = if whole { model.vnet_whole() } else { model.vnet(size) };
        let expected = cut(&vnet, &model.frame(), NO_LIMIT);
        prop_assert_eq!(cut_scattered(&vnet, &model.frame(), NO_LIMIT, piece), expected);
    }

    /// Patching a checksum field at any offset.
    #[test]
    fn a_field_anywhere_is_patched_in_pieces(
        model in model(600), start in 0usize..600, offset in 0usize..600, piece in 1usize..300,
    ) {
        let vnet = VnetHeader {
            flags: FLAG_NEEDS_CSUM,
            csum_start: U16::new(14 + start as u16),
            csum_offset: U16::new(offset as u16),
            ..VnetHeader::default()
        };
        let expected = cut(&vnet, &model.frame(), NO_LIMIT);
        prop_assert_eq!(cut_scattered(&vnet, &model.frame(), NO_LIMIT, piece), expected);
    }

    /// Arbitrary bytes: no panic, and no packet above the limit (`cut` checks).
    #[test]
    fn any_bytes(
        vnet in any::<[u8; 12]>(), kind in 0usize..5, ethertype in 0usize..4,
        body in prop::collection::vec(any::<u8>(), 0..400), mtu in 0usize..500, version in any::<bool>(),
    ) {
        let mut vnet = VnetHeader::read_from_bytes(&vnet).unwrap();
        if let Some(known) = [GSO_NONE, GSO_TCPV4, GSO_TCPV6, GSO_UDP_L4].get(kind) {
            vnet.gso_type = *known;
        }
        let ethertype = [[8, 0], [0x86, 0xdd], [8, 6], [1, 2]][ethertype];
        let mut frame = [&MACS[..], &ethertype, &body].concat();
        if version && frame.len() > 14 {
            frame[14] = if ethertype == [8, 0] { 0x45 } else { 0x60 };
        }
        let _ = cut(&vnet, &frame, mtu);
    }

    /// Almost valid frames: some header bytes changed, or the end missing.
    #[test]
    fn nearly_right_frames(
        model in model(600), size in 1usize..600, mtu in 0usize..700,
        changes in prop::collection::vec((0usize..150, any::<u8>()), 0..4), keep in 0usize..800,
    ) {
        let mut frame = model.frame();
        frame.truncate(keep);
        for (at, value) in changes {
            if let Some(byte) = frame.get_mut(at) {
                *byte = value;
            }
        }
        let _ = cut(&model.vnet(size), &frame, mtu);
        let _ = cut(&model.vnet_whole(), &frame, mtu);
    }
}
