//! A Linux bridge of a VNIC and a veth: hosts behind it are hosts on the switch.

use std::time::Duration;

use super::{await_known, count, fixed, known, lid, mac_of, start_all};
use crate::lab::frame::{Mac, ethernet, mac};
use crate::lab::packet::frames;
use crate::lab::{
    Guest, Host, Lab, Pinging, SOON, Sniffer, Station, arrives_whole, eventually, iperf_above,
};

/// Both hosts have a bridge over `vnic0` with a guest behind it, 1 and 2.
fn bridged() -> Option<(Lab, [Guest; 2])> {
    let mut lab = super::pair()?;
    let (a, b) = lab.two();
    a.bridge_over("vnic0");
    b.bridge_over("vnic0");
    let guests = [Guest::attach(a, 1), Guest::attach(b, 2)];
    Some((lab, guests))
}

#[test]
fn guests_reach_each_other_and_the_hosts() {
    let Some((mut lab, [one, two])) = bridged() else {
        return;
    };
    let (a, b) = lab.two();
    one.reaches_all(&[two.v4(), two.v6(), a.v4(), b.v4(), b.v6()]);
    two.reaches_all(&[one.v4(), one.v6(), a.v4(), a.v6(), b.v4()]);
    a.reaches_all(&[two.v4(), two.v6(), b.v4()]);
    // Each is known at its place, with its own address.
    await_known(a, "vnic0", &two.mac(), lid(b, "vnic0"));
    await_known(b, "vnic0", &one.mac(), lid(a, "vnic0"));
    for (from, to, address) in [(&one, &two, two.v4()), (&two, &one, one.v6())] {
        iperf_above(from, to, &address, "-n 32M", 100e6);
    }
    arrives_whole(&one, &two, &two.v4());
    // Unlike IPoIB, the switch carries all Ethernet.
    other_protocols_pass(&one, b, mac(&two.mac()));
}

/// Frames that are not IP, of every length of Ethernet, arrive behind the other bridge.
fn other_protocols_pass(from: &Station, behind: &Host, to: Mac) {
    let heard = Sniffer::start(behind, "guest2", "ether proto 0x88b5 or ether proto 0x88cc");
    let own = mac_of(from, "eth0");
    let nearest_bridge_no_it_is_a_group = mac("01:1b:19:00:00:00");
    let sent: Vec<Vec<u8>> = (0..40)
        .map(|number: usize| {
            let (to, kind) = match number % 2 {
                0 => (to, 0x88b5),
                _ => (nearest_bridge_no_it_is_a_group, 0x88cc),
            };
            let mut frame = ethernet(to, own, kind);
            frame.resize(60 + number * 102, number as u8);
            frame
        })
        .collect();
    from.send_frames("eth0", 500, &sent);
    // Only a flow keeps its order: frames to the group and frames to one address may pass each other.
    let flows = |frames: Vec<Vec<u8>>| -> (Vec<_>, Vec<_>) {
        frames.into_iter().partition(|frame| frame[..6] == to)
    };
    let sent = flows(sent);
    eventually(SOON, "all frames, as they were", || {
        let file = std::fs::read(heard.file()).expect("a capture");
        (flows(frames(&file)) == sent).then_some(())
    });
}

#[test]
fn a_guest_that_moves_to_another_host_is_found_there() {
    let Some((mut lab, [one, two])) = bridged() else {
        return;
    };
    let (a, b) = lab.two();
    two.reaches_all(&[one.v4(), one.v6()]);
    let there = lid(b, "vnic0");
    // From behind its new bridge, and from the host that it leaves.
    let pings = [
        Pinging::start(&two, &one.v4()),
        Pinging::start(a, &one.v6()),
    ];
    one.migrate(a, b);
    one.await_carrier("eth0", true);
    one.ok(&format!("arping -A -c 1 -I eth0 {}", one.v4()));
    Pinging::all_go_on(&pings);
    for ping in pings {
        ping.stop().gap_below(Duration::from_secs(8));
    }
    await_known(a, "vnic0", &one.mac(), there);
    assert!(count(a, "mac_learned") > 0);
    iperf_above(a, &one, &one.v4(), "-n 8M", 50e6);
}

/// Addresses that are silent for the ageing time are forgotten.
#[test]
fn addresses_age() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    start_all(&mut [&mut *a, &mut *b], &fixed("vnic0", 1, "ageing = 10"));
    b.bridge_over("vnic0");
    let guest = Guest::attach(b, 2);
    a.reaches_all(&[guest.v4()]);
    await_known(a, "vnic0", &guest.mac(), lid(b, "vnic0"));
    guest.ok("ip link set eth0 down");
    eventually(SOON, "the address to be forgotten", || {
        known(a, "vnic0", &guest.mac()).is_none().then_some(())
    });
    assert!(count(a, "mac_aged") > 0);
    guest.ok("ip link set eth0 up");
    a.reaches_all(&[guest.v4()]);
}

/// Without learning, like the kernel's driver: a guest's locally administered address contains a LID that no
/// port has.
#[test]
fn without_learning_only_addresses_with_a_lid_are_reached() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    for host in [&mut *a, &mut *b] {
        host.start_config(&fixed("vnic0", 1, "learning = false"));
        host.configure("vnic0");
    }
    a.reaches(b);
    b.bridge_over("vnic0");
    let guest = Guest::attach(b, 2);
    assert!(!a.pings(&guest.v4()));
    assert!(known(a, "vnic0", &guest.mac()).is_none());
    assert_eq!(count(a, "mac_learned") + count(a, "tx_flooded"), 0);
    // The frame went to that unused LID.
    assert!(count(b, "rx_other_lid") > 0);
}
