//! Checks of received packets, and arbitrary packets.

use super::*;

#[test]
fn queue_pair_numbers_carry_their_worker() {
    for (worker, workers) in [(0, 1), (1, 2), (2, 3), (6, 7), (15, 16)] {
        let mut engine = Engine::new(config(5, worker, workers));
        for _ in 0..1000 {
            let qpn = engine.new_qpn();
            assert_eq!((qpn.get() & 0xff) as usize % workers, worker);
            assert!(!qpn.is_reserved());
        }
    }
}

/// Each check has its reason; the ICRC is checked last.
#[test]
fn packets_are_checked_in_order() {
    let mut world = World::new();
    world.connected();
    let qpn = world.nodes[1].engine.list()[0].local_qpn.to_bytes();
    let [from, to] = [world.nodes[0].gid, world.nodes[1].gid];
    let good = {
        let mut bytes = vec![0; 12 + 8 + 4];
        bytes[0] = opcode::RC_SEND_ONLY;
        bytes[2..4].copy_from_slice(&[0xff, 0xff]);
        bytes[5..8].copy_from_slice(&qpn);
        bytes
    };
    let engine = &mut world.nodes[1].engine;
    let mut ask = |change: &dyn Fn(&mut Vec<u8>), src: Gid, dst: Gid| {
        let mut bytes = good.clone();
        change(&mut bytes);
        let path = Path {
            src,
            dst,
            src_port: 1,
        };
        let now = Instant(2_000_000_000);
        let verdict = engine.receive(now, &path, &bytes, 0, || Err(Refusal::Icrc));
        verdict.unwrap_err()
    };
    assert_eq!(ask(&|b| b.truncate(11), from, to), Refusal::Length);
    assert_eq!(ask(&|b| b.truncate(23), from, to), Refusal::Length);
    assert_eq!(ask(&|b| b[0] = 0x1f, from, to), Refusal::Opcode);
    assert_eq!(ask(&|b| b[1] = 1, from, to), Refusal::Version);
    assert_eq!(ask(&|b| b[6] ^= 1, from, to), Refusal::UnknownQpn);
    assert_eq!(ask(&|_| {}, gid(9), to), Refusal::NotPeer);
    assert_eq!(ask(&|_| {}, from, gid(9)), Refusal::NotOurGid);
    assert_eq!(ask(&|b| b[2] = 0x7f, from, to), Refusal::Icrc);
    assert_eq!(ask(&|b| b[3] = 0, from, to), Refusal::PKey);
    assert_eq!(ask(&|_| {}, from, to), Refusal::Icrc);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Arbitrary packets cause no panic, and the engine still works.
    #[test]
    fn anything_may_arrive(
        packets in prop::collection::vec(
            (any::<u8>(), any::<u8>(), any::<u32>(), prop::collection::vec(any::<u8>(), 0..300)),
            1..60,
        ),
        mads in prop::collection::vec((0x10u8..0x1b, any::<u64>(), any::<bool>()), 0..20),
    ) {
        let mut world = World::new();
        world.connected();
        let (from, to) = (world.nodes[0].gid, world.nodes[1].gid);
        let info = world.nodes[1].engine.list()[0].clone();
        for (opcode, flags, psn, rest) in packets {
            let mut bytes = vec![opcode & 0x1f, flags & 0xf0, 0xff, 0xff, 0];
            bytes.extend(info.local_qpn.to_bytes());
            bytes.extend(psn.to_be_bytes());
            bytes.extend(rest);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            world.nodes[1].batch(world.now, &[Packet { from, to, bytes }]);
        }
        for (attribute, seed, ours) in mads {
            let mut random = Random::new([seed, 0]);
            let mut mad = [0; MAD_LEN];
            for word in mad.chunks_mut(8) {
                word.copy_from_slice(&random.next().to_be_bytes());
            }
            mad[..4].copy_from_slice(&[1, 7, 2, 3]);
            mad[16..18].copy_from_slice(&[0, attribute]);
            if ours {
                let id = world.nodes[1].engine.table.iter().next().map(|c| c.cm.0);
                mad[28..32].copy_from_slice(&id.unwrap_or(1).to_be_bytes());
            }
            let engine = &mut world.nodes[1].engine;
            engine.mad(world.now, from, PKey::DEFAULT, &mad);
            world.run_for(MILLISECOND);
        }
        world.run_for(Duration::from_secs(2));
        let (ours, _) = world.connected();
        let now = world.now;
        world.nodes[0].post(now, ours, b"still here").unwrap();
        world.run_for(10 * MILLISECOND);
        prop_assert_eq!(world.nodes[1].messages.last().map(Vec::as_slice), Some(&b"still here"[..]));
    }
}
