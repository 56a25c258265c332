//! What a virtual port costs in memory, maps and spare capacity included: counted by the allocator.

use kit::allocator;
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

/// A frame of an address that nobody else has, from each side.
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

/// What a port costs that nobody talks to, in each data thread.
#[test]
fn an_idle_replica_costs_under_four_kibibytes_and_no_time() {
    let _alone = allocator::alone();
    let before = allocator::in_use();
    let idle = port(Settings::MAC_LIMIT);
    assert_eq!(idle.next_deadline(), None);
    let bytes = allocator::in_use() - before + size_of::<VeswPort>();
    println!("{bytes} bytes for an idle replica");
    assert!(bytes < 4096, "{bytes} bytes");
}

/// A storm of addresses, each from another member, on both sides, whose news nobody takes.
#[test]
fn a_storm_costs_what_the_bounds_say_and_leaves_little_behind() {
    let _alone = allocator::alone();
    let before = allocator::in_use();
    let in_use = || allocator::in_use() - before;
    let mut port = port(Settings::MAC_LIMIT);
    for n in 0..400_000 {
        hear(&mut port, Time(u64::from(n / 100)), n);
    }
    let learned = port.learned(Time(4000)).count();
    assert_eq!(learned, Settings::MAC_LIMIT + 256);
    let full = in_use();
    // 64 bytes an address, 16,384 members, 4096 updates. The index, 17 bytes a bucket, grows once more than
    // what is in it needs where the places of those that went are too scattered to be used again, which hangs
    // on the hash's key; then it has room for ever.
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
    let left = in_use();
    println!("{left} bytes once all is forgotten");
    assert!(left < full / 10, "{left} of {full} bytes");
}
