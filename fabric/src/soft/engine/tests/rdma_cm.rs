//! Services of rdma_cm: several listeners of one service, and the header before the private data.

use zerocopy::IntoBytes;

use super::*;
use crate::mad::cm::{RDMA_CM_DATA_LEN, RdmaCmAddresses, RdmaCmHeader};
use crate::soft::icrc::L3;

const RDMA_CM: ServiceId = ServiceId::rdma_cm(4755);

/// Offset of the private data of a ConnectRequest in its packet.
const PRIVATE_DATA: usize = HEAD + size_of::<Header>() + 140;

fn standing(qpn: u32) -> Partition {
    Partition {
        qpn: Qpn::new(qpn),
        ..PKey::DEFAULT.into()
    }
}

fn connect(world: &mut World, service: ServiceId, to: u32) -> ConnectionId {
    let request = ConnectRequest {
        service,
        peer: world.nodes[1].gid,
        to: Qpn::new(to),
        private_data: b"hello",
    };
    let engine = &mut world.nodes[0].engine;
    let begun = engine.connect(world.now, ENDPOINT, PKey::DEFAULT, &request);
    begun.unwrap()
}

/// Delivers the pending request to the second node and returns its event.
fn requested(world: &mut World) -> Option<ConnectionEvent> {
    world.transmit();
    let packets: Vec<Packet> = world.network.drain(..).collect();
    world.nodes[1].batch(world.now, &packets);
    world.nodes[1].engine.poll_event()
}

/// The reason of the last rejection received by the first node.
fn rejected(world: &mut World) -> Option<RejectReason> {
    world.transmit();
    world.deliver();
    world.transmit();
    match world.nodes[0].closed.pop()? {
        (_, CloseReason::Rejected(reason)) => Some(reason),
        other => panic!("{other:?}"),
    }
}

#[test]
fn requests_select_one_of_several_listeners() {
    let mut world = World::new();
    let others = [(EndpointId(8), 0x108), (EndpointId(9), 0x109)];
    for (endpoint, qpn) in others {
        let engine = &mut world.nodes[1].engine;
        engine.listen(endpoint, standing(qpn), RDMA_CM);
    }
    for (expected, qpn) in others {
        connect(&mut world, RDMA_CM, qpn);
        let Some(ConnectionEvent::Requested {
            endpoint,
            service,
            private_data,
            ..
        }) = requested(&mut world)
        else {
            panic!("no request for {qpn:#x}");
        };
        assert_eq!((endpoint, service), (expected, RDMA_CM));
        let mut data = [0; RDMA_CM_DATA_LEN];
        data[..5].copy_from_slice(b"hello");
        data[54..].copy_from_slice(&(qpn as u16).to_be_bytes());
        assert_eq!(private_data[..], data);
    }
    // 0 needs a single listener, and the third number has no listener.
    for to in [0, 0x10a] {
        connect(&mut world, RDMA_CM, to);
        assert_eq!(requested(&mut world), None);
        let reason = rejected(&mut world);
        assert_eq!(reason, Some(RejectReason::INVALID_SERVICE_ID), "{to:#x}");
    }
    // Another port number is another service.
    connect(&mut world, ServiceId::rdma_cm(4756), 0x108);
    assert_eq!(requested(&mut world), None);
    assert_eq!(rejected(&mut world), Some(RejectReason::INVALID_SERVICE_ID));
}

#[test]
fn a_request_without_a_number_is_for_the_only_listener() {
    let mut world = World::new();
    let engine = &mut world.nodes[1].engine;
    engine.listen(EndpointId(8), standing(0x108), RDMA_CM);
    // A second call has no effect; an endpoint without a P_Key does not listen.
    engine.listen(EndpointId(8), standing(0x108), RDMA_CM);
    engine.listen(EndpointId(9), Standing::Waiting, RDMA_CM);
    connect(&mut world, RDMA_CM, 0);
    assert!(matches!(
        requested(&mut world),
        Some(ConnectionEvent::Requested {
            endpoint: EndpointId(8),
            ..
        })
    ));
    world.nodes[1].engine.close_all(world.now, EndpointId(8));
    connect(&mut world, RDMA_CM, 0);
    assert_eq!(requested(&mut world), None);
}

