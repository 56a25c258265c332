//! An underlay that loses single packets: connections repair losses that datagrams leave to TCP.

use crate::lab::{Alone, CONNECTED, CONNECTED_MTU, Host, Lab, Loss, arrives_whole, iperf_above};

use super::v4_payload;

/// Far above the speed of TCP alone with segments of 16 packets and one percent loss of packets, far below
/// the speed of any machine.
const FLOOR: f64 = 50e6;

/// Runs a test on a pair in connected mode whose underlay will lose packets.
fn with_loss(test: impl FnOnce(&Host, &Host, &Loss<'_>)) {
    let Some(lab) = Lab::segment(2) else { return };
    let mut lab = lab.run_with(&CONNECTED);
    let (hosts, switch) = lab.hosts_and_switch();
    let [a, b] = &*hosts else {
        unreachable!("two hosts");
    };
    a.connects_to(b);
    b.connects_to(a);
    test(a, b, &Loss::on(hosts, switch));
}

#[test]
fn tcp_goes_on_when_each_hundredth_packet_is_lost() {
    with_loss(|a, b, loss| {
        loss.per_mille(10);
        for options in ["-n 24M", "-n 24M -R", "-n 24M -P 4"] {
            iperf_above(a, b, &b.v4(), options, FLOOR);
        }
        assert!(loss.lost() > 100, "{} packets lost", loss.lost());
        for host in [a, b] {
            assert!(host.counter("ib0", "retransmitted") > 0);
            assert!(host.counter("ib0", "out_of_sequence") > 0);
            assert!(host.counter("ib0", "packet_seq_err") > 0);
            assert_eq!(host.counter("ib0", "retry_exceeded_err"), 0);
        }
        assert!(a.of_connections("retransmits") > 0);
    });
}

/// Each echo has 32 packets on the wire: as datagrams, a quarter of them would be lost.
#[test]
fn no_large_packet_is_lost_when_each_hundredth_of_its_parts_is() {
    let _alone = Alone::begin();
    with_loss(|a, b, loss| {
        loss.per_mille(10);
        let payload = v4_payload(CONNECTED_MTU);
        a.all_answered(200, &format!("-M do -i 0.02 -s {payload} {}", b.v4()));
        assert!(loss.lost() > 10, "{} packets lost", loss.lost());
    });
}

#[test]
fn bytes_arrive_as_they_were_sent_when_each_twentieth_packet_is_lost() {
    with_loss(|a, b, loss| {
        loss.per_mille(50);
        arrives_whole(a, b, &b.v4());
        arrives_whole(b, a, &a.v6());
        assert!(loss.lost() > 100, "{} packets lost", loss.lost());
        loss.per_mille(0);
        a.reaches(b);
    });
}
