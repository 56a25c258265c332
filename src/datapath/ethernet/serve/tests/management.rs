//! Management datagrams between an endpoint and the control thread.

use super::*;

const MANAGEMENT: LinkId = LinkId(900);
const MANAGEMENT_ENDPOINT: EndpointId = EndpointId(901);

/// A thread with a VNIC and a management endpoint.
fn managed() -> Vnics {
    let mut vnics = Vnics::new(1, 1500);
    let add = Command::AddManagement(MANAGEMENT, MANAGEMENT_ENDPOINT, fabric::PKey::DEFAULT);
    vnics.rig.commands.send(add);
    vnics.round();
    vnics
}

/// Receives and drops the reported datagrams; returns their number.
fn taken(vnics: &Vnics) -> usize {
    let reports = vnics.rig.reports.try_iter();
    reports
        .filter(|report| matches!(report, Report::Management(..)))
        .count()
}

#[test]
fn management_datagrams_are_reported_and_sent() {
    let mut vnics = managed();
    vnics.arrive(MANAGEMENT_ENDPOINT, true, &[vec![1, 2, 3]]);
    let report = vnics.rig.reports.try_recv().unwrap();
    let Report::Management(datagram, _) = report else {
        panic!("{report:?}");
    };
    assert_eq!((datagram.at, datagram.multicast), (MANAGEMENT, true));
    assert_eq!((datagram.gid, datagram.qpn), (peer().gid, peer().qpn));
    assert_eq!(*datagram.payload, [1, 2, 3]);
    for byte in [4, 5] {
        let send = Command::SendManagement(MANAGEMENT, peer().gid, peer().qpn, Box::new([byte]));
        vnics.rig.commands.send(send);
    }
    vnics.round();
    let (to, packets) = vnics.only_train();
    assert_eq!((to.qpn, to.qkey), (peer().qpn, fabric::QKey::OWN));
    assert_eq!(packets, [[4], [5]]);
    let (done, _ended) = unbounded();
    vnics
        .rig
        .commands
        .send(Command::RemoveLane(MANAGEMENT, done));
    vnics.round();
    assert_eq!(vnics.rig.state.lock().unwrap().destroyed.len(), 1);
    vnics.arrive(MANAGEMENT_ENDPOINT, true, &[vec![1, 2, 3]]);
    assert_eq!(vnics.rig.thread.io.unserved, 1);
}

/// Any host that knows the Q_Key can send a flood. The queue is bounded, and recovers after the flood.
#[test]
fn a_flood_of_management_datagrams_is_lost_and_counted() {
    let mut vnics = managed();
    for _ in 0..20 {
        vnics.arrive(MANAGEMENT_ENDPOINT, false, &vec![vec![0; 1024]; 100]);
    }
    let kept: Vec<Report> = vnics.rig.reports.try_iter().collect();
    assert_eq!(kept.len(), 512);
    assert_eq!(vnics.rig.thread.ethernet.management.lost(), 2000 - 512);
    // The control thread still holds all reports.
    vnics.arrive(MANAGEMENT_ENDPOINT, false, &[vec![0; 1024]]);
    assert_eq!(taken(&vnics), 0);
    drop(kept);
    vnics.arrive(MANAGEMENT_ENDPOINT, false, &[vec![0; 1024]]);
    assert_eq!(taken(&vnics), 1);
    assert_eq!(vnics.rig.thread.ethernet.management.lost(), 2001 - 512);
}

/// Thousands of other reports do not displace management datagrams.
#[test]
fn other_reports_leave_room_for_management() {
    let mut vnics = managed();
    for vid in 0..4000 {
        vnics
            .rig
            .thread
            .control
            .report(Report::Vlan(vnic_id(0), vid));
    }
    vnics.arrive(MANAGEMENT_ENDPOINT, false, &vec![vec![0; 1024]; 60]);
    assert_eq!(taken(&vnics), 60);
    assert_eq!(vnics.rig.thread.ethernet.management.lost(), 0);
}