#[test]
fn the_only_listener_of_another_service_is_replaced() {
    let mut world = World::new();
    let engine = &mut world.nodes[1].engine;
    engine.listen(EndpointId(8), standing(0x108), SERVICE);
    connect(&mut world, SERVICE, 0x7777);
    let event = requested(&mut world);
    let Some(ConnectionEvent::Requested { endpoint, .. }) = event else {
        panic!("{event:?}");
    };
    assert_eq!(endpoint, EndpointId(8), "with any number in the request");
}

#[test]
fn a_header_that_is_wrong_is_rejected() {
    let mut world = World::new();
    world.nodes[1]
        .engine
        .listen(ENDPOINT, standing(0x108), RDMA_CM);
    let (us, them) = (world.nodes[0].gid, world.nodes[1].gid);
    let from_to = |source, destination| {
        let addresses = RdmaCmAddresses {
            source,
            port: 1,
            destination,
        };
        RdmaCmHeader::new(&addresses).unwrap()
    };
    let mut version = from_to(us, them);
    version.version = 1;
    let mut family = from_to(us, them);
    family.set_ip_version(5);
    for (header, reason) in [
        (version, RejectReason::CONSUMER),
        (family, RejectReason::CONSUMER),
        (from_to(them, them), RejectReason::INVALID_GID),
        (from_to(us, us), RejectReason::INVALID_GID),
    ] {
        connect(&mut world, RDMA_CM, 0);
        world.transmit();
        let packet = &mut world.network[0].bytes[PRIVATE_DATA..];
        packet[..36].copy_from_slice(header.as_bytes());
        assert_eq!(requested(&mut world), None, "{header:?}");
        assert_eq!(rejected(&mut world), Some(reason), "{header:?}");
    }
}

/// A captured request of the kernel's rdma_cm, of the program ucmatose.
#[test]
fn the_kernels_request_is_taken() {
    use pcap_file::pcap::PcapReader;
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/captures");
    let file = std::fs::File::open(root.join("cm_ucmatose_v4.pcap")).unwrap();
    let mut reader = PcapReader::new(file).unwrap();
    let frame = reader.next_raw_packet().unwrap().unwrap();
    let l3 = L3::parse(&frame.data[14..]).unwrap();
    let packet = Packet {
        from: l3.source.into(),
        to: l3.destination.into(),
        bytes: l3.transport.to_vec(),
    };
    let mut node = Node::new(7);
    node.engine.set_port(Instant(0), view(packet.to));
    node.engine
        .listen(ENDPOINT, standing(0x108), ServiceId::rdma_cm(0x1d2f));
    let peer = packet.from;
    node.batch(Instant(1), &[packet]);
    let event = node.engine.poll_event();
    let Some(ConnectionEvent::Requested {
        peer: asks,
        private_data,
        ..
    }) = event
    else {
        panic!("{event:?}");
    };
    assert_eq!(
        (asks, &private_data[..]),
        (peer, &[0; RDMA_CM_DATA_LEN][..])
    );
}

/// The program ucmatose, as a server, sends first. The peer's queue pair may not be ready before its
/// ReadyToUse.
#[test]
fn the_passive_side_may_send_once_the_peer_is_ready() {
    let mut world = World::new();
    let peer = world.nodes[1].gid;
    world.nodes[0].connect(world.now, peer).unwrap();
    world.transmit();
    world.deliver();
    world.transmit();
    let theirs = world.nodes[1].accepted[0];
    assert_eq!(world.nodes[1].post(world.now, theirs, b"early"), None);
    world.run_for(10 * MILLISECOND);
    let posted = world.nodes[1].post(world.now, theirs, b"first");
    assert_eq!(posted, Some(Posted::Done));
    world.run_for(10 * MILLISECOND);
    assert_eq!(world.nodes[0].messages, [b"first"]);
}

proptest! {
    /// With arbitrary private data, a request is reported or rejected, exactly once.
    #[test]
    fn any_private_data_is_answered(bytes in any::<[u8; 36]>(), to in any::<[u8; 4]>()) {
        let mut world = World::new();
        world.nodes[1].engine.listen(ENDPOINT, standing(0x108), RDMA_CM);
        connect(&mut world, RDMA_CM, 0);
        world.transmit();
        let packet = &mut world.network[0].bytes[PRIVATE_DATA..];
        packet[..36].copy_from_slice(&bytes);
        packet[88..92].copy_from_slice(&to);
        let reported = requested(&mut world).is_some();
        let reason = rejected(&mut world);
        prop_assert_eq!(reported, reason.is_none());
    }
}
