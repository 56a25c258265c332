//! Services on InfiniBand, where some peers take connections without the flag.

use super::*;
use proto::Services;

const LINUX: ServiceId = ServiceId(0x1000_0000_0000_004b);
const OF_DEVICE: ServiceId = ServiceId(0x013f_1293);
const RFC4755: ServiceId = ServiceId(0x0100_0000_0000_004b);
const NOT_THERE: CloseReason = CloseReason::Rejected(RejectReason::INVALID_SERVICE_ID);

fn on(services: Services) -> Ipoib {
    let mut c = Ipoib::new(Config {
        services,
        ..connected().config
    });
    c.watch(true);
    c
}

/// A peer without the flag.
fn silent() -> HardwareAddress {
    address(0xb, 0x4b)
}

const BOTH: [Services; 2] = [Services::InfiniBand, Services::RdmaCmInfiniBand];

#[test]
fn only_the_service_of_the_device_is_listened_to_where_the_kernel_owns_the_others() {
    let ours = [
        ServiceId(0x1000_0000_0000_004a),
        OF_DEVICE,
        ServiceId(0x0100_0000_0000_004a),
    ];
    assert_eq!(on(Services::InfiniBand).service_ids(), ours);
    assert_eq!(on(Services::RdmaCmInfiniBand).service_ids(), [OF_DEVICE]);
}

#[test]
fn c92_peers_with_the_flag_are_asked_for_linux_s_service_first_and_the_others_for_the_device_s() {
    for services in BOTH {
        for (peer, expected) in [
            (b(), &[LINUX, OF_DEVICE, RFC4755][..]),
            (silent(), &[OF_DEVICE]),
        ] {
            let mut c = on(services);
            let mac = teach(&mut c, peer, IP_B);
            assert_eq!(way(&mut c, 0, mac), None, "a datagram");
            for (n, service) in expected.iter().enumerate() {
                let (request, asked) = asked(&mut c);
                assert_eq!(asked, *service);
                assert_eq!(way(&mut c, 0, mac), None, "a datagram");
                let connection = ConnectionId(n as u32);
                c.connecting(T0, request, Ok(connection));
                closed(&mut c, 0, connection, NOT_THERE);
            }
            assert_eq!(actions(&mut c), []);
            assert_eq!(c.counters().connections_refused, 1);
        }
    }
}

#[test]
fn a_peer_without_the_flag_that_accepts_is_sent_large_packets() {
    for services in BOTH {
        let mut c = on(services);
        let mac = teach(&mut c, silent(), IP_B);
        let large = data(mac, IP_B, 9000);
        assert_eq!(offer(&mut c, 0, &large), TooBig::Held);
        let (request, service) = asked(&mut c);
        assert_eq!(service, OF_DEVICE);
        c.connecting(T0, request, Ok(C1));
        replied(&mut c, 0, C1, &THEIRS);
        let establish = ConnectionAction::Establish { connection: C1 };
        assert_eq!(actions(&mut c), [establish]);
        assert_eq!(way(&mut c, 0, mac), Some((C1, 65520)));
        // Its next ARP, still without the flag, ends nothing.
        teach(&mut c, silent(), IP_B);
        assert_eq!(way(&mut c, 0, mac), Some((C1, 65520)));
        closed(&mut c, 0, C1, CloseReason::Disconnected);
        assert_eq!(way(&mut c, 0, mac), None);
        assert_eq!(asked(&mut c).1, OF_DEVICE);
    }
}

/// The peer may have no communication manager at all: hosts must not wait for packets that never go.
#[test]
fn c105_a_peer_without_the_flag_that_does_not_answer_is_asked_less_and_less() {
    let mut c = on(Services::RdmaCmInfiniBand);
    let mac = teach(&mut c, silent(), IP_B);
    let large = data(mac, IP_B, 9000);
    let mut now = 0;
    for minutes in [1, 2, 4, 8, 8] {
        assert_eq!(offer(&mut c, now, &large), TooBig::Held);
        begun(&mut c, now, C1);
        wait_until(&mut c, now, now + 3999);
        assert!(c.pop_released().is_none());
        wait_until(&mut c, now + 3999, now + 4000);
        now += 4000;
        assert_eq!(
            actions(&mut c),
            [ConnectionAction::Close { connection: C1 }]
        );
        let held = c.pop_released().expect("it is answered now");
        assert_eq!(held.frame.len(), large.len());
        let got = offer(&mut c, now, &large);
        assert!(matches!(got, TooBig::Answer(_)), "{got:?}");
        let again = now + minutes * MINUTE;
        wait_until(&mut c, now, again - 1);
        assert_eq!(way(&mut c, again - 1, mac), None);
        assert_eq!(actions(&mut c), []);
        now = again;
    }
    assert_eq!(c.counters().too_big_hold_full, 0);
    // It announces itself, as after a restart.
    teach(&mut c, b(), IP_B);
    assert_eq!(way(&mut c, now, mac), None);
    assert_eq!(asked(&mut c).1, LINUX);
}

#[test]
fn a_peer_whose_flag_goes_is_asked_for_the_other_service() {
    let mut c = on(Services::InfiniBand);
    let mac = up(&mut c, 0, C1);
    assert_eq!(way(&mut c, 0, mac), Some((C1, 65520)));
    teach(&mut c, silent(), IP_B);
    assert_eq!(
        actions(&mut c),
        [ConnectionAction::Close { connection: C1 }]
    );
    assert_eq!(way(&mut c, 0, mac), None);
    assert_eq!(asked(&mut c).1, OF_DEVICE);
}

#[test]
fn a_request_for_the_service_of_the_device_is_accepted_in_connected_mode_only() {
    let mut c = on(Services::RdmaCmInfiniBand);
    request_for(&mut c, 0, C1, b().gid(), &THEIRS, OF_DEVICE);
    assert_eq!(actions(&mut c), [accept(C1)]);
    c.set_mode(Mode::Datagram);
    request_for(&mut c, 0, C2, b().gid(), &THEIRS, OF_DEVICE);
    let reason = RejectReason::INVALID_SERVICE_ID;
    assert_eq!(actions(&mut c), [reject(C2, reason)]);
    // What has the flag is accepted in both, as by the kernel.
    let mut c = on(Services::InfiniBand);
    c.set_mode(Mode::Datagram);
    requested(&mut c, 0, C1, b().gid(), &THEIRS);
    assert_eq!(actions(&mut c), [accept(C1)]);
}

/// Sending on an accepted connection panics a peer's kernel: nothing that the host sends takes one.
#[test]
fn c96_nothing_is_sent_on_an_accepted_connection() {
    for services in BOTH {
        let mut c = on(services);
        let mac = teach(&mut c, b(), IP_B);
        let service = c.service_ids()[0];
        request_for(&mut c, 0, C1, b().gid(), &THEIRS, service);
        assert_eq!(actions(&mut c), [accept(C1)]);
        let peer = c.connection_peer(C1).unwrap();
        assert_eq!((peer.role, peer.mtu), (Role::Passive, None));
        assert_eq!(way(&mut c, 0, mac), None, "a datagram");
        let (request, _) = asked(&mut c);
        c.connecting(T0, request, Ok(C2));
        replied(&mut c, 0, C2, &THEIRS);
        assert_eq!(way(&mut c, 0, mac), Some((C2, 65520)));
    }
}
