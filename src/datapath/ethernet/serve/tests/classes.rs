//! Service classes and their traffic classes on the fabric.

use super::*;

fn tagged(to: Mac, priority: u8) -> Vec<u8> {
    let tag = [0x81, 0, priority << 5, 7];
    [&to[..], &vnic_mac(0), &tag, &[0x88, 0xb5], &[0x5a; 60]].concat()
}

impl Vnics {
    /// Sends a frame; returns the service class in its packet and the traffic class of the datagram.
    fn classes_of(&mut self, frame: &[u8]) -> (u8, u8) {
        self.send(0, &PLAIN, frame);
        let (to, packets) = self.only_train();
        let state = self.rig.state.lock().unwrap();
        let handle = state.handles[to.ah.0 as usize];
        (decoded(&packets[0]).header.sc, handle.traffic_class)
    }
}

#[test]
fn a_service_class_is_carried_with_the_priority_of_its_lower_bits() {
    let mut vnics = Vnics::new(1, 1500);
    let mut info = vnic_info(0, 1500);
    info.classes.pcp_unicast = [0, 1, 8, 13, 31, 5, 6, 7];
    info.classes.pcp_multicast = [7, 6, 5, 4, 3, 2, 1, 0];
    vnics.set(EthernetSettings {
        info: info.clone(),
        ..vnic_settings(0, 1500)
    });
    for _ in 0..2 {
        for (priority, sc) in (0..).zip(info.classes.pcp_unicast) {
            let classes = vnics.classes_of(&tagged(PEER_MAC, priority));
            assert_eq!(classes, (sc, (sc & 7) << 5), "unicast {priority}");
        }
        for (priority, sc) in (0..).zip(info.classes.pcp_multicast) {
            let classes = vnics.classes_of(&tagged([0xff; 6], priority));
            assert_eq!(classes, (sc, sc << 5), "multicast {priority}");
        }
    }
    let made = vnics.rig.state.lock().unwrap().handles.len();
    // Priorities to the peer: 0 (also class 8), 1, 5 (also 13), 6, 7 (also 31). To the group: all eight.
    assert_eq!(made, 5 + 8);
    let (done, _ended) = unbounded();
    vnics
        .rig
        .commands
        .send(Command::RemoveLane(vnic_id(0), done));
    vnics.round();
    assert_eq!(vnics.rig.state.lock().unwrap().destroyed.len(), made);
}
