use proptest::prelude::*;
use zerocopy::FromBytes;

use super::*;
use crate::ip::{self, tcp};
use crate::segment::{LinkHeader, Segmenter};
use crate::testing::{Model, noise, plain_model};
use crate::vnet::{FLAG_NEEDS_CSUM, GSO_ECN, GSO_NONE, GSO_TCPV4, GSO_UDP_L4};

/// A frame as written to the TAP.
#[derive(Clone, Debug, PartialEq)]
struct Frame {
    packets: usize,
    vnet: VnetHeader,
    /// Ethernet header and packet.
    bytes: Vec<u8>,
}

impl Frame {
    fn packet(&self) -> &[u8] {
        &self.bytes[14..]
    }
}

#[derive(Default)]
struct Frames(Vec<Frame>);

impl FrameSink for Frames {
    fn frame(&mut self, packets: usize, parts: &[IoSlice<'_>]) {
        let all: Vec<u8> = parts.iter().flat_map(|p| p.iter().copied()).collect();
        let (vnet, bytes) = all.split_at(VNET_HEADER_LEN);
        let vnet = VnetHeader::read_from_bytes(vnet).unwrap();
        assert!(parts.len() <= MAX_PACKETS + 1);
        self.0.push(Frame {
            packets,
            vnet,
            bytes: bytes.to_vec(),
        });
    }
}

/// The name of a change, and the change.
type Change = (&'static str, fn(&mut Model));

type Arrival = ([u8; 14], Vec<u8>);

fn run_with(config: CoalesceConfig, arrivals: &[Arrival]) -> (Vec<Frame>, CoalesceCounters) {
    let mut coalescer = Coalescer::new(config);
    let mut frames = Frames::default();
    let mut batch = coalescer.batch();
    for (ethernet, packet) in arrivals {
        batch.push(ethernet, packet, &mut frames);
    }
    batch.flush(&mut frames);
    let counters = coalescer.counters();
    assert_eq!(counters.frames as usize, frames.0.len());
    assert_eq!(
        counters.packets as usize,
        frames.0.iter().map(|f| f.packets).sum::<usize>()
    );
    (frames.0, counters)
}

fn run(arrivals: &[Arrival]) -> Vec<Frame> {
    run_with(CoalesceConfig::default(), arrivals).0
}

fn arrivals(models: &[Model]) -> Vec<Arrival> {
    models.iter().map(|m| (m.ethernet(), m.packet())).collect()
}

/// The number of packets in each frame.
fn counts(models: &[Model]) -> Vec<usize> {
    run(&arrivals(models)).iter().map(|f| f.packets).collect()
}

fn cut(model: &Model, size: usize) -> Vec<Arrival> {
    model
        .cut(size)
        .into_iter()
        .map(|p| (model.ethernet(), p))
        .collect()
}

/// `n` segments of one stream with `size` bytes each.
fn stream(first: Model, n: usize) -> Vec<Model> {
    (0..n)
        .map(|i| Model {
            id: first.id.wrapping_add(if first.v6 { 0 } else { i as u16 }),
            sequence: first
                .sequence
                .wrapping_add((i * first.payload.len()) as u32),
            payload: noise(first.payload.len(), i as u32 + 1),
            ..first.clone()
        })
        .collect()
}

fn bases() -> [Model; 4] {
    [
        Model::tcp_v4(100),
        Model::tcp_v6(100),
        Model::udp_v4(100),
        Model::udp_v6(100),
    ]
}

fn tcp_bases() -> [Model; 2] {
    [Model::tcp_v4(100), Model::tcp_v6(100)]
}

#[test]
fn a_cut_frame_comes_back_as_it_was() {
    for base in bases() {
        let model = Model {
            payload: noise(9500, 5),
            ..base
        };
        let frames = run(&cut(&model, 1000));
        assert_eq!(frames.len(), 1);
        assert_eq!(
            frames[0],
            Frame {
                packets: 10,
                vnet: model.vnet(1000),
                bytes: model.frame()
            }
        );
    }
}

#[test]
fn a_lone_packet_goes_up_untouched() {
    for base in bases() {
        let frames = run(&arrivals(std::slice::from_ref(&base)));
        let bytes = [&base.ethernet()[..], &base.packet()].concat();
        assert_eq!(
            frames,
            [Frame {
                packets: 1,
                vnet: VnetHeader::default(),
                bytes
            }]
        );
    }
}

#[test]
fn a_shorter_packet_ends_the_frame_and_a_longer_one_begins_another() {
    for base in bases() {
        let mut models = stream(base, 5);
        models[2].payload.truncate(60);
        for model in &mut models[3..] {
            model.sequence = model.sequence.wrapping_sub(40);
        }
        assert_eq!(counts(&models), [3, 2]);
        let mut models = stream(models[0].clone(), 3);
        models[2].payload = noise(101, 1);
        assert_eq!(counts(&models), [2, 1]);
    }
}

#[test]
fn push_and_fin_end_the_frame_and_are_kept() {
    for base in tcp_bases() {
        for flag in [tcp::PSH, tcp::FIN] {
            let mut models = stream(base.clone(), 4);
            models[1].flags |= flag;
            let frames = run(&arrivals(&models));
            assert_eq!(frames.iter().map(|f| f.packets).collect::<Vec<_>>(), [2, 2]);
            let at = base.headers_len() - 20 - base.tcp_options.len() + tcp::FLAGS;
            assert_eq!(frames[0].packet()[at], tcp::ACK_FLAG | flag);
            assert_eq!(frames[1].packet()[at], tcp::ACK_FLAG);
            models[0].flags |= flag;
            assert_eq!(counts(&models), [1, 1, 2]);
        }
    }
}

#[test]
fn congestion_window_reduced_only_begins_a_frame() {
    let mut models = stream(Model::tcp_v4(100), 4);
    models[2].flags |= tcp::CWR;
    let frames = run(&arrivals(&models));
    assert_eq!(frames.iter().map(|f| f.packets).collect::<Vec<_>>(), [2, 2]);
    assert_eq!(frames[0].vnet.gso_type, GSO_TCPV4);
    assert_eq!(frames[1].vnet.gso_type, GSO_TCPV4 | GSO_ECN);
}

#[test]
fn a_packet_that_is_unlike_the_first_begins_another_frame() {
    let all: &[Change] = &[
        ("ECN or traffic class", |m| m.tos ^= 3),
        ("DSCP", |m| m.tos ^= 4),
        ("time to live", |m| m.ttl -= 1),
    ];
    let v4: &[Change] = &[("don't fragment", |m| m.df ^= true)];
    let v6: &[Change] = &[("flow label", |m| m.flow_label ^= 1)];
    let tcp: &[Change] = &[
        ("acknowledgement", |m| m.ack += 1),
        ("window", |m| m.window += 1),
        ("options", |m| m.tcp_options[11] ^= 1),
        ("length of the options", |m| m.tcp_options.truncate(8)),
        ("ECE", |m| m.flags ^= 0x40),
        ("a hole", |m| m.sequence = m.sequence.wrapping_add(1)),
        ("an overlap", |m| m.sequence = m.sequence.wrapping_sub(1)),
    ];
    for base in bases() {
        let family = if base.v6 { v6 } else { v4 };
        let stream_rules = if base.tcp { tcp } else { &[] };
        for (name, change) in all.iter().chain(family).chain(stream_rules) {
            let mut models = stream(base.clone(), 3);
            change(&mut models[2]);
            assert_eq!(counts(&models), [2, 1], "{name} of {base:?}");
        }
        let mut packets = arrivals(&stream(base.clone(), 3));
        packets[2].0[6] ^= 4;
        let frames = run(&packets);
        assert_eq!(frames.len(), 2, "source MAC");
        assert_eq!(frames[1].bytes[6], packets[2].0[6]);
    }
}

#[test]
fn identifications_count_or_stand_still() {
    let ids = |df, ids: &[u16]| {
        let mut models = stream(
            Model {
                df,
                ..Model::tcp_v4(100)
            },
            ids.len(),
        );
        for (model, id) in models.iter_mut().zip(ids) {
            model.id = *id;
        }
        counts(&models)
    };
    assert_eq!(ids(true, &[7, 8, 9, 10]), [4]);
    assert_eq!(ids(true, &[7, 7, 7, 7]), [4]);
    assert_eq!(ids(false, &[0xffff, 0, 1]), [3]);
    assert_eq!(ids(false, &[7, 7]), [1, 1]);
    assert_eq!(ids(true, &[7, 9]), [1, 1]);
    assert_eq!(ids(true, &[7, 8, 8]), [2, 1]);
    assert_eq!(ids(true, &[7, 7, 8]), [2, 1]);
    assert_eq!(ids(true, &[7, 6]), [1, 1]);
}

#[test]
fn what_must_be_seen_at_once_goes_behind_its_flow_alone() {
    let changes: [fn(&mut Model); 6] = [
        |m| m.payload.clear(),
        |m| m.flags |= tcp::SYN,
        |m| m.flags |= tcp::RST,
        |m| m.flags |= tcp::URG,
        |m| m.flags &= !tcp::ACK_FLAG,
        |m| m.flags = tcp::SYN,
    ];
    for base in tcp_bases() {
        for change in changes {
            let mut models = stream(base.clone(), 4);
            change(&mut models[2]);
            let frames = run(&arrivals(&models));
            assert_eq!(
                frames.iter().map(|f| f.packets).collect::<Vec<_>>(),
                [2, 1, 1]
            );
            assert_eq!(frames[1].packet(), models[2].packet());
            assert_eq!(frames[1].vnet, VnetHeader::default());
        }
    }
}

#[test]
fn a_wrong_checksum_goes_up_alone_and_untouched() {
    for base in bases() {
        let good = arrivals(&stream(base.clone(), 4));
        for bad in 0..4 {
            let end = good[bad].1.len() - 1;
            // The last payload byte; for IPv4 also the header checksum.
            for at in [Some(end), (!base.v6).then_some(10)].into_iter().flatten() {
                let mut packets = good.clone();
                packets[bad].1[at] ^= 0x10;
                let (frames, counters) = run_with(CoalesceConfig::default(), &packets);
                let expected: &[usize] = [&[1, 3][..], &[1, 1, 2], &[2, 1, 1], &[3, 1]][bad];
                assert_eq!(
                    frames.iter().map(|f| f.packets).collect::<Vec<_>>(),
                    expected
                );
                assert_eq!(counters.bad_checksum, 1);
                let alone = frames.iter().filter(|f| f.packets == 1);
                assert!(alone.into_iter().any(|f| f.packet() == packets[bad].1));
            }
        }
    }
}

/// With `verified` checksums are not verified, otherwise each one is, the first included.
#[test]
fn a_checksum_that_was_verified_is_not_looked_at() {
    for base in bases() {
        let mut packets = arrivals(&stream(base, 4));
        let end = packets[0].1.len() - 1;
        for bad in [0, 2] {
            packets[bad].1[end] ^= 0x10;
        }
        let merged = |verified: [bool; 4]| -> Vec<usize> {
            let mut coalescer = Coalescer::new(CoalesceConfig::default());
            let mut frames = Frames::default();
            let mut batch = coalescer.batch();
            for ((ethernet, packet), verified) in packets.iter().zip(verified) {
                batch.push_checked(ethernet, packet, verified, &mut frames);
            }
            batch.flush(&mut frames);
            frames.0.iter().map(|f| f.packets).collect()
        };
        assert_eq!(merged([true; 4]), [4]);
        assert_eq!(merged([true, false, true, false]), [4]);
        assert_eq!(merged([true, true, false, true]), [2, 1, 1]);
        assert_eq!(merged([false, true, true, true]), [1, 3]);
    }
}

#[test]
fn a_datagram_without_checksum_is_not_merged() {
    for base in [Model::udp_v4(100), Model::udp_v6(100)] {
        let mut packets = arrivals(&stream(base.clone(), 3));
        let at = base.headers_len() - 2;
        packets[1].1[at..at + 2].fill(0);
        let (frames, counters) = run_with(CoalesceConfig::default(), &packets);
        assert_eq!(frames.len(), 3);
        assert_eq!(
            counters.bad_checksum, 0,
            "there is none that could be wrong"
        );
    }
}

#[test]
fn a_datagram_whose_length_lies_is_not_merged() {
    let base = Model::udp_v4(100);
    let mut packets = arrivals(&stream(base.clone(), 3));
    ip::put16(&mut packets[1].1, base.headers_len() - 4, 107);
    let frames = run(&packets);
    assert_eq!(frames.len(), 3);
    assert_eq!(frames[1].packet(), packets[1].1);
}

#[test]
fn packets_that_are_longer_than_they_say_are_not_merged() {
    for base in bases() {
        let mut packets = arrivals(&stream(base.clone(), 3));
        packets[1].1.push(0);
        assert_eq!(run(&packets).len(), 3);
        packets[1].1.truncate(base.headers_len() + 50);
        assert_eq!(run(&packets).len(), 3);
    }
}

/// All checksums are right; only the IP header's length marks the last bytes as a trailer.
#[test]
fn a_length_that_lies_with_right_checksums_is_not_merged() {
    for base in tcp_bases() {
        let mut packets = arrivals(&stream(base.clone(), 3));
        let packet = &mut packets[1].1;
        let at = if base.v6 { 4 } else { 2 };
        let len = ip::be16(packet, at) - 4;
        ip::put16(packet, at, len);
        if !base.v6 {
            ip::put16(packet, 10, 0);
            let checksum = crate::checksum::Sum::of(&packet[..20]).finish();
            ip::put16(packet, 10, checksum);
        }
        let (frames, counters) = run_with(CoalesceConfig::default(), &packets);
        assert_eq!(frames.len(), 3);
        assert_eq!(frames[1].packet(), packets[1].1);
        assert_eq!(counters.bad_checksum, 0);
    }
}

#[test]
fn options_and_fragments_stay_behind_the_packets_before_them() {
    let mut models = stream(Model::udp_v4(100), 4);
    models[2].ip_options = vec![1; 4];
    assert_eq!(counts(&models), [2, 1, 1]);
    for fragment in [0x2000u16, 0x0001, 0x8000] {
        let mut packets = arrivals(&stream(Model::udp_v4(100), 4));
        ip::put16(&mut packets[2].1, 6, fragment);
        let frames = run(&packets);
        assert_eq!(
            frames.iter().map(|f| f.packets).collect::<Vec<_>>(),
            [2, 1, 1]
        );
        assert_eq!(frames[1].packet(), packets[2].1);
    }
    let mut models = stream(Model::udp_v6(100), 4);
    models[2].extensions.destination_options = true;
    assert_eq!(counts(&models), [2, 1, 1]);
}

#[test]
fn frames_stay_below_the_limits() {
    let models = stream(Model::tcp_v4(1400), 100);
    let counted = counts(&models);
    assert_eq!(counted, [46, 46, 8], "65535 bytes hold 46 segments of 1400");
    assert_eq!(counts(&stream(Model::udp_v4(10), 130)), [64, 64, 2]);
    let config = CoalesceConfig {
        max_frame: 52 + 2800,
        ..CoalesceConfig::default()
    };
    let (frames, _) = run_with(config, &arrivals(&models[..4]));
    assert_eq!(frames.iter().map(|f| f.packets).collect::<Vec<_>>(), [2, 2]);
    let config = CoalesceConfig {
        max_frame: usize::MAX,
        ..CoalesceConfig::default()
    };
    let (frames, _) = run_with(config, &arrivals(&models));
    assert!(frames.iter().all(|f| f.packet().len() <= 65535));
}

#[test]
fn what_is_switched_off_is_not_merged() {
    let all: Vec<Arrival> = bases()
        .iter()
        .flat_map(|b| arrivals(&stream(b.clone(), 2)))
        .collect();
    for (tcp, udp) in [(false, false), (true, false), (false, true)] {
        let config = CoalesceConfig {
            tcp,
            udp,
            ..CoalesceConfig::default()
        };
        let (frames, _) = run_with(config, &all);
        assert_eq!(
            frames
                .iter()
                .filter(|f| f.vnet.gso_type & 0x7f == GSO_UDP_L4)
                .count(),
            if udp { 2 } else { 0 }
        );
        let merged = frames.iter().filter(|f| f.packets > 1).count();
        assert_eq!(merged, 2 * (usize::from(tcp) + usize::from(udp)));
    }
}

#[test]
fn flows_are_merged_side_by_side_and_the_oldest_gives_way() {
    let flows = |n: u16| -> Vec<Vec<Model>> {
        (0..n)
            .map(|i| {
                stream(
                    Model {
                        ports: [i, 80],
                        ..Model::tcp_v4(100)
                    },
                    3,
                )
            })
            .collect()
    };
    let interleave = |flows: &[Vec<Model>]| -> Vec<Model> {
        (0..3)
            .flat_map(|i| flows.iter().map(move |f| f[i].clone()))
            .collect()
    };
    assert_eq!(counts(&interleave(&flows(8))), [3; 8]);
    // One flow more than there are places: each packet ends the flow that comes next.
    assert_eq!(counts(&interleave(&flows(9))), [1; 27]);
}

#[test]
fn frames_come_out_in_the_order_in_which_they_began() {
    let models: Vec<Model> = (0..5)
        .map(|i| Model {
            ports: [50 - i, 80],
            ..Model::tcp_v4(100)
        })
        .collect();
    let frames = run(&arrivals(&models));
    let ports: Vec<u16> = frames.iter().map(|f| ip::be16(f.packet(), 20)).collect();
    assert_eq!(ports, [50, 49, 48, 47, 46]);
}

#[test]
fn a_batch_that_was_dropped_leaves_nothing_behind() {
    let models = stream(Model::tcp_v4(100), 2);
    let packets = arrivals(&models);
    let mut coalescer = Coalescer::new(CoalesceConfig::default());
    let mut frames = Frames::default();
    let mut batch = coalescer.batch();
    batch.push(&packets[0].0, &packets[0].1, &mut frames);
    drop(batch);
    let mut batch = coalescer.batch();
    batch.push(&packets[1].0, &packets[1].1, &mut frames);
    batch.flush(&mut frames);
    assert_eq!(frames.0.len(), 1);
    assert_eq!(frames.0[0].packet(), packets[1].1);
}

#[test]
fn the_places_are_used_again() {
    let packets = arrivals(&stream(Model::tcp_v4(100), 20));
    let mut coalescer = Coalescer::new(CoalesceConfig::default());
    let memory = (
        coalescer.spare.as_ptr() as usize,
        coalescer.spare.capacity(),
    );
    for _ in 0..3 {
        let mut frames = Frames::default();
        let mut batch = coalescer.batch();
        for (ethernet, packet) in &packets {
            batch.push(ethernet, packet, &mut frames);
        }
        batch.flush(&mut frames);
        assert_eq!(
            (
                coalescer.spare.as_ptr() as usize,
                coalescer.spare.capacity()
            ),
            memory
        );
    }
}

/// The packets that the segmenter cuts from a frame; a single packet is unchanged.
fn cut_again(frame: &Frame) -> Vec<Vec<u8>> {
    if frame.vnet.gso_type == GSO_NONE {
        assert_eq!(frame.vnet, VnetHeader::default());
        return vec![frame.packet().to_vec()];
    }
    assert_eq!(frame.vnet.flags, FLAG_NEEDS_CSUM);
    let link = LinkHeader::new(&[]);
    let mut segmenter = Segmenter::new(&frame.vnet, &frame.bytes, link, 65535).unwrap();
    let mut packets = vec![];
    while let Some(len) = segmenter.next_len() {
        let mut out = vec![0; len];
        segmenter.write_next(&mut out);
        packets.push(out);
    }
    assert_eq!(packets.len(), frame.packets);
    packets
}

/// Protocol, addresses and ports, for TCP and UDP without options.
fn flow_of(packet: &[u8]) -> Vec<u8> {
    match packet.first().map(|b| b >> 4) {
        Some(4) if packet.len() >= 24 => [&packet[9..10], &packet[12..24]].concat(),
        Some(6) if packet.len() >= 44 => [&packet[6..7], &packet[8..44]].concat(),
        _ => vec![],
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn cut_then_coalesced_is_the_original(model in plain_model(9000), pieces in 2usize..60) {
        let ordinary = tcp::PSH | tcp::FIN | tcp::CWR | 0x40;
        let mut model = Model { flags: model.flags & ordinary | tcp::ACK_FLAG, ..model };
        model.id = if model.v6 { 0 } else { model.id };
        if model.payload.len() < 2 {
            model.payload = vec![1, 2, 3];
        }
        let size = model.payload.len().div_ceil(pieces);
        let packets = cut(&model, size);
        let frames = run(&packets);
        prop_assume!(packets.len() > 1);
        prop_assert_eq!(frames.len(), 1);
        prop_assert_eq!(&frames[0].vnet, &model.vnet(size));
        prop_assert_eq!(&frames[0].bytes, &model.frame());
    }

    /// A few streams with gaps, changes and damage, mixed: cutting gives the original packets, in order
    /// within each flow.
    #[test]
    fn nothing_is_lost_changed_or_reordered_within_a_flow(
        steps in prop::collection::vec((0u16..11, 0usize..4, 0usize..14, 0u32..20), 1..120),
    ) {
        let mut next: Vec<Model> = (0..11u16).map(|i| {
            let base = bases()[usize::from(i) % 4].clone();
            Model { ports: [i, 9], ..base }
        }).collect();
        let mut packets: Vec<Arrival> = vec![];
        for (flow, len, change, seed) in steps {
            let model = &mut next[usize::from(flow)];
            model.payload = noise([100, 100, 40, 0][len], seed);
            let mut sent = model.clone();
            match change {
                0 => sent.flags |= tcp::PSH,
                1 => sent.sequence = sent.sequence.wrapping_add(9),
                2 => sent.tos ^= 3,
                3 => sent.flags |= tcp::FIN,
                4 => sent.flags |= tcp::CWR,
                _ => {}
            }
            let mut packet = sent.packet();
            if change == 5 {
                let at = seed as usize * 7 % packet.len();
                // The checksum does not become zero, which would mean no checksum.
                packet[at] ^= 0x21;
            }
            packets.push((sent.ethernet(), packet));
            model.sequence = model.sequence.wrapping_add(model.payload.len() as u32);
            if !model.v6 && change != 6 {
                model.id = model.id.wrapping_add(1);
            }
        }
        let frames = run(&packets);
        let out: Vec<Vec<u8>> = frames.iter().flat_map(cut_again).collect();
        prop_assert_eq!(out.len(), packets.len());
        let mut flows: Vec<Vec<u8>> = packets.iter().map(|(_, p)| flow_of(p)).collect();
        flows.sort();
        flows.dedup();
        for flow in flows {
            let came: Vec<&Vec<u8>> = packets.iter().map(|(_, p)| p).filter(|p| flow_of(p) == flow).collect();
            let went: Vec<&Vec<u8>> = out.iter().filter(|p| flow_of(p) == flow).collect();
            // Constant identifications become counting ones; only these packets may differ.
            let same = came.iter().zip(&went).all(|(a, b)| a == b || {
                let blank = |p: &[u8]| [&p[..4], &p[6..10], &p[12..]].concat();
                p_is_v4_df(a) && blank(a) == blank(b)
            });
            prop_assert!(came.len() == went.len() && same);
        }
    }

    #[test]
    fn any_bytes_go_up_as_they_came(
        packets in prop::collection::vec((0usize..3, any::<bool>(), prop::collection::vec(any::<u8>(), 0..90)), 1..20),
    ) {
        let packets: Vec<Arrival> = packets.into_iter().map(|(kind, version, mut packet)| {
            let mut ethernet = [0; 14];
            ethernet[12..].copy_from_slice(&[[8, 0], [0x86, 0xdd], [8, 6]][kind]);
            if let (true, Some(first)) = (version, packet.first_mut()) {
                *first = if kind == 0 { 0x45 } else { 0x60 };
            }
            if let (true, Some(protocol)) = (version, packet.get_mut(if kind == 0 { 9 } else { 6 })) {
                *protocol = 6;
            }
            (ethernet, packet)
        }).collect();
        let out: Vec<Vec<u8>> = run(&packets).iter().map(|f| f.packet().to_vec()).collect();
        let mut came: Vec<Vec<u8>> = packets.into_iter().map(|(_, p)| p).collect();
        let mut went = out;
        came.sort();
        went.sort();
        prop_assert_eq!(came, went);
    }
}

fn p_is_v4_df(packet: &[u8]) -> bool {
    packet[0] == 0x45 && packet[6] & 0x40 != 0
}
