//! Memory of a virtual port, including maps and spare capacity, measured with the counting allocator.

use kit::allocator::Growth;
use proto::{Gid, PKey, Qpn, Time};
use vnic::Lid;
use vnic::attribute::{ConfigState, VeswPortInfo};
use vnic::packet::{self, Header16B, Profile, packet_len};
use vnic::port::{Meta, Settings, VeswPort};

fn port(limit: usize) -> VeswPort {
    let mut port = VeswPort::new(Settings {
        mac_limit: limit,
        ..Settings::default()
    });
    port.configure(&VeswPortInfo {
        vesw_id: 1,
        pkey: PKey::DEFAULT,
        u_mcast_dlid: Lid::new(0xf0_0001),
        encap_slid: Lid::new(5),
        config_state: ConfigState::Forwarding,
        ..VeswPortInfo::default()
    });
    port.set_up(true);
    port
}

/// A frame with a new address from each side.
fn hear(port: &mut VeswPort, now: Time, n: u32) {
    let [a, b, c, d] = n.to_be_bytes();
    let mut frame = [0xff; 60];
    frame[6..12].copy_from_slice(&[0x02, 1, a, b, c, d]);
    let slid = Lid::new(6 + n % 100_000);
    let header = Header16B {
        slid,
        dlid: Lid::new(0xf0_0001),
        pkey: PKey::DEFAULT,
        vesw_id: 1,
        ..Header16B::default()
    };
    let mut bytes = [0; packet_len(60)];
    let len = packet::encode(&header, &frame, Profile::Wire0, &mut bytes);
    assert_eq!(len, Ok(bytes.len()));
    let meta = Meta {
        src_gid: Gid([7; 16]),
        src_qpn: Qpn::new(n),
        multicast: true,
    };
    assert!(port.from_fabric(now, &meta, &bytes).is_ok());
    frame[7] = 2;
    port.from_tap(now, &frame);
}

/// Memory and time of an idle port, for each data thread.
#[test]
fn an_idle_replica_costs_under_four_kibibytes_and_no_time() {
    let growth = Growth::start();
    let idle = port(Settings::MAC_LIMIT);
    assert_eq!(idle.next_deadline(), None);
    let bytes = growth.bytes() + size_of::<VeswPort>();
    println!("{bytes} bytes for an idle replica");
    assert!(bytes < 4096, "{bytes} bytes");
}

/// A storm of addresses on both sides, each from another member, without readers of the updates.
#[test]
fn a_storm_stays_within_the_bounds_and_frees_most_memory() {
    let growth = Growth::start();
    let mut port = port(Settings::MAC_LIMIT);
    for n in 0..400_000 {
        hear(&mut port, Time(u64::from(n / 100)), n);
    }
    let learned = port.learned(Time(4000)).count();
    assert_eq!(learned, Settings::MAC_LIMIT + 256);
    let full = growth.bytes();
    // 64 bytes for each address, 16,384 members, 4096 updates. Removed addresses may be too scattered in
    // the index (17 bytes for each bucket) for reuse, depending on the hash key. Then the index grows once
    // more than its contents need, and not again.
    let index = (2 * Settings::MAC_LIMIT).next_power_of_two() * 17;
    let most = 64 * Settings::MAC_LIMIT + 128 * 16_384 * 2 + 4096 * 64 + index;
    println!("{full} bytes at the bounds");
    assert!(full < most, "{full} bytes");
    let mut now = Time(4000);
    while let Some(due) = port.next_deadline() {
        now = now.max(due);
        port.handle_timeout(now);
        while port.poll_event().is_some() {}
    }
    assert_eq!(port.learned(now).count() + port.nodes().count(), 0);
    let left = growth.bytes();
    println!("{left} bytes once all is forgotten");
    assert!(left < full / 10, "{left} of {full} bytes");
}
