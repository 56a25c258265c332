//! A VNIC joins a switch, from another switch or from none.

use super::*;

fn to_peer(source: Mac) -> Vec<u8> {
    [&PEER_MAC[..], &source, &[0x88, 0xb5], &[0x5a; 86]].concat()
}

/// Puts frames in the queue of a host's TAP.
fn queue(host: &OwnedFd, count: usize) {
    let raw = [PLAIN.as_bytes(), &to_peer(vnic_mac(0))].concat();
    for _ in 0..count {
        rustix::io::write(host, &raw).unwrap();
    }
}

/// A thread with one VNIC, whose host sent frames before the lane was added.
fn late(count: usize, reads: bool) -> Vnics {
    let mut vnics = Vnics::new(0, 1500);
    let (mut lane, host) = vnic_lane(0, 1500);
    lane.base.reads = reads;
    queue(&host, count);
    vnics.hosts.push(host);
    vnics
        .rig
        .commands
        .send(Command::AddEthernet(Box::new(lane)));
    vnics.round();
    vnics.round();
    vnics
}

#[test]
fn s14_what_was_sent_before_there_was_a_lane_is_dropped_and_counted() {
    let mut vnics = late(3, true);
    assert!(vnics.sent().is_empty());
    let snapshot = vnics.snapshot(0);
    let c = snapshot.counters;
    assert_eq!((c.tx_drop_state, c.tx_dropped, c.tx_packets), (3, 3, 3));
    assert_eq!((c.tx_bytes, c.tx_65_127), (3 * 104, 3));
    assert_eq!(snapshot.tap.tap_reads, 3);
    // Later frames are for this switch.
    vnics.send(0, &PLAIN, &to_peer(vnic_mac(0)));
    assert_eq!(
        decoded(&vnics.only_train().1[0]).frame,
        to_peer(vnic_mac(0))
    );
    assert_eq!(vnics.counters(0).tx_drop_state, 3);
}

/// The core does not learn from the frames: the sender may be elsewhere on the new switch.
#[test]
fn s14_between_two_switches_frames_are_for_neither() {
    let mut vnics = Vnics::new(1, 1500);
    let (done, _ended) = unbounded();
    vnics
        .rig
        .commands
        .send(Command::RemoveLane(vnic_id(0), done));
    vnics.round();
    let guest = [0x52, 0x54, 0, 1, 2, 3];
    let raw = [PLAIN.as_bytes(), &to_peer(guest)].concat();
    rustix::io::write(&vnics.hosts[0], &raw).unwrap();
    let (mut lane, _) = vnic_lane(0, 1500);
    let host = vnics.hosts[0].try_clone().unwrap();
    lane.base.tap = vnics.taps[0].share();
    let mut info = vnic_info(0, 1500);
    info.vesw_id = VESW + 1;
    lane.core.configure(&info);
    vnics
        .rig
        .commands
        .send(Command::AddEthernet(Box::new(lane)));
    vnics.round();
    vnics.round();
    assert!(vnics.sent().is_empty());
    assert!(vnics.snapshot(0).macs.is_empty());
    queue(&host, 1);
    vnics.round();
    let (to, packets) = vnics.only_train();
    assert_eq!(to.qkey, fabric::QKey::OWN);
    assert_eq!(decoded(&packets[0]).header.vesw_id, VESW + 1);
}

/// Another thread reads the queue, and drops the frames when its own lane is added.
#[test]
fn a_lane_that_reads_no_queue_drops_nothing() {
    let mut vnics = late(3, false);
    assert_eq!(vnics.snapshot(0).tap.tap_reads, 0);
    let waits = vnics
        .rig
        .thread
        .ethernet
        .lanes
        .get(0)
        .unwrap()
        .base
        .tap
        .share();
    let mut buffer = vec![0; 2000];
    assert!(waits.read(&mut buffer).unwrap().is_some());
}
