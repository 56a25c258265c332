//! Datagram services of endpoints.

use proto::QKey;

use super::*;
use crate::cm::{DatagramService, NoService};

const DATAGRAMS: ServiceId = ServiceId::rdma_cm_datagrams(7174);

fn standing(qpn: u32, pkey: u16) -> Partition {
    Partition {
        qpn: Qpn::new(qpn),
        qkey: QKey::new(0x0123_4567),
        ..PKey::new(pkey).into()
    }
}

/// The first node requests a service from the second.
fn ask(world: &mut World, service: ServiceId) -> Result<DatagramService, NoService> {
    let peer = world.nodes[1].gid;
    let engine = &mut world.nodes[0].engine;
    let id = engine
        .ask_for_datagrams(world.now, PKey::DEFAULT, peer, service, b"where")
        .unwrap();
    world.run_for(Duration::from_secs(5));
    let answer = world.nodes[0].engine.poll_answer().unwrap();
    assert_eq!(answer.id, id);
    assert_eq!(world.nodes[0].engine.poll_answer(), None);
    answer.service
}

#[test]
fn an_endpoint_is_found_by_its_service() {
    let mut world = World::new();
    world.lost = 20;
    let other = ServiceId(0x0200_0000_0000_0001);
    for (service, qpn) in [(DATAGRAMS, 0x77), (other, 0x78)] {
        let endpoint = EndpointId(qpn);
        let engine = &mut world.nodes[1].engine;
        engine.listen_for_datagrams(endpoint, standing(qpn, 0xffff), service);
    }
    for (service, qpn) in [(DATAGRAMS, 0x77), (other, 0x78)] {
        let found = DatagramService {
            qpn: Qpn::new(qpn),
            qkey: QKey::new(0x0123_4567),
        };
        assert_eq!(ask(&mut world, service), Ok(found));
    }
    // A datagram service is not a service for connections, and vice versa.
    assert_eq!(ask(&mut world, SERVICE), Err(NoService::Unsupported));
    let request = ConnectRequest {
        service: other,
        peer: world.nodes[1].gid,
        to: Qpn::new(0),
        private_data: &[],
    };
    let now = world.now;
    let engine = &mut world.nodes[0].engine;
    engine
        .connect(now, ENDPOINT, PKey::DEFAULT, &request)
        .unwrap();
    world.run_for(Duration::from_secs(5));
    let reason = CloseReason::Rejected(RejectReason::INVALID_SERVICE_ID);
    assert_eq!(world.nodes[0].closed[0].1, reason);
}

#[test]
fn waiting_deleted_and_foreign_endpoints_are_not_found() {
    let mut world = World::new();
    let endpoint = EndpointId(8);
    assert_eq!(ask(&mut world, DATAGRAMS), Err(NoService::Unsupported));
    let listen = |world: &mut World, standing: Standing| {
        let engine = &mut world.nodes[1].engine;
        engine.listen_for_datagrams(endpoint, standing, DATAGRAMS);
    };
    listen(&mut world, Standing::Waiting);
    assert_eq!(ask(&mut world, DATAGRAMS), Err(NoService::Unsupported));
    listen(&mut world, standing(0x77, 0x8001).into());
    assert_eq!(ask(&mut world, DATAGRAMS), Err(NoService::Rejected));
    listen(&mut world, standing(0x77, 0xffff).into());
    assert!(ask(&mut world, DATAGRAMS).is_ok());
    world.nodes[1].engine.close_all(world.now, endpoint);
    assert_eq!(ask(&mut world, DATAGRAMS), Err(NoService::Unsupported));
}

/// The addresses in rdma_cm's header must be those of the packet.
#[test]
fn another_sender_is_rejected() {
    let mut world = World::new();
    let engine = &mut world.nodes[1].engine;
    engine.listen_for_datagrams(ENDPOINT, standing(0x77, 0xffff), DATAGRAMS);
    let peer = world.nodes[1].gid;
    let engine = &mut world.nodes[0].engine;
    engine
        .ask_for_datagrams(world.now, PKey::DEFAULT, peer, DATAGRAMS, b"")
        .unwrap();
    world.transmit();
    // The last byte of the source address.
    world.network[0].bytes[HEAD + size_of::<Header>() + 16 + 19] ^= 1;
    world.run_for(MILLISECOND);
    let answer = world.nodes[0].engine.poll_answer().unwrap();
    assert_eq!(answer.service, Err(NoService::Rejected));
}

#[test]
fn queued_answers_are_bounded() {
    let mut world = World::new();
    let peer = world.nodes[1].gid;
    let mut asked = 0;
    for _ in 0..1000 {
        let engine = &mut world.nodes[0].engine;
        let begun = engine.ask_for_datagrams(world.now, PKey::DEFAULT, peer, DATAGRAMS, b"");
        asked += usize::from(begun.is_ok());
        world.run_for(MILLISECOND / 2);
    }
    assert!(asked <= 128, "{asked}");
    let engine = &mut world.nodes[0].engine;
    let answers = std::iter::from_fn(|| engine.poll_answer()).count();
    assert_eq!(answers, asked);
    let nowhere =
        engine.ask_for_datagrams(world.now, PKey::DEFAULT, Gid::UNSPECIFIED, DATAGRAMS, b"");
    assert!(matches!(nowhere, Err(ConnectError::Unreachable(_))));
}
