//! MTUs follow the fabric and stay within its limits.

use super::{count, fixed, pair, start_all};
use crate::lab::packet16::VNIC_MTU;
use crate::lab::{Lab, SOON, eventually, iperf_above};

/// The largest Ethernet payload of a UD payload, with room for one tag (the packet in quad words, minus at
/// least 25 bytes around the frame).
fn vnic_mtu(payload: u64) -> u64 {
    8 * (payload / 8 - 4) + 7 - 18
}

fn full_packets_pass(lab: &mut Lab, mtu: u64) {
    let (a, b) = lab.two();
    for host in [&*a, &*b] {
        assert_eq!(host.mtu("vnic0"), mtu);
    }
    a.ok(&format!(
        "ping -c 2 -i 0.1 -W 5 -M do -s {} {}",
        mtu - 28,
        b.v4()
    ));
    iperf_above(a, b, &b.v4(), "-n 32M", 50e6);
    for host in [&*a, &*b] {
        for name in ["rx_oversize", "tx_too_big", "tx_carrier_errors"] {
            assert_eq!(count(host, name), 0, "{name}");
        }
    }
}

#[test]
fn jumbo_frames_fit_a_jumbo_underlay() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    let port = "[port.eth0]\nlink_mtu = \"exact\"\n";
    start_all(&mut [a, b], &format!("{port}{}", fixed("vnic0", 1, "")));
    // 76 bytes around a payload on an IPv6 underlay; IPoIB's four bytes are payload here.
    full_packets_pass(&mut lab, vnic_mtu(9000 - 72));
}

#[test]
fn an_ordinary_underlay_carries_whole_frames_of_what_fits() {
    let Some(mut lab) = Lab::pair_with_mtu(1500) else {
        return;
    };
    let (a, b) = lab.two();
    start_all(&mut [a, b], &fixed("vnic0", 1, ""));
    full_packets_pass(&mut lab, vnic_mtu(1500 - 72));
}

#[test]
fn the_mtu_is_the_administrators_within_the_links() {
    let Some(mut lab) = pair() else { return };
    let (a, b) = lab.two();
    for host in [&*a, &*b] {
        host.ok("ip link set vnic0 mtu 1500");
        eventually(SOON, "the daemon to follow", || {
            (host.show("vnic0")["mtu"] == 1500).then_some(())
        });
    }
    a.ok(&format!("ping -c 2 -i 0.1 -W 5 -M do -s 1472 {}", b.v4()));
    iperf_above(a, b, &b.v4(), "-n 16M", 50e6);
    // A value above the link's is corrected, or refused.
    a.run("ip link set vnic0 mtu 9000");
    eventually(SOON, "the MTU to be put right", || {
        (a.mtu("vnic0") <= VNIC_MTU).then_some(())
    });
    a.reaches(b);
}

/// An interface with a smaller MTU drops larger frames (VR05) and counts them.
#[test]
fn frames_over_the_mtu_and_a_tag_are_oversize() {
    let Some(mut lab) = pair() else { return };
    let (a, b) = lab.two();
    b.ok("ip link set vnic0 mtu 1500");
    eventually(SOON, "the daemon to follow", || {
        (b.show("vnic0")["mtu"] == 1500).then_some(())
    });
    a.run(&format!("ping -c 2 -i 0.1 -W 1 -M do -s 3000 {}", b.v4()));
    eventually(SOON, "the frames to be counted", || {
        (count(b, "rx_oversize") >= 2).then_some(())
    });
    a.ok(&format!("ping -c 2 -i 0.1 -W 5 -M do -s 1472 {}", b.v4()));
}

#[test]
fn the_mtu_follows_the_underlay() {
    let Some(mut lab) = pair() else { return };
    let (a, b) = lab.two();
    for host in [&*a, &*b] {
        host.ok("ip link set eth0 mtu 2200");
    }
    for host in [&*a, &*b] {
        eventually(SOON, "the smaller MTU", || {
            (host.mtu("vnic0") == vnic_mtu(2048)).then_some(())
        });
    }
    a.reaches(b);
    iperf_above(a, b, &b.v4(), "-n 8M", 20e6);
}
